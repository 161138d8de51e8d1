"""One topic's messages: its extents in order, and the finished messages that the topic retains."""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from heapq import merge
from operator import attrgetter

from nsqd.core.message.frame import ID_SIZE
from nsqd.core.retention.policy import StoragePolicy
from nsqd.core.sequence.extent import Extent
from nsqd.storage.stored_extent import StoredExtent, messages_of

RUN_BYTES = 16 * 1024 * 1024  # bytes: neighboring extents that are only retained are joined into one up to this size
GRAINS = 16  # such an extent is at most one part in this many of the topic's retention, in time and bytes
FOREVER = 1 << 62  # ns


_first, _end = attrgetter("first"), attrgetter("end")


class Sequence:
    """The extents of one topic, ascending by ordinal."""

    __slots__ = ("_dead", "_firsts", "_grain", "_unsorted", "edge", "end", "first", "held", "kept", "on_freed")

    def __init__(self) -> None:
        self.edge = 0  # ordinal: the messages before it were given to channels
        self.held: list[StoredExtent] = []
        self.first: int | None = None  # ordinal: finished messages from it on are retained; None: none are
        self.kept: list[StoredExtent] = []  # extents that are only retained; in order after `settle`
        self._unsorted = True  # True: `kept` may be out of order
        self._grain = 0, 0  # ns and bytes that an extent joined from neighbors may span
        self._firsts: list[int] = []  # `first` of each extent in `held`
        self.end = 0  # ordinal after the last message
        # number of extents in `held` whose messages are all freed; `sweep` removes them once they are half
        self._dead = 0
        # called with each extent whose messages are all freed, before the extent is swept
        self.on_freed: Callable[[StoredExtent], None] = _nothing

    def append(
        self, first: int, frames: list[bytes], ids: bytes, largest: int, delayed: bool, owing: int = 0
    ) -> list[StoredExtent]:
        """Append messages, in extents whose size bounds what a channel standing in one of them keeps in memory.

        `owing`: how many readers owe the messages already; 0: the edge has not passed them. Returns the extents that got
        messages.
        """
        if owing:
            self.edge = first + len(frames)
        if len(frames) == 1:
            held = self.last_for(first, delayed)
            held.append_one(frames[0], ids, owing)
            self.end = first + 1
            return [held]
        touched: list[StoredExtent] = []
        step = messages_of(largest)
        for start in range(0, len(frames), step):
            stop = start + step
            held = self.last_for(first + start, delayed)
            held.append(frames[start:stop], ids[start * ID_SIZE : stop * ID_SIZE], largest, owing)
            if held not in touched[-1:]:
                touched.append(held)
        self.end = first + len(frames)
        return touched

    def append_cold(self, first: int, count: int, delayed: bool, size: int) -> list[StoredExtent]:
        """Append `count` messages (`size` bytes in all) that are on disk only. Returns the extents that hold them."""
        last = self.held[-1] if self.held else None
        if count == 1 and last is not None and last.takes_cold(first, delayed):
            last.owed.append(0)
            last.count += 1
            last.bulk += size
            self.end = first + 1
            return [last]
        touched: list[StoredExtent] = []
        end, each = first + count, size // count
        while first < end:
            held = self.held[-1] if self.held else None
            if held is None or not held.takes_cold(first, delayed):
                held = StoredExtent(first, delayed)
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

    def last_for(self, first: int, delayed: bool) -> StoredExtent:
        """Return the extent to which message `first`, the next one, belongs. Begin a new extent if necessary."""
        held = self.held[-1] if self.held else None
        if held is None or not held.takes(first, delayed):
            held = StoredExtent(first, delayed)
            self.add(held)
        return held

    def add(self, held: StoredExtent) -> None:
        """Append an extent after the last one."""
        self.held.append(held)
        self._firsts.append(held.first)
        self.end = max(self.end, held.end)

    def spans(self, first: int, end: int) -> list[tuple[StoredExtent, int, int]]:
        """Return the extents that hold messages first..end, each with the start and end index. All must be present."""
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
        """Move the edge to `end`: `owing` readers owe messages first..end."""
        self.edge = end
        for held, start, stop in self.spans(first, end):
            held.owe(start, stop, owing)

    def finish(self, first: int, end: int) -> None:
        """Note that one reader no longer owes messages first..end, all of which must be present."""
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
            if self._dead > len(self.held) // 2:  # deleting each extent at once would cost the lists' length
                self.sweep()

    def kinds(self, first: int, end: int) -> Iterator[tuple[int, int, bool]]:
        """Yield the present parts of first..end as (first, end, delayed). The sequence must not change meanwhile.

        `delayed` is True if the part was published with a delay. A part may include freed messages of an extent that is still
        owed.
        """
        return (
            (held.first + start, held.first + stop, held.delayed)
            for held, start, stop in self._present(first, end)
            if held.freed < held.count
        )

    def plain(self, first: int, end: int) -> list[tuple[int, int]]:
        """Return the parts (first, end) of first..end that were published without a delay."""
        return [(start, stop) for start, stop, delayed in self.kinds(first, end) if not delayed]

    def present_spans(self, first: int, end: int) -> list[tuple[StoredExtent, int, int]]:
        """Return the same as `spans`, for messages of which some may be missing."""
        return list(self._present(first, end))

    def _present(self, first: int, end: int) -> Iterator[tuple[StoredExtent, int, int]]:
        held = self.held
        for place in range(max(0, bisect_right(self._firsts, first) - 1), len(held)):
            one = held[place]
            if one.first >= end:
                return
            start, stop = max(first, one.first), min(end, one.end)
            if start < stop:
                yield one, start - one.first, stop - one.first

    def readable(self, first: int, end: int) -> Iterator[StoredExtent]:
        """Yield the extents, owed or retained, that hold messages of first..end, ascending.

        The caller must not change the sequence meanwhile.
        """
        if self._unsorted:
            self.kept.sort(key=_first)
            self._unsorted = False
        return merge(_from(self.kept, first, end), _from(self.held, first, end), key=_first)

    def cold(self, first: int, end: int) -> int:
        """Return how many messages of first..end are on disk only."""
        spans = self.present_spans(first, end)
        return sum(stop - start for held, start, stop in spans if held.extent is None and held.freed < held.count)

    def count_freed(self) -> None:
        """Count the freed messages of all extents anew: those before the edge that no channel owes."""
        for held in self.held:
            held.count_freed(self.edge)

    def owe_again(self, first: int, end: int) -> list[StoredExtent]:
        """Note that one more channel owes all messages of first..end, finished or not.

        All of these messages must be on disk and retained. Returns their extents, in which no frame may be missing from now on.
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

    def without(self, held: StoredExtent, lost: set[int]) -> None:
        """Replace an extent on disk by extents of its messages that are not in `lost` (indexes)."""
        kept = [index for index in range(held.count) if index not in lost]
        starts = [index for index in kept if index - 1 in lost or index == 0]
        ends = [index + 1 for index in kept if index + 1 in lost or index + 1 == held.count]
        parts = [held.part(start, end, self.edge) for start, end in zip(starts, ends, strict=True)]
        place = self.held.index(held)
        self.held[place : place + 1] = parts
        self._firsts[place : place + 1] = [part.first for part in parts]

    def live(self) -> list[StoredExtent]:
        """Return the extents with messages that are not freed."""
        return [held for held in self.held if held.freed < held.count]

    def place(self, ordinal: int) -> int:
        """Return the index in `held` of the live extent that holds `ordinal`, else of the next; len(held) if there is none."""
        place = bisect_right(self._firsts, ordinal) - 1
        if place < 0 or ordinal >= self.held[place].end:
            place += 1
        while place < len(self.held) and self.held[place].freed == self.held[place].count:
            place += 1
        return place

    def holder(self, ordinal: int) -> StoredExtent | None:
        """Return the live extent that holds `ordinal`; None if no reader owes it."""
        place = self.place(ordinal)
        return self.held[place] if place < len(self.held) and self.held[place].first <= ordinal else None

    def next_plain(self, ordinal: int) -> StoredExtent | None:
        """Return the first live extent, at or after `ordinal`, of messages without a delay; None if there is none."""
        for place in range(self.place(ordinal), len(self.held)):
            held = self.held[place]
            if not held.delayed and held.freed < held.count:
                return held
        return None

    def at(self, ordinal: int) -> Extent | None:
        """Return the live extent that holds `ordinal`, else the next, else an empty one at the end.

        Returns None if that extent is on disk only.
        """
        place = self.place(ordinal)
        return self.held[place].extent if place < len(self.held) else self.nothing()

    def nothing(self) -> Extent:
        """Return an empty extent at the sequence's end."""
        return Extent(self.end, False)

    def sweep(self) -> None:
        """Remove the extents whose messages are all freed from `held`. Those that the topic retains move to `kept`."""
        self.kept += self._dead_and_retained()
        self._unsorted = True
        self.held = self.live()
        self._firsts = [held.first for held in self.held]
        self._dead = 0

    def settle(self) -> None:
        """Sort the retained extents, and join neighbors. Do not call this while groups wait to be written."""
        self.sweep()
        joined: list[StoredExtent] = []
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
        """Stop retaining finished messages that were published before `oldest` (the log's time) or exceed `most` bytes.

        The newest `most` bytes stay. For each of `holds`, (offset, oldest, most), messages from the offset on stay within
        bounds of their own. Returns True if more messages may go than before. No bound divides an extent.
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

    def keep(self, policy: StoragePolicy) -> None:
        """Set how finished messages are retained. A joined extent goes as a whole, so this bounds how long it can become."""
        self._grain = (
            policy.retention // GRAINS or FOREVER,
            min(RUN_BYTES, policy.retention_bytes // GRAINS or RUN_BYTES),
        )

    def retain(self, first: int | None) -> None:
        """Retain finished messages from the ordinal `first` on; None: retain none."""
        self.first = first
        self.kept = [] if first is None else [held for held in self.kept if held.end > first]

    def retained(self) -> list[StoredExtent]:
        """Return the extents whose messages are all freed and of which some are retained."""
        return self.kept + self._dead_and_retained()

    def _dead_and_retained(self) -> list[StoredExtent]:
        """Return the extents in `held` that no reader owes and that are retained."""
        first = self.first
        return [] if first is None else [one for one in self.held if one.freed == one.count and one.end > first]

    def wanted(self, held: StoredExtent) -> float:
        """Return the part of an extent, 0 to 1, that some reader owes or that is retained."""
        owed = 1 - held.freed / held.count
        if self.first is None:
            return owed
        return max(owed, min(1.0, (held.end - self.first) / held.count))

    def cut(self, first: int) -> None:
        """Forget all messages from the ordinal `first` on, which no reader owes."""
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


def _nothing(held: StoredExtent) -> None:
    pass


def _from(entries: list[StoredExtent], first: int, end: int) -> Iterator[StoredExtent]:
    """Yield those of the ascending `entries` that hold messages of first..end."""
    for place in range(bisect_right(entries, first, key=_end), len(entries)):
        if entries[place].first >= end:
            return
        yield entries[place]


def _bound(entries: list[StoredExtent], oldest: int, most: int) -> int:
    """Return the end of the last entry that is too old or beyond the newest `most` bytes; 0 if there is none.

    An entry is too old if its last message was published before `oldest` (the log's time).
    """
    room = most
    for held in reversed(entries):
        room -= held.disk_bytes
        if room < 0 or held.logged_last < oldest:
            return held.end
    return 0
