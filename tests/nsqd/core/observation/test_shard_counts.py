"""A log that a node promotes or gives back is no activity: nobody published, finished or requeued its messages then."""

from nsqd.core.observation.series import COUNTERS, NAMES, Series
from nsqd.core.observation.shard_counts import ShardCounts
from tests.nsqd.core.node import SECOND, Node, ids
from tests.nsqd.core.observation.test_series import T0, columns, last, note
from tests.nsqd.core.promoted import promote

COUNTED = NAMES[:COUNTERS]


def counted(**counts: int) -> dict[str, int]:
    return dict.fromkeys(COUNTED, 0) | counts


def of(told: dict[str, int | None]) -> dict[str, int | None]:
    return {name: told[name] for name in COUNTED}


def test_attaching_a_log_counts_as_nothing_and_what_becomes_of_its_messages_from_then_on() -> None:
    """A failover showed a peak of published messages in the channel that nobody had published."""
    node, series = Node(), Series()
    consumer, inbox = node.subscribe("t", "c", ready=4)
    note(series, node, T0 + 10)
    log = promote(node, 8, "t", "c", *[b"theirs"] * 4)
    note(series, node, T0 + 20)
    told = last(series.hour_of(consumer.channel))
    assert (of(told), told["in_flight"]) == (counted(), 4)
    assert last(series.hour_of(node.broker.topics["t"])) == told
    taken = inbox.take()
    consumer.set_ready(0)
    consumer.finish(ids(taken[:1]))
    consumer.requeue(taken[1].id, 5 * SECOND, node.now)
    node.turn()
    note(series, node, T0 + 30)
    assert of(last(series.hour_of(consumer.channel))) == counted(finished=1, requeued=1)
    node.publish("t", b"own")
    log.detach()
    note(series, node, T0 + 40)
    told = last(series.hour_of(consumer.channel))
    assert (of(told), told["depth"], told["in_flight"]) == (counted(published=1), 1, 0)
    consumer.set_ready(1)
    node.turn()
    consumer.finish(ids(inbox.take()))
    note(series, node, T0 + 50)
    assert of(last(series.hour_of(consumer.channel))) == counted(finished=1)
    assert columns(series.hour_of(consumer.channel))["finished"] == [None, 0, 1, 0, 1]


def test_messages_that_come_and_go_with_logs_are_told_and_a_deleted_channel_is_forgotten() -> None:
    node, counts, series = Node(), ShardCounts(), Series()
    channel = node.channel("t", "c")
    node.publish("t", b"own")
    assert counts.look_at(channel) == ((1, 0, 0, 0), 0)
    log = promote(node, 8, "t", "c", b"a", b"b")
    other = promote(node, 9, "t", "c", b"c")
    assert counts.look_at(channel) == ((1, 0, 0, 0), 3)
    assert counts.look_at(channel).attached == 0
    assert repr(counts) == "<ShardCounts of 2 shards>"
    log.detach()
    assert counts.look_at(channel) == ((1, 0, 0, 0), -2)
    note(series, node, T0 + 10)
    assert len(series._sharded) == 1
    other.detach()
    assert counts.look_at(channel) == ((1, 0, 0, 0), -1)
    node.broker.topics["t"].delete_channel("c")
    node.turn()
    note(series, node, T0 + 20)
    assert series._sharded == {}
