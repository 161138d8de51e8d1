"""--requeue-on-disconnect: what a consumer had in flight is ready again when it goes, and not after its time-outs."""

from itertools import permutations

import pytest

from nsqd.core.limits import Limits
from tests.nsqd.core.node import MS, SECOND, Node, bodies, ids

LIMITS = Limits(requeue_on_disconnect=True)


def test_by_default_it_waits_for_the_time_outs() -> None:
    node = Node()
    consumer, _ = node.subscribe("t", "c", 5)
    node.publish("t", b"1", b"2")
    consumer.leave(node.broker)
    assert (consumer.channel.depth, consumer.channel.in_flight_count) == (0, 2)
    assert [run.owner for run in consumer.channel.in_flight.runs()] == [consumer.consumer]


def test_it_is_ready_again_at_once_and_counts_as_requeued(node: Node) -> None:
    consumer, inbox = node.subscribe("t", "c", 5)
    node.publish("t", b"1", b"2")
    first = ids(inbox.take())
    other, others = node.subscribe("t", "c", 5)
    channel = consumer.channel
    consumer.leave(node.broker)
    assert (channel.depth, channel.in_flight_count, channel.requeue_count, channel.timeout_count) == (2, 0, 2, 0)
    assert channel.in_flight.runs() == []
    node.turn()
    got = others.take()
    assert [(d.body, d.attempts) for d in got] == [(b"1", 2), (b"2", 2)]
    assert ids(got) == first
    assert other.finish(first) == []
    assert node.held() == 0
    node.advance(61 * SECOND)
    assert channel.timeout_count == 0


@pytest.mark.parametrize("order", [*permutations(range(4), 2), (3,), ()])
def test_what_was_finished_before_does_not_come_again(node: Node, order: tuple[int, ...]) -> None:
    """Runs in order, half finished, and fallen apart."""
    consumer, inbox = node.subscribe("t", "c", 10)
    node.publish("t", b"0", b"1")
    node.publish("t", b"2", b"3")
    got = inbox.take()
    for index in order:
        assert consumer.finish(got[index].id) == []
    consumer.leave(node.broker)
    node.broker.check()
    _, others = node.subscribe("t", "c", 10)
    assert sorted(bodies(others.take())) == sorted(b"%d" % i for i in range(4) if i not in order)
    assert node.held() == 4 - len(order)


def test_touched_retried_and_deferred_ones(node: Node) -> None:
    consumer, inbox = node.subscribe("t", "c", 10)
    node.publish("t", *(b"%d" % i for i in range(5)))
    got = inbox.take()
    consumer.touch(got[1].id, 60 * SECOND, 600 * SECOND, node.now)
    consumer.requeue(got[2].id, 0, node.now)
    consumer.requeue(got[3].id, 500 * MS, node.now)
    node.turn()
    assert bodies(inbox.take()) == [b"2"]
    channel = consumer.channel
    consumer.leave(node.broker)
    assert (channel.depth, channel.in_flight_count, channel.deferred_count) == (4, 0, 1)
    node.broker.check()
    _, others = node.subscribe("t", "c", 10)
    assert sorted((d.body, d.attempts) for d in others.take()) == [(b"0", 2), (b"1", 2), (b"2", 3), (b"4", 2)]
    node.advance(SECOND)
    assert [(d.body, d.attempts) for d in others.take()] == [(b"3", 2)]


def test_other_consumers_keep_theirs(node: Node) -> None:
    consumer, _ = node.subscribe("t", "c", 2)
    other, others = node.subscribe("t", "c", 2)
    node.publish("t", *(b"%d" % i for i in range(4)))
    kept = others.take()
    consumer.leave(node.broker)
    assert other.in_flight == 2
    assert other.finish(ids(kept)) == []
    node.turn()
    assert len(others.take()) == 2


def test_when_the_last_of_an_ephemeral_channel_goes_its_messages_go_too(node: Node) -> None:
    consumer, _ = node.subscribe("t", "c#ephemeral", 5)
    node.publish("t", b"1", b"2")
    consumer.leave(node.broker)
    assert node.broker.topics["t"].channels == {}
    assert node.held() == 0


def test_a_paused_channel_takes_back_too(node: Node) -> None:
    consumer, _ = node.subscribe("t", "c", 5)
    other, others = node.subscribe("t", "c", 5)
    node.publish("t", b"1")
    channel = consumer.channel
    node.broker.pause(channel, True)
    others.take()
    consumer.leave(node.broker)
    other.leave(node.broker)
    node.turn()
    assert (channel.depth, channel.in_flight_count) == (1, 0)


def test_a_deleted_channel_has_nothing_to_take_back(node: Node) -> None:
    consumer, _ = node.subscribe("t", "c", 5)
    node.publish("t", b"1")
    channel = consumer.channel
    node.broker.directory.delete_channel(node.broker.topics["t"], "c")
    consumer.leave(node.broker)
    assert (channel.requeue_count, channel.depth, node.held()) == (0, 0, 0)
