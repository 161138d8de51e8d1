"""The audit in the reactor's thread: changes by themselves, and the topic to which records are published."""

import logging
from collections.abc import Callable

import pytest

from nsqd.core.limits import Limits
from nsqd.core.registry import Change, ChangeKind
from nsqd.start.audit import NodeAudit
from shared.audit.event import Event, Outcome
from shared.audit.trail import Trail
from tests.nsqd.core.node import Node


class World:
    """A trail without its thread, and a node that publishes its records to the topic `audit`."""

    def __init__(self, limits: Limits | None = None, topic: str = "audit") -> None:
        self.node, self.trail = Node(limits), Trail("", 7, publishes=True)
        self.woken = 0
        self.audit = NodeAudit(self.trail, self.node.broker, topic, self._wake)
        self.later: list[Callable[[], None]] = []
        self.audit.publish_from(self.later.append)

    def _wake(self) -> None:
        self.woken += 1

    def note(self) -> None:
        self.audit.note(Event("http", "topic/delete", "t"))
        self.trail.write()
        for function in self.later:
            function()
        self.later.clear()
        self.node.turn()

    def depth(self) -> int:
        return self.node.broker.topics["audit"].depth if "audit" in self.node.broker.topics else 0


def test_records_become_messages_and_these_no_records() -> None:
    world = World()
    for number in range(1, 4):
        world.note()
        assert (world.depth(), world.woken) == (number, number)
    assert world.trail.figures().records == 3


def test_what_was_written_before_is_published_too() -> None:
    world = World()
    world.later.clear()
    world.trail.note(Event("process", "process/start"))
    world.trail.write()
    world.audit.publish_rest()
    world.node.turn()
    assert world.depth() == 1


def test_a_draining_node_counts_what_it_lacks(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("penstock"), "propagate", True)
    world = World()
    world.node.broker.drain(True)
    world.note()
    world.note()
    assert (world.depth(), world.trail.figures().unpublished, len(caplog.records)) == (0, 2, 1)
    world.node.broker.drain(False)
    world.note()
    assert world.depth() == 1


def test_a_topic_beyond_the_limit(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger("penstock"), "propagate", True)
    world = World(Limits(max_topics=1))
    world.node.broker.topic("other")
    world.note()
    world.note()
    assert world.trail.figures().unpublished == 2
    assert ["topics exceed limit of 1" in record.getMessage() for record in caplog.records] == [True]


def test_topics_and_channels_that_come_and_go() -> None:
    events: list[Event] = []
    world = World()
    world.audit.note = events.append
    world.audit.record_changes(
        [
            Change(ChangeKind.TOPIC_CREATED, "t"), Change(ChangeKind.CHANNEL_CREATED, "t", "c"),
            Change(ChangeKind.PAUSED, "t", "c"), Change(ChangeKind.CHANNEL_CREATED, "t", "c#ephemeral"),
            Change(ChangeKind.TOPIC_CREATED, "t#ephemeral"), Change(ChangeKind.CHANNEL_DELETED, "t", "c"),
            Change(ChangeKind.TOPIC_DELETED, "t"),
        ]
    )  # fmt: skip
    assert [(event.action, event.target, event.port, event.who) for event in events] == [
        ("topic/created", "t", "process", ""), ("channel/created", "t c", "process", ""),
        ("channel/deleted", "t c", "process", ""), ("topic/deleted", "t", "process", ""),
    ]  # fmt: skip


def test_a_refused_node() -> None:
    events: list[Event] = []
    world = World()
    world.audit.note = events.append
    world.audit.record_peer_refused("192.0.2.1")
    assert events == [Event("cluster", "connect", outcome=Outcome.REFUSED, address="192.0.2.1")]
