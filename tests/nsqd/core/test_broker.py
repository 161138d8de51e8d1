"""When a node takes messages for a topic: the one rule of all protocols."""

import pytest

from nsqd.core.broker import DRAINING
from nsqd.core.limits import NotTaken, TooFewCopies
from shared.topic_config import TopicConfig
from tests.nsqd.core.node import Node


def test_while_the_node_takes_nothing_no_topic_is_made_and_existing_ones_are_shut() -> None:
    node = Node()
    topic = node.broker.topic("t")
    node.broker.drain(True)
    for name in ("t", "new"):
        with pytest.raises(NotTaken, match=DRAINING):
            node.broker.admit(name)
    assert (topic.shut, "new" in node.broker.topics) == (True, False)
    node.broker.drain(False)
    assert (node.broker.admit("t"), topic.shut) == (topic, False)


def test_a_topic_with_a_limit_has_room_until_that_is_reached_or_the_node_takes_nothing() -> None:
    node = Node()
    topic = node.broker.topic("t")
    topic.configure(TopicConfig(max_length=2))
    node.channel("t", "c")
    found = []
    for _ in range(3):
        found.append(topic.has_room())
        topic.publish([b"x"], 1)
    assert (topic.shut, found) == (True, [True, True, False])
    topic.configure(TopicConfig(max_length=9))
    assert topic.has_room()
    for is_drained in (True, False):
        node.broker.drain(is_drained)
        assert topic.has_room() is not is_drained
    topic.configure(TopicConfig(max_length=9, replicate=2))
    assert not topic.has_room()
    topic.configure(TopicConfig(max_length=9))
    node.broker.directory.delete("t")
    assert not topic.has_room()


def test_a_topic_that_lacks_copies_is_refused_and_counted() -> None:
    node = Node()
    topic = node.broker.topic("t")
    topic.configure(TopicConfig(replicate=2))
    with pytest.raises(TooFewCopies, match="2 copies are asked for, and 1 are possible now"):
        node.broker.admit("t")
    assert (topic.shut, node.broker.refused["no_copies"]) == (True, 1)
    node.broker.set_copies(2)
    assert node.broker.admit("t") is topic
