"""The core over a store whose reads complete later: channels wait, the node does not."""

from tests.nsqd.core.node import Node, bodies
from tests.nsqd.core.slow_store import SlowStore


def test_a_cold_read_makes_the_channel_wait_and_others_not() -> None:
    node = Node(store=SlowStore)
    node.store.cold = True
    node.publish("t", b"1", b"2")
    consumer, inbox = node.subscribe("t", "c", 10)
    assert inbox.take() == []
    assert node.channel("t", "c").backlog.reading
    node.turn()
    assert len(node.store.wanted) == 1  # asked once, however often it is served
    node.store.cold = False
    _, other = node.subscribe("u", "c", 10)
    node.publish("u", b"x")
    assert bodies(other.take()) == [b"x"]
    for topic in node.store.fetch():
        node.broker.read_completed(topic)
    node.turn()
    got = inbox.take()
    assert bodies(got) == [b"1", b"2"]
    assert consumer.finish(got[0].id + got[1].id) == []
    node.broker.check()
