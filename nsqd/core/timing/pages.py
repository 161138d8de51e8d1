"""Messages that wait, packed as they lie in a checkpoint: 24 bytes each, and a byte that tells whether it still waits there.

Ten million of them as objects would take gigabytes and a minute. A page is (ordinal, due, attempts) end to end, as
nsqd/core/timing/deferred.py packs them; a due of 0 is at once.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import TypeAlias

BLOCK = 4096  # messages that one bytearray tells of
SHIFTED_AT_ONCE = 65_536  # messages: their numbers are objects for a moment
_EMPTY = bytes(BLOCK)

Page: TypeAlias = "array[int]"


class WaitingPages:
    """See above. The bytes that tell what still waits are made when something is taken out, or asked for, first."""

    __slots__ = ("_blocks", "_is_whole", "_pages")

    def __init__(self, pages: list[Page] | None = None) -> None:
        """No message is in the pages twice."""
        self._pages = [page for page in pages or () if page]
        self._blocks: dict[int, bytearray] | None = None  # number -> for each of its messages, 1 if it waits here
        self._is_whole = True  # nothing was taken out

    def _indexed(self) -> dict[int, bytearray]:
        blocks = self._blocks
        if blocks is None:
            blocks = self._blocks = {}
            for page in self._pages:
                for ordinal in page[::3]:
                    block = blocks.get(ordinal // BLOCK)
                    if block is None:
                        block = blocks[ordinal // BLOCK] = bytearray(BLOCK)
                    block[ordinal % BLOCK] = 1
        return blocks

    def take(self, ordinal: int) -> bool:
        """Take a message out. False if it does not wait here."""
        if not self._pages:
            return False
        block = self._indexed().get(ordinal // BLOCK)
        if block is None or not block[ordinal % BLOCK]:
            return False
        block[ordinal % BLOCK] = 0
        self._is_whole = False
        return True

    def remove(self, first: int, end: int) -> None:
        """Take out messages first..end, as far as they wait here."""
        if not self._pages:
            return
        blocks = self._indexed()
        for number in range(first // BLOCK, (end - 1) // BLOCK + 1) if end - first < BLOCK else list(blocks):
            block = blocks.get(number)
            start, stop = max(first - number * BLOCK, 0), min(end - number * BLOCK, BLOCK)
            if block is not None and start < stop and any(block[start:stop]):
                block[start:stop] = bytes(stop - start)
                self._is_whole = False

    def ordinals(self) -> Iterator[int]:
        """Of all messages that wait here, ascending."""
        blocks = self._indexed()
        for number in sorted(blocks):
            block = blocks[number]
            at = block.find(1)
            while at >= 0:
                yield number * BLOCK + at
                at = block.find(1, at + 1)

    def flags(self, first: int, end: int) -> bytes:
        """For each of messages first..end 1 if it waits here, else 0; b"" if none does."""
        if not self._pages:
            return b""
        blocks = self._indexed()
        parts: list[bytes] = []
        while first < end:
            number, at = divmod(first, BLOCK)
            size = min(BLOCK - at, end - first)
            parts.append(bytes(blocks.get(number, _EMPTY)[at : at + size]))
            first += size
        joined = b"".join(parts)
        return joined if any(joined) else b""

    def pages(self) -> list[Page]:
        """Those that still wait. The pages are not to be changed."""
        if self._is_whole:
            return self._pages
        kept = []
        for page in self._pages:
            left = array("q")
            for at in range(0, len(page), 3):
                if self._indexed()[page[at] // BLOCK][page[at] % BLOCK]:
                    left.extend(page[at : at + 3])
            if left:
                kept.append(left)
        return kept

    def entries(self) -> Iterator[tuple[int, int, int]]:
        """(ordinal, due, attempts) of all that still wait. Walks them."""
        for page in self.pages():
            yield from zip(page[::3], page[1::3], page[2::3], strict=True)

    def __repr__(self) -> str:
        return f"<WaitingPages: {sum(map(len, self._pages)) // 3} messages>"


def page_of(packed: bytes) -> Page:
    """A page, of packed messages."""
    return array("q", packed)


def shifted(page: Page, by: int) -> Page:
    """A copy with every due but 0 moved by so much (ns)."""
    moved = array("q", page)
    for first in range(1, len(moved) if by else 0, 3 * SHIFTED_AT_ONCE):
        part = slice(first, first + 3 * SHIFTED_AT_ONCE, 3)
        moved[part] = array("q", [due and due + by for due in moved[part]])
    return moved
