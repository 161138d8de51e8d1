"""All bytes that a node ever wrote to its log, also those that it lost, so that copies of it can be judged.

A segment that was never rewritten is identified by its base and its epoch. For each the archive knows the segments before it
when it began, and up to where.
"""

from __future__ import annotations

from collections.abc import Callable

from nsqd.storage.log.epochs import Epoch
from nsqd.storage.log.files import file_of, segment_name
from nsqd.storage.log.records import HEADER_SIZE, NotASegment, SegmentHeader, decode_header
from nsqd.storage.log.writer import Tap
from tests.nsqd.storage.sim_disk import SimDisk
from tests.nsqd.storage.sim_node import SimNode
from tests.nsqd.storage.small_log import new_disk

Key = tuple[int, Epoch]  # base and epoch of a segment
END = 1 << 60  # every offset is below this


class Archive:
    """Implements nsqd.storage.log.writer.Tap, and passes on what it is given."""

    def __init__(self, undamaged: Callable[[SimDisk], SimDisk] = lambda disk: disk) -> None:
        """`undamaged` returns a disk as it was written, without the damage that was done to it since."""
        self._undamaged = undamaged
        self.after: Tap | None = None
        self.data: dict[Key, bytearray] = {}  # each file as it was written
        self._before: dict[Key, list[tuple[Key, int]]] = {}  # with the offset at which each of them ended
        self._current: list[tuple[Key, int]] = []  # the segments of the log as it continues now
        self.rewritten: dict[tuple[str, bytes], bytes] = {}  # cleaned segments, by name and header
        self._names: dict[Key, str] = {}  # of the segments that were rewritten before the log began, as its successor
        self.lost: list[tuple[Key, int]] = []  # segments that the log does not hold from an offset on

    def branch(self) -> Archive:
        """Return the archive of another leader of the log: both know all bytes, and each continues by itself."""
        other = Archive(self._undamaged)
        other.data, other._before, other.rewritten = self.data, self._before, self.rewritten
        other._names = self._names
        other._current = list(self._current)
        return other

    # Tap

    def began(self, header: SegmentHeader) -> None:
        self._begin(header)
        if self.after is not None:
            self.after.began(header)

    def wrote(self, segment: int, at: int, buffers: list[bytes], size: int) -> None:
        file = self.data[self._current[-1][0]]
        assert (self._current[-1][0][0], len(file)) == (segment, at), "the tap misses something"
        file += b"".join(buffers)
        if self.after is not None:
            self.after.wrote(segment, at, buffers, size)

    # the log

    def opened(self, node: SimNode) -> None:
        """Record that the log continues where this start of the node found its end, with what was written since."""
        node.log.tidying.note_segments()
        disk = self._undamaged(node.disk)
        self._find_current(node, disk)
        kept = []
        for key, stop in self._current:
            end = min(stop, len(self.data[key]))
            cut = max(0, min(end, HEADER_SIZE + node.end - key[0]))
            if cut < end:
                self.lost.append((key, cut))
            if key[0] < node.end:
                kept.append((key, cut))
        self._current = kept
        if node.log.writer.written.position == node.end:
            return  # it has written nothing yet
        for base in dict.fromkeys(node.log.tidying.segments):
            if base >= node.end:
                content = disk.content(node.log.writer.files.at(base).name)
                header = decode_header(content)
                end = node.log.writer.written.position if base == node.log.writer.base else 0
                self._begin(header)
                self.data[base, header.epoch] = bytearray(content[: HEADER_SIZE + end - base] if end else content)

    def _find_current(self, node: SimNode, disk: SimDisk) -> None:
        """Note which segments the log had before this start: its disk may be that of an earlier time, or filled from a copy."""
        bases = [base for base in dict.fromkeys(node.log.tidying.segments) if base < node.end]
        for base, following in zip(bases, [*bases, node.end][1:], strict=True):
            content = disk.content(node.log.writer.files.at(base).name)
            try:
                header = decode_header(content)
            except NotASegment:  # all its records are corrupt, too, and a later checkpoint has what they said
                continue
            key = header.base, header.epoch
            if header.generation:
                self.cleaned(disk, header)
                if key not in self.data and not any(before == base for before, _ in self.data):
                    self._begin(header)
                    self.data[key], self._names[key] = bytearray(content), file_of(header).name
                continue
            size = HEADER_SIZE + following - base
            if key in self.data:
                self._current = [*self._before[key], (key, END)]
                self.data[key] += content[len(self.data[key]) : size]  # written when the process was killed
            else:  # the start that began it has failed
                self._begin(header)
                self.data[key] = bytearray(content[:size])

    def cleaned(self, disk: SimDisk, header: SegmentHeader) -> None:
        """Note a segment that was rewritten, with its new header."""
        name = file_of(header).name
        content = disk.content(name)
        self.rewritten[name, content[:HEADER_SIZE]] = content

    def _begin(self, header: SegmentHeader) -> None:
        key = header.base, header.epoch
        assert key not in self.data, "two segments with the same base and epoch"
        if self._current:
            last, stop = self._current[-1]
            # another leader of the log may have written more into the file
            self._current[-1] = last, min(stop, len(self.data[last]), HEADER_SIZE + header.base - last[0])
        self._before[key] = list(self._current)
        self._current.append((key, END))
        self.data[key] = bytearray(header.encode())

    # copies

    def is_part(self, key: Key, size: int) -> bool:
        """Return True if the log still holds the first `size` bytes of a segment."""
        return any(known == key and size <= min(stop, len(self.data[key])) for known, stop in self._current)

    def stops_before(self, key: Key) -> dict[Key, int]:
        """Return the segments of the log before a segment, each with the offset at which it ends."""
        return dict(self._before[key])

    def cut(self, key: Key, size: int) -> SimDisk:
        """Return a disk with the log up to a segment's first `size` bytes, of which nothing was cleaned or removed."""
        disk = new_disk()
        for one, stop in self._before[key]:
            disk.put(self._names.get(one, segment_name(one[0], 0)), bytes(self.data[one][:stop]))
        disk.put(segment_name(key[0], 0), bytes(self.data[key][:size]))
        return disk
