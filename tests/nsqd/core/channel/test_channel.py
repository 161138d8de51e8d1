"""Topics and channels in conversation: given, when, then. What NSQ does, in virtual time.

See docs/contributing/design/nsq-protocol.md#what-a-queue-promises.
"""

import gc
import weakref

from nsqd.core.limits import Limits
from tests.cases import each
from tests.nsqd.core.node import MS, SECOND, Node, bodies, ids


def test_fifo_over_batches(node: Node) -> None:
    _, inbox = node.subscribe("t", "c", 2500)
    for i in range(0, 300, 3):
        node.publish("t", *(b"%d" % (i + k) for k in range(3)))
    assert bodies(inbox.take()) == [b"%d" % i for i in range(300)]


@each("mem_queue_size, ready, order", [(1000, 1, "12340"), (3, 1, "12304"), (3, 100, "12304")])
def test_a_requeued_message_comes_behind_a_bounded_number(mem_queue_size: int, ready: int, order: str) -> None:
    node = Node(Limits(mem_queue_size=mem_queue_size))
    consumer, inbox = node.subscribe("t", "c", 1)
    node.publish("t", *(b"%d" % i for i in range(5)))
    consumer.requeue(inbox.take()[0].id, 0, node.now)
    consumer.set_ready(ready)
    seen = b""
    for _ in range(5):
        node.turn()
        got = inbox.take()
        seen += b"".join(bodies(got))
        consumer.finish(ids(got))
    assert seen.decode() == order
    node.broker.check()


def test_messages_published_in_the_turn_of_the_deletion_do_not_harm(node: Node) -> None:
    consumer, _ = node.subscribe("t", "c", 1)
    topic = node.broker.topic("t")
    topic.publish([b"x"], 1)
    node.broker.delete_topic("t")
    topic.publish([b"y"], 1)  # by a client that still holds the topic
    consumer.leave(node.broker)
    node.turn()
    assert node.held() == 0
    assert topic.offsets.end == 0  # nothing of it is in the log


@each("is_starting", [False, True])
def test_an_ephemeral_topic_is_bounded_without_channels_and_while_it_starts(is_starting: bool) -> None:
    node = Node(Limits(mem_queue_size=3))
    node.broker.directory.ask_for_channels = is_starting
    if is_starting:
        node.channel("e#ephemeral", "other")
    node.publish("e#ephemeral", *(b"%d" % i for i in range(5)))
    node.publish("e#ephemeral", b"5")
    topic = node.broker.topic("e#ephemeral")
    assert topic.depth == 3
    _, inbox = node.subscribe("e#ephemeral", "c", 10)
    if is_starting:
        topic.start()
        node.turn()
    assert bodies(inbox.take()) == [b"0", b"1", b"2"]
    node.broker.check()


def test_deferred_publish_reaches_each_channel_once_when_due(node: Node) -> None:
    (_, a), (_, b) = node.subscribe("t", "a", 10), node.subscribe("t", "b", 10)
    node.publish_deferred("t", b"later", SECOND)
    node.publish("t", b"now")
    assert bodies(a.take()) == bodies(b.take()) == [b"now"]
    assert node.channel("t", "a").deferred_count == 1
    _, late = node.subscribe("t", "late", 10)
    node.advance(SECOND - MS)
    assert a.take() == []
    node.advance(30 * MS)
    got = a.take()
    assert bodies(got) == bodies(b.take()) == [b"later"]
    assert got[0].attempts == 1
    assert late.take() == []


@each("mem_queue_size", [0, 10])
@each("backlog", [0, 300])
def test_a_delayed_message_finished_before_the_cursor_came_by(mem_queue_size: int, backlog: int) -> None:
    """It came by the retry queue; the rest of its place in the sequence must neither stop nor mislead the cursor."""
    node = Node(Limits(mem_queue_size=mem_queue_size))
    consumer, inbox = node.subscribe("t", "c", 1)
    node.publish("t", *(b"%d" % i for i in range(backlog)))
    node.publish_deferred("t", b"later", MS)
    node.advance(60 * MS)
    node.publish("t", b"last")
    seen = []
    for _ in range(backlog + 2):
        got = inbox.take()
        seen += bodies(got)
        consumer.finish(ids(got))
        node.turn()
    assert sorted(seen) == sorted([*(b"%d" % i for i in range(backlog)), b"later", b"last"])
    assert (node.held(), node.channel("t", "c").depth) == (0, 0)
    node.channel("t", "c").empty()
    node.broker.check()


def test_a_leaver_keeps_its_messages_but_not_its_connection(node: Node) -> None:
    for name in ("c#ephemeral", "c"):
        consumer, inbox = node.subscribe("t", name, 5)
        node.publish("t", b"1", b"2")
        alive = weakref.ref(inbox)
        gc.collect()
        gc.disable()  # the daemon never collects old garbage: reference counts must do
        try:
            consumer.leave(node.broker)
            del consumer, inbox
            assert alive() is None
        finally:
            gc.enable()
        assert node.held() == (0 if name == "c#ephemeral" else 2)
    channel = node.channel("t", "c")
    assert channel.in_flight_count == 2
    node.subscribe("e#ephemeral", "c#ephemeral")[0].leave(node.broker)
    assert list(node.broker.topics) == ["t"]
    node.advance(61 * SECOND)
    assert (channel.depth, channel.in_flight.runs()) == (2, [])


def test_a_smaller_window_and_a_pause_flush(node: Node) -> None:
    consumer, inbox = node.subscribe("t", "c", 10)
    node.publish("t", b"1", b"2")
    inbox.flushes = 0
    consumer.set_ready(3)
    assert inbox.flushes == 0
    consumer.set_ready(2)
    assert inbox.flushes == 1
    node.broker.pause(consumer.channel, True)
    assert inbox.flushes == 2


@each("size, kept", [(3, b"01256"), (5, b"0123456")])
def test_a_bounded_channel_drops_the_newest_also_around_a_delayed_message(size: int, kept: bytes) -> None:
    node = Node(Limits(mem_queue_size=size))
    topic = node.broker.topic("t")
    consumer, inbox = node.subscribe("t", "c#ephemeral", 0)
    node.broker.pause(topic, True)
    node.publish("t", b"0", b"1")
    node.publish_deferred("t", b"later", MS)
    node.publish("t", b"2", b"3", b"4")
    node.broker.pause(topic, False)
    channel = node.channel("t", "c#ephemeral")
    assert (channel.depth, channel.dropped_count, node.held()) == (size, 5 - size, size + 1)
    consumer.set_ready(2)
    node.turn()
    node.publish("t", b"5", b"6", b"7", b"8")
    consumer.set_ready(100)
    node.advance(60 * MS)
    assert b"".join(sorted(bodies(inbox.take()))) == kept + b"later"
    node.broker.check()


def test_an_idle_channel_keeps_nothing_of_what_is_finished(node: Node) -> None:
    consumer, inbox = node.subscribe("t", "c", 2500)
    node.publish("t", *[b"x"] * 2000)
    consumer.finish(ids(inbox.take()))
    channel = node.channel("t", "c")
    assert (channel.backlog._extent, channel.in_flight._fresh, channel.in_flight.runs()) == (None, [], [])
