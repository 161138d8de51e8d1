"""The messages of a topic that are still to become jobs: how far a queue has come in the topic's sequence, what it leaves out,
and on which terms the others come.

They lie between the position of the queue and the edge of the topic, for they were on disk only, or too many for one turn.
"""

from bisect import insort
from collections import deque
from collections.abc import Iterator

from nsqd.core.sequence.edge import Edge
from nsqd.core.sequence.journal import Extents
from nsqd.core.sequence.puts import Terms
from nsqd.core.sequence.spans import without


class Arrivals:
    """See above."""

    __slots__ = ("_edge", "_extents", "holes", "position", "terms")

    def __init__(self, edge: Edge, extents: Extents) -> None:
        """Begin at the edge. What waits beyond it in the delay lane comes on the usual terms, at its time."""
        self._edge = edge
        self._extents = extents
        self.position = edge.distributed  # messages before it are jobs, or are gone
        # spans from the position on that are not to become jobs, ascending
        self.holes: deque[tuple[int, int]] = deque()
        waiting = edge.lane.waiting.items()
        # by ordinal, the terms of messages from the position on; others come on the usual ones
        self.terms = {one.ordinal: Terms(due=due) for due, one in waiting if one.ordinal >= self.position}

    @property
    def is_complete(self) -> bool:
        """There is nothing between the position and the edge."""
        return self.position >= self._edge.distributed

    def expect(self, first: int, count: int, terms: Terms) -> None:
        """Messages `first`.., from the edge on, come on these terms."""
        self.terms.update(dict.fromkeys(range(first, first + count), terms))

    def skip(self, first: int, end: int) -> None:
        """Messages first..end, from the position on, are not to become jobs."""
        insort(self.holes, (first, end))
        self._forget_terms(first, end)

    def _forget_terms(self, first: int, end: int) -> None:
        if self.terms:
            self.terms = {ordinal: terms for ordinal, terms in self.terms.items() if not first <= ordinal < end}

    def take(self, most: int) -> tuple[int, list[bytes]] | None:
        """Move the position over up to `most` messages that are read together; there is something before the edge.

        Returns the ordinal of the first, and their frames; b"" is one that is not there any more. Or, having moved over what
        is left out or gone, no frames. None: they are being read from disk, and the position stays.
        """
        holes, first = self.holes, self.position
        if holes and holes[0][0] <= first:
            self.position = max(first, holes.popleft()[1])
            return first, []
        extent = self._extents.read(first)
        if extent is None:
            return None
        limit = holes[0][0] if holes else self._edge.distributed
        if extent.first > first or not extent.frames:  # somebody has finished what was between, or it was damaged
            self.position = min(extent.first, limit) if extent.frames else limit
            self._forget_terms(first, self.position)
            return first, []
        self.position = min(extent.end, limit, first + most)
        return first, extent.frames[first - extent.first : self.position - extent.first]

    def remaining(self) -> Iterator[int]:
        """Yield the ordinals of all messages from the position to the edge that are to become jobs. Reads nothing."""
        for first, end, _ in self._extents.extents(self.position, self._edge.distributed):
            for start, stop in without(first, end, self.holes):
                yield from range(start, stop)

    def clear(self) -> None:
        """Leave out everything up to the edge."""
        first, self.position = self.position, self._edge.distributed
        self.holes.clear()
        self._forget_terms(first, self.position)

    def resume(self, position: int, holes: list[tuple[int, int]]) -> None:
        """After a restart: begin there, with these holes."""
        self.position = position
        self.holes.extend(holes)

    def check(self) -> None:
        """Raise AssertionError if an invariant of this class does not hold."""
        assert self.position <= self._edge.distributed
        assert list(self.holes) == sorted(self.holes)
        assert not (self.holes and self.is_complete)
        assert all(ordinal >= self.position for ordinal in self.terms)

    def __repr__(self) -> str:
        return f"<Arrivals from {self.position} on, {len(self.holes)} holes, {len(self.terms)} with terms>"
