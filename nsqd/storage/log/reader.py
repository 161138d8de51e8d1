"""Segments back into records, and what to do where the bytes are wrong: torn or damaged.

A wrong record at or past the highest durable mark that any group states was never promised to anybody: the log ends there, and
what comes behind is cut off. One below the mark is damage: it is counted and passed over, and everything that is whole is
served. Behind a wrong record the next one is looked for where its length says, else at the next group.

A file may reach beyond its records (spare.py), with zeros: a segment ends where the next one begins, the last with the log.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from nsqd.storage.log.disk import Disk, read_from
from nsqd.storage.log.records import (
    GROUP,
    HEADER_SIZE,
    PREFIX_SIZE,
    Kind,
    NotASegment,
    SegmentHeader,
    WrongVersion,
    decode,
    decode_header,
    repaired,
)
from nsqd.storage.log.writer import segment_name

NEAR = 256  # bytes behind a wrong record in which one is looked for at each byte: it may have been a small one
UNFINISHED = 4096  # bytes: the first write to a log is far smaller, and synced before the second
END_OF_ALL = 1 << 64  # no log position is as high
_NAME = re.compile(r"(\d{20})\.(\d{1,9})\.log")
_ZEROS = bytes(65536)
_GROUP_RECORD = re.compile(
    re.escape((GROUP.size + 1).to_bytes(4, "big")) + b".{4}" + re.escape(bytes((Kind.GROUP,))), re.DOTALL
)


class LogError(Exception):
    """The log cannot be used; one line says why and what to do."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One file."""

    name: str
    header: SegmentHeader

    @property
    def base(self) -> int:
        """Log position of its first record."""
        return self.header.base


@dataclass(frozen=True, slots=True)
class Record:
    """One record, and where its content is."""

    kind: int
    content: bytes  # what follows the kind
    segment: int  # base of the segment it stands in
    start: int  # of the record, in the segment's file
    end: int

    @property
    def position(self) -> int:
        """In the log."""
        return self.segment + self.start - HEADER_SIZE


@dataclass(slots=True)
class Damage:
    """What was found wrong below the durable mark."""

    spots: list[tuple[str, int, int]] = field(default_factory=list)  # (segment, from, to)

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(end - start for _, start, end in self.spots)


class Reader:
    """All segments of a log, read once from the first record to the last. Repairs the end."""

    def __init__(self, disk: Disk) -> None:
        """Look at the files. Raises LogError, OSError."""
        self._disk = disk
        self.unreadable: list[str] = []  # files that were set aside
        self.segments = self._find()
        self.damage = Damage()
        self.end = self.segments[0].base if self.segments else 0  # log position behind the last good record
        self.torn = 0  # bytes that were cut off at the end
        self.stated = 0  # the highest durable mark that was read
        self._mark = -1  # the highest of all groups, read or not; -1: not looked for yet

    def _find(self) -> list[Segment]:
        """The highest generation of each segment, by position. What is no segment of ours is left alone."""
        newest: dict[int, int] = {}
        matches = [match for name in self._disk.names() if (match := _NAME.fullmatch(name))]
        names = [match for match in matches if int(match[1]) < END_OF_ALL]
        for match in names:
            newest[int(match[1])] = max(newest.get(int(match[1]), 0), int(match[2]))
        headers = {base: self._header(base, newest[base]) for base in sorted(newest)}
        self._tidy([match[0] for match in names if int(match[2]) < newest[int(match[1])]])
        known = [header for header in headers.values() if header is not None]
        if len({header.log_id for header in known}) > 1:
            raise LogError("the segments are of different logs: one was copied here from another directory")
        found = []
        for base, header in headers.items():
            if header is None and known:  # torn or damaged: its records tell which, and its name tells their seed
                header = replace(known[0], base=base, generation=newest[base], state=False)
            if header is None:
                self._set_aside(segment_name(base, newest[base]))
            else:
                found.append(Segment(segment_name(base, newest[base]), header))
        return found

    def _tidy(self, replaced: list[str]) -> None:
        """Remove what a cleaning left: older generations, and what it had begun to write."""
        if replaced:  # their successors were synced before they got their names, which a kill may have left unsynced
            self._disk.sync_directory()
        for name in (*replaced, *(name for name in self._disk.names() if name.endswith(".log.tmp"))):
            self._disk.remove(name)

    def _header(self, base: int, generation: int) -> SegmentHeader | None:
        """None if it cannot be read."""
        name = segment_name(base, generation)
        try:
            header = decode_header(repaired(read_from(self._disk, name, 0, HEADER_SIZE)))
        except NotASegment:
            return None
        except WrongVersion as error:
            raise LogError(f"log segment {name} cannot be read: {error}") from None
        if (header.base, header.generation) != (base, generation):
            raise LogError(f"log segment {name} was renamed: it was {segment_name(header.base, header.generation)}")
        return header

    def _set_aside(self, name: str) -> None:
        """No segment tells what log this is: it was begun, nothing in it was promised. LogError if it was damaged."""
        if self._disk.size(name) > UNFINISHED:
            raise LogError(f"log segment {name} cannot be read, and no other tells what log it is of")
        self.unreadable.append(name)
        self._disk.rename(name, f"{name}.unreadable")
        self._disk.sync_directory()

    def roots(self) -> list[int]:
        """Places in `segments` where replay may begin: the latest checkpoint first, complete or not; last the beginning."""
        return [place for place in range(len(self.segments) - 1, 0, -1) if self.segments[place].header.state] + [0]

    def records(self, begin: int = 0) -> Iterator[Record]:
        """Every good record from a root on, in order. Afterwards `end`, `torn` and `damage` are known, the end is repaired."""
        self.damage.spots.clear()
        for place, segment in enumerate(self.segments[begin:], begin):
            if place > begin and segment.base != self.end and not self._pass_gap(place):
                break
            data = self._read(place)
            yield from self._of(place, data)
            if self.end < segment.base - HEADER_SIZE + len(data):
                self._cut(place, data)
                break
        self._sync()

    def _of(self, place: int, data: bytes) -> Iterator[Record]:
        """The records of one segment, up to its end or to where the log ends."""
        segment = self.segments[place]
        seed, base = segment.header.seed, segment.base - HEADER_SIZE
        at = min(HEADER_SIZE, len(data))
        self.end = segment.base
        while at < len(data):
            end = decode(data, at, seed)
            if end:
                self.end = base + end
                if data[at + PREFIX_SIZE] == Kind.GROUP:
                    self.stated = max(self.stated, GROUP.unpack_from(data, at + PREFIX_SIZE + 1)[0])
                yield Record(data[at + PREFIX_SIZE], data[at + PREFIX_SIZE + 1 : end], segment.base, at, end)
            elif base + at >= self._highest_mark(place, at):
                return
            else:
                stop = max(_filled(data), self._highest_mark(place, at) - base)
                end = resume(data[:stop], at, seed)
                self.damage.spots.append((segment.name, at, end))
                self.end = base + end
            at = end

    def _pass_gap(self, place: int) -> bool:
        """The segment before does not reach up to this one. False: what was between was never promised, the log ends there."""
        if self.end >= self._highest_mark(place, 0):
            self._remove_from(place)
            return False
        before = self.segments[place - 1]
        at = self.end - before.base + HEADER_SIZE
        self.damage.spots.append((before.name, at, at + abs(self.segments[place].base - self.end)))
        return True

    def _sync(self) -> None:
        """What the process before us wrote and did not sync was not promised, but it is believed from now on."""
        for segment in self.segments:
            file = self._disk.open(segment.name)
            try:
                file.sync()
            finally:
                file.close()
        self._disk.sync_directory()

    def _read(self, place: int) -> bytes:
        """A segment up to its end, which a crash may not have cut off."""
        segment = self.segments[place]
        size = self._disk.size(segment.name)
        if place + 1 < len(self.segments):
            size = min(size, HEADER_SIZE + self.segments[place + 1].base - segment.base)
        return read_from(self._disk, segment.name, 0, size)

    def _highest_mark(self, place: int, at: int) -> int:
        """The highest durable mark that any group states. What is before `at` in the segment at `place` was read.

        Marks never fall, so it is one of those not read yet, or the last that was. Those are looked for once.
        """
        if self._mark < 0:
            marks = [_highest_mark(self._read(place), at, self.segments[place].header.seed)]
            for later in range(place + 1, len(self.segments)):
                marks.append(_highest_mark(self._read(later), 0, self.segments[later].header.seed))
            self._mark = max(self.stated, *marks)
        return self._mark

    def _cut(self, place: int, data: bytes) -> None:
        """Nothing from the end on was ever promised: take it away."""
        segment = self.segments[place]
        at = self.end - segment.base + HEADER_SIZE
        self._remove_from(place + 1)
        self.torn += max(0, _filled(data) - at)
        file = self._disk.open(segment.name)
        try:
            file.truncate(at)
            file.sync()
        finally:
            file.close()

    def _remove_from(self, place: int) -> None:
        """Take these segments away, the last one first: no crash leaves a gap that was not there."""
        for segment in reversed(self.segments[place:]):
            self.torn += self._disk.size(segment.name)
            self._disk.remove(segment.name)
            self._disk.sync_directory()
        del self.segments[place:]


def resume(data: bytes, at: int, seed: int, start: int = 0) -> int:
    """Where the next good record begins behind a wrong one; the end if there is none. `start`: offset of `data` in the file."""
    if at + PREFIX_SIZE <= len(data):
        by_length = at + PREFIX_SIZE + int.from_bytes(data[at : at + 4], "big")
        if by_length < len(data) and decode(data, by_length, seed, start):
            return by_length
    for near in range(at + 1, min(at + NEAR, len(data))):
        if decode(data, near, seed, start):
            return near
    for match in _GROUP_RECORD.finditer(data, at + 1):
        if decode(data, match.start(), seed, start):
            return match.start()
    return len(data)


def _filled(data: bytes) -> int:
    """Where the zeros at its end begin."""
    end = len(data)
    while end > len(_ZEROS) and data[end - len(_ZEROS) : end] == _ZEROS:
        end -= len(_ZEROS)
    first = max(0, end - len(_ZEROS))
    return first + len(data[first:end].rstrip(b"\0"))


def _highest_mark(data: bytes, at: int, seed: int) -> int:
    marks = [
        GROUP.unpack_from(data, match.start() + PREFIX_SIZE + 1)[0]
        for match in _GROUP_RECORD.finditer(data[: _filled(data)], max(at, HEADER_SIZE))
        if decode(data, match.start(), seed)
    ]
    return max(marks, default=0)
