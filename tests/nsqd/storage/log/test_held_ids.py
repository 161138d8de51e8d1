"""The ids that a log holds, of unfinished or retained messages, by the node numbers under which they were issued."""

import pytest

from nsqd.core.message.id_ranges import NO_END
from tests.nsqd.core.node import ids
from tests.nsqd.storage import sim_node
from tests.nsqd.storage.log.test_restore import start
from tests.nsqd.storage.sim_disk import SimDisk
from tests.nsqd.storage.sim_node import NODE, SimNode

OTHER = NODE + 1


def held(node: SimNode) -> dict[int, tuple[int, int]]:
    return {one.node: (one.first, one.end) for one in node.log.held_ids(node.broker.ids.next)}


def renumbered(node: SimNode, monkeypatch: pytest.MonkeyPatch) -> SimNode:
    """The node after a clean stop and a start under another number."""
    node.log.close()
    monkeypatch.setattr(sim_node, "NODE", OTHER)
    return start(node.disk.kill())


def with_six() -> SimNode:
    """A node with the messages 1, 2 and 6 in a topic, and 3 to 5 in another one."""
    node = start(SimDisk())
    for topic in ("t", "u"):
        node.broker.topic(topic).channel("c")
    node.publish(2)
    node.publish(3, "u")
    node.publish()
    return node


def finish_all(node: SimNode, topic: str) -> None:
    consumer, inbox = node.subscribe(topic, "c")
    node.eager = True
    node.advance(0)
    consumer.finish(ids(inbox.take()))
    node.turn()


def test_ids_that_were_issued_under_another_number_are_held_until_they_are_finished(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = with_six()
    assert held(node) == {NODE: (1, NO_END)}
    node = renumbered(node, monkeypatch)
    assert held(node) == {NODE: (1, 7), OTHER: (7, NO_END)}
    node.publish(3)
    assert held(node) == {NODE: (1, 7), OTHER: (7, NO_END)}
    finish_all(node, "t")
    assert held(node) == {NODE: (3, 6), OTHER: (10, NO_END)}
    node = renumbered(node, monkeypatch)
    assert held(node) == {NODE: (3, 6), OTHER: (10, NO_END)}
    finish_all(node, "u")
    assert held(node) == {OTHER: (10, NO_END)}


def test_of_corrupt_messages_the_worst_is_assumed(monkeypatch: pytest.MonkeyPatch) -> None:
    node = with_six()
    node = renumbered(node, monkeypatch)
    for name in node.disk.segments():
        node.disk.put(name, node.disk.content(name).replace(b"x", b"y"))
    assert held(node) == {NODE: (0, 7), OTHER: (7, NO_END)}
