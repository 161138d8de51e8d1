"""Deferred messages: those due soon in a priority queue, the others packed in pages by the minute.

A message that is due in more than a minute takes 24 bytes, (ordinal, due, counts), in the *deferred page* of the minute in
which it is due, or of one before it; counts are its attempts in the low 32 bits, and its failures above them. The others are in
the *timer heap*. Pages move into the heap bit by bit during the minute before they are due, so ten million deferred messages
cost neither much memory nor a stall (docs/contributing/design/channel.md#far-and-near).

The page of a minute is a list of chunks. Only the last one may grow; it is a bytearray, all others are bytes and never change.
So a checkpoint can write them in earlier turns than the rest (`frozen_chunks`), and their memory is given back chunk by chunk.
The timer heap has such chunks as well, in addition to the objects.
"""

from array import array
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from itertools import islice
from struct import Struct
from typing import TypeAlias

from nsqd.core.timing.deferred_pages import ENDLESS, PackedChunk, after, page_of
from nsqd.core.timing.duequeue import WALKED_AT_ONCE, DueQueue

MINUTE = 60_000_000_000  # ns
CHUNK_BYTES = 2048 * 24  # bytes of a full chunk
RECLAIMED_AT_ONCE = 500  # messages: 0.1 ms
PHASES = 1024  # different offsets within the minute at which queues move their pages
TIMER_BYTES = 275  # memory of a message in the timer heap: the entry, the Message, three numbers, and packed
_PAGED = Struct("<QqQ")  # ordinal, due ns, counts
PAGED_SIZE = _PAGED.size  # bytes
_FAILURES = 32  # bits of the attempts in counts
Chunk: TypeAlias = "bytes | bytearray"  # packed messages end to end
pack, unpack = _PAGED.pack, _PAGED.iter_unpack  # one message to bytes, and a page of them back


class Message:
    """A message that is handled singly: its ordinal in the topic, how often it was delivered, and how often that failed."""

    __slots__ = ("attempts", "failures", "ordinal")

    def __init__(self, ordinal: int, attempts: int, failures: int = 0) -> None:
        self.ordinal = ordinal
        self.attempts = attempts
        self.failures = failures  # at most `attempts`; see nsqd/core/channel/failures.py

    @property
    def counts(self) -> int:
        """Return attempts and failures as one number: see `counts_of`."""
        return counts_of(self.attempts, self.failures)

    def __repr__(self) -> str:
        return f"<Message {self.ordinal}, {self.attempts} attempts, {self.failures} failures>"


def counts_of(attempts: int, failures: int) -> int:
    """Return both counts as one number, which is 0 if the message was never delivered."""
    return attempts | failures << _FAILURES


def attempts_of(counts: int) -> int:
    """Return the attempts in a number that `counts_of` returned."""
    return counts & (1 << _FAILURES) - 1


def message_of(ordinal: int, counts: int) -> Message:
    """Return the message with counts that `counts_of` returned."""
    return Message(ordinal, attempts_of(counts), counts >> _FAILURES)


def pack_ready(messages: Iterable[Message]) -> bytes:
    """Return messages packed in their order, all due at once. To pack each of them alone takes three times as long."""
    alone = list(messages)
    packed = array("Q", bytes(len(alone) * PAGED_SIZE))
    packed[::3] = array("Q", [one.ordinal for one in alone])
    packed[2::3] = array("Q", [one.attempts | one.failures << _FAILURES for one in alone])
    return packed.tobytes()


class TimerHeap(DueQueue[Message]):
    """Messages by due time, which are also packed for checkpoints, in chunks in the order of pushing.

    A message that leaves because it is due stays in its chunk, of which only messages due after `_left_until` count.
    """

    __slots__ = ("_chunks", "_left_until")

    def __init__(self) -> None:
        super().__init__()
        self._chunks: list[Chunk] = []  # only the last one grows
        self._left_until = 0  # monotonic ns; messages due until then that are still in the heap are few

    def push(self, due: int, item: Message) -> int:
        self._pack(pack(item.ordinal, due, item.counts))
        return super().push(due, item)

    def _pack(self, packed: bytes) -> None:
        if not self._chunks:
            self._chunks.append(bytearray())
        self._chunks[-1] += packed
        if len(self._chunks[-1]) >= CHUNK_BYTES:
            self._chunks[-1] = bytes(self._chunks[-1])
            self._chunks.append(bytearray())
            for _ in range(2):  # so that chunks become fewer even if half of their messages are in the heap
                if len(self._chunks) * CHUNK_BYTES > 2 * (len(self) * PAGED_SIZE + CHUNK_BYTES):
                    self._chunks[-1] += after(page_of(bytes(self._chunks.pop(0))), self._left_until)

    def pop_due(self, now: int, limit: int) -> list[Message]:
        popped = super().pop_due(now, limit)
        following = self.next_due()
        if following is None:
            self._chunks.clear()
        self._left_until = max(self._left_until, now if following is None else min(now, following))
        return popped

    def remove_chosen(self, is_chosen: Callable[[Message], bool]) -> list[tuple[int, Message]]:
        taken = super().remove_chosen(is_chosen)
        if taken:
            ordinals = {message.ordinal for _, message in taken}
            self._chunks = list(filter(None, [_without(chunk, ordinals, []) for chunk in self._chunks]))
            self._chunks[-1:] = map(bytearray, self._chunks[-1:])
        return taken

    def pop_batch(self, limit: int) -> list[Message]:
        self._chunks, self._left_until = [], ENDLESS
        return super().pop_batch(limit)

    def packed(self) -> list[PackedChunk]:
        """Return all messages packed, 24 bytes each, in no promised order."""
        overdue = self.due_until(self._left_until)
        others = b"".join([pack(message.ordinal, due, message.counts) for due, message in overdue])
        return [others, *((bytes(chunk), self._left_until) for chunk in self._chunks)]

    def frozen_chunks(self) -> list[bytes]:
        """Return the chunks that never change."""
        return [chunk for chunk in self._chunks if isinstance(chunk, bytes)]

    def check(self) -> None:
        super().check()
        packed = [entry for chunk in self._chunks for entry in unpack(chunk) if entry[1] > self._left_until]
        later = [(one.ordinal, due, one.counts) for due, one in self.entries() if due > self._left_until]
        assert sorted(packed) == sorted(later)
        assert all(isinstance(chunk, bytes) for chunk in self._chunks[:-1])


class Deferred:
    """The deferred messages of one queue, by the times when they are due (monotonic ns)."""

    __slots__ = ("_deferred_pages", "_phase", "_timer_heap", "count")

    def __init__(self, number: int = 0) -> None:
        """Begin without messages. The `number` of the queue spreads the page moves of ten thousand queues over the minute."""
        self._phase = number % PHASES * (MINUTE // PHASES) * 5 // 6  # ns after the earliest time to move a page
        self._timer_heap = TimerHeap()
        # minute -> chunks of packed messages due in it; no page and no chunk is empty
        self._deferred_pages: dict[int, list[Chunk]] = {}
        self.count = 0  # messages in the heap and in the pages together

    def push(self, due: int, message: Message, now: int) -> None:
        """Hold `message` until `due` (monotonic ns)."""
        self.count += 1
        if due - now <= MINUTE:
            self._timer_heap.push(due, message)
        else:
            packed = pack(message.ordinal, due, message.counts)
            page = self._deferred_pages.get(due // MINUTE)
            if page is None:
                self._deferred_pages[due // MINUTE] = [bytearray(packed)]
                return
            last = page[-1]
            if isinstance(last, bytearray) and len(last) < CHUNK_BYTES:
                last += packed
            else:
                page[-1] = bytes(last)
                page.append(bytearray(packed))

    def approach(self, now: int, limit: int) -> int:
        """Move up to `limit` messages of pages that are due soon into the timer heap. Return how many were moved."""
        moved = 0
        while self._deferred_pages and moved < limit:
            minute = min(self._deferred_pages)
            if self._approach_at(minute) > now:
                break
            part = self._pop_of_page(minute, limit - moved)
            for ordinal, due, counts in unpack(part):
                self._timer_heap.push(due, message_of(ordinal, counts))
            moved += len(part) // PAGED_SIZE
        return moved

    def _pop_of_page(self, minute: int, limit: int) -> Chunk:
        """Take up to `limit` messages out of the last chunk of a page, and return them packed."""
        page, size = self._deferred_pages[minute], limit * PAGED_SIZE
        last = page.pop()
        if len(last) > size:
            page.append(last[:-size])
        elif not page:
            del self._deferred_pages[minute]
        return last[-size:]

    def pop_due(self, now: int, limit: int) -> list[Message]:
        """Take out and return up to `limit` messages of the timer heap that are due, the earliest first.

        Call `approach` before.
        """
        due = self._timer_heap.pop_due(now, limit)
        self.count -= len(due)
        return due

    def wake_at(self) -> int | None:
        """Return the time at which `approach` or `pop_due` has something to do (monotonic ns); None: no message is deferred.

        This is the earliest due time in the timer heap, or the time to move the first page.
        """
        heap_due = self._timer_heap.next_due()
        if not self._deferred_pages:
            return heap_due
        page_due = self._approach_at(min(self._deferred_pages))
        return page_due if heap_due is None else min(heap_due, page_due)

    def remove_from(self, ordinal: int) -> None:
        """Drop all messages from `ordinal` on. This walks all messages: for rare commands only."""
        self._timer_heap.remove_chosen(lambda message: message.ordinal >= ordinal)
        for minute, page in list(self._deferred_pages.items()):
            kept = (b"".join(pack(*entry) for entry in unpack(chunk) if entry[0] < ordinal) for chunk in page)
            self._replace_page(minute, [chunk for chunk in kept if chunk])
        in_pages = sum(len(chunk) for page in self._deferred_pages.values() for chunk in page)
        self.count = len(self._timer_heap) + in_pages // PAGED_SIZE

    def _replace_page(self, minute: int, chunks: Iterable[Chunk]) -> None:
        page = self._deferred_pages[minute] = list(chunks)
        if not page:
            del self._deferred_pages[minute]

    def remove_ordinals(self, ordinals: Collection[int]) -> list[Message]:
        """Take out and return the messages with these ordinals. This walks all messages: for rare commands only."""
        return [message for _, message in self.remove_with_due(ordinals)]

    def remove_with_due(self, ordinals: Collection[int]) -> list[tuple[int, Message]]:
        """Take out the messages with these ordinals. Return (due, message) for each. This walks all messages."""
        taken = self._timer_heap.remove_chosen(lambda message: message.ordinal in ordinals)
        for minute, page in list(self._deferred_pages.items()):
            chunks = [_without(chunk, ordinals, taken) for chunk in page]
            self._replace_page(minute, [chunk for chunk in chunks if chunk])
        self.count -= len(taken)
        return taken

    def items(self) -> Iterator[tuple[int, Message]]:
        """Yield (due, message) for all messages, in no promised order."""
        yield from self._timer_heap.entries()
        for chunk in self._chunks():
            for ordinal, due, counts in unpack(chunk):
                yield due, message_of(ordinal, counts)

    def page(
        self, after: str, limit: int, first: int, end: int
    ) -> Generator[None, None, tuple[list[tuple[int, int, int]], str]]:
        """Return up to `limit` (ordinal, due, attempts) of messages first..end after the place `after`, and the next place.

        "" is the place of the beginning, and is returned at the end. The timer heap comes first, by due time, then
        the pages by the minute. This yields after each part of the work; messages may move meanwhile. Raise ValueError if
        `after` is not a place.
        """
        place = tuple(map(int, after[1:].split("."))) if after else (-1, -1)
        if len(place) != 2 or after[:1] not in ("", "n", "f"):
            raise ValueError("no such place")
        found: list[tuple[int, int, int]] = []
        if after[:1] != "f":
            in_heap = yield from self._in_heap(place, limit + 1, lambda one: first <= one.ordinal < end)
            found = [(one.ordinal, due, one.attempts) for due, _, one in in_heap[:limit] if one is not None]
            if len(in_heap) > limit:
                return found, f"n{in_heap[limit - 1][0]}.{in_heap[limit - 1][1]}"
            place = (-1, -1)
        walked = 0
        for minute in sorted(minute for minute in self._deferred_pages if minute >= place[0]):
            index = start = max(0, place[1] + 1) if minute == place[0] else 0
            for chunk in [bytes(chunk) for chunk in self._deferred_pages.get(minute, ())]:
                for ordinal, due, counts in unpack(memoryview(chunk)[min(start * PAGED_SIZE, len(chunk)) :]):
                    if first <= ordinal < end:
                        if len(found) == limit:
                            return found, f"f{minute}.{index - 1}"
                        found.append((ordinal, due, attempts_of(counts)))
                    index += 1
                walked += max(0, len(chunk) // PAGED_SIZE - start)
                start = max(0, start - len(chunk) // PAGED_SIZE)
                if walked >= WALKED_AT_ONCE:
                    walked = 0
                    yield
        return found, ""

    def _in_heap(
        self, place: tuple[int, int], count: int, is_chosen: Callable[[Message], bool]
    ) -> Generator[None, None, list[tuple[int, int, Message | None]]]:
        """Return the first `count` chosen messages of the timer heap after a place, as (due, handle, message)."""
        if place == (-1, -1):  # the first page, which is asked for most often, costs less
            first = [entry for entry in islice(self._timer_heap.ascending(), 2 * count) if is_chosen(entry[2])]
            if len(first) >= count:
                return list[tuple[int, int, Message | None]](first[:count])
        return (yield from self._timer_heap.after(place, count, is_chosen))

    def packed(self) -> list[PackedChunk]:
        """Return all messages packed, 24 bytes each, in no promised order."""
        return [*self._timer_heap.packed(), *(bytes(chunk) for chunk in self._chunks())]

    def frozen_chunks(self) -> list[bytes]:
        """Return the chunks that never change. They leave a page as a whole, or are replaced by others."""
        return [*self._timer_heap.frozen_chunks(), *(chunk for chunk in self._chunks() if isinstance(chunk, bytes))]

    def _chunks(self) -> Iterator[Chunk]:
        for page in self._deferred_pages.values():
            yield from page

    def snapshot(self) -> list[Iterable[int]]:
        """Return the ordinals of all messages, in parts. They stay as they are when messages come and go."""
        in_heap = [message.ordinal for message in self._timer_heap.values()]
        return [in_heap, *(_ordinals_of(bytes(chunk)) for chunk in self._chunks())]

    def reclaim(self) -> Iterator[None]:
        """Free all messages, which nothing else uses, a part with each step."""
        while self.pop_batch(RECLAIMED_AT_ONCE):
            yield

    def pop_batch(self, limit: int) -> list[int]:
        """Take out up to `limit` messages, any ones, and return their ordinals. Return [] if no message is left."""
        ordinals = [message.ordinal for message in self._timer_heap.pop_batch(limit)]
        if not ordinals and self._deferred_pages:
            ordinals = list(_ordinals_of(self._pop_of_page(next(reversed(self._deferred_pages)), limit)))
        self.count -= len(ordinals)
        return ordinals

    def load(self, page: bytes) -> None:
        """Add a chunk that `packed` returned. Their times may have been moved since, all by the same amount."""
        minute = min(array("q", page)[1::3]) // MINUTE
        chunks = (page[at : at + CHUNK_BYTES] for at in range(0, len(page), CHUNK_BYTES))
        loaded = self._deferred_pages.setdefault(minute, [])
        if loaded:
            loaded[-1] = bytes(loaded[-1])
        loaded += chunks
        self.count += len(page) // PAGED_SIZE

    def __repr__(self) -> str:
        return f"<Deferred: {len(self._timer_heap)} in the heap, {self.count - len(self._timer_heap)} in pages>"

    @property
    def memory(self) -> int:
        """Return about how many bytes of memory the messages take."""
        in_heap = len(self._timer_heap)
        return (self.count - in_heap) * PAGED_SIZE + in_heap * TIMER_BYTES

    def _approach_at(self, minute: int) -> int:
        """Return the time to begin to move the page of that minute (ns): in the minute before, at least ten seconds ahead."""
        return (minute - 1) * MINUTE + self._phase

    def check(self) -> None:
        """Raise AssertionError if an invariant of this class does not hold."""
        self._timer_heap.check()
        in_pages = sum(map(len, self._chunks())) // PAGED_SIZE
        assert self.count == len(self._timer_heap) + in_pages
        assert all(self._deferred_pages.values())
        for page in self._deferred_pages.values():
            assert all(page)
            assert all(isinstance(chunk, bytes) for chunk in page[:-1])


def _ordinals_of(chunk: Chunk) -> Iterator[int]:
    return (ordinal for ordinal, _, _ in unpack(chunk))


def _without(chunk: Chunk, ordinals: Collection[int], taken: list[tuple[int, Message]]) -> Chunk:
    """Return the chunk without the messages with these ordinals, which are added to `taken` as (due, message)."""
    found = set(ordinals).intersection(array("Q", chunk)[::3])
    if not found:
        return chunk
    taken += [(due, message_of(ordinal, counts)) for ordinal, due, counts in unpack(chunk) if ordinal in found]
    return b"".join([pack(*entry) for entry in unpack(chunk) if entry[0] not in found])
