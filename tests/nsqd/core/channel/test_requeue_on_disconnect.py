"""--requeue-on-disconnect: the messages in flight at a consumer are ready again when it leaves, not after their timeouts."""

from nsqd.core.limits import Limits
from tests.nsqd.core.node import MS, SECOND, Node, bodies, ids

LIMITS = Limits(requeue_on_disconnect=True)


def test_messages_are_ready_at_once_and_count_as_requeued_and_other_consumers_keep_their_own(node: Node) -> None:
    consumer, inbox = node.subscribe("t", "c", 2)
    node.publish("t", b"1", b"2", b"3")
    first = ids(inbox.take())
    other, others = node.subscribe("t", "c", 3)
    kept = ids(others.take())
    channel = consumer.channel
    consumer.leave(node.broker)
    assert (channel.depth, channel.in_flight_count, channel.requeue_count, channel.timeout_count) == (2, 1, 2, 0)
    assert [run.owner for run in channel.in_flight.runs()] == [other.consumer]
    node.turn()
    got = others.take()
    assert [(d.body, d.attempts) for d in got] == [(b"1", 2), (b"2", 2)]
    assert ids(got) == first
    assert other.finish(first + kept) == []
    assert node.held() == 0
    node.advance(61 * SECOND)
    assert channel.timeout_count == 0


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


def test_of_a_paused_a_deleted_and_an_ephemeral_channel(node: Node) -> None:
    for name, left in (("paused", 2), ("deleted", 0), ("c#ephemeral", 0)):
        consumer, _ = node.subscribe(name, name, 5)
        node.publish(name, b"1", b"2")
        channel, topic = consumer.channel, node.broker.topics[name]
        if name == "paused":
            node.broker.pause(channel, True)
        elif name == "deleted":
            node.broker.directory.delete_channel(topic, name)
        consumer.leave(node.broker)
        node.turn()
        assert (channel.depth, channel.in_flight_count, channel.requeue_count) == (
            left,
            0,
            0 if name == "deleted" else 2,
        )
        assert (list(topic.channels), node.held()) == ([name] if left else [], 2)
