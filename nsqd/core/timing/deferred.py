"""Deferred messages: those due soon in a priority queue, the others packed in pages by the minute.

A message that is due in more than a minute takes 24 bytes, (ordinal, due, attempts), in the *deferred page* of the minute in
which it is due, or of one before it. The others are in the *timer heap*. Pages move into the heap bit by bit during the minute
before they are due, so ten million deferred messages cost neither much memory nor a stall
(docs/design/channel.md#far-and-near).
"""

from array import array
from collections.abc import Collection, Iterable, Iterator
from heapq import nsmallest
from struct import Struct

from nsqd.core.timing.duequeue import DueQueue

MINUTE = 60_000_000_000  # ns
RECLAIMED_AT_ONCE = 500  # messages: 0.1 ms
PHASES = 1024  # different offsets within the minute at which queues move their pages
TIMER_BYTES = 250  # memory of a message in the timer heap: the entry, the Message, three numbers
_PAGED = Struct("<QqQ")  # ordinal, due ns, attempts
PAGED_SIZE = _PAGED.size  # bytes
pack, unpack = _PAGED.pack, _PAGED.iter_unpack  # one message to bytes, and a page of them back


class Message:
    """A message that is handled singly: its ordinal in the topic, and how often it was delivered."""

    __slots__ = ("attempts", "ordinal")

    def __init__(self, ordinal: int, attempts: int) -> None:
        self.ordinal = ordinal
        self.attempts = attempts

    def __repr__(self) -> str:
        return f"<Message {self.ordinal}, {self.attempts} attempts>"


class Deferred:
    """The deferred messages of one queue, by the times when they are due (monotonic ns)."""

    __slots__ = ("_deferred_pages", "_phase", "_timer_heap", "count")

    def __init__(self, number: int = 0) -> None:
        """Begin without messages. The `number` of the queue spreads the page moves of ten thousand queues over the minute."""
        self._phase = number % PHASES * (MINUTE // PHASES) * 5 // 6  # ns after the earliest time to move a page
        self._timer_heap: DueQueue[Message] = DueQueue()
        self._deferred_pages: dict[int, bytearray] = {}  # minute -> packed messages due in it; no page is empty
        self.count = 0  # messages in _near and _far together

    def push(self, due: int, message: Message, now: int) -> None:
        """Hold `message` until `due` (monotonic ns)."""
        self.count += 1
        if due - now <= MINUTE:
            self._timer_heap.push(due, message)
        else:
            page = self._deferred_pages.setdefault(due // MINUTE, bytearray())
            page += pack(message.ordinal, due, message.attempts)

    def approach(self, now: int, limit: int) -> int:
        """Move up to `limit` messages of pages that are due soon into the timer heap. Return how many were moved."""
        moved = 0
        while self._deferred_pages and moved < limit:
            minute = min(self._deferred_pages)
            if self._approach_at(minute) > now:
                break
            page = self._deferred_pages[minute]
            part = page[-(limit - moved) * PAGED_SIZE :]
            del page[-(limit - moved) * PAGED_SIZE :]
            if not page:
                del self._deferred_pages[minute]
            for ordinal, due, attempts in unpack(part):
                self._timer_heap.push(due, Message(ordinal, attempts))
            moved += len(part) // PAGED_SIZE
        return moved

    def pop_due(self, now: int, limit: int) -> list[Message]:
        """Take out and return up to `limit` messages of the timer heap that are due, the earliest first.

        Call `approach` before.
        """
        due = self._timer_heap.pop_due(now, limit)
        self.count -= len(due)
        return due

    def wake_at(self) -> int | None:
        """Return when `approach` or `pop_due` has something to do (monotonic ns), or None if no message is deferred.

        This is the earliest due time in the timer heap, or the time to move the first page.
        """
        heap_due = self._timer_heap.next_due()
        if not self._deferred_pages:
            return heap_due
        page_due = self._approach_at(min(self._deferred_pages))
        return page_due if heap_due is None else min(heap_due, page_due)

    def remove_from(self, ordinal: int) -> None:
        """Drop all messages from `ordinal` on. This walks all messages: for rare commands only."""
        remaining = [(due, message) for due, message in self._timer_heap.entries() if message.ordinal < ordinal]
        self._timer_heap.clear()
        for due, message in remaining:
            self._timer_heap.push(due, message)
        for minute, page in list(self._deferred_pages.items()):
            kept = b"".join(pack(*entry) for entry in unpack(page) if entry[0] < ordinal)
            self._deferred_pages[minute] = bytearray(kept)
            if not kept:
                del self._deferred_pages[minute]
        self.count = len(remaining) + sum(map(len, self._deferred_pages.values())) // PAGED_SIZE

    def remove_ordinals(self, ordinals: Collection[int]) -> list[Message]:
        """Take out and return the messages with these ordinals. This walks all messages: for rare commands only."""
        return [message for _, message in self.remove_with_due(ordinals)]

    def remove_with_due(self, ordinals: Collection[int]) -> list[tuple[int, Message]]:
        """Take out the messages with these ordinals. Return (due, message) for each. This walks all messages."""
        entries = self._timer_heap.entries()
        taken = [entry for entry in entries if entry[1].ordinal in ordinals]
        if taken:
            self._timer_heap.clear()
            for due, message in entries:
                if message.ordinal not in ordinals:
                    self._timer_heap.push(due, message)
        for minute, page in list(self._deferred_pages.items()):
            column = array("Q", page)[::3]
            places = sorted((column.index(ordinal) for ordinal in set(ordinals).intersection(column)), reverse=True)
            for place in places:
                part = slice(place * PAGED_SIZE, (place + 1) * PAGED_SIZE)
                ((ordinal, due, attempts),) = unpack(page[part])
                taken.append((due, Message(ordinal, attempts)))
                del page[part]
            if not page:
                del self._deferred_pages[minute]
        self.count -= len(taken)
        return taken

    def items(self) -> Iterator[tuple[int, Message]]:
        """Yield (due, message) for all messages, in no promised order."""
        yield from self._timer_heap.entries()
        for page in self._deferred_pages.values():
            for ordinal, due, attempts in unpack(page):
                yield due, Message(ordinal, attempts)

    def page(self, after: str, limit: int, first: int, end: int) -> tuple[list[tuple[int, int, int]], str]:
        """Return up to `limit` (ordinal, due, attempts) of messages first..end behind the place `after`, and the next place.

        "" is the place of the beginning, and is returned at the end. The timer heap comes first, by due time, then
        the pages by the minute. Raise ValueError if `after` is not a place.
        """
        place = tuple(map(int, after[1:].split("."))) if after else (-1, -1)
        if len(place) != 2 or after[:1] not in ("", "n", "f"):
            raise ValueError("no such place")
        found: list[tuple[int, int, int]] = []
        if after[:1] != "f":
            waiting = (
                (due, one.ordinal, one.attempts)
                for due, one in self._timer_heap.entries()
                if first <= one.ordinal < end
            )
            in_heap = nsmallest(limit + 1, (entry for entry in waiting if entry[:2] > place))
            found = [(ordinal, due, attempts) for due, ordinal, attempts in in_heap[:limit]]
            if len(in_heap) > limit:
                return found, f"n{found[-1][1]}.{found[-1][0]}"
            place = (-1, -1)
        for minute in sorted(minute for minute in self._deferred_pages if minute >= place[0]):
            index = place[1] + 1 if minute == place[0] else 0
            entries = unpack(memoryview(self._deferred_pages[minute])[max(0, index) * PAGED_SIZE :])
            for ordinal, due, attempts in entries:
                if first <= ordinal < end:
                    if len(found) == limit:
                        return found, f"f{minute}.{index - 1}"
                    found.append((ordinal, due, attempts))
                index += 1
        return found, ""

    def packed(self) -> tuple[bytes, list[bytes]]:
        """Return all messages packed, 24 bytes each, in no promised order: those of the timer heap, and the pages."""
        in_heap = [pack(message.ordinal, due, message.attempts) for due, message in self._timer_heap.entries()]
        return b"".join(in_heap), [bytes(page) for page in self._deferred_pages.values()]

    def snapshot(self) -> list[Iterable[int]]:
        """Return the ordinals of all messages, in parts. They stay as they are when messages come and go."""
        in_heap = [message.ordinal for message in self._timer_heap.values()]
        return [in_heap, *(array("Q", page)[::3] for page in self._deferred_pages.values())]

    def reclaim(self) -> Iterator[None]:
        """Free all messages, which nobody needs any more, a part with each step."""
        while self.pop_some(RECLAIMED_AT_ONCE):
            yield

    def pop_some(self, limit: int) -> list[int]:
        """Take out up to `limit` messages, any ones, and return their ordinals. Return [] if no message is left."""
        ordinals = [message.ordinal for message in self._timer_heap.pop_some(limit)]
        if not ordinals and self._deferred_pages:
            minute, page = self._deferred_pages.popitem()
            ordinals = list(array("Q", page[-limit * PAGED_SIZE :])[::3])
            del page[-limit * PAGED_SIZE :]
            if page:
                self._deferred_pages[minute] = page
        self.count -= len(ordinals)
        return ordinals

    def load(self, page: bytes) -> None:
        """Add a page that `packed` returned. Their times may have been moved since, all by the same amount."""
        minute = min(array("q", page)[1::3]) // MINUTE
        self._deferred_pages.setdefault(minute, bytearray()).extend(page)
        self.count += len(page) // PAGED_SIZE

    def clear(self) -> None:
        self._timer_heap.clear()
        self._deferred_pages.clear()
        self.count = 0

    def __len__(self) -> int:
        return self.count

    def __repr__(self) -> str:
        return f"<Deferred: {len(self._timer_heap)} in the heap, {self.count - len(self._timer_heap)} in pages>"

    @property
    def memory(self) -> int:
        """Return about how many bytes of memory the messages take."""
        in_heap = len(self._timer_heap)
        page_bytes = (self.count - in_heap) * PAGED_SIZE
        return page_bytes * 9 // 8 + in_heap * TIMER_BYTES  # a growing bytearray has an eighth to spare

    def _approach_at(self, minute: int) -> int:
        """Return when to begin to move the page of that minute (ns): in the minute before it, at least ten seconds ahead."""
        return (minute - 1) * MINUTE + self._phase

    def check(self) -> None:
        """Raise AssertionError if an invariant of this class does not hold."""
        self._timer_heap.check()
        assert (
            self.count == len(self._timer_heap) + sum(len(page) for page in self._deferred_pages.values()) // PAGED_SIZE
        )
        assert all(self._deferred_pages.values())
