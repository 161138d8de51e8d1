"""Log cleanup: old segments without live messages are removed, and sparse ones are rewritten with only the live messages.

A segment is old if it is before both checkpoints that are kept. A usage scan counts the live bytes of old segments, some topics
in each turn. Its decisions are carried out when the records that finished messages are durable. A scan begins when a checkpoint
is complete, and from time to time while the node is quiet.

See docs/contributing/design/log.md#tidying-and-cleaning.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from nsqd.storage.log.cleaner import Cleaner, LiveExtent
from nsqd.storage.log.disk import Disk
from nsqd.storage.log.store import LogStore
from nsqd.storage.log.syncer import Syncer
from nsqd.storage.log.writer import Writer
from nsqd.storage.sequence import Sequence
from shared.log import log

SLICE = 1_000_000  # ns of a turn for the scan; one topic is never divided
SPARSE = 0.5  # a segment with a smaller live part than this is rewritten
EVERY = 1 << 63  # every log position is below this
UNKNOWN = -1.0  # density (live part) of a segment that was cleaned after the last scan


@dataclass(frozen=True, slots=True)
class SegmentHold:
    """Segments that are being read: none of them is removed or replaced."""

    until: int  # monotonic ns
    first: int  # base of the first of them
    last: int  # base of the last one, or any later position


@dataclass(slots=True)
class UsageScan:
    """The live bytes of the old segments, as far as topics have been counted."""

    topics: list[int]  # topics that are still to be counted
    old: frozenset[int]  # bases of the old segments
    reshaped: int  # LogStore.reshaped when the scan began: if it changes, the scan begins again
    total: float = 0.0  # live bytes of all segments
    share: dict[int, float] = field(default_factory=dict)  # old base -> live bytes
    live: dict[int, list[LiveExtent]] = field(default_factory=dict)  # old base -> the extents with live messages in it

    def count(self, topic: int, sequence: Sequence) -> None:
        """Count the extents of one topic, referenced or retained."""
        for stored in (*sequence.live(), *sequence.all_retained()):
            part = sequence.live_part(stored)
            self.total += stored.disk_bytes * part
            for base, _, start, end in stored.locations:
                if base in self.old:
                    self.share[base] = self.share.get(base, 0.0) + (end - start) * part
            for base in self.old.intersection(location[0] for location in stored.locations):
                self.live.setdefault(base, []).append(LiveExtent(topic, sequence, stored))


class Tidying:
    """Removes and rewrites old segments. `turn` is called once a turn, `begin` when a checkpoint has made segments old."""

    def __init__(
        self, store: LogStore, writer: Writer, syncer: Syncer, disk: Disk, cleaner: Cleaner, segments: list[int],
        missing: Mapping[int, int], monotonic: Callable[[], int],
    ) -> None:  # fmt: skip
        """`segments`: bases; `missing`: the bytes, at least, of those whose files are gone."""
        self.segments = segments  # bases, also of missing segments: another node may have these
        self.live_bytes = 0  # live bytes of all segments at the last scan
        self.live_recent = 0  # live bytes of segments that are not old, at the last scan
        self.finished = 0  # other bytes of segments that are not old, at the last scan; 0 while a checkpoint is written
        self._holds: dict[str, SegmentHold] = {}  # by the name of the holder
        self._postponed = False  # True: a segment was to be removed or rewritten that is held
        self._store, self._writer, self._syncer, self._disk, self._cleaner = store, writer, syncer, disk, cleaner
        self._files, self._monotonic = writer.files, monotonic
        self._scan: UsageScan | None = None  # the scan in progress
        self._again = False  # True: another scan is due
        self._oldest_root = 0  # segments before this base are old
        self._decided = 0  # position that must be durable before anything is removed; 0: nothing is to be removed
        self._unneeded: list[int] = []  # bases of segments to be removed then
        # bytes of each segment's file, by base
        self.sizes = {base: missing.get(base) or self._file_size(base) for base in segments}
        self._dense: dict[int, float] = {}  # density of each cleaned segment in the first scan after the cleaning

    @property
    def size(self) -> int:
        """Return the size of all segments, in bytes."""
        return self._size_from(0)

    def _size_from(self, first: int) -> int:
        """Return the size in bytes of the segments that begin at position `first` or later."""
        full = sum(self.sizes.get(base, 0) for base in self.segments[:-1] if base >= first)
        return full + self._writer.written.position - (self.segments[-1] if self.segments else 0)

    @property
    def active(self) -> bool:
        """Return True if there is work to do that waits for nothing."""
        return self._scan is not None or (self._again and not self._cleaner.busy and not self._decided)

    def _is_held(self, base: int) -> bool:
        """Return True while the segment at `base` is held. A full disk ends all holds."""
        if not self._holds:
            return False
        if self._syncer.space.full:
            log.warning("LOG: the disk is full: segments are removed though %s may need them", ", ".join(self._holds))
            self._holds.clear()
        now = self._monotonic()
        self._holds = {holder: hold for holder, hold in self._holds.items() if now < hold.until}
        return any(hold.first <= base <= hold.last for hold in self._holds.values())

    def is_held_by(self, holder: str) -> bool:
        """Return True while `holder` keeps segments."""
        return holder in self._holds and self._monotonic() < self._holds[holder].until

    def hold_for(self, holder: str, ns: int, first: int = 0, last: int = EVERY) -> None:
        """Keep the segments from the base `first` to `last` as they are for `ns` nanoseconds from now on; 0: no longer.

        Each holder has one hold. All are lost when the disk is full.
        """
        if ns and not self._syncer.space.full:
            self._holds[holder] = SegmentHold(self._monotonic() + ns, first, last)
        else:
            self._holds.pop(holder, None)

    def _is_any_held(self) -> bool:
        now = self._monotonic()
        return any(now < hold.until for hold in self._holds.values())

    @property
    def moved(self) -> int:
        """Return the number of records that were rewritten since the start."""
        return self._cleaner.records

    def file_name(self, base: int) -> str:
        """Return the name of the file of the segment at `base`."""
        return self._files.at(base).name

    def begin(self, oldest_root: int) -> None:
        """Note that segments before the base `oldest_root` are old: no checkpoint needs them."""
        self._oldest_root = oldest_root
        self._again = True

    def request_scan(self) -> None:
        """Request another scan, because messages were finished since the last one."""
        self._again = True

    @property
    def busy(self) -> bool:
        """Return True while there is work to do, or work waits for the disk or the cleaner."""
        return self._scan is not None or self._again or self._decided > 0 or self._cleaner.busy

    def turn(self) -> None:
        """Do a part of the work that is due."""
        self.note_segments()
        if self._postponed and not self._is_any_held():
            self._postponed, self._again = False, True
        if self._cleaner.busy and self._is_held(self._cleaner.base):
            self._postponed |= self._cleaner.discard()
        elif self._cleaner.busy:
            cleaned = self._cleaner.finish()
            if cleaned is not None:
                self.sizes[cleaned], self._dense[cleaned] = self._cleaner.size, UNKNOWN
                self._again = True  # there may be more segments to clean
        if self._decided and self._writer.durable.position >= self._decided:
            self._carry_out()
        elif self._scan is not None:
            self._continue_scan(self._scan)
        elif self.active:
            self._again = False
            self._begin_scan()

    def note_segments(self) -> None:
        """Add the segments that the writer has begun. There may be several in one turn."""
        begun, self._writer.begun = self._writer.begun, []
        for base in begun:
            for last in self.segments[-1:]:
                self.sizes[last] = self._file_size(last)
            self.segments.append(base)

    def _file_size(self, base: int) -> int:
        try:
            return self._disk.size(self.file_name(base))
        except OSError as error:  # the file was removed from outside: a read of it reports what is lost
            log.error("LOG: cannot read the size of a segment: %s", error)
            return 0

    def _begin_scan(self) -> None:
        if self._store.retire():
            self._writer.write()
        old = frozenset(base for base in self.segments if base < self._oldest_root)
        self._scan = UsageScan(self._store.logged(), old, self._store.reshaped)

    def _continue_scan(self, scan: UsageScan) -> None:
        if scan.reshaped != self._store.reshaped:
            self._scan, self._again = None, True
            return
        until = self._monotonic() + SLICE
        while scan.topics:
            topic = scan.topics.pop()
            if (sequence := self._store.find_sequence(topic)) is not None:
                scan.count(topic, sequence)
            if self._monotonic() >= until:
                break
        if not scan.topics:
            self._scan = None
            self._decide(scan)

    def _decide(self, scan: UsageScan) -> None:
        self.live_bytes = round(scan.total)
        self.live_recent = round(max(0.0, scan.total - sum(scan.share.values())))
        self.finished = max(0, self._size_from(self._oldest_root) - self.live_recent)
        self._unneeded = [base for base in self.segments if base in scan.old and base not in scan.live]
        self._postponed = any(self._is_held(base) for base in scan.old)
        may_be_cleaned = [base for base in scan.live if base not in self._cleaner.refused and not self._is_held(base)]
        density, base = min(((self._density(scan, base), base) for base in may_be_cleaned), default=(1.0, 0))
        if density < SPARSE:
            self._cleaner.choose_segment(base, scan.live[base])
        # the FINs must not be lost after their messages were removed
        if self._unneeded or self._cleaner.busy:
            self._decided = self._writer.written.position
            self._syncer.want()

    def _density(self, scan: UsageScan, base: int) -> float:
        """Return the live part (0 to 1) of a segment, relative to its part when it was last cleaned (then: 1)."""
        density = scan.share[base] / max(1, self.sizes[base])
        if self._dense.get(base) == UNKNOWN:
            self._dense[base] = density
        when_cleaned = self._dense.get(base, 1.0)
        return density / when_cleaned if when_cleaned else 1.0

    def _carry_out(self) -> None:
        """Remove unneeded segments, and start to clean the sparsest one. The records that decided this are durable."""
        self._decided = 0
        for base in self._unneeded:
            if self._is_held(base):
                self._postponed = True
            else:
                self._remove(base)
        self._unneeded = []
        self._cleaner.start()

    def _remove(self, base: int) -> None:
        try:
            if not self._writer.reuse(base, self.sizes.get(base, 0)):
                self._disk.remove(self.file_name(base))
        except FileNotFoundError:  # a start has renamed it, as unreadable
            pass
        except OSError as error:
            log.error("LOG: cannot remove a segment: %s", error)
            return
        self.forget(base)

    def forget(self, base: int) -> None:
        """Forget a segment whose file is gone."""
        self.segments.remove(base)
        self._files.drop(base)
        self.sizes.pop(base, None)
        self._dense.pop(base, None)
