"""The limits of topics and channels: errors, counts, and what frees a place."""

import pytest

from nsqd.core.limits import Limits, TooMany
from nsqd.core.topology import ChannelEntry, TopicEntry, restore, snapshot
from tests.nsqd.core.node import Node


def test_a_refused_channel_leaves_no_trace_and_what_was_written_down_is_restored_beyond_the_limits() -> None:
    node = Node(Limits(max_topics=2, max_channels=2))
    node.channel("a", "one")
    node.channel("b", "two")
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
