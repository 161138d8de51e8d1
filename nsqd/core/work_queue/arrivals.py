"""The messages of a topic that are still to become jobs of its tube, and the job options that they will have.

These messages are between the position of the tube and the distributed offset, the ordinal up to which the topic has
distributed messages to its readers. They are there because they were on disk only, or because they were too many for one turn.
A hole is a span of messages that the tube leaves out.
"""

from bisect import insort
from collections import deque

from nsqd.core.message.attributes import ttl_in
from nsqd.core.sequence.ahead import Ahead
from nsqd.core.sequence.journal import Extents
from nsqd.core.sequence.offsets import TopicOffsets
from nsqd.core.sequence.put_batch import USUAL, JobOptions
from shared.values import SECOND


class Arrivals:
    """The part of a topic's sequence that a tube has not made into jobs yet."""

    __slots__ = ("_extents", "_offsets", "holes", "options", "position")

    def __init__(self, offsets: TopicOffsets, extents: Extents) -> None:
        """Begin at the distributed offset.

        Messages past it that wait in the delay queue will have the usual options, and their due times.
        """
        self._offsets = offsets
        self._extents = extents
        self.position = offsets.distributed  # messages before this ordinal are jobs, or are gone
        # spans (first, end) from the position on that are not to become jobs, ascending
        self.holes: deque[tuple[int, int]] = deque()
        waiting = offsets.delay_queue.waiting.items()
        # by ordinal, the job options of messages from the position on; the others have the usual options
        self.options = {one.ordinal: JobOptions(due=due) for due, one in waiting if one.ordinal >= self.position}

    @property
    def is_complete(self) -> bool:
        """Return True if there is nothing between the position and the distributed offset."""
        return self.position >= self._offsets.distributed

    def expect(self, first: int, count: int, options: JobOptions) -> None:
        """Note the job options of `count` messages from ordinal `first` on, which are at or past the distributed offset."""
        self.options.update(dict.fromkeys(range(first, first + count), options))

    def skip(self, first: int, end: int) -> None:
        """Leave out messages first..end, which are at or past the position."""
        insort(self.holes, (first, end))
        self._forget_options(first, end)

    def _forget_options(self, first: int, end: int) -> None:
        if self.options:
            self.options = {ordinal: options for ordinal, options in self.options.items() if not first <= ordinal < end}

    def read_next(self, most: int) -> tuple[int, list[bytes]] | None:
        """Move the position over up to `most` messages that can be read together.

        The position must be before the distributed offset. Return the ordinal of the first, and the frames; b"" stands for a
        message that is gone. The caller takes their `options`. Return no frames after moving over messages that are left out or
        gone. Return None, without moving, if the messages must be read from disk first.
        """
        holes, first = self.holes, self.position
        if holes and holes[0][0] <= first:
            self.position = max(first, holes.popleft()[1])
            return first, []
        extent = self._extents.read(first)
        if extent is None:
            return None
        limit = holes[0][0] if holes else self._offsets.distributed
        if extent.first > first or not extent.frames:  # the messages between were finished, or are corrupt on disk
            self.position = min(extent.first, limit) if extent.frames else limit
            self._forget_options(first, self.position)
            return first, []
        self.position = min(extent.end, limit, first + most)
        for start, end, packed in extent.attributed(first, self.position) if extent.has_ttl else ():
            ttl = -(-ttl_in(packed) // SECOND)
            for ordinal in range(start, end) if ttl else ():
                self.options[ordinal] = self.options.get(ordinal, USUAL)._replace(ttl=ttl)
        return first, extent.frames[first - extent.first : self.position - extent.first]

    def give_up(self) -> Ahead:
        """Leave out all messages up to the distributed offset, and return them. This reads nothing from disk."""
        first, self.position = self.position, self._offsets.distributed
        given_up = Ahead(self._extents, first, self.position, self.holes, True)
        self.holes = deque()
        self._forget_options(first, self.position)
        return given_up

    def resume(self, position: int, holes: list[tuple[int, int]]) -> None:
        """Set the position and the holes after a restart."""
        self.position = position
        self.holes.extend(holes)

    def check(self) -> None:
        """Raise AssertionError if an invariant of this class does not hold."""
        assert self.position <= self._offsets.distributed
        assert list(self.holes) == sorted(self.holes)
        assert not (self.holes and self.is_complete)
        assert all(ordinal >= self.position for ordinal in self.options)

    def __repr__(self) -> str:
        return f"<Arrivals from {self.position} on, {len(self.holes)} holes, {len(self.options)} with options>"
