"""A node that was paused holds its deliveries until the others have been heard."""

from types import SimpleNamespace
from typing import Any

from nsqd.cluster.ownership.paused import SETTLED, PausedDeliveries
from tests.nsqd.core.node import MS, SECOND, Inbox, Node
from tests.nsqd.protocols.beanstalk.wire import Wire

AFTER = 5 * SECOND


class Frozen:
    """A node with two others, and a consumer for a message that is deferred for 10 s."""

    def __init__(self) -> None:
        self.node = Node()
        self.links = {number: SimpleNamespace(received_at=self.node.now) for number in (1, 2)}
        members = [SimpleNamespace(number=number) for number in (0, 1, 2)]
        cluster: Any = SimpleNamespace(links=self.links, membership=SimpleNamespace(members=members))
        self.standstill = PausedDeliveries(cluster, self.node.broker, AFTER)
        self.inbox: Inbox
        _, self.inbox = self.node.subscribe("t", "c", 10)
        self.node.publish_deferred("t", b"x", 10 * SECOND)
        self.tick()

    def tick(self) -> None:
        self.node.turn()
        self.standstill.tick(self.node.now)
        self.node.turn()

    def stand_still(self, ns: int = 18 * SECOND) -> None:
        self.node.now += ns
        self.tick()

    def resume(self, ns: int) -> None:
        for _ in range(ns // (250 * MS)):
            self.node.now += 250 * MS
            self.tick()

    def receive_from(self, *numbers: int) -> None:
        for number in numbers:
            self.links[number] = SimpleNamespace(received_at=self.node.now)


def test_deliveries_after_a_pause_are_held_until_a_contact_with_all_nodes() -> None:
    one = Frozen()
    one.stand_still()
    one.receive_from(1, 2)  # what had waited in their connections
    one.resume(SETTLED)
    assert one.inbox.frames == []
    one.receive_from(1)
    one.resume(SECOND)
    assert one.inbox.frames == []
    one.receive_from(2)
    one.resume(250 * MS)
    assert len(one.inbox.frames) == 1
    assert not one.node.broker.agenda.is_held


def test_a_tick_that_comes_before_the_first_turn_notices_the_pause() -> None:
    one = Frozen()
    one.standstill.tick(one.node.now + 18 * SECOND)
    assert one.node.broker.agenda.stood_still_at == one.node.now + 18 * SECOND


def test_who_is_gone_is_waited_for_no_longer_than_for_a_silent_node() -> None:
    one = Frozen()
    one.stand_still()
    del one.links[2]
    one.resume(AFTER - 250 * MS)
    one.receive_from(1)
    assert one.inbox.frames == []
    one.resume(500 * MS)
    assert len(one.inbox.frames) == 1


def test_no_node_is_waited_for_after_a_short_pause_or_alone() -> None:
    one = Frozen()
    one.node.now += 9 * SECOND
    one.node.broker.agenda.longest_gap = 9 * SECOND
    one.tick()
    one.resume(1250 * MS)
    assert len(one.inbox.frames) == 1
    alone = Frozen()
    alone.links.clear()
    alone.tick()
    alone.stand_still()
    assert len(alone.inbox.frames) == 1


def test_jobs_are_held_too_and_a_node_that_leaves_goes_on_to_hold_them() -> None:
    one = Frozen()
    wire = Wire(one.node)
    wire.send(b"put 0 0 60 1\r\nx\r\n")
    wire.said()
    one.stand_still()
    wire.send(b"reserve-with-timeout 0\r\n")
    assert wire.said() == b"TIMED_OUT\r\n"
    wire.send(b"reserve\r\n")
    assert wire.said() == b""
    assert one.node.broker.drain(False) is False
    one.resume(AFTER)
    one.node.turn()
    assert wire.said().startswith(b"RESERVED 2 1\r\n")
    one.node.broker.agenda.is_held = True
    one.stand_still()
    one.resume(2 * AFTER)
    assert one.node.broker.agenda.is_held
