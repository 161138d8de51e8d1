"""Values of many subjects over time, packed by the block: the changes of a block in a step are one compressed string.

A *ring* is the list of the latest steps of one length, the same for all blocks; each step has a serial number. A *block* has
places for SIZE subjects with WIDTH values each, and for each ring one row per step: the differences of all values to the step
before, or None if nothing changed. So subjects that did nothing cost nothing, and most values take less than a byte. Who reads
them back goes from the present into the past. This file knows nothing of topics and of clocks.
"""

from __future__ import annotations

import zlib
from array import array
from collections import deque
from collections.abc import Iterable, Sequence
from operator import sub
from typing import Generic, NamedTuple, Protocol, TypeVar

SIZE = 64  # subjects of a block: a row of it takes 25 us to pack and 4 us to unpack
WIDTH = 8  # values of a subject
ROW_OVERHEAD = 41  # bytes of an object, and of the reference to it
_NOTHING = array("q", bytes(8 * SIZE * WIDTH))
_COLUMNS = range(WIDTH)
_ZEROS, _UNKNOWN = (0,) * WIDTH, (None,) * WIDTH


class Deletable(Protocol):
    """A subject, as far as a block has to know it: whether it is gone."""

    deleted: bool


S = TypeVar("S", bound=Deletable)


class Ring:
    """The latest steps of one length. A slot is the number of a step since the epoch."""

    __slots__ = ("base", "slots", "span", "step")

    def __init__(self, step: int, span: int) -> None:
        self.step, self.span = step, span  # s; steps that are kept
        self.slots: deque[int] = deque()  # of the steps that were noted, ascending
        self.base = 0  # the serial number of the first of them

    def is_before(self, at: int) -> bool:
        """Return whether the step that ends at `at` (s since the epoch) is later than the last one."""
        return not self.slots or self.slots[-1] < at // self.step - 1

    def begin(self, at: int) -> None:
        """Begin the step that ends at `at` (s since the epoch), which is later than the last one."""
        slot = at // self.step - 1
        self.slots.append(slot)
        while self.slots[0] < slot - self.span:  # one more is kept, to know what the oldest step followed
            self.forget(1)

    def forget(self, count: int) -> None:
        """Forget the `count` oldest steps: later positions stay as they are."""
        for _ in range(count):
            self.slots.popleft()
        self.base += count

    @property
    def following(self) -> int:
        """Return the serial number of the step that comes next."""
        return self.base + len(self.slots)

    def __repr__(self) -> str:
        return f"<Ring: {len(self.slots)} steps of {self.step} s>"


class Rows:
    """The rows of one block in one ring."""

    __slots__ = ("base", "before", "begun", "rows")

    def __init__(self, base: int) -> None:
        self.base = base  # the serial number of the first row
        self.rows: deque[bytes | None] = deque()
        self.before = array("q", _NOTHING)  # the values at the end of the last row
        self.begun = array("q", [base]) * SIZE  # the serial number of the first row of each place that is its subject's

    def __repr__(self) -> str:
        return f"<Rows: {len(self.rows)} from {self.base} on>"


class Values(NamedTuple):
    """The known steps of one subject in one ring, not yet unpacked."""

    slots: list[int]  # of its rows
    rows: list[bytes | None]
    latest: array[int]  # the values at the end of the last row
    place: int
    is_first_known: bool  # the step before the first row was noted, too, so its counts are known


class Block(Generic[S]):
    """Holds the counts of SIZE subjects per step, compressed together."""

    __slots__ = ("_now", "_of", "_subjects", "stored_bytes")

    def __init__(self, *rings: Ring) -> None:
        self._of = {id(ring): Rows(ring.following) for ring in rings}
        self._subjects: list[S | None] = [None] * SIZE
        self._now = array("q", _NOTHING)
        self.stored_bytes = 0  # of the rows

    def enter(self, place: int, subject: S, values: array[int], rings: Iterable[Ring]) -> None:
        """Give a place to a new subject. A step that was begun is its first one, of which it has no counts."""
        self._subjects[place] = subject
        own = slice(place * WIDTH, (place + 1) * WIDTH)
        self._now[own] = values
        for ring in rings:
            rows = self._of[id(ring)]
            rows.before[own] = values
            rows.begun[place] = rows.base + len(rows.rows)

    def set(self, place: int, values: array[int]) -> bool:
        """Set the values of a subject. Return False if they are the same as before."""
        own = slice(place * WIDTH, (place + 1) * WIDTH)
        if self._now[own] == values:
            return False
        self._now[own] = values
        return True

    def drop_deleted(self) -> list[tuple[int, S]]:
        """Free the places of deleted subjects. Return both."""
        gone = [(place, one) for place, one in enumerate(self._subjects) if one is not None and one.deleted]
        for place, _ in gone:
            self._subjects[place] = None
        return gone

    def record(self, rings: Iterable[Ring]) -> None:
        """Add the row of the step that these rings have begun."""
        for ring in rings:
            rows = self._of[id(ring)]
            row = _pack(self._now, rows.before) if self._now != rows.before else None
            rows.before = array("q", self._now) if row is not None else rows.before
            rows.rows.append(row)
            self.stored_bytes += _size(row)

    def trim(self, rings: Iterable[Ring]) -> None:
        """Forget the rows of the steps that these rings have forgotten."""
        for ring in rings:
            rows = self._of[id(ring)]
            while rows.base < ring.base and rows.rows:
                self.stored_bytes -= _size(rows.rows.popleft())
                rows.base += 1

    def values(self, place: int, ring: Ring) -> Values | None:
        """Return the known steps of the subject at that place in a ring; None: there are none."""
        rows = self._of[id(ring)]
        first = max(rows.begun[place], rows.base, ring.base)
        kept = list(rows.rows)[first - rows.base :]
        slots = list(ring.slots)[first - ring.base :][: len(kept)]
        is_first_known = False
        if len(slots) > 1 and slots[0] <= ring.slots[-1] - ring.span:
            # the first one only shows whether the step before the next is known
            is_first_known, slots, kept = slots[0] + 1 == slots[1], slots[1:], kept[1:]
        latest = rows.before[place * WIDTH : (place + 1) * WIDTH]
        return Values(slots, kept, latest, place, is_first_known) if kept else None

    def __repr__(self) -> str:
        return f"<Block of {SIZE - self._subjects.count(None)} subjects, {self.stored_bytes} B>"


def read_back(values: Values, counters: int) -> list[list[int | None]]:
    """Return a list for each value of a subject: counts of each step for the first `counters`, levels for the others.

    There is a place for each step from the first slot to the last, and None where nothing is known.
    """
    first, last = values.slots[0], values.slots[-1]
    steps: list[Sequence[int | None]] = [_UNKNOWN] * (last - first + 1)
    state: Sequence[int] = values.latest.tolist()
    for number in range(len(values.rows) - 1, -1, -1):
        slot, row = values.slots[number], values.rows[number]
        gained = _unpack(row, values.place) if row is not None else _ZEROS
        is_known = values.slots[number - 1] == slot - 1 if number else values.is_first_known
        counts = [max(0, count) for count in gained[:counters]] if is_known else _UNKNOWN[:counters]
        steps[slot - first] = [*counts, *state[counters:]]
        if row is not None:
            state = list(map(sub, state, gained))
    return list(map(list, zip(*steps, strict=True)))


def _pack(now: array[int], before: array[int]) -> bytes:
    """Return the differences, packed: value by value, since neighbors are alike."""
    gained = array("q", map(sub, now, before))
    return zlib.compress(b"".join([gained[column::WIDTH].tobytes() for column in _COLUMNS]))


def _unpack(row: bytes, place: int) -> Sequence[int]:
    gained = array("q")
    gained.frombytes(zlib.decompress(row))
    return gained[place::SIZE]


def _size(row: bytes | None) -> int:
    return len(row) + ROW_OVERHEAD if row is not None else 8
