"""The core over a store whose reads complete later: channels wait, the node does not."""

from tests.nsqd.core.node import SECOND, Node, bodies
from tests.nsqd.core.slow_store import SlowStore


def cold_node() -> tuple[Node, SlowStore]:
    node = Node(store=SlowStore)
    assert isinstance(node.store, SlowStore)
    node.store.cold = True
    return node, node.store


def complete(node: Node, store: SlowStore) -> None:
    for topic in store.fetch():
        node.broker.read_completed(topic)
    node.turn()


def test_a_cold_read_makes_the_channel_wait_and_others_not() -> None:
    node, store = cold_node()
    node.publish("t", b"1", b"2")
    consumer, inbox = node.subscribe("t", "c", 10)
    assert inbox.take() == []
    assert node.channel("t", "c").backlog.reading
    assert len(store.wanted) == 1  # asked once, however often it is served
    node.turn()
    assert len(store.wanted) == 1
    store.cold = False
    _, other = node.subscribe("u", "c", 10)
    node.publish("u", b"x")
    assert bodies(other.take()) == [b"x"]
    complete(node, store)
    got = inbox.take()
    assert bodies(got) == [b"1", b"2"]
    assert consumer.finish(got[0].id + got[1].id) == []
    node.broker.check()


def test_a_redelivery_that_must_be_read_again() -> None:
    node, store = cold_node()
    node.publish("t", b"1")
    consumer, inbox = node.subscribe("t", "c", 1)
    complete(node, store)
    (message,) = inbox.take()
    store.cached.clear()
    consumer.requeue(message.id, 0, node.now)
    node.turn()
    assert inbox.take() == []
    assert node.channel("t", "c").depth == 1
    complete(node, store)
    (again,) = inbox.take()
    assert (again.body, again.attempts) == (b"1", 2)
    node.broker.check()


def test_commands_go_on_while_a_channel_reads_and_replies_wait() -> None:
    node, store = cold_node()
    node.publish("t", b"1")
    consumer, inbox = node.subscribe("t", "c", 1)
    node.publish("t", b"2")
    node.broker.pause(node.channel("t", "c"), True)
    complete(node, store)
    assert inbox.take() == []
    node.broker.pause(node.channel("t", "c"), False)
    node.advance(SECOND)
    complete(node, store)
    assert bodies(inbox.take()) == [b"1"]
    (promise,) = node.broker.commit()
    assert not promise.is_kept
    store.sync()
    assert promise.is_kept
    consumer.leave(node.broker)
    node.broker.check()
