"""The retry queue of a channel: messages that came back, in the order in which they are delivered.

Millions of them may wait. Only the first ones are objects; the others are packed in chunks, as deferred messages are
(nsqd/core/timing/deferred.py). A full chunk never changes: it is taken as a whole, or replaced by another.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from itertools import compress, islice
from typing import TypeAlias

from nsqd.core.timing.deferred import CHUNK_BYTES, PAGED_SIZE, Message, message_of, pack, pack_ready, unpack

Entry: TypeAlias = tuple[int, Message]  # (position, message), of which the owner of the queue gives the first a meaning
# packed messages, all of which are due at once; their positions
_Chunk: TypeAlias = "tuple[bytes | bytearray, array[int]]"


class RetryQueue(deque[Entry]):
    """The deque itself has the first messages: it is empty only if the queue is. `entries` yields all of them."""

    __slots__ = ("_chunks", "_last", "packed_count")

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        super().__init__()
        self.packed_count = 0  # messages that are not in the deque itself
        self._chunks: deque[_Chunk] = deque()  # full ones
        self._last: _Chunk = bytearray(), array("Q")  # the one that grows
        for entry in entries:
            self.append(entry)

    def append(self, entry: Entry, /) -> None:
        if not self.packed_count and len(self) < CHUNK_BYTES // PAGED_SIZE:
            super().append(entry)
            return
        position, message = entry
        packed, positions = self._last
        packed += pack(message.ordinal, 0, message.counts)
        positions.append(position)
        self.packed_count += 1
        if len(packed) >= CHUNK_BYTES:
            self._chunks.append((bytes(packed), positions))
            self._last = bytearray(), array("Q")

    def popleft(self) -> Entry:
        taken = super().popleft()
        if not self:
            self._refill()
        return taken

    @property
    def size(self) -> int:
        """Return the number of all messages."""
        return len(self) + self.packed_count

    def _refill(self) -> None:
        """Unpack the next chunks until the deque has messages, or nothing is left."""
        while not self and self.packed_count:
            if self._chunks:
                chunk = self._chunks.popleft()
            else:
                chunk, self._last = self._last, (bytearray(), array("Q"))
            self.packed_count -= len(chunk[1])
            self.extend(_entries(chunk))

    def remove_ordinals(self, ordinals: Collection[int]) -> list[Message]:
        """Take these messages out and return them. This walks the queue up to the last of them."""
        chosen = set(ordinals)
        taken = [entry[1] for entry in self if entry[1].ordinal in chosen]
        if taken:
            kept = [entry for entry in self if entry[1].ordinal not in chosen]
            self.clear()
            self.extend(kept)
        for place, chunk in enumerate(self._chunks):
            if len(taken) == len(chosen):
                break
            packed, positions = _without(chunk, chosen, taken)
            self._chunks[place] = bytes(packed), positions
        if len(taken) < len(chosen):
            self._last = _without(self._last, chosen, taken)
        self.packed_count = sum(len(positions) for _, positions in (*self._chunks, self._last))
        self._refill()
        return taken

    def entries(self, start: int = 0) -> Iterator[Entry]:
        """Yield all messages from index `start` on."""
        yield from islice(self, start, None)
        start = max(0, start - len(self))
        for chunk in (*self._chunks, self._last):
            count = len(chunk[1])
            if start < count:
                yield from islice(_entries(chunk), start, None)
            start = max(0, start - count)

    def packed(self) -> list[bytes]:
        """Return all messages packed, in their order."""
        return [pack_ready(message for _, message in self), *self.frozen_chunks(), bytes(self._last[0])]

    def frozen_chunks(self) -> list[bytes]:
        """Return the chunks that never change."""
        return [bytes(packed) for packed, _ in self._chunks]

    def check(self) -> None:
        """Raise AssertionError if an invariant of this class does not hold."""
        assert sum(1 for _ in self.entries()) == len(self) + self.packed_count
        assert self or not self.packed_count
        assert all(isinstance(packed, bytes) for packed, _ in self._chunks)


def _entries(chunk: _Chunk) -> Iterator[Entry]:
    packed, positions = chunk
    return zip(positions, (message_of(ordinal, counts) for ordinal, _, counts in unpack(packed)), strict=True)


def _without(chunk: _Chunk, ordinals: set[int], taken: list[Message]) -> _Chunk:
    """Return the chunk without the messages with these ordinals, which are added to `taken`; itself if it has none."""
    packed, positions = chunk
    numbers = array("Q", packed)
    stays = [ordinal not in ordinals for ordinal in numbers[::3]]
    if all(stays):
        return chunk
    taken += [message for (_, message), kept in zip(_entries(chunk), stays, strict=True) if not kept]
    left = array("Q", bytes(sum(stays) * PAGED_SIZE))
    left[::3], left[2::3] = (array("Q", compress(numbers[column::3], stays)) for column in (0, 2))
    return bytearray(left), array("Q", compress(positions, stays))
