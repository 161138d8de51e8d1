"""The records of a turn: most at once, one of a kind for each reader at its end; and where messages stand that were written."""

from typing import Protocol

from nsqd.core.sequence.mark import Mark
from nsqd.storage.held import Held
from nsqd.storage.log.cache import Cache
from nsqd.storage.log.clocks import LogClock
from nsqd.storage.log.pieces import OVERHEAD
from nsqd.storage.log.writer import Writer


class Collector(Protocol):
    """What collects during a turn, and becomes records at its end."""

    def flush(self) -> None:
        """Append the records."""


class Recorder:
    """See above."""

    __slots__ = ("append", "awaited", "cache", "clock", "collecting", "interval", "known", "unplaced", "wall", "writer")

    def __init__(self, writer: Writer, clock: LogClock, cache: Cache) -> None:
        self.writer = writer
        self.append = writer.group.append  # adds a record to the turn's group
        self.clock = clock
        self.wall = 0  # ns since the epoch, of the turn
        self.cache = cache
        self.awaited: list[tuple[Mark, ...]] = []  # what somebody waits for in this turn
        self.interval = 0  # messages of this turn of topics in the mode `interval`
        self.collecting: list[Collector] = []  # with something to flush
        self.known: set[int] = set()  # numbers of topics and readers whose making is in the log
        self.unplaced: list[tuple[int, list[Held]]] = []  # (messages, extents) of each PUBLISH that is not written yet

    def promise(self, marks: tuple[Mark, ...]) -> None:
        """Somebody waits for these to come to the turn's records."""
        if not self.awaited or self.awaited[-1] is not marks:
            self.awaited.append(marks)

    def take_awaited(self) -> set[Mark]:
        """All that somebody waits for in this turn."""
        if not self.awaited:
            return set()
        awaited, self.awaited = self.awaited, []
        return {mark for marks in awaited for mark in marks}

    def flush(self) -> None:
        """What was collected becomes records."""
        if self.collecting:
            collecting, self.collecting = self.collecting, []
            for one in collecting:
                one.flush()

    def place(self, now: int) -> None:
        """Note where messages of the groups just written stand; they may be given up in memory from now on.

        `now`: the turn's, monotonic ns.
        """
        places = self.writer.places
        placed, self.unplaced = self.unplaced[: len(places)], self.unplaced[len(places) :]
        logged, wall, added = now + self.clock.offset, self.wall, self.cache.added
        for (count, extents), (segment, start, end) in zip(placed, places, strict=True):
            size = (end - start + count * OVERHEAD) // len(extents)
            for held in extents:
                held.place(segment, start, end, size, wall, logged)
                if held.extent is not None:  # else nobody owes it any more: dropped as soon as published
                    added(held, size)
        places.clear()

    def unwritten(self) -> set[Held]:
        """Extents of which something is nowhere but in memory."""
        return {held for _, extents in self.unplaced for held in extents} if self.unplaced else set()
