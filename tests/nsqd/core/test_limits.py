"""How many topics and channels there may be: who is told, who is counted, and what frees a place."""

import pytest

from nsqd.core.limits import Limits, TooMany
from nsqd.core.topology import ChannelEntry, TopicEntry, restore, snapshot
from tests.nsqd.core.node import Node
from tests.nsqd.protocols.nsq.wire import ERROR, Wire, body, mpub

X = body(b"x")


@pytest.fixture
def node() -> Node:
    """With room for one topic more, and for one channel more."""
    node = Node(Limits(max_topics=2, max_channels=2))
    node.channel("a", "one")
    return node


def full(node: Node) -> Node:
    node.channel("b", "two")
    return node


@pytest.mark.parametrize(
    ("command", "name"), [(b"PUB c\n" + X, "PUB"), (mpub(b"c", b"1", b"2"), "MPUB"), (b"DPUB c 5\n" + X, "DPUB")]
)
def test_publishing_to_one_topic_too_many(node: Node, command: bytes, name: str) -> None:
    wire = Wire(full(node))
    refused = f"E_{name}_FAILED {name} failed topics exceed limit of 2".encode()
    assert wire.send(command).frames() == [(ERROR, refused)]
    assert wire.peer.closing
    assert list(node.broker.topics) == ["a", "b"]
    assert node.broker.refused == {"max_topics": 1}
    assert node.held() == 0
    node.broker.check()


def test_subscribing_to_one_topic_or_channel_too_many(node: Node) -> None:
    full(node)
    assert Wire(node).send(b"SUB c ch\n").replies() == [b"E_SUB_FAILED SUB failed topics exceed limit of 2"]
    assert Wire(node).send(b"SUB a two\n").replies() == [b"E_SUB_FAILED SUB failed channels exceed limit of 2"]
    assert node.broker.refused == {"max_topics": 1, "max_channels": 1}
    assert node.broker.registry.channel_count == 2
    node.broker.check()


@pytest.mark.parametrize("command", [b"PUB b\n" + X, mpub(b"b", b"1"), b"DPUB b 5\n" + X, b"SUB b two\n"])
def test_what_is_there_already_is_never_too_many(node: Node, command: bytes) -> None:
    assert Wire(full(node)).send(command).replies() == [b"OK"]
    assert node.broker.refused == {}


def test_the_last_place_is_given(node: Node) -> None:
    wire = Wire(node).send(b"SUB b two\nPUB b\n" + X)
    assert wire.replies() == [b"OK", b"OK"]


def test_what_is_deleted_frees_its_place(node: Node) -> None:
    full(node)
    for _ in range(5):
        node.broker.delete_topic("b")  # with its channel
        node.channel("b", "three")
        node.broker.topics["b"].delete_channel("three")
        node.channel("a", "two")
        node.broker.topics["a"].delete_channel("two")
        full(node)
    assert node.broker.refused == {}
    assert node.broker.registry.channel_count == 2
    node.broker.check()


def test_an_ephemeral_one_frees_its_place_when_it_goes(node: Node) -> None:
    for _ in range(5):
        consumer, _ = node.subscribe("e#ephemeral", "e#ephemeral")
        with pytest.raises(TooMany):
            node.channel("c", "c")
        consumer.leave(node.broker)
        assert list(node.broker.topics) == ["a"]
    assert node.broker.refused == {"max_topics": 5}
    assert node.broker.registry.channel_count == 1


def test_a_refused_channel_leaves_no_trace(node: Node) -> None:
    full(node)
    node.broker.fetch_changes()
    with pytest.raises(TooMany, match="channels exceed limit of 2"):
        node.channel("a", "two")
    with pytest.raises(TooMany, match="topics exceed limit of 2"):
        node.channel("c", "two")
    assert node.broker.fetch_changes() == []
    node.broker.check()


def test_what_was_written_down_is_restored_beyond_the_limits() -> None:
    """The limits were lowered: that is no reason to lose topics."""
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
