"""A copy of a running node's log: no file is removed meanwhile, and each is copied up to its durable end at the beginning.

Full segments never change, and the newest one only grows. So the copy is the log at one moment. Its last group states that all
of it is durable.
"""

from dataclasses import dataclass

from nsqd.core.retention.backup import Busy
from nsqd.storage.log.disk import Disk, read_from
from nsqd.storage.log.identity import NAME as IDENTITY
from nsqd.storage.log.records import HEADER_SIZE
from nsqd.storage.log.syncer import Syncer
from nsqd.storage.log.tidying import Tidying
from nsqd.storage.log.writer import Writer

HOLDER = "backup"
LEASE = 60_000_000_000  # ns for which `begin` or `keep_alive` keeps files from being removed


@dataclass(frozen=True, slots=True)
class LogPart:
    """One file of a copy of a log, from some offset on. Implements nsqd.core.retention.backup.BackupPart."""

    disk: Disk
    name: str  # in the copy
    size: int  # bytes
    file: str  # name on the disk
    offset: int = 0  # in the file, at which the part begins

    def read(self, at: int, size: int) -> bytes:
        data = read_from(self.disk, self.file, self.offset + at, size)
        if len(data) != size:
            raise OSError(f"{self.file} is shorter than it was")
        return data


@dataclass(slots=True, eq=False)
class LogBackup:
    """Copies of a log that is in use. Implements nsqd.core.retention.backup.Backup."""

    _disk: Disk
    _writer: Writer
    _syncer: Syncer
    _tidying: Tidying
    _number: int = 0  # number of the copy that was begun last

    def begin(self) -> tuple[int, list[LogPart]]:
        if self._tidying.is_held_by(HOLDER):
            raise Busy
        if not self._syncer.sync_all():
            raise OSError("the log cannot be synced")
        self._tidying.note_segments()
        names, bases = set(self._disk.names()), dict.fromkeys([*self._tidying.segments, self._writer.base])
        parts = [self._part(base) for base in bases if self._tidying.file_name(base) in names]
        parts = [part for part in parts if part.size > HEADER_SIZE]
        self._number += 1
        self.keep_alive(self._number)
        if IDENTITY in self._disk.names():
            parts.append(LogPart(self._disk, IDENTITY, self._disk.size(IDENTITY), IDENTITY))
        return self._number, parts

    def _part(self, base: int) -> LogPart:
        name, writer = self._tidying.file_name(base), self._writer
        is_newest = base == writer.base
        size = HEADER_SIZE + writer.durable.position - base if is_newest else self._disk.size(name)
        return LogPart(self._disk, name, size, name)

    def keep_alive(self, number: int) -> None:
        if number == self._number:
            self._tidying.hold_for(HOLDER, LEASE)

    def end(self, number: int) -> None:
        if number == self._number:
            self._tidying.hold_for(HOLDER, 0)
