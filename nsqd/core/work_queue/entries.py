"""Numbers of which the lowest comes first: a heap in which consecutive numbers that came together take the memory of one.

The numbers are entries of jobs (job_table.py). Jobs that are put together have the same priority and consecutive ordinals, so
a million of them take as much as the turns in which they were put. An entry may be there twice.
"""

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush, heapreplace
from itertools import pairwise

_NONE = -1


class Entries:
    """A heap of runs of consecutive numbers. Different runs of more than one number have no number in common."""

    __slots__ = ("_ends", "_newest", "heap")

    def __init__(self) -> None:
        self.heap: list[int] = []  # the first number of each run; a single number may be pushed here
        # by first number, of runs of more than one, and of the newest run: the number after the last
        self._ends: dict[int, int] = {}
        self._newest = _NONE  # the first number of the run that `add_run` began last

    def add_run(self, first: int, end: int) -> None:
        """Add the numbers first..end, which were in no other run before."""
        ends, newest = self._ends, self._newest
        behind = ends.get(newest)  # None: the newest run is gone, or begins with another number now
        if behind == first:
            ends[newest] = end
            return
        if behind == newest + 1:
            del ends[newest]
        heappush(self.heap, first)
        ends[first], self._newest = end, first

    def add_all(self, entries: list[int]) -> None:
        """Add numbers, each as a run of its own."""
        self.heap += entries
        heapify(self.heap)

    def lowest_run(self) -> tuple[int, int]:
        """Return the run with the lowest number, which must be there, as (first, end)."""
        first = self.heap[0]
        return first, self._ends.get(first, first + 1)

    def advance(self, first: int) -> None:
        """Have the run with the lowest number begin with `first`, which is higher. The run goes if it ends before that."""
        heap, ends = self.heap, self._ends
        end = ends.pop(heap[0], 0) if ends else 0  # 0: it has one number
        if first >= end:
            heappop(heap)
            return
        heapreplace(heap, first)
        if first + 1 < end:
            ends[first] = end

    def sweep(self, first_live: Callable[[int, int], int | None]) -> None:
        """Have each run (first, end) begin with what `first_live` returns of it, and drop those of which it returns None."""
        runs: dict[int, int] = {}
        for first in self.heap:
            end = self._ends.get(first, first + 1)
            live = first_live(first, end)
            if live is not None:
                runs[live] = max(end, runs.get(live, 0))
        self.heap[:] = runs
        heapify(self.heap)
        self._ends = {first: end for first, end in runs.items() if first + 1 < end}

    def pop_batch(self, most: int) -> bool:
        """Drop up to `most` runs, whichever they are. Return False if there was none."""
        batch = self.heap[-most:]
        del self.heap[-most:]
        for first in batch:
            self._ends.pop(first, None)
        return bool(batch)

    def ascending(self) -> Iterator[int]:
        """Yield all numbers in order. They must not change meanwhile. The first n cost n log n."""
        heap = self.heap
        # a number, and the place of its run or the negative end of a run that continues
        ahead = [(heap[0], 0)] if heap else []
        while ahead:
            entry, place = heappop(ahead)
            yield entry
            end = self._ends.get(entry, 0) if place >= 0 else -place
            if entry + 1 < end:
                heappush(ahead, (entry + 1, -end))
            for child in range(2 * place + 1, min(2 * place + 3, len(heap))) if place >= 0 else ():
                heappush(ahead, (heap[child], child))

    def __len__(self) -> int:
        """Return the number of runs, not of the numbers in them."""
        return len(self.heap)

    def check(self) -> None:
        """Raise AssertionError if an invariant of this class does not hold."""
        heap = self.heap
        assert all(heap[(place - 1) // 2] <= heap[place] for place in range(1, len(heap)))
        assert self._ends.keys() <= set(heap)
        runs = sorted(self._ends.items())
        assert all(first + 1 < end or first == self._newest for first, end in runs)
        assert all(end <= after for (_, end), (after, _) in pairwise(runs))

    def __repr__(self) -> str:
        return f"<Entries: {len(self.heap)} runs>"
