"""One topic's messages: its extents in order, and the finished messages that the topic retains."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from heapq import merge
from operator import attrgetter

from nsqd.core.message.frame import ID_SIZE
from nsqd.core.retention.policy import StoragePolicy
from nsqd.core.sequence.extent import Extent
from nsqd.storage.stored_extent import EXTENT_MESSAGES, StoredExtent, messages_of

RUN_BYTES = 16 * 1024 * 1024  # bytes: neighboring extents that are only retained are joined into one up to this size
GRAINS = 16  # such an extent is at most one part in this many of the topic's retention, in time and bytes
FOREVER = 1 << 62  # ns
MEAN_OF = 8  # extents
SWEPT_AT_ONCE = 64  # extents: up to a millisecond
TAKEN_APART_AT_ONCE = 2  # extents: 2,048 messages in memory are freed in 0.1 ms

_first, _end = attrgetter("first"), attrgetter("end")


class Sequence:
    """The extents of one topic, ascending by ordinal."""

    __slots__ = (
        "_firsts", "_grain", "_mean_known_for", "_mean_size", "_released_count", "_unsorted", "distributed", "end",
        "extents", "first", "is_dropped", "on_released", "retained",
    )  # fmt: skip

    def __init__(self) -> None:
        self.distributed = 0  # ordinal: the messages before it were given to channels
        self.extents: list[StoredExtent] = []
        self.first: int | None = None  # ordinal: finished messages from it on are retained; None: none are
        self.retained: list[StoredExtent] = []  # extents that are only retained; in order after `join_retained`
        self._unsorted = True  # True: `retained` may be out of order
        self._grain = 0, 0  # ns and bytes that an extent joined from neighbors may span
        self._firsts: list[int] = []  # `first` of each extent in `extents`
        self.end = 0  # ordinal after the last message
        self._mean_size = 0  # bytes, see `mean_size`
        self._mean_known_for = 0  # calls
        self.is_dropped = False  # True: the topic was deleted
        # number of extents in `extents` whose messages are all released; `sweep` removes them once they are half
        self._released_count = 0
        # called with each extent whose messages are all released, before the extent is swept
        self.on_released: Callable[[StoredExtent], None] = lambda stored: None

    def append(
        self, first: int, frames: list[bytes], ids: bytes, largest: int, delayed: bool, references: int = 0
    ) -> list[StoredExtent]:
        """Append messages, in extents whose size bounds what a channel that reads one of them keeps in memory.

        `references`: number of readers that reference the messages already; 0: the distributed offset has not passed them.
        Returns the extents that got messages.
        """
        if references:
            self.distributed = first + len(frames)
        if len(frames) == 1:
            stored = self.last_for(first, delayed)
            stored.append_one(frames[0], ids, references)
            self.end = first + 1
            return [stored]
        touched: list[StoredExtent] = []
        step = messages_of(largest)
        for start in range(0, len(frames), step):
            stop = start + step
            stored = self.last_for(first + start, delayed)
            stored.append(frames[start:stop], ids[start * ID_SIZE : stop * ID_SIZE], largest, references)
            if stored not in touched[-1:]:
                touched.append(stored)
        self.end = first + len(frames)
        return touched

    def append_cold(self, first: int, count: int, delayed: bool, size: int) -> list[StoredExtent]:
        """Append `count` messages (`size` bytes in all) that are on disk only. Returns the extents that hold them."""
        last = self.extents[-1] if self.extents else None
        if count == 1 and last is not None and last.can_append_cold(first, delayed):
            last.refcounts.append(0)
            last.count += 1
            last.bulk += size
            self.end = first + 1
            return [last]
        touched: list[StoredExtent] = []
        end, each = first + count, size // count
        while first < end:
            stored = self.extents[-1] if self.extents else None
            if stored is None or not stored.can_append_cold(first, delayed):
                stored = StoredExtent(first, delayed)
                self.add(stored)
            part = min(end - first, EXTENT_MESSAGES - stored.count, messages_of(each))
            stored.refcounts += bytes(part)
            stored.count += part
            stored.bulk += part * each
            if stored not in touched[-1:]:
                touched.append(stored)
            first += part
        self.end = end
        return touched

    def last_for(self, first: int, delayed: bool) -> StoredExtent:
        """Return the extent to which message `first`, the next one, belongs. Begin a new extent if necessary."""
        stored = self.extents[-1] if self.extents else None
        if stored is None or not stored.can_append(first, delayed):
            stored = StoredExtent(first, delayed, Extent(first, delayed))
            self.add(stored)
        return stored

    def add(self, stored: StoredExtent) -> None:
        """Append an extent after the last one."""
        self.extents.append(stored)
        self._firsts.append(stored.first)
        self.end = max(self.end, stored.first + stored.count)

    def distribute(self, first: int, end: int, references: int) -> None:
        """Move the distributed offset to `end`: `references` readers reference messages first..end."""
        self.distributed = end
        for stored, start, stop in self._present(first, end):
            stored.set_references(start, stop, references)

    def drop_references(self, first: int, end: int) -> None:
        """Note that one reader no longer references messages first..end. Those that were corrupt on disk are not present."""
        place = bisect_right(self._firsts, first)
        if place:
            stored = self.extents[place - 1]
            if end <= stored.first + stored.count:  # its `end`, for a call less; nearly always
                if stored.drop_references(first - stored.first, end - stored.first):
                    self.on_released(stored)
                    self._note_released(1)
                return
        self.drop_present_references(first, end)

    def drop_each(self, ordinals: list[int]) -> None:
        """Do the same for these messages, ascending."""
        at = dead = 0
        while at < len(ordinals):
            place = bisect_right(self._firsts, ordinals[at])
            if not place or ordinals[at] >= (stored := self.extents[place - 1]).end:
                at += 1  # it was corrupt on disk
                continue
            stop = bisect_left(ordinals, stored.end, at)
            if stored.drop_each(ordinals[at:stop]):
                self.on_released(stored)
                dead += 1
            at = stop
        self._note_released(dead)

    def drop_present_references(self, first: int, end: int) -> None:
        """Do the same message by message: in several extents, or in none."""
        dead = 0
        for stored, start, stop in self.present_spans(first, end):
            if stored.drop_references(start, stop):
                self.on_released(stored)
                dead += 1
        self._note_released(dead)

    def _note_released(self, dead: int) -> None:
        """Count extents whose messages are all released now. Sweep if there are many: each sweep costs the lists' length."""
        self._released_count += dead
        if dead and self._released_count > len(self.extents) // 2:
            self.sweep()
        elif dead and self._released_count >= SWEPT_AT_ONCE:
            self._sweep_first()

    def _sweep_first(self) -> None:
        """Remove the first extents, if all of them are released: thousands at once are a long turn."""
        swept = self.extents[:SWEPT_AT_ONCE]
        if all(stored.released == stored.count for stored in swept):
            self.extents, self._firsts = self.extents[SWEPT_AT_ONCE:], self._firsts[SWEPT_AT_ONCE:]
            self._released_count -= SWEPT_AT_ONCE
            if self.first is not None:
                self.retained += [stored for stored in swept if stored.end > self.first]
                self._unsorted = True

    def kinds(self, first: int, end: int) -> Iterator[tuple[int, int, bool]]:
        """Yield the present parts of first..end as (first, end, delayed). The sequence must not change meanwhile.

        `delayed` is True if the part was published with a delay. A part may include released messages of an extent that is
        still referenced.
        """
        return (
            (stored.first + start, stored.first + stop, stored.delayed)
            for stored, start, stop in self._present(first, end)
            if stored.released < stored.count
        )

    def plain(self, first: int, end: int) -> list[tuple[int, int]]:
        """Return the parts (first, end) of first..end that were published without a delay."""
        return [(start, stop) for start, stop, delayed in self.kinds(first, end) if not delayed]

    def present_spans(self, first: int, end: int) -> list[tuple[StoredExtent, int, int]]:
        """Return the extents that hold messages of first..end, each with the start and end index. Some may be missing."""
        return list(self._present(first, end))

    def _present(self, first: int, end: int) -> Iterator[tuple[StoredExtent, int, int]]:
        stored = self.extents
        for place in range(max(0, bisect_right(self._firsts, first) - 1), len(stored)):
            one = stored[place]
            if one.first >= end:
                return
            start, stop = max(first, one.first), min(end, one.end)
            if start < stop:
                yield one, start - one.first, stop - one.first

    def readable(self, first: int, end: int) -> Iterator[StoredExtent]:
        """Yield the extents, referenced or retained, that hold messages of first..end, ascending.

        The caller must not change the sequence meanwhile.
        """
        if self._unsorted:
            self.retained.sort(key=_first)
            self._unsorted = False
        return merge(_from(self.retained, first, end), _from(self.extents, first, end), key=_first)

    def next_with_headers(self, first: int, end: int) -> int:
        """Return the first of first..end whose extent may have headers: see Extents."""
        for stored, start, _ in self._present(first, end):
            if stored.extent.headers if stored.extent is not None else stored.attributed:
                return stored.first + start
        return end

    def expired_before(self, first: int, end: int, wall: int, ttl: int) -> int:
        """Return an ordinal before which all messages have expired: see Extents."""
        for stored, start, stop in self._present(first, end):
            if stored.extent is None:
                if not ttl or not 0 < stored.newest < wall - ttl:
                    return stored.first + start
                continue
            count, expired = stored.extent.leading(stored.first + start, stored.first + stop, wall, ttl)
            if not expired or count < stop - start:
                return stored.first + start + count * expired
        return end

    def cold(self, first: int, end: int) -> int:
        """Return the number of messages of first..end that are on disk only."""
        spans = self._present(first, end)
        return sum(stop - start for one, start, stop in spans if one.extent is None and one.released < one.count)

    def mean_size(self) -> int:
        """Return about how many bytes a message takes that is not released. Each call looks at about MEAN_OF extents."""
        self._mean_known_for -= 1
        if self._mean_known_for < 0:
            live = [(one.count - one.released, one.size or one.bulk, one.count) for one in self.live()]
            size = sum(left * size // count for left, size, count in live)
            self._mean_size = size // max(1, sum(left for left, _, _ in live))
            self._mean_known_for = len(live) // MEAN_OF
        return self._mean_size

    def count_released(self) -> None:
        """Recount the released messages of all extents: those before the distributed offset that no channel references."""
        for stored in self.extents:
            stored.count_released(self.distributed)

    def add_references(self, first: int, end: int) -> list[StoredExtent]:
        """Note that one more channel references all messages of first..end, finished or not.

        All of these messages must be on disk and retained. Returns those of their extents in which a frame is missing, because
        no channel referenced its message.
        """
        self.distributed = max(self.distributed, end)
        self.sweep()
        back = [stored for stored in self.retained if stored.end > first and stored.first < end]
        self.retained = [stored for stored in self.retained if stored.end <= first or stored.first >= end]
        for stored in back:
            stored.reset_refcounts()
        self.extents = sorted([*self.extents, *back], key=_first)
        self._firsts = [stored.first for stored in self.extents]
        lacking = list(back)
        for stored, start, stop in self._present(first, end):
            if stored.released:
                lacking.append(stored)
            stored.add_references(start, stop)
            stored.count_released(self.distributed)
        return lacking

    def without(self, stored: StoredExtent, lost: set[int]) -> None:
        """Replace an extent on disk by extents of its messages that are not in `lost` (indexes)."""
        kept = [index for index in range(stored.count) if index not in lost]
        starts = [index for index in kept if index - 1 in lost or index == 0]
        ends = [index + 1 for index in kept if index + 1 in lost or index + 1 == stored.count]
        parts = [stored.part(start, end, self.distributed) for start, end in zip(starts, ends, strict=True)]
        place = self.extents.index(stored)
        self.extents[place : place + 1] = parts
        self._firsts[place : place + 1] = [part.first for part in parts]

    def live(self) -> list[StoredExtent]:
        """Return the extents with messages that are not released."""
        return [stored for stored in self.extents if stored.released < stored.count]

    def index_of(self, ordinal: int) -> int:
        """Return the index in `extents` of the live extent that holds `ordinal`, else of the next."""
        extents, place = self.extents, bisect_right(self._firsts, ordinal) - 1
        if place < 0:
            place = 0
        else:
            stored = extents[place]
            if ordinal >= stored.first + stored.count:  # its `end`, for a call less
                place += 1
            elif stored.released < stored.count:  # nearly always
                return place
        while place < len(extents) and extents[place].released == extents[place].count:
            place += 1
        return place

    def extent_of(self, ordinal: int) -> StoredExtent | None:
        """Return the live extent that holds `ordinal`; None if no reader references it."""
        place = self.index_of(ordinal)
        return self.extents[place] if place < len(self.extents) and self.extents[place].first <= ordinal else None

    def references(self, ordinal: int) -> int:
        """Return the number of readers that reference the message; -1: the distributed offset has not passed it."""
        stored = self.extent_of(ordinal)
        if stored is None:
            return 0
        return -1 if ordinal >= self.distributed else stored.references(ordinal - stored.first)

    def is_pending(self, ordinal: int) -> bool:
        """Return True if a reader references the message, or the distributed offset has not passed it."""
        return self.references(ordinal) != 0

    def next_plain(self, ordinal: int) -> StoredExtent | None:
        """Return the first live extent, at or after `ordinal`, of messages without a delay; None if there is none."""
        for place in range(self.index_of(ordinal), len(self.extents)):
            stored = self.extents[place]
            if not stored.delayed and stored.released < stored.count:
                return stored
        return None

    def extent_at(self, ordinal: int) -> Extent | None:
        """Return the live extent that holds `ordinal`, else the next, else an empty one. None if it is on disk only."""
        place = self.index_of(ordinal)
        return self.extents[place].extent if place < len(self.extents) else self.empty_extent()

    def empty_extent(self) -> Extent:
        """Return an empty extent at the sequence's end."""
        return Extent(self.end, False)

    def sweep(self) -> None:
        """Remove the extents that are all released from `extents`. Those that the topic retains move to `retained`."""
        self.retained += self._released_and_retained()
        self._unsorted = True
        self.extents = self.live()
        self._firsts = [stored.first for stored in self.extents]
        self._released_count = 0

    def join_retained(self) -> None:
        """Sort the retained extents, and join neighbors. Do not call this while groups wait to be written."""
        self.sweep()
        joined: list[StoredExtent] = []
        span, most = self._grain
        for stored in sorted(self.retained, key=_first):
            stored.retain_only()
            last = joined[-1] if joined else stored
            is_small = stored.logged_last - last.logged_first <= span and last.size + stored.size <= most
            if is_small and last.end == stored.first and last.delayed == stored.delayed:
                last.join(stored)
            else:
                joined.append(stored)
        self.retained = joined
        self._unsorted = False

    def retire(self, oldest: int, most: int, holds: list[tuple[int, int, int]]) -> bool:
        """Stop retaining finished messages that were published before `oldest` (the log's time) or exceed `most` bytes.

        The newest `most` bytes stay. For each of `holds`, (offset, oldest, most), messages from the offset on stay within
        bounds of their own. Returns True if fewer messages are retained than before. No bound divides an extent.
        """
        assert self.first is not None
        self.join_retained()
        before = self.first
        entries = sorted((*self.retained, *self.extents), key=_first)
        first = _bound(entries, oldest, most)
        for offset, held_oldest, held_most in holds:
            if offset < first:
                first = min(first, max(offset, _bound(entries, held_oldest, held_most)))
        self.retain(max(first, before))
        return first > before

    def set_policy(self, policy: StoragePolicy) -> None:
        """Bound the size of joined extents by how finished messages are retained: a joined extent is removed as a whole."""
        size = min(RUN_BYTES, policy.retention_bytes // GRAINS or RUN_BYTES)
        self._grain = policy.retention // GRAINS or FOREVER, size

    def retain(self, first: int | None) -> None:
        """Retain finished messages from the ordinal `first` on; None: retain none."""
        self.first = first
        self.retained = [] if first is None else [stored for stored in self.retained if stored.end > first]

    def all_retained(self) -> list[StoredExtent]:
        """Return the extents whose messages are all released and of which some are retained."""
        return self.retained + self._released_and_retained()

    def _released_and_retained(self) -> list[StoredExtent]:
        """Return the extents in `extents` that no reader references and that are retained."""
        first = self.first
        return [] if first is None else [one for one in self.extents if one.released == one.count and one.end > first]

    def live_part(self, stored: StoredExtent) -> float:
        """Return the part of an extent, 0 to 1, that some reader references or that is retained."""
        unfinished = 1 - stored.released / stored.count
        if self.first is None:
            return unfinished
        return max(unfinished, min(1.0, (stored.end - self.first) / stored.count))

    def take_apart(self) -> Iterator[list[StoredExtent]]:
        """Yield all extents in small groups. The sequence has none of them from the first step on."""
        self.is_dropped = True
        lists = self.extents, self.retained
        self.extents, self.retained, self._firsts = [], [], []
        for extents in lists:
            while extents:
                group = extents[-TAKEN_APART_AT_ONCE:]
                del extents[-TAKEN_APART_AT_ONCE:]
                yield group

    def remove_from(self, first: int) -> None:
        """Forget all messages from the ordinal `first` on, which no reader references and none will."""
        self.distributed = max(self.distributed, self.end)
        while self.extents and self.extents[-1].end > first:
            stored = self.extents[-1]
            if not stored.release_from(max(0, first - stored.first)):
                return
            self.on_released(stored)
            self.extents.pop()
            self._firsts.pop()
            if self.first is not None and stored.end > self.first:
                self.retained.append(stored)
                self._unsorted = True


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
    for stored in reversed(entries):
        room -= stored.disk_bytes
        if room < 0 or stored.logged_last < oldest:
            return stored.end
    return 0
