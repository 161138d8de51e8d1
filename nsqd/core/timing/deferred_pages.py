"""Waiting messages, packed as in a checkpoint: 24 bytes each, and one byte that says whether the message still waits there.

Ten million of them as objects would take gigabytes, and a minute to create. A page is (ordinal, due, counts) end to end, as
nsqd/core/timing/deferred.py packs them; a due of 0 means at once.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator
from itertools import compress
from typing import TypeAlias

BLOCK = 4096  # messages per bytearray of flags
# Messages per page that is read from a checkpoint: a log may be read in a thread next to a running broker, and no built-in
# may hold the interpreter for long.
IN_A_PAGE = 4096
_PAGE_BYTES = 24 * IN_A_PAGE
ENDLESS = (1 << 63) - 1  # more than any ordinal
_EMPTY = bytes(BLOCK)

Page: TypeAlias = "array[int]"
# A chunk of packed messages; or one, and which messages have left it since: see `remaining`.
PackedChunk: TypeAlias = "bytes | tuple[bytes, int | bytes]"


class DeferredPages:
    """Pages of packed messages from which single messages can be taken out.

    The pages stay as they are; flags say which messages still wait. The flags are built when they are first needed.
    """

    __slots__ = ("_blocks", "_is_whole", "_pages")

    def __init__(self, pages: list[Page] | None = None) -> None:
        """Begin with these pages. No message may be in them twice."""
        self._pages = [page for page in pages or () if page]
        self._blocks: dict[int, bytearray] | None = None  # by block number: a byte for each message, 1 if it waits
        self._is_whole = True  # no message was taken out

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

    def remove_one(self, ordinal: int) -> bool:
        """Take a message out. Return False if it does not wait here."""
        if ordinal not in self:
            return False
        self._indexed()[ordinal // BLOCK][ordinal % BLOCK] = 0
        self._is_whole = False
        return True

    def __contains__(self, ordinal: int) -> bool:
        block = self._indexed().get(ordinal // BLOCK) if self._pages else None
        return block is not None and block[ordinal % BLOCK] == 1

    def remove_span(self, first: int, end: int) -> None:
        """Take out those of messages first..end that wait here."""
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
        """Yield the ordinals of all messages that wait here, ascending."""
        blocks = self._indexed()
        for number in sorted(blocks):
            block = blocks[number]
            at = block.find(1)
            while at >= 0:
                yield number * BLOCK + at
                at = block.find(1, at + 1)

    def flags(self, first: int, end: int) -> bytes:
        """Return a byte for each of messages first..end, 1 if it waits here, else 0; or b"" if none does."""
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
        """Return pages of the messages that still wait. The caller must not change the pages."""
        return self._pages if self._is_whole else list(_chosen(self._pages, self.__contains__))

    def others(self, pages: list[Page]) -> list[Page]:
        """Return `pages` without the messages that wait here."""
        return list(_chosen(pages, lambda ordinal: ordinal not in self)) if self._pages else pages

    def count(self, first: int) -> int:
        """Return the number of messages from ordinal `first` on that wait here."""
        blocks = self._indexed().items()
        return sum(block.count(1, max(first - number * BLOCK, 0)) for number, block in blocks)

    def entries(self) -> Iterator[tuple[int, int, int]]:
        """Yield (ordinal, due, counts) for all messages that still wait. This walks all of them."""
        for page in self.pages():
            yield from zip(page[::3], page[1::3], page[2::3], strict=True)

    def __repr__(self) -> str:
        return f"<WaitingPages: {sum(map(len, self._pages)) // 3} messages>"


def page_of(packed: bytes) -> Page:
    """Return the packed messages as a page."""
    return array("q", packed)


def packed_alike(ordinals: Iterable[int], counts: int) -> bytes:
    """Return messages with the same counts, all due at once, packed."""
    column = array("q", ordinals)
    page = array("q", (0, 0, counts)) * len(column)
    page[::3] = column
    return page.tobytes()


def shifted(page: Page, by: int) -> Page:
    """Return a copy of the page in which every due but 0 is later by `by` ns."""
    moved = array("q", page)
    for first in range(1, len(moved) if by else 0, 3 * IN_A_PAGE):
        part = slice(first, first + 3 * IN_A_PAGE, 3)
        moved[part] = array("q", [due and due + by for due in moved[part]])
    return moved


def pages_of(chunks: Iterable[bytes], by: int) -> Iterator[Page]:
    """Yield packed messages as pages of at most IN_A_PAGE messages, in which every due but 0 is later by `by` ns."""
    for chunk in chunks:
        for at in range(0, len(chunk), _PAGE_BYTES):
            yield shifted(page_of(chunk[at : at + _PAGE_BYTES]), by)


def between(page: Page, first: int, end: int) -> Page:
    """Return a page with those of its messages whose ordinals are first..end; the page itself if that is all of them."""
    ordinals = page[::3]
    if not ordinals or (min(ordinals) >= first and max(ordinals) < end):
        return page
    return next(_chosen([page], lambda ordinal: first <= ordinal < end), array("q"))


def after(page: Page, time: int) -> Page:
    """Return a page with those of its messages that are due after `time`; the page itself if that is all of them."""
    return _compressed(page, [due > time for due in page[1::3]])


def remaining(chunk: bytes, left: int | bytes) -> bytes:
    """Return a chunk without the messages that left it: those due until `left` (ns), or those with these ordinals (8 bytes)."""
    page = page_of(chunk)
    if isinstance(left, int):
        return after(page, left).tobytes()
    ordinals = set(array("q", left))
    return _compressed(page, [ordinal not in ordinals for ordinal in page[::3]]).tobytes()


def _compressed(page: Page, chosen: list[bool]) -> Page:
    """Return a page with the chosen messages; the page itself if that is all of them."""
    if all(chosen):
        return page
    left = array("q", bytes(24 * sum(chosen)))
    for column in range(3):
        left[column::3] = array("q", compress(page[column::3], chosen))
    return left


def _chosen(pages: Iterable[Page], is_chosen: Callable[[int], bool]) -> Iterator[Page]:
    """Yield pages with those messages whose ordinals are chosen, without empty ones; a page itself if all of them are."""
    for page in pages:
        left = array("q")
        for at, ordinal in enumerate(page[::3]):
            if is_chosen(ordinal):
                left.extend(page[3 * at : 3 * at + 3])
        if left:
            yield page if len(left) == len(page) else left


def due_soon(pages: Iterable[Page], until: int, later: list[Page]) -> Iterator[tuple[int, int, int]]:
    """Yield (ordinal, due, counts) of the messages in `pages`, except for pages due after `until`, which go to `later`."""
    for page in pages:
        if min(page[1::3]) > until:
            later.append(page)
        else:
            yield from zip(page[::3], page[1::3], page[2::3], strict=True)


def in_order(entries: Iterable[tuple[int, int, int]]) -> Iterator[tuple[int, int, int]]:
    """Yield (ordinal, due, counts) by ordinal. A block of them is sorted at once, and let go before the next one."""
    blocks: dict[int, list[tuple[int, int, int]]] = {}
    for entry in entries:
        blocks.setdefault(entry[0] // BLOCK, []).append(entry)
    for number in sorted(blocks):
        yield from sorted(blocks.pop(number))
