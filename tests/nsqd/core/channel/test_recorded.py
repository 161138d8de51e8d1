"""A channel records each verb in its journal: a channel on its leaves, without topic, broker or store."""

from collections.abc import Iterable

import pytest

from nsqd.core.channel import actions, commands
from nsqd.core.channel.actions import ChosenMessage
from nsqd.core.channel.channel import Channel
from nsqd.core.channel.state import restore_message
from nsqd.core.limits import Limits
from nsqd.core.message.frame import encode_one
from nsqd.core.reader import DistributedBatch, Parts, ReaderSettings
from nsqd.core.sequence.extent import Extent
from nsqd.core.sequence.offsets import TopicOffsets
from nsqd.core.timing.agenda import Agenda
from nsqd.core.timing.deferred import Message
from tests.cases import each
from tests.nsqd.core.node import Inbox

NOW, WALL, TIMEOUT = 1000, 5_000_000, 100


class Journal:
    """A journal that remembers every verb that the channel calls."""

    def __init__(self) -> None:
        self.all: list[tuple[object, ...]] = []

    def __getattr__(self, verb: str):  # type: ignore[no-untyped-def]
        return lambda *args: self.all.append((verb, *args))

    def take(self) -> list[tuple[object, ...]]:
        """Return the records since the last call."""
        taken, self.all = self.all, []
        return taken


class Shelf:
    """A sequence of messages that is one growing extent."""

    def __init__(self) -> None:
        self.extent = Extent(0, False)
        self.extent.largest = 100

    def read(self, ordinal: int) -> Extent:
        return self.extent

    def extents(self, first: int, end: int) -> list[tuple[int, int, bool]]:
        return [(first, end, False)] if first < end else []


class Nobody:
    """A topic in whose delay queue nothing waits."""

    def hand_over(self, ordinals: Iterable[int]) -> None:
        pass


class World:
    """A channel with one consumer, its journal and its extent."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.offsets, self.agenda, self.journal, self.shelf = TopicOffsets(1), Agenda(), Journal(), Shelf()
        self.agenda.now, self.agenda.wall = NOW, WALL
        parts = Parts(
            "t",
            7,
            self.offsets,
            self.shelf,
            self.journal,
            self.agenda,
            limits or Limits(),
            ReaderSettings(),
            lambda below: 99,
        )
        self.channel = Channel("c", parts, None, None)
        self.inbox = Inbox()
        self.consumer = self.channel.subscribe(self.inbox, TIMEOUT, 0)

    def put(self, count: int) -> None:
        offsets, extent = self.offsets, self.shelf.extent
        first = offsets.end
        for ordinal in range(first, first + count):
            extent.frames.append(encode_one(b"x", name(ordinal), 0))
            extent.ids += name(ordinal)
        offsets.end = offsets.distributed = first + count
        offsets.ordinary += count
        self.channel.extend(DistributedBatch(first, offsets.end, count, 0, None))

    def serve(self) -> list[bytes]:
        """Ids of what is delivered while the channel is awake."""
        while self.agenda.awake:
            self.agenda.serve()
        self.channel.check()
        return [one.id for one in self.inbox.take()]


def name(ordinal: int) -> bytes:
    return b"%016d" % ordinal


@pytest.fixture
def world() -> World:
    world = World()
    world.put(5)
    commands.set_ready(world.channel, world.consumer, 3)
    return world


def test_a_delivery_and_its_end(world: World) -> None:
    assert world.serve() == [name(0), name(1), name(2)]
    assert world.journal.take() == [("advance", 3)]
    assert repr(world.channel) == "<Channel c at 3: Counts(ready=2, in_flight=3, deferred=0, buried=0)>"
    assert world.channel.key == ("t", "c")
    assert commands.finish(world.channel, world.consumer, name(0) + name(1)) == []
    assert commands.finish(world.channel, world.consumer, name(2)) == []
    assert world.journal.take() == [("finish", 0, 2), ("finish", 2, 1)]
    assert world.serve() == [name(3), name(4)]
    assert world.journal.take() == [("advance", 5)]
    assert world.consumer.finish_count == 3


def test_a_requeue_with_and_without_delay_and_its_redelivery(world: World) -> None:
    world.serve()
    world.journal.take()
    assert commands.requeue(world.channel, world.consumer, name(1), 0, NOW) == ""
    assert commands.requeue(world.channel, world.consumer, name(0), 500, NOW) == ""
    assert world.journal.take() == [("requeue", (1,), 1, 1, 0), ("requeue", (0,), 1, 1, NOW + 500)]
    assert world.serve() == [name(3), name(4)]
    commands.finish(world.channel, world.consumer, name(3))
    world.journal.take()
    assert world.serve() == [name(1)]
    assert world.journal.take() == [("requeue", (1,), 2, 1, 0)]  # no advance: the cursor does not move
    assert (world.channel.requeue_count, world.consumer.requeue_count) == (2, 2)


def test_time_outs_a_few_at_a_time_and_what_is_deferred_does_not_starve(world: World) -> None:
    world.serve()
    world.journal.take()
    assert world.channel.next_due() == NOW + TIMEOUT
    assert world.channel.scan(NOW + TIMEOUT - 1, 10) == 0
    assert world.channel.scan(NOW + TIMEOUT, 2) == 2
    assert world.journal.take() == [("requeue", (0,), 1, 1, 0), ("requeue", (1,), 1, 0, 0)]
    assert world.channel.next_due() == NOW + TIMEOUT
    world.channel.defer(Message(4, 1), NOW + 1, NOW)
    assert world.channel.scan(NOW + TIMEOUT, 1) == 1 + 1
    assert (world.channel.timeout_count, world.channel.in_flight_count, world.channel.deferred_count) == (3, 0, 0)


def test_an_operator(world: World) -> None:
    world.serve()
    world.journal.take()
    topic, channel = Nobody(), world.channel

    def chosen(*ordinals: int) -> list[ChosenMessage]:
        return [ChosenMessage(one, name(one)) for one in ordinals]

    assert actions.finish(topic, channel, chosen(4, 1, 9)) == 2
    assert world.journal.take() == [("promise",), ("finish", 1, 1), ("finish", 4, 1)]
    assert actions.bury(topic, channel, chosen(0), "bad") == 1
    assert world.journal.take() == [("promise",), ("bury", 0, name(0), 1, 0, "bad")]
    assert actions.kick(channel, [name(0), name(5)]) == 1
    assert world.journal.take() == [("promise",), ("requeue", (0,), 0, 0, 0)]
    assert actions.requeue(topic, channel, chosen(2), NOW + 50, NOW) == 1
    assert world.journal.take() == [("promise",), ("requeue", (2,), 1, 0, NOW + 50)]
    assert actions.requeue(topic, channel, chosen(2), 0, NOW, afresh=True) == 1
    assert world.journal.take() == [("promise",), ("requeue", (2,), 0, 0, 0)]
    assert actions.bury(topic, channel, chosen(3), "") == 1
    assert actions.finish_buried(channel, [name(3)]) == 1
    assert world.journal.take()[-2:] == [("promise",), ("finish", 3, 1)]
    channel.check()


def test_pause_empty_and_delete(world: World) -> None:
    world.serve()
    commands.requeue(world.channel, world.consumer, name(0), 0, NOW)
    commands.requeue(world.channel, world.consumer, name(1), 10, NOW)
    world.journal.take()
    world.channel.pause(True)
    world.channel.pause(False)
    world.channel.empty()
    assert world.journal.take() == [
        ("pause", True),
        ("pause", False),
        ("finish_all", 5),
        ("release", 2, 3),  # in flight
        ("release", 0, 1),  # requeued
        ("release", 1, 2),  # deferred
        ("release", 3, 5),
    ]
    assert (world.channel.start, world.channel.depth, world.channel.next_due()) == (5, 0, None)
    world.put(1)
    world.channel.delete()
    assert world.journal.take() == [("finish_all", 6), ("release", 5, 6), ("drop",)]
    assert (world.inbox.gone, world.channel.scan_entry) == (True, None)
    assert world.serve() == []


@each("due, ready", [(NOW + 1, 0), (NOW, 1), (0, 1)])
def test_after_a_restart_a_message_comes_at_its_time(due: int, ready: int) -> None:
    world = World()
    world.put(3)
    world.channel.backlog.resume(2, 1)
    restore_message(world.channel, Message(0, 1), due, NOW)
    assert (world.channel.depth, world.channel.deferred_count) == (1 + ready, 1 - ready)
    assert world.channel.next_due() == (None if ready else due)
    commands.set_ready(world.channel, world.consumer, 9)
    assert world.serve() == ([name(0), name(2)] if ready else [name(2)])


def test_a_touch_has_a_limit(world: World) -> None:
    world.serve()
    world.journal.take()
    assert commands.touch(world.channel, world.consumer, name(0), 70, 1000, NOW + 90) == ""
    assert commands.touch(world.channel, world.consumer, name(1), 500, 120, NOW + 90) == ""
    assert world.channel.scan(NOW + 119, 9) == 1
    assert world.channel.next_due() == NOW + 120
    assert world.channel.scan(NOW + 120, 9) == 1
    assert world.channel.next_due() == NOW + 160
    assert [verb for verb, *_ in world.journal.take()] == ["requeue", "requeue"]


@each("again", [False, True])
def test_who_leaves_gives_back_what_it_had_if_that_is_wanted(again: bool) -> None:
    world = World(Limits(requeue_on_disconnect=again))
    world.put(3)
    commands.set_ready(world.channel, world.consumer, 2)
    world.serve()
    world.journal.take()
    assert world.channel.unsubscribe(world.consumer) is False  # it is not ephemeral
    assert world.journal.take() == ([("requeue", (0,), 1, 1, 0), ("requeue", (1,), 1, 0, 0)] if again else [])
    assert world.channel.requeue_count == (2 if again else 0)
    assert world.channel.depth == (3 if again else 1)
    world.channel.refresh(world.consumer)  # a late word from its connection
    assert not world.channel.dispatch.ready
