"""The ids that a log holds, of unfinished or retained messages, by the node numbers under which they were issued."""

from functools import partial

import pytest

from nsqd.core.message.id_ranges import NO_END
from nsqd.storage.log.records import decode_header
from shared.topic_config import TopicConfig
from tests.nsqd.core.node import SECOND, ids
from tests.nsqd.storage import sim_node
from tests.nsqd.storage.log.test_cleaner import is_cleaned, new_node, work_until
from tests.nsqd.storage.log.test_restore import start
from tests.nsqd.storage.sim_disk import SimDisk
from tests.nsqd.storage.sim_node import NODE, SimNode

OTHER = NODE + 1


def held(node: SimNode) -> dict[int, tuple[int, int]]:
    return {one.node: (one.first, one.end) for one in node.log.held_ids(node.broker.ids.next)}


def renumbered(node: SimNode, monkeypatch: pytest.MonkeyPatch, number: int = OTHER) -> SimNode:
    """The node after a clean stop and a start under another number."""
    node.log.close()
    monkeypatch.setattr(sim_node, "NODE", number)
    return start(node.disk.kill())


def with_six(retention: int = 0) -> SimNode:
    """A node with the messages 1, 2 and 6 in a topic, and 3 to 5 in another one, which retains for `retention` ns."""
    node = start(SimDisk())
    for topic in ("t", "u"):
        node.broker.topic(topic).channel("c")
    node.turn(lambda: node.broker.topic("u").configure(TopicConfig(retention=retention)))
    node.publish(2)
    node.publish(3, "u")
    node.publish()
    return node


def finish_all(node: SimNode, *topics: str) -> None:
    for topic in topics:
        consumer, inbox = node.subscribe(topic, "c")
        node.eager = True
        node.advance(0)
        consumer.finish(ids(inbox.take()))
        node.turn()


def test_a_new_log_holds_what_it_will_issue() -> None:
    assert held(start(SimDisk())) == {NODE: (1, NO_END)}


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


def test_what_is_retained_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    node = with_six(1000 * SECOND)
    finish_all(node, "t", "u")
    assert held(renumbered(node, monkeypatch)) == {NODE: (3, 6), OTHER: (7, NO_END)}


def test_of_corrupt_messages_the_worst_is_assumed(monkeypatch: pytest.MonkeyPatch) -> None:
    node = with_six()
    node = renumbered(node, monkeypatch)
    for name in node.disk.segments():
        node.disk.put(name, node.disk.content(name).replace(b"x", b"y"))
    assert held(node) == {NODE: (0, 7), OTHER: (7, NO_END)}


def test_cleaning_keeps_the_number(monkeypatch: pytest.MonkeyPatch) -> None:
    node, counts = new_node(SimDisk()), iter(range(200))
    work_until(node, lambda: next(counts, None) is None)
    node.log.close()
    monkeypatch.setattr(sim_node, "NODE", OTHER)
    node = new_node(node.disk.kill())
    last = node.broker.ids.next
    work_until(node, partial(is_cleaned, node))
    headers = [decode_header(node.disk.content(name)) for name in node.disk.segments()]
    assert NODE in {header.node for header in headers if header.generation}
    first, end = held(node)[NODE]
    assert 1 <= first < end <= last
