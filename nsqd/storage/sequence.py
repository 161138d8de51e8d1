"""One topic's messages: its extents in order, and what of them is retained though nobody owes it any more."""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from heapq import merge
from operator import attrgetter

from nsqd.core.message.frame import ID_SIZE
from nsqd.core.retention.keeping import Keeping
from nsqd.core.sequence.extent import Extent
from nsqd.storage.held import Held, messages_of

RUN_BYTES = 16 * 1024 * 1024  # neighbours that are retained only are noted as one, up to this size
GRAINS = 16  # ... and up to this part of what is retained
FOREVER = 1 << 62  # ns


_first, _end = attrgetter("first"), attrgetter("end")


class Sequence:
    """One topic's extents, ascending."""

    __slots__ = ("_dead", "_firsts", "_grain", "_unsorted", "edge", "end", "first", "held", "kept", "on_freed")

    def __init__(self) -> None:
        self.edge = 0  # messages before it were given to channels
        self.held: list[Held] = []
        self.first: int | None = None  # finished messages from it on are retained; None: none is
        self.kept: list[Held] = []  # what is only retained; in order after `settle`
        self._unsorted = True  # they may stand in another order
        self._grain = 0, 0  # ns and bytes that neighbours may span which are noted as one
        self._firsts: list[int] = []  # first of each
        self.end = 0  # ordinal after the last message
        self._dead = 0  # extents in `held` of which nothing is left; swept when they are half
        # told of each extent of which nothing is left, before it is swept
        self.on_freed: Callable[[Held], None] = _nothing

    def append(
        self, first: int, frames: list[bytes], ids: bytes, largest: int, delayed: bool, owing: int = 0
    ) -> list[Held]:
        """Messages at the end, in extents that bound what a channel standing in one of them keeps alive. Returns these.

        `owing`: so many readers owe them already; 0: the edge has not passed them.
        """
        if owing:
            self.edge = first + len(frames)
        if len(frames) == 1:
            held = self.last_for(first, delayed)
            held.append_one(frames[0], ids, owing)
            self.end = first + 1
            return [held]
        touched: list[Held] = []
        step = messages_of(largest)
        for start in range(0, len(frames), step):
            stop = start + step
            held = self.last_for(first + start, delayed)
            held.append(frames[start:stop], ids[start * ID_SIZE : stop * ID_SIZE], largest, owing)
            if held not in touched[-1:]:
                touched.append(held)
        self.end = first + len(frames)
        return touched

    def append_cold(self, first: int, count: int, delayed: bool, size: int) -> list[Held]:
        """Messages (`size` bytes in all) at the end that are on disk only. Returns the extents that hold them."""
        last = self.held[-1] if self.held else None
        if count == 1 and last is not None and last.takes_cold(first, delayed):
            last.owed.append(0)
            last.count += 1
            last.bulk += size
            self.end = first + 1
            return [last]
        touched: list[Held] = []
        end, each = first + count, size // count
        while first < end:
            held = self.held[-1] if self.held else None
            if held is None or not held.takes_cold(first, delayed):
                held = Held(first, delayed)
                held.extent = None
                self.add(held)
            part = min(end - first, held.room, messages_of(each))
            held.owed += bytes(part)
            held.count += part
            held.bulk += part * each
            if held not in touched[-1:]:
                touched.append(held)
            first += part
        self.end = end
        return touched

    def last_for(self, first: int, delayed: bool) -> Held:
        """The extent that message `first`, the next one, belongs to."""
        held = self.held[-1] if self.held else None
        if held is None or not held.takes(first, delayed):
            held = Held(first, delayed)
            self.add(held)
        return held

    def add(self, held: Held) -> None:
        """An extent at the end."""
        self.held.append(held)
        self._firsts.append(held.first)
        self.end = max(self.end, held.end)

    def spans(self, first: int, end: int) -> list[tuple[Held, int, int]]:
        """The extents that hold first..end, with the indexes in each."""
        place = bisect_right(self._firsts, first) - 1
        found = []
        while first < end:
            held = self.held[place]
            stop = min(end, held.end)
            found.append((held, first - held.first, stop - held.first))
            first = stop
            place += 1
        return found

    def distribute(self, first: int, end: int, owing: int) -> None:
        """The edge moves to `end`: messages first..end are owed by so many readers."""
        self.edge = end
        for held, start, stop in self.spans(first, end):
            held.owe(start, stop, owing)

    def finish(self, first: int, end: int) -> None:
        """One reader less owes messages first..end, all of which are here."""
        place = bisect_right(self._firsts, first) - 1
        dead = 0
        while first < end:
            held = self.held[place]
            start, stop = first - held.first, min(end - held.first, held.count)
            if held.finish(start, stop):
                self.on_freed(held)
                dead += 1
            first = held.first + stop
            place += 1
        if dead:
            self._dead += dead
            if self._dead > len(self.held) // 2:  # deleting each from the lists at once would cost their length
                self.sweep()

    def present(self, first: int, end: int) -> list[tuple[int, int]]:
        """The parts of first..end that are here."""
        return [(start, stop) for start, stop, _ in self.kinds(first, end)]

    def kinds(self, first: int, end: int) -> Iterator[tuple[int, int, bool]]:
        """The parts of first..end that are here, and for each whether it was published with a delay. Looks as it goes."""
        return (
            (held.first + start, held.first + stop, held.delayed)
            for held, start, stop in self._present(first, end)
            if held.freed < held.count
        )

    def plain(self, first: int, end: int) -> list[tuple[int, int]]:
        """The parts of first..end that were published without a delay."""
        return [(start, stop) for start, stop, delayed in self.kinds(first, end) if not delayed]

    def present_spans(self, first: int, end: int) -> list[tuple[Held, int, int]]:
        """As `spans`, for messages that need not all be here."""
        return list(self._present(first, end))

    def _present(self, first: int, end: int) -> Iterator[tuple[Held, int, int]]:
        held = self.held
        for place in range(max(0, bisect_right(self._firsts, first) - 1), len(held)):
            one = held[place]
            if one.first >= end:
                return
            start, stop = max(first, one.first), min(end, one.end)
            if start < stop:
                yield one, start - one.first, stop - one.first

    def readable(self, first: int, end: int) -> Iterator[Held]:
        """The extents, owed or retained, that hold first..end, ascending. Looks as it goes."""
        if self._unsorted:
            self.kept.sort(key=_first)
            self._unsorted = False
        return merge(_from(self.kept, first, end), _from(self.held, first, end), key=_first)

    def cold(self, first: int, end: int) -> int:
        """How many of first..end are on disk only."""
        spans = self.present_spans(first, end)
        return sum(stop - start for held, start, stop in spans if held.extent is None and held.freed < held.count)

    def count_freed(self) -> None:
        """What was given to channels and is owed by none is freed."""
        for held in self.held:
            held.count_freed(self.edge)

    def owe_again(self, first: int, end: int) -> list[Held]:
        """One channel more owes all of first..end, finished or not. Returns the extents; of these no frame may be missing.

        All of it is on disk, and retained.
        """
        self.edge = max(self.edge, end)
        self.sweep()
        back = [held for held in self.kept if held.end > first and held.first < end]
        self.kept = [held for held in self.kept if held.end <= first or held.first >= end]
        for held in back:
            held.come_back()
        self.held = sorted([*self.held, *back], key=_first)
        self._firsts = [held.first for held in self.held]
        found = self.present_spans(first, end)
        for held, start, stop in found:
            held.owe_one_more(start, stop)
            held.count_freed(self.edge)
        return [held for held, _, _ in found]

    def without(self, held: Held, lost: set[int]) -> None:
        """Messages of an extent on disk (`lost`: indexes) are not there: what is left of it become extents of their own."""
        kept = [index for index in range(held.count) if index not in lost]
        starts = [index for index in kept if index - 1 in lost or index == 0]
        ends = [index + 1 for index in kept if index + 1 in lost or index + 1 == held.count]
        parts = [held.part(start, end, self.edge) for start, end in zip(starts, ends, strict=True)]
        place = self.held.index(held)
        self.held[place : place + 1] = parts
        self._firsts[place : place + 1] = [part.first for part in parts]

    def live(self) -> list[Held]:
        """The extents of which something is left."""
        return [held for held in self.held if held.freed < held.count]

    def place(self, ordinal: int) -> int:
        """The index in `held` of the extent that holds it, else of the next there is; len(held) if there is none."""
        place = bisect_right(self._firsts, ordinal) - 1
        if place < 0 or ordinal >= self.held[place].end:
            place += 1
        while place < len(self.held) and self.held[place].freed == self.held[place].count:
            place += 1
        return place

    def holder(self, ordinal: int) -> Held | None:
        """The extent that holds it; None: nobody owes it."""
        place = self.place(ordinal)
        return self.held[place] if place < len(self.held) and self.held[place].first <= ordinal else None

    def next_plain(self, ordinal: int) -> Held | None:
        """The extent that holds it if that was published without a delay, else the next such."""
        for place in range(self.place(ordinal), len(self.held)):
            held = self.held[place]
            if not held.delayed and held.freed < held.count:
                return held
        return None

    def at(self, ordinal: int) -> Extent | None:
        """The extent that holds it, else the next, else an empty one at the end. None: it is on disk only."""
        place = self.place(ordinal)
        return self.held[place].extent if place < len(self.held) else self.nothing()

    def nothing(self) -> Extent:
        """An empty extent at the end."""
        return Extent(self.end, False)

    def sweep(self) -> None:
        """Of what nothing is left goes, or is retained."""
        self.kept += self._dead_and_retained()
        self._unsorted = True
        self.held = self.live()
        self._firsts = [held.first for held in self.held]
        self._dead = 0

    def settle(self) -> None:
        """What is retained stands in order, neighbours as one. Not while groups wait to be written."""
        self.sweep()
        joined: list[Held] = []
        span, most = self._grain
        for held in sorted(self.kept, key=lambda held: held.first):
            held.retain_only()
            last = joined[-1] if joined else None
            small = last is not None and held.logged_last - last.logged_first <= span and last.size + held.size <= most
            if last is not None and small and last.end == held.first and last.delayed == held.delayed:
                last.join(held)
            else:
                joined.append(held)
        self.kept = joined
        self._unsorted = False

    def retire(self, oldest: int, most: int, holds: list[tuple[int, int, int]]) -> bool:
        """Finished messages go that were published before `oldest` (the log's time), or before the newest `most` bytes.

        For each of `holds`, (offset, oldest, most), those from the offset on stay within bounds of their own. True if more may
        go than before. No bound cuts through what was finished together.
        """
        assert self.first is not None
        self.settle()
        before = self.first
        entries = sorted((*self.kept, *self.held), key=_first)
        first = _bound(entries, oldest, most)
        for offset, held_oldest, held_most in holds:
            if offset < first:
                first = min(first, max(offset, _bound(entries, held_oldest, held_most)))
        self.retain(max(first, before))
        return first > before

    def keep(self, keeping: Keeping) -> None:
        """How finished messages are retained, if they are. A run of them goes as a whole: it must not be too long."""
        self._grain = (
            keeping.retention // GRAINS or FOREVER,
            min(RUN_BYTES, keeping.retention_bytes // GRAINS or RUN_BYTES),
        )

    def retain(self, first: int | None) -> None:
        """Finished messages from `first` on shall stay; None: none of them."""
        self.first = first
        self.kept = [] if first is None else [held for held in self.kept if held.end > first]

    def retained(self) -> list[Held]:
        """The extents of which something is retained and nothing owed."""
        return self.kept + self._dead_and_retained()

    def _dead_and_retained(self) -> list[Held]:
        """What of `held` is not owed, but retained."""
        first = self.first
        return [] if first is None else [one for one in self.held if one.freed == one.count and one.end > first]

    def wanted(self, held: Held) -> float:
        """The part of an extent, 0 to 1, that somebody owes or that is retained."""
        owed = 1 - held.freed / held.count
        if self.first is None:
            return owed
        return max(owed, min(1.0, (held.end - self.first) / held.count))

    def cut(self, first: int) -> None:
        """Forget everything from `first` on; nobody owes it."""
        while self.held and self.held[-1].end > first:
            held = self.held[-1]
            if not held.cut(max(0, first - held.first)):
                return
            self.on_freed(held)
            self.held.pop()
            self._firsts.pop()
            if self.first is not None and held.end > self.first:
                self.kept.append(held)
                self._unsorted = True


def _nothing(held: Held) -> None:
    pass


def _from(entries: list[Held], first: int, end: int) -> Iterator[Held]:
    """Those that hold some of first..end, of ascending ones."""
    for place in range(bisect_right(entries, first, key=_end), len(entries)):
        if entries[place].first >= end:
            return
        yield entries[place]


def _bound(entries: list[Held], oldest: int, most: int) -> int:
    """Where the last of them ends that was published before `oldest` (the log's time), or before the newest `most` bytes.

    0: none was.
    """
    room = most
    for held in reversed(entries):
        room -= held.disk_bytes
        if room < 0 or held.logged_last < oldest:
            return held.end
    return 0
