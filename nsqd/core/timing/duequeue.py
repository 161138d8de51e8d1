"""The priority queue by due time. In-flight and deferred messages, the scan's index and connection timers all use it.

`push` returns a handle, which `remove` takes. A removed entry leaves a tombstone of two ints in the heap, but never the item:
a finished message is released at once. Tombstones are swept when they outnumber the live entries, so
size <= 2 x live + 64 after any sequence of calls (a property test holds this).
"""

from collections.abc import Callable, Generator, Iterator
from heapq import heapify, heappop, heappush, nsmallest
from itertools import takewhile
from typing import Generic, TypeVar

T = TypeVar("T")

WALKED_AT_ONCE = 10_000  # items that a search looks at in a turn: 3 ms
SLACK = 64  # entries: below this, sweeping costs more than it frees


class DueQueue(Generic[T]):
    """Items in the order of the times when they are due; items due at the same time are in the order of pushing."""

    __slots__ = ("_heap", "_items", "_next_handle")

    def __init__(self) -> None:
        self._items: dict[int, T] = {}  # every live item, by handle
        self._heap: list[tuple[int, int]] = []  # (due ns, handle); handles not in _items are tombstones
        self._next_handle = 0

    def push(self, due: int, item: T) -> int:
        """Add an item that is due at `due` (ns). Return the handle that removes it."""
        handle = self._next_handle
        self._next_handle = handle + 1
        self._items[handle] = item
        heappush(self._heap, (due, handle))
        return handle

    def remove(self, handle: int) -> T | None:
        """Take an item out, due or not, and return it. Return None if it is no longer in the queue."""
        item = self._items.pop(handle, None)
        if len(self._heap) > 2 * len(self._items) + SLACK:
            self._sweep()
        return item

    def remove_chosen(self, is_chosen: Callable[[T], bool]) -> list[tuple[int, T]]:
        """Take out the chosen items. Return (due, item) for each. This walks all items."""
        items = self._items
        chosen = [(due, handle) for due, handle in self._heap if handle in items and is_chosen(items[handle])]
        return [(due, item) for due, handle in chosen if (item := self.remove(handle)) is not None]

    def pop_due(self, now: int, limit: int) -> list[T]:
        """Take out and return up to `limit` items that are due at or before `now` (ns), the earliest first."""
        heap, items = self._heap, self._items
        due: list[T] = []
        while heap and heap[0][0] <= now and len(due) < limit:
            item = items.pop(heappop(heap)[1], None)
            if item is not None:
                due.append(item)
        if len(heap) > 2 * len(items) + SLACK:
            self._sweep()
        return due

    def next_due(self) -> int | None:
        """Return the due time of the earliest item (ns), or None if the queue is empty."""
        heap, items = self._heap, self._items
        while heap and heap[0][1] not in items:
            heappop(heap)
        return heap[0][0] if heap else None

    def pop_batch(self, limit: int) -> list[T]:
        """Take out and return up to `limit` items, any ones. Cheap: for an owner that frees the queue bit by bit."""
        heap, items = self._heap, self._items
        popped: list[T] = []
        while heap and len(popped) < limit:
            item = items.pop(heap.pop()[1], None)  # the last entry of a heap may go without any other moving
            if item is not None:
                popped.append(item)
        return popped

    def clear(self) -> None:
        """Drop all items. Handles that were given out before are never used again."""
        self._items.clear()
        self._heap.clear()

    def values(self) -> list[T]:
        """Return all items, in the order of pushing."""
        return list(self._items.values())

    def handles(self, first: int) -> list[int]:
        """Return the handles from `first` on of items in the queue, ascending. The others cost nothing."""
        return list(takewhile(first.__le__, reversed(self._items)))[::-1] if first else list(self._items)

    def get(self, handle: int) -> T | None:
        """Return the item that was pushed with this handle; None if it is no longer in the queue."""
        return self._items.get(handle)

    def entries(self) -> list[tuple[int, T]]:
        """Return (due, item) for all items, in no promised order."""
        return [(due, self._items[handle]) for due, handle in self._heap if handle in self._items]

    def due_until(self, time: int) -> list[tuple[int, T]]:
        """Return (due, item) for all items that are due at or before `time` (ns), in no promised order. Others cost nothing."""
        heap, items = self._heap, self._items
        places = [0] if heap else []
        for place in places:  # and those below it
            if heap[place][0] <= time:
                places += range(2 * place + 1, min(2 * place + 3, len(heap)))
        entries = (heap[place] for place in places)
        return [(due, items[handle]) for due, handle in entries if due <= time and handle in items]

    def ascending(self) -> Iterator[tuple[int, int, T]]:
        """Yield (due, handle, item) for all items in order. They must not change meanwhile. The first n cost n log n."""
        heap, items = self._heap, self._items
        ahead = [(heap[0], 0)] if heap else []
        while ahead:
            (due, handle), place = heappop(ahead)
            if handle in items:
                yield due, handle, items[handle]
            for child in range(2 * place + 1, min(2 * place + 3, len(heap))):
                heappush(ahead, (heap[child], child))

    def after(
        self, place: tuple[int, int], count: int, is_chosen: Callable[[T], bool]
    ) -> Generator[None, None, list[tuple[int, int, T | None]]]:
        """Return the first `count` of (due, handle, item) after a place (due, handle) that are chosen.

        This walks all items, and yields after each WALKED_AT_ONCE. The item is None if it was removed meanwhile.
        """
        items, left = self._items, list(self._heap)
        found: list[tuple[int, int]] = []
        while left:
            part = left[-WALKED_AT_ONCE:]
            del left[-WALKED_AT_ONCE:]
            found += [one for one in part if one > place and one[1] in items and is_chosen(items[one[1]])]
            found = nsmallest(count, found)
            if left:
                yield
        return [(due, handle, items.get(handle)) for due, handle in found]

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return f"<DueQueue: {len(self._items)}, the first due at {self.next_due()}>"

    def _sweep(self) -> None:
        self._heap = [entry for entry in self._heap if entry[1] in self._items]
        heapify(self._heap)

    def check(self) -> None:
        """Raise AssertionError if an invariant of this class does not hold."""
        assert len(self._heap) <= 2 * len(self._items) + SLACK
        handles = [handle for _, handle in self._heap]
        assert len(set(handles)) == len(handles)
        assert set(self._items) <= set(handles)
