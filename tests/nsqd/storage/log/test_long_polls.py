"""Readers that wait for more: told once, when it is durable, and not kept indefinitely."""

import pytest

from nsqd.core.retention.policy import Durability, TopicConfig
from nsqd.storage.log.long_polls import LongPoll, LongPolls
from tests.nsqd.core.node import SECOND
from tests.nsqd.storage.sim_node import SimNode


@pytest.fixture
def node() -> SimNode:
    node = SimNode(durability=Durability.OS, segment_size=10_000)
    node.turn(lambda: node.broker.topic("t").configure(TopicConfig(retention=3600 * SECOND)))
    return node


def work(node: SimNode) -> None:
    for _ in range(3):
        node.syncer.step()
        node.turn()


def watch(node: SimNode, end: int, seconds: int = 60) -> list[int]:
    """Where the topic ends for readers, each time that the watch is told."""
    number, history, told = node.broker.topics["t"].number, node.log.history(), list[int]()
    history.await_messages(
        number, end, node.clock.now + seconds * SECOND, lambda: told.append(history.window(number).next)
    )
    return told


def test_it_is_told_once_when_so_much_is_durable(node: SimNode) -> None:
    told = watch(node, 3)
    node.publish(2)
    work(node)
    assert told == []
    node.publish(1)
    node.turn()  # it asks for a sync, for in this mode nobody else does
    assert told == []
    work(node)
    assert told == [3]
    node.publish(1)
    node.turn()
    assert told == [3]


@pytest.mark.parametrize("durability", [Durability.ALWAYS, Durability.INTERVAL])
def test_a_lone_message_is_told_though_no_turn_follows(node: SimNode, durability: Durability) -> None:
    node.turn(lambda: node.broker.topics["t"].configure(TopicConfig(durability, retention=3600 * SECOND)))
    told = watch(node, 1)
    node.publish(1)
    while node.syncer.job is not None:
        node.syncer.step()
        if node.syncer.job is None:  # the sync is done, and wakes the reactor
            node.turn()
    assert told == [1]


def test_it_is_told_when_its_time_is_over(node: SimNode) -> None:
    told = watch(node, 3, seconds=5)
    node.advance(4 * SECOND)
    node.turn()
    assert told == []
    node.advance(2 * SECOND)
    node.turn()
    assert told == [0]


def test_it_is_told_when_the_topic_goes(node: SimNode) -> None:
    told = watch(node, 3)
    node.turn(lambda: node.broker.delete_topic("t"))
    node.turn()
    assert len(told) == 1
    assert not node.store.retention.long_polls.waiting


def test_nobody_waits_when_the_node_stops() -> None:
    polls = LongPolls()
    called: list[int] = []
    polls.add(LongPoll(1, 5, 10, lambda: called.append(1)))
    polls.end()
    polls.add(LongPoll(1, 5, 10, lambda: called.append(2)))
    polls.wake_ready(100, lambda topic, end: True)
    assert (called, polls.waiting) == ([1, 2], [])
