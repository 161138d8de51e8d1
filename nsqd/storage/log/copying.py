"""A log in use, as the code reads it that copies it to other nodes: segments, and their bytes with checked checksums.

`read` may run in any thread; everything else belongs to the reactor's.
"""

from __future__ import annotations

from dataclasses import dataclass

from nsqd.storage.log.disk import Disk, read_from
from nsqd.storage.log.epochs import Epoch
from nsqd.storage.log.files import SegmentFile
from nsqd.storage.log.followers import Followers
from nsqd.storage.log.records import HEADER_SIZE, PREFIX_SIZE, decode
from nsqd.storage.log.syncer import Syncer
from nsqd.storage.log.tidying import EVERY, Tidying
from nsqd.storage.log.writer import Tap, Writer

MOST_RECORD = 64 * 1024 * 1024  # bytes: a chunk grows up to this until it holds a whole record


@dataclass(frozen=True, slots=True)
class LogSource:
    """The segments of a log in use, which nsqd.cluster.replication.leader sends to followers."""

    _disk: Disk
    _writer: Writer
    _syncer: Syncer
    _tidying: Tidying

    @property
    def log_id(self) -> bytes:
        """Return the id of the log (16 bytes)."""
        return self._writer.identity.log_id

    @property
    def epoch(self) -> Epoch:
        """Return the epoch in which this node leads the log."""
        return self._writer.identity.epoch

    def time(self) -> int:
        """Return the log's own time, in ns."""
        return self._writer.clock.now()

    @property
    def end(self) -> int:
        """Return the position up to which the log is written."""
        return self._writer.written.position

    @property
    def durable(self) -> int:
        """Return the position up to which the log is durable."""
        return self._writer.durable.position

    @property
    def is_broken(self) -> bool:
        """Return True if a sync has failed: then the content of the disk is unknown."""
        return self._writer.durable.broken

    def epochs(self) -> list[tuple[bytes, int]]:
        """Return the epochs of the log, packed, each with the position at which it begins.

        The one of this process is among them even if nothing was written in it: the log has lost all that a copy has more.
        """
        return [(epoch.pack(), start) for epoch, start in self._writer.all_epochs()]

    @property
    def followers(self) -> Followers:
        """Return which followers count, as the log states it."""
        return self._writer.followers

    def state_followers(self, followers: Followers) -> int:
        """State which followers count. Returns the position that has to be durable for that."""
        self._writer.state_followers(followers)
        position = self._writer.write()
        self._syncer.want()
        return position

    def bases(self) -> list[int]:
        """Return the bases of the segments, ascending."""
        self._tidying.note_segments()
        return list(dict.fromkeys(self._tidying.segments))  # an empty one at the end that a start found is begun again

    def file(self, base: int) -> SegmentFile:
        """Return the file of a segment. Raises FileNotFoundError."""
        return self._writer.files.at(base)

    def file_end(self, base: int, following: int | None) -> int:
        """Return the offset at which a segment's records end, even if its file was cut since. Raises OSError.

        `following`: base of the next one, if any.
        """
        if following is None:
            return HEADER_SIZE + self._writer.written.position - base
        file = self.file(base)
        size = self._tidying.sizes.get(base) or self._disk.size(file.name)
        return size if file.generation else min(size, HEADER_SIZE + following - base)

    def note_cut(self, base: int, end: int) -> None:
        """Note that what followed the offset `end` of a segment's file is lost: `file_end` is there from now on."""
        self._tidying.sizes[base] = end

    def header(self, file: SegmentFile) -> bytes:
        """Return the header of a segment. Raises OSError."""
        return read_from(self._disk, file.name, 0, HEADER_SIZE)

    def read(self, file: SegmentFile, at: int, end: int, size: int) -> tuple[bytes, int]:
        """Return whole records from offset `at` on, about `size` bytes and at least one record, none past offset `end`.

        The number says how many of the bytes have a wrong checksum: they are passed on as they are. If the file was cut, it is
        the number of all bytes that are missing up to `end`, after whole records or none. Raises OSError.
        """
        while True:
            data = read_from(self._disk, file.name, at, min(size, end - at))
            done = whole_records(data, file.seed, at)
            if len(data) < min(size, end - at):
                return data[:done], end - at - done
            if done == len(data):
                return data, 0
            if at + len(data) == end or size >= MOST_RECORD:
                return data, len(data) - done
            if done:
                return data[:done], 0
            size = max(2 * size, PREFIX_SIZE + int.from_bytes(data[:4], "big") if len(data) >= 4 else 0)
            size = min(size, MOST_RECORD)

    def read_repaired(self, base: int, file: SegmentFile, at: int, end: int, size: int) -> tuple[bytes, int]:
        """Return the same after corrupt bytes were fetched from other nodes, which may take seconds. Any thread may call it.

        Raises OSError, also while a replica that may have the bytes cannot be reached.
        """
        data, wrong = self.read(file, at, end, size)
        repair = self._writer.files.repair
        if not wrong or repair is None:
            return data, wrong
        start = at + whole_records(data, file.seed, at)
        if repair(base, file, start, start + wrong):
            return self.read(file, at, end, size)
        if repair.is_awaited(file, start):
            raise OSError(f"{wrong} bytes of {file.name} are corrupt, and a node that may have them cannot be reached")
        if not data and base == self._writer.base:
            raise OSError(f"{file.name} is shorter than it was")
        return data, wrong

    def restore(self, base: int, file: SegmentFile, end: int) -> bool:
        """Write a segment whose file is gone again, up to the offset `end`. Any thread may call it, and it may take seconds.

        Returns False if no other node has it. Raises OSError, also while one that may have it cannot be reached.
        """
        repair = self._writer.files.repair
        if repair is None or repair(base, file, HEADER_SIZE, end):
            return repair is not None
        if file.generation or repair.is_awaited(file, HEADER_SIZE):
            raise OSError(f"{file.name} is missing, and a node that may have it cannot be reached")
        return False

    def forget(self, base: int) -> None:
        """Forget a segment whose file is gone and that no other node has, unless that was removed meanwhile."""
        if base in self._tidying.segments:
            self._tidying.forget(base)

    def hold(self, node: int, ns: int, first: int = 0, last: int | None = None) -> None:
        """Hold the segments from the base `first` to `last` (None: to the end) for a node, for `ns` nanoseconds; 0: release."""
        self._tidying.hold_for(f"node {node}", ns, first, EVERY if last is None else last)

    def tap(self, tap: Tap | None) -> None:
        """Give every group and header to `tap` from now on."""
        self._writer.tap = tap


def whole_records(data: bytes, seed: int, offset: int) -> int:
    """Return the size of the whole records at the beginning of some bytes, which begin at that offset of a segment."""
    done = 0
    while stop := decode(data, done, seed, offset):
        done = stop
    return done
