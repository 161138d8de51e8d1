"""The sums of a topic and a channel over several logs, wherever they are reported. A log that comes or goes is no activity."""

import json

import pytest
import trio

from nsqd.core.limits import Limits
from nsqd.core.observation.series import COUNTERS, NAMES, Series
from nsqd.core.observation.sums import channel_sums, is_paused, oldest_of_channel, topic_depth
from nsqd.core.timing.deferred import Message
from nsqd.http.overview import OverviewRows
from nsqd.http.pauses import _walk as walk_pauses
from nsqd.http.stats import Stats
from nsqd.http.stats_client import _rdy, _total
from nsqd.tasks.deliveries import Deliveries
from tests.nsqd.core.client import Client
from tests.nsqd.core.node import SECOND, Node, ids
from tests.nsqd.core.observation.test_series import T0, columns, last, note
from tests.nsqd.core.promoted import PromotedLog, promote
from tests.nsqd.http.asking import http_node


@pytest.fixture
def client(node: Node) -> Client:
    """A client of two logs with messages in all states: 2 ready, 5 in flight, 2 deferred, 1 buried, 1 finished."""
    consumer, inbox = node.subscribe("t", "c", ready=8)
    node.publish("t", b"own1", b"own2", b"own3")
    log = promote(node, 8, "t", "c", *[b"%d" % i for i in range(5)])
    own, shard = inbox.take()[:3], node.channel("t", "c").shards[1]
    came = shard.in_flight.runs()
    consumer.finish(own[0].id)
    consumer.requeue(own[1].id, 5 * SECOND, node.now)
    shard_ids = [one for run in came for one in run.members(9)]
    consumer.requeue(shard_ids[0], 5 * SECOND, node.now)
    consumer.set_ready(0)
    node.publish("t", b"own4")
    log.publish("t", b"5")
    shard.bury(b"0" * 16, Message(99, 1), "")  # no such message: counted anyway
    node.turn()
    return consumer


def test_the_sums_of_a_channel_also_in_stats(node: Node, client: Client) -> None:
    sums = channel_sums(node.channel("t", "c"))
    assert (sums.depth, sums.in_flight, sums.deferred, sums.buried) == (2, 5, 2, 1)
    assert (sums.messages, sums.requeued, sums.timed_out, sums.dropped, sums.paused) == (10, 2, 0, 0, False)
    assert sums.unfinished == 10
    totals = [_total(client.consumer, name) for name in ("in_flight", "message_count")]
    assert (_rdy(client.consumer), totals) == (0, [5, 8])
    assert (_rdy(None), _total(None, "in_flight")) == (0, 0)
    answer = Stats(http_node(node.broker)).answer_in_turn("t", "", False, False)
    (topic,) = json.loads(answer)["topics"]
    (channel,) = topic["channels"]
    wanted = {"depth": 2, "in_flight_count": 5, "deferred_count": 2, "buried_count": 1, "message_count": 10}
    assert (wanted | {"requeue_count": 2, "paused": False}).items() <= channel.items()


def test_pauses_and_the_oldest_message_of_all_logs_are_reported(node: Node) -> None:
    log = PromotedLog(node, 8)
    log.channels("t", "c")
    log.publish("t", b"a")
    topic, channel = log.broker.topics["t"], log.broker.topics["t"].channels["c"]
    log.broker.pause(topic, True, by="ann")
    log.broker.pause(channel, True, by="bob")
    node.now += SECOND
    node.channel("t", "c")
    node.publish("t", b"own")
    own = oldest_of_channel(node.channel("t", "c"))
    log.attach()
    assert oldest_of_channel(node.channel("t", "c")) == own - SECOND
    assert is_paused(node.broker.topics["t"])
    assert channel_sums(node.channel("t", "c")).paused
    found = [one for one in walk_pauses(node.broker) if one is not None]
    assert [(key, pause.by) for key, pause in found] == [(("t", ""), "ann"), (("t", "c"), "bob")]
    overview = OverviewRows()
    overview.add(node.broker.topics["t"])
    assert overview.paused == ["t", "t/c"]
    waiting = PromotedLog(node, 9)
    waiting.publish("u", b"a")
    waiting.attach()
    assert topic_depth(node.broker.topics["u"]) == 1


def test_latencies_and_outcomes_of_all_logs_are_summed() -> None:
    node = Node(Limits(latency_percentiles=(0.5,), measures=True))
    consumer, inbox = node.subscribe("t", "c", ready=9)
    node.publish("t", b"own")
    promote(node, 8, "t", "c", b"a", b"b")
    consumer.finish(ids(inbox.take()))
    channel = node.channel("t", "c")
    assert channel.latency.result(node.now)["count"] == 3
    assert node.broker.context.latencies.count == 3
    task = Deliveries(node.broker, "statistics", 7, lambda: None)
    records = [json.loads(one) for one in trio.run(task.collect, T0)]
    (outcome,) = [one for one in records if "channel" in one]
    assert outcome["finished"] == 3
    assert sum(outcome["latency"]["buckets"].values()) == 3


def counted(**counts: int) -> dict[str, int]:
    return dict.fromkeys(NAMES[:COUNTERS], 0) | counts


def counts_of(values: dict[str, int | None]) -> dict[str, int | None]:
    return {name: values[name] for name in NAMES[:COUNTERS]}


def test_attaching_a_log_counts_as_nothing_and_what_becomes_of_its_messages_from_then_on() -> None:
    node, series = Node(), Series()
    consumer, inbox = node.subscribe("t", "c", ready=4)
    note(series, node, T0 + 10)
    log = promote(node, 8, "t", "c", *[b"theirs"] * 4)
    note(series, node, T0 + 20)
    values = last(series.hour_of(consumer.channel))
    assert (counts_of(values), values["in_flight"]) == (counted(), 4)
    assert last(series.hour_of(node.broker.topics["t"])) == values
    taken = inbox.take()
    consumer.set_ready(0)
    consumer.finish(ids(taken[:1]))
    consumer.requeue(taken[1].id, 5 * SECOND, node.now)
    node.turn()
    note(series, node, T0 + 30)
    assert counts_of(last(series.hour_of(consumer.channel))) == counted(finished=1, requeued=1)
    node.publish("t", b"own")
    log.detach()
    note(series, node, T0 + 40)
    values = last(series.hour_of(consumer.channel))
    assert (counts_of(values), values["depth"], values["in_flight"]) == (counted(published=1), 1, 0)
    consumer.set_ready(1)
    node.turn()
    consumer.finish(ids(inbox.take()))
    note(series, node, T0 + 50)
    assert counts_of(last(series.hour_of(consumer.channel))) == counted(finished=1)
    assert columns(series.hour_of(consumer.channel))["finished"] == [None, 0, 1, 0, 1]
