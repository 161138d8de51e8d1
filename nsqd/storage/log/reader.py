"""Read segments back into records, and decide for wrong bytes whether they are corrupt or torn.

Below the highest durable mark that any group states, a wrong record is corrupt: it is copied, counted and skipped, and every
intact record is served. The next record is searched for where the wrong one's length says, or else between the wrong record and
the next group.

At or past that mark the log ends with the first wrong record, because a power cut keeps an arbitrary part of unsynced bytes.
They may have been acknowledged, if there was no power cut. So the bytes that are cut off are copied and counted, separately.

A file may be longer than its records, with zeros after them or with records of the segment that it was before (spare.py): a
segment ends where the next one begins, and the last segment ends with the log.

See docs/contributing/design/log.md#torn-and-damaged.
"""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import NamedTuple

from nsqd.core.records import GROUP, RecordKind
from nsqd.storage.log.disk import Disk, read_from
from nsqd.storage.log.quarantine import DAMAGED, TORN, Quarantine
from nsqd.storage.log.records import HEADER_SIZE, PREFIX_SIZE, decode
from nsqd.storage.log.scan import content_end, highest_mark, resume
from nsqd.storage.log.segments import LogFiles

_OWN = (RecordKind.ANCHOR, RecordKind.EPOCH)  # records that say nothing of topics and ids, like GROUP


class Record(NamedTuple):
    """A record with its position in the log. As a frozen dataclass it would cost three times as much at a start."""

    kind: int
    content: bytes  # the bytes after the kind
    segment: int  # base of the segment that holds the record
    start: int  # start of the record, as an offset in the segment's file
    end: int

    @property
    def position(self) -> int:
        """Return the log position at which the record begins."""
        return self.segment + self.start - HEADER_SIZE


@dataclass(slots=True)
class Damage:
    """The parts of the log below the durable mark that are corrupt."""

    spots: list[tuple[str, int, int]] = field(default_factory=list)  # (segment, from, to)
    headers: list[str] = field(default_factory=list)  # segments whose headers were rebuilt

    @property
    def size(self) -> int:
        """Return the number of corrupt bytes, counting a rebuilt header as a whole."""
        return sum(end - start for _, start, end in self.spots) + HEADER_SIZE * len(self.headers)


class LogRecords:
    """A reader that reads a log once, from one of its roots to the last record, and repairs the log's end."""

    def __init__(self, disk: Disk, durable: int = 0) -> None:
        """List the files and rebuild corrupt headers. Raises LogError, OSError.

        `durable`: position up to which these files are known to be durable, whatever the log states.
        """
        self._disk = disk
        self.known_durable = durable
        self.quarantine = Quarantine(disk)
        self.files = files = LogFiles(disk, self.quarantine)
        self.segments = files.found
        self.damage = Damage()
        self.end = self.segments[0].base if self.segments else 0  # log position after the last good record
        self.cuts: list[tuple[str, int, int]] = []  # ranges that were cut off at the end: (segment, from, to)
        self.stated = 0  # the highest durable mark that was read
        self.content_end = self.end  # log position after the last record of topics or ids
        self._mark = -1  # the highest durable mark of all groups, read or not; -1: unknown

    @property
    def torn(self) -> int:
        """Return the number of bytes at the log's end that were cut off or moved. They may have been acknowledged."""
        return sum(end - start for _, start, end in self.cuts) + self.files.unreadable_bytes

    def roots(self) -> list[int]:
        """Return the indexes in `segments` where replay may begin: checkpoints, complete or not, the latest first; then 0."""
        return [place for place in range(len(self.segments) - 1, 0, -1) if self.segments[place].header.state] + [0]

    def records(self, begin: int = 0) -> Iterator[Record]:
        """Yield every good record from the root `begin` on, in order.

        After the last one, `end`, `torn` and `damage` are known, and the log's end is repaired.
        """
        self.damage.spots.clear()
        self._mark = -1  # a root that was tried before did not see the marks in front of it
        self.content_end = self.segments[begin].base if self.segments else 0
        for place, segment in enumerate(self.segments[begin:], begin):
            if place > begin and segment.base != self.end and not self._pass_gap(place):
                break
            data = self._read(place)
            yield from self._records_of(place, data)
            if self.end < segment.base - HEADER_SIZE + len(data):
                self._cut(place, data)
                break
        mark = self._mark if self._mark >= 0 else max(self.known_durable, self.stated)
        bases = {segment.name: segment.base for segment in self.segments}
        # past the mark, a header was torn and not corrupt
        self.damage.headers = [name for name in self.files.rebuilt if bases.get(name, mark) < mark]
        self._sync()

    def _records_of(self, place: int, data: bytes) -> Iterator[Record]:
        """Yield the good records of one segment, up to the segment's end or the log's end."""
        segment = self.segments[place]
        seed, base = segment.header.seed, segment.base - HEADER_SIZE
        at = min(HEADER_SIZE, len(data))
        self.end = segment.base
        while at < len(data):
            end = decode(data, at, seed)
            if end:
                self.end = base + end
                kind = data[at + PREFIX_SIZE]
                if kind == RecordKind.GROUP:
                    self.stated = max(self.stated, GROUP.unpack_from(data, at + PREFIX_SIZE + 1)[0])
                elif kind not in _OWN:
                    self.content_end = self.end
                yield Record(kind, data[at + PREFIX_SIZE + 1 : end], segment.base, at, end)
            elif base + at >= self._highest_mark(place, at):
                return
            else:
                stop = max(content_end(data, at, segment.header), self._highest_mark(place, at) - base)
                end = resume(data[:stop], at, seed)
                self.quarantine.copy_damaged(segment.name, at, data[at:end], DAMAGED)
                self.damage.spots.append((segment.name, at, end))
                self.end = base + end
            at = end

    def _pass_gap(self, place: int) -> bool:
        """Handle a previous segment that does not end where this one begins. Returns False if the log ends there.

        The log ends at the gap if no durable mark is past it. Otherwise the gap counts as corrupt.
        """
        if self.end >= self._highest_mark(place, 0):
            self._remove_from(place)
            return False
        before, spots = self.segments[place - 1], self.damage.spots
        at = self.end - before.base + HEADER_SIZE
        stop = at + abs(self.segments[place].base - self.end)
        if spots and spots[-1][::2] == (before.name, at):  # the rest of a record that was cut off
            at = spots.pop()[1]
        spots.append((before.name, at, stop))
        return True

    def _sync(self) -> None:
        """Sync all segments. The previous process may have left bytes unsynced; they are served from now on."""
        for segment in self.segments:
            with closing(self._disk.open(segment.name)) as file:
                file.sync()
        self._disk.sync_directory()

    def _read(self, place: int) -> bytes:
        """Return a segment's bytes up to its end. The file may be longer if a crash kept it from being cut off."""
        segment = self.segments[place]
        size = self._disk.size(segment.name)
        if place + 1 < len(self.segments):
            size = min(size, HEADER_SIZE + self.segments[place + 1].base - segment.base)
        return read_from(self._disk, segment.name, 0, size)

    def _highest_mark(self, place: int, at: int) -> int:
        """Return the highest durable mark that any group states.

        Everything before offset `at` of the segment at index `place` was read already. Marks never fall, so the highest mark is
        either in the part not read yet or the last one that was read. The unread part is searched once.
        """
        if self._mark < 0:
            self._mark = max(self.known_durable, self.stated)
            for later in range(place, len(self.segments)):
                start = at if later == place else 0
                self._mark = max(self._mark, highest_mark(self._read(later), start, self.segments[later].header.seed))
        return self._mark

    def _cut(self, place: int, data: bytes) -> None:
        """Cut off the bytes after `end`, where the log ends in the segment at index `place`, and keep a copy of them."""
        segment = self.segments[place]
        at = self.end - segment.base + HEADER_SIZE
        filled = content_end(data, at, segment.header)
        if filled > at:
            self.quarantine.copy_damaged(segment.name, at, data[at:filled], TORN)
            self._note_cut(segment.name, at, filled)
        self._remove_from(place + 1)
        with closing(self._disk.open(segment.name)) as file:
            file.truncate(at)
            file.sync()

    def _note_cut(self, name: str, start: int, end: int) -> None:
        """Note a cut once. On a disk that does not change (frozen.py), each root that is tried meets the same place."""
        if (name, start, end) not in self.cuts:
            self.cuts.append((name, start, end))

    def _remove_from(self, place: int) -> None:
        """Remove the segments from index `place` on, the last one first, so that a crash cannot leave a new gap."""
        reached = self.segments[-1].base
        for segment in reversed(self.segments[place:]):
            data = read_from(self._disk, segment.name, 0, self._disk.size(segment.name))
            filled = content_end(data, HEADER_SIZE, segment.header)
            if filled > HEADER_SIZE:
                self.quarantine.move(segment.name, filled)
                self._note_cut(segment.name, 0, filled)
            else:
                self._disk.remove(segment.name)
            self._disk.sync_directory()
        del self.segments[place:]
        if reached > self.end and not self.cuts:  # the log reached that position, though none of those bytes is left
            last = self.segments[-1]
            at = self.end - last.base + HEADER_SIZE
            self.cuts.append((last.name, at, at + reached - self.end))
