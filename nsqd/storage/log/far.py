"""What a channel handed back for long, as replay has it: packed, and a byte for each message that tells whether it still waits.

Ten million of them as objects would take gigabytes and a minute.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from nsqd.storage.sequence import Sequence

BLOCK = 4096  # messages that one bytearray tells of


class Far:
    """See above. A page is (ordinal, due, attempts) one behind the other; times are the log's."""

    __slots__ = ("_blocks", "_gone", "pages")

    def __init__(self, pages: list[array[int]]) -> None:
        self.pages = pages
        self._blocks: dict[int, bytearray] = {}  # number -> for each of its messages, 1 if it waits here
        self._gone = False  # some of the pages' messages wait here no more
        for page in pages:
            for ordinal in page[::3]:
                block = self._blocks.get(ordinal // BLOCK)
                if block is None:
                    block = self._blocks[ordinal // BLOCK] = bytearray(BLOCK)
                block[ordinal % BLOCK] = 1

    def take(self, ordinal: int) -> bool:
        """It waits here no more. False if it did not."""
        block = self._blocks.get(ordinal // BLOCK)
        if block is None or not block[ordinal % BLOCK]:
            return False
        block[ordinal % BLOCK] = 0
        self._gone = True
        return True

    def remove(self, first: int, end: int) -> None:
        """Nothing of first..end waits here any more."""
        if not self._blocks:
            return
        for number in range(first // BLOCK, (end - 1) // BLOCK + 1) if end - first < BLOCK else list(self._blocks):
            block = self._blocks.get(number)
            start, stop = max(first - number * BLOCK, 0), min(end - number * BLOCK, BLOCK)
            if block is not None and start < stop and any(block[start:stop]):
                block[start:stop] = bytes(stop - start)
                self._gone = True

    def waiting(self) -> Iterator[int]:
        """The ordinals of all that does."""
        for number in sorted(self._blocks):
            block = self._blocks[number]
            at = block.find(1)
            while at >= 0:
                yield number * BLOCK + at
                at = block.find(1, at + 1)

    def owe(self, sequence: Sequence) -> None:
        """One channel more owes all of it."""
        for held in sequence.held:
            flags = self._flags(held.first, held.end)
            if any(flags):
                held.owe_flagged(flags)

    def _flags(self, first: int, end: int) -> bytes:
        parts = []
        while first < end:
            number, at = divmod(first, BLOCK)
            size = min(BLOCK - at, end - first)
            block = self._blocks.get(number)
            parts.append(bytes(size) if block is None else block[at : at + size])
            first += size
        return b"".join(parts)

    def left(self) -> list[array[int]]:
        """The pages, of what waits still."""
        if not self._gone:
            return self.pages
        kept = []
        for page in self.pages:
            left = array("q")
            for at in range(0, len(page), 3):
                if self._blocks[page[at] // BLOCK][page[at] % BLOCK]:
                    left.extend(page[at : at + 3])
            if left:
                kept.append(left)
        return kept
