"""The limits of topics and channels: errors, counts, and what frees a place."""

import pytest

from nsqd.core.limits import Limits, TooMany
from nsqd.core.topology import ChannelEntry, TopicEntry, restore, snapshot
from tests.nsqd.core.node import Node
from tests.nsqd.protocols.nsq.wire import ERROR, Wire, body, mpub

X = body(b"x")


def a_node() -> Node:
    """With room for one topic more, and for one channel more."""
    node = Node(Limits(max_topics=2, max_channels=2))
    node.channel("a", "one")
    return node


def full(node: Node) -> Node:
    node.channel("b", "two")
    return node


def test_one_topic_or_channel_too_many() -> None:
    node = full(a_node())
    for command, name in (
        (b"PUB c\n" + X, b"PUB"), (mpub(b"c", b"1", b"2"), b"MPUB"), (b"DPUB c 5\n" + X, b"DPUB"),
        (b"SUB c ch\n", b"SUB"),
    ):  # fmt: skip
        wire = Wire(node)
        assert wire.send(command).frames() == [
            (ERROR, b"E_%s_FAILED %s failed topics exceed limit of 2" % (name, name))
        ]
        assert wire.peer.closing
    assert Wire(node).send(b"SUB a two\n").replies() == [b"E_SUB_FAILED SUB failed channels exceed limit of 2"]
    assert list(node.broker.topics) == ["a", "b"]
    assert node.broker.refused == {"max_topics": 4, "max_channels": 1}
    assert (node.broker.registry.channel_count, node.held()) == (2, 0)
    node.broker.check()


def test_a_refused_channel_leaves_no_trace_and_what_was_written_down_is_restored_beyond_the_limits() -> None:
    node = full(a_node())
    node.broker.fetch_changes()
    with pytest.raises(TooMany, match="channels exceed limit of 2"):
        node.channel("a", "two")
    with pytest.raises(TooMany, match="topics exceed limit of 2"):
        node.channel("c", "two")
    assert node.broker.fetch_changes() == []
    node.broker.check()
    saved = [TopicEntry(f"t{i}", False, (ChannelEntry("a", False), ChannelEntry("b", True))) for i in range(5)]
    node = Node(Limits(max_topics=2, max_channels=2))
    restore(node.broker, saved)
    assert snapshot(node.broker) == saved
    assert node.broker.registry.channel_count == 10
    assert node.broker.refused == {}
    with pytest.raises(TooMany):
        node.broker.topic("new")
    with pytest.raises(TooMany):
        node.channel("t0", "new")
    assert node.broker.limits == Limits(max_topics=2, max_channels=2)
    node.broker.check()
