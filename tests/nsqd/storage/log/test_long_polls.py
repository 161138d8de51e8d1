"""Readers that wait for more: called once, when it is durable, and not kept indefinitely."""

import pytest

from nsqd.storage.log.long_polls import LongPoll, LongPolls
from shared.topic_config import Durability, TopicConfig
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
    """Return a list of the topic's ends for readers, with one entry for each call of `ready`."""
    number, history, called = node.broker.topics["t"].number, node.log.history(), list[int]()
    history.await_messages(
        number, end, node.clock.now + seconds * SECOND, lambda: called.append(history.window(number).next)
    )
    return called


def test_it_is_called_once_when_so_much_is_durable(node: SimNode) -> None:
    called = watch(node, 3)
    node.publish(2)
    work(node)
    assert called == []
    node.publish(1)
    node.turn()  # it asks for a sync, because in this mode nothing else does
    assert called == []
    work(node)
    assert called == [3]
    node.publish(1)
    node.turn()
    assert called == [3]


def test_it_is_called_when_the_topic_goes(node: SimNode) -> None:
    called = watch(node, 3)
    node.turn(lambda: node.broker.delete_topic("t"))
    node.turn()
    assert len(called) == 1
    assert not node.store.retention.long_polls.waiting


def test_all_waiting_ends_when_the_node_stops() -> None:
    polls = LongPolls()
    calls: list[int] = []
    polls.add(LongPoll(1, 5, 10, lambda: calls.append(1)))
    polls.end()
    polls.add(LongPoll(1, 5, 10, lambda: calls.append(2)))
    polls.wake_ready(100, lambda topic, end: True)
    assert (calls, polls.waiting) == ([1, 2], [])
