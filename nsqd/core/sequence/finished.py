"""The set of messages of a topic that a reader has finished: all before a floor, and runs after the floor.

The runs may overlap, so that adding one costs the same however many there are.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator

from nsqd.core.sequence.spans import united

Span = tuple[int, int]  # ordinals of messages: the first, and the one after the last


class Finished:
    """The ordinals that one reader has finished. An ordinal is a message's place in its topic."""

    __slots__ = ("floor", "runs")

    def __init__(self, floor: int, runs: Iterable[Span] = ()) -> None:
        """Begin with everything before `floor` finished, and the runs (first, end)."""
        self.floor = floor
        self.runs: dict[int, int] = {}  # first -> end
        for first, end in runs:
            self.add(first, end)

    def add(self, first: int, end: int) -> None:
        """Add messages first..end to those that are finished."""
        runs = self.runs
        if first > self.floor:
            if end > max(first, runs.get(first, 0)):
                runs[first] = end
            return
        if end <= self.floor:
            return
        while end in runs:
            end = runs.pop(end)
        self.floor = end

    def add_all(self, end: int) -> None:
        """Add everything before `end` to what is finished."""
        runs, self.runs, self.floor = self.runs, {}, max(self.floor, end)
        for first, stop in sorted(runs.items()):
            self.add(first, stop)

    def missing(self, end: int) -> Iterator[Span]:
        """Yield the spans (first, end) before `end` that are not finished, ascending."""
        position = self.floor
        for first in sorted(self.runs):
            if first >= end:
                break
            if position < first:
                yield position, first
            position = max(position, self.runs[first])
        if position < end:
            yield position, end

    def without(self, ordinals: Iterable[int]) -> list[int]:
        """Return those of the ordinals that are not finished."""
        runs = self.spans()
        firsts = [first for first, _ in runs]

        def is_finished(ordinal: int) -> bool:
            place = bisect_right(firsts, ordinal) - 1
            return ordinal < self.floor or (place >= 0 and ordinal < runs[place][1])

        return [ordinal for ordinal in ordinals if not is_finished(ordinal)]

    def spans(self, start: int = 0) -> list[Span]:
        """Return the finished spans after the floor, from `start` on, disjoint and ascending."""
        start = max(start, self.floor)
        return united((max(first, start), end) for first, end in sorted(self.runs.items()) if end > start)

    @property
    def end(self) -> int:
        """Return the ordinal after the last finished message."""
        return max(self.floor, *self.runs.values()) if self.runs else self.floor

    def __repr__(self) -> str:
        return f"<Finished before {self.floor}, and {self.spans()}>"
