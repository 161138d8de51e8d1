"""The records of a turn, and the locations of their messages once they are written.

Most records are appended at once. FINs, cursors and jobs are collected, and become one record of a kind for each reader at the
end of the turn.
"""

from collections.abc import Callable

from nsqd.core.sequence.mark import Mark
from nsqd.storage.log.cache import Cache
from nsqd.storage.log.clocks import LogClock
from nsqd.storage.log.locations import OVERHEAD
from nsqd.storage.log.writer import Writer
from nsqd.storage.stored_extent import StoredExtent


class Recorder:
    """The collector of one log's records: those of the current turn, and the promises that they must keep."""

    __slots__ = (
        "append", "awaited", "cache", "clock", "collecting", "created", "interval", "shut", "unplaced", "wall", "writer",
    )  # fmt: skip

    def __init__(self, writer: Writer, clock: LogClock, cache: Cache) -> None:
        self.writer = writer
        self.append = writer.group.append  # appends a record to the turn's group
        self.clock = clock
        self.wall = 0  # time of the turn, ns since the epoch
        self.cache = cache
        self.awaited: list[tuple[Mark, ...]] = []  # marks that replies of this turn wait for
        self.interval = 0  # messages of this turn in topics of the mode `interval`
        self.collecting: list[Callable[[], None]] = []  # `flush` of each reader that collects changes in this turn
        # `note_written` of each topic with publishes that need copies and are not written yet: called with the log's end
        self.shut: list[Callable[[int], None]] = []
        self.created: set[int] = set()  # numbers of topics and readers whose creation is in the log
        # (messages, extents) of each PUBLISH that is not written yet
        self.unplaced: list[tuple[int, list[StoredExtent]]] = []

    def promise(self, marks: tuple[Mark, ...]) -> None:
        """Note that a reply waits until these marks reach the turn's records."""
        if not self.awaited or self.awaited[-1] is not marks:
            self.awaited.append(marks)

    def flush(self) -> None:
        """Turn all collected changes into records."""
        if self.collecting:
            collecting, self.collecting = self.collecting, []
            for flush in collecting:
                flush()

    def place(self, now: int) -> None:
        """Note the locations of the messages in the groups just written. From now on their frames may be evicted.

        `now`: time of the turn, monotonic ns.
        """
        places, unplaced = self.writer.places, self.unplaced
        logged, wall, added = now + self.clock.offset, self.wall, self.cache.added
        for (count, extents), (segment, start, end) in zip(unplaced, places, strict=False):
            size = (end - start + count * OVERHEAD) // len(extents)
            for stored in extents:
                stored.note_location(segment, start, end, size, wall, logged)
                if stored.extent is not None:  # None: all readers finished it in the turn in which it was published
                    added(stored, size)
        del unplaced[: len(places)]
        places.clear()

    def unwritten(self) -> set[StoredExtent]:
        """Return the extents with messages that exist only in memory."""
        return {stored for _, extents in self.unplaced for stored in extents} if self.unplaced else set()
