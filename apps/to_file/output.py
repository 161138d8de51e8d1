"""The files of one topic, one after the other, on a Disk.

Invariant: after `sync` returns, all appended lines are durable under a name. After an OSError of any method, `roll_back` undoes
the appends since the last `sync`, and the caller repeats them: no line is in the files in part, except in a file that cannot
be cut.
"""

import logging
import os
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count

from apps.to_file.disk import Disk
from apps.to_file.names import with_revision
from apps.to_file.rotation import Limits, OpenFile, fitting, reason_to_rotate

log = logging.getLogger("penstock")

GZIP = 31  # zlib's number for 32 KB of window and gzip's header


@dataclass(frozen=True, slots=True)
class Place:
    """Where the files of a topic go, and how."""

    title: str  # topic/channel, for the log
    output: str  # directory of finished files
    work: str  # directory of the open file, which may be the same
    gzip_level: int  # 1 to 9; 0: no compression
    limits: Limits

    @property
    def moves(self) -> bool:
        """Return whether finished files go from one directory to another."""
        return self.output != self.work

    @property
    def exclusive(self) -> bool:
        """Return whether a file that exists is never appended to."""
        return bool(self.gzip_level) or self.limits.interval > 0


class Output:
    """The open file of a topic, if there is one, and the closed one that still has to be moved."""

    def __init__(self, place: Place, disk: Disk) -> None:
        self._place = place
        self._disk = disk
        self._name = ""  # of the last file, with <REV>
        self._revision = 0  # of the last file
        self._file: OpenFile | None = None
        self._fd = -1
        self._is_alone = False  # the lock is ours, so the file may be cut
        self._length = 0  # bytes written to the file
        self._good, self._good_size = 0, 0  # _length and the file's size at the last sync
        self._is_torn = False  # bytes behind _good have to be cut before anything is written
        self._members: list[bytes] = []  # content of the next member of a gzip file
        self._finished = ""  # path of a closed file that has to be moved

    # ---- queries

    @property
    def is_open(self) -> bool:
        """Return whether a file is open."""
        return self._file is not None

    def reason_to_rotate(self, name: str, now: float) -> str:
        """Return the reason why the open file ends before the next message, or ""; `name`: that of a file opened now."""
        return reason_to_rotate(self._file, name, now, self._place.limits) if self._file else ""

    def fitting(self, sizes: Sequence[int]) -> int:
        """Return the number of messages of these sizes that fit into the open file: at least one after a rotation."""
        return fitting(sizes, self._file.size if self._file else 0, self._place.limits)

    # ---- commands; each raises OSError

    def rotate(self, name: str, now: float) -> None:
        """Close the open file, which is synced, and open the next one under `name`, which has <REV> where it may."""
        self.close()
        first = 0 if name != self._name else self._revision + 1
        for revision in count(first):
            if self._open(name, _below(self._place.work, with_revision(name, revision)), now):
                self._name, self._revision = name, revision
                return

    def append(self, data: bytes) -> None:
        """Append lines to the open file: at once, or with gzip at the next sync."""
        if self._file is None:
            raise ValueError("no file is open")
        self._repair()
        self._file.size += len(data)
        if self._place.gzip_level:
            self._members.append(data)
        else:
            self._write(data)

    def sync(self) -> None:
        """Make all that was appended durable. With gzip, it becomes a member of its own."""
        if self._file is None:
            return
        self._repair()
        if self._members:
            packer = zlib.compressobj(self._place.gzip_level, zlib.DEFLATED, GZIP)
            self._write(b"".join([*map(packer.compress, self._members), packer.flush()]))
        self._disk.sync(self._fd)
        if self._disk.is_removed(self._fd):
            raise FileNotFoundError(f"{self._file.path} was removed while it was open")
        self._members.clear()
        self._good, self._good_size = self._length, self._file.size

    def close(self) -> None:
        """Close the open file, which is synced, and move it to the output directory."""
        if self._file is not None:
            if self._place.gzip_level and not self._good:
                self._members.append(b"")  # gzip reads a file of no bytes as an error
            if self._is_torn or self._members:
                self.sync()
            self._finished = self._file.path if self._place.moves else ""
            self._file = None
            self._disk.close(self._fd)
        if self._finished:
            self._move(self._finished)
            self._finished = ""

    def roll_back(self) -> None:
        """Undo what was appended since the last sync. Never raises; what fails is done before the next write."""
        if self._file is None:
            return
        self._members.clear()
        self._file.size = self._good_size
        self._is_torn = True
        with suppress(OSError):
            self._repair()
        if self._is_lost():
            self._abandon()

    # ---- helpers

    def _write(self, data: bytes) -> None:
        self._disk.write(self._fd, data)
        self._length += len(data)

    def _repair(self) -> None:
        """Cut an incomplete write. Another program's lines are never cut: the next one then begins on a line of its own."""
        if not self._is_torn:
            return
        if self._is_alone:
            self._disk.truncate(self._fd, self._good)
        elif self._disk.ends_within_a_line(self._fd):
            self._disk.write(self._fd, b"\n")
        self._length = self._good
        self._is_torn = False

    def _is_lost(self) -> bool:
        """Return whether the file cannot be used again: it has no name, or cannot be cut and is exclusive."""
        try:
            return self._disk.is_removed(self._fd) or (self._is_torn and self._place.exclusive)
        except OSError:
            return True

    def _abandon(self) -> None:
        """Close the file as it is. Its synced content is moved later, if it still has a name."""
        assert self._file is not None
        path = self._file.path
        self._file = None
        self._is_torn = False
        with suppress(OSError):
            self._disk.close(self._fd)
        with suppress(OSError):
            if self._place.exclusive and not self._good:
                self._disk.remove(path)
            elif self._place.moves:
                self._finished = path

    def _open(self, name: str, path: str, now: float) -> bool:
        """Open a file. Return False if the next revision has to be tried."""
        title = self._place.title
        self._disk.make_directory(os.path.dirname(path) or ".")
        target = self._target(path)
        if target and self._disk.exists(target):
            log.warning("[%s] output file already exists: %s", title, target)
            return False
        try:
            fd = self._disk.open(path, self._place.exclusive)
        except FileExistsError:
            log.warning("[%s] working file already exists: %s", title, path)
            return False
        try:
            return self._begin(fd, OpenFile(name, path, now, 0))
        except BaseException:
            self._file = None
            with suppress(OSError):
                self._disk.close(fd)
            if self._place.exclusive:  # it is new and empty, and the next attempt would leave another one
                with suppress(OSError):
                    self._disk.remove(path)
            raise

    def _begin(self, fd: int, file: OpenFile) -> bool:
        """Take an opened file as the open one. Return False if it is too large."""
        title, limit = self._place.title, self._place.limits.size
        log.info("[%s] opening %s", title, file.path)
        size = self._disk.size(fd)
        if 0 < limit < size:
            log.info("[%s] %s currently %d bytes (> %d), rotating...", title, file.path, size, limit)
            self._disk.close(fd)
            return False
        self._disk.sync_directory(os.path.dirname(file.path) or ".")
        is_alone = self._disk.lock(fd)
        if not is_alone:
            log.warning("[%s] another nsq_to_file appends to %s, or it cannot be locked", title, file.path)
        if self._disk.ends_within_a_line(fd):  # a program ended while it wrote: the next line is not a part of that
            self._disk.write(fd, b"\n")
            size += 1
        self._fd, self._is_alone, self._is_torn = fd, is_alone, False
        self._length = self._good = self._good_size = size
        self._file = replace(file, size=size)
        return True

    def _target(self, path: str) -> str:
        """Return the target of a file of the work directory, or "" if it stays."""
        return os.path.join(self._place.output, os.path.relpath(path, self._place.work)) if self._place.moves else ""

    def _move(self, source: str) -> None:
        """Move a closed file to the output directory, under the next revision whose name is free."""
        title, target = self._place.title, self._target(source)
        if not self._disk.exists(source):  # an earlier attempt moved it, or a user removed it
            return
        log.info("[%s] moving finished file %s to %s", title, source, target)
        for revision in count(self._revision + 1):
            self._disk.make_directory(os.path.dirname(target) or ".")
            try:
                self._disk.move(source, target)
            except FileExistsError:
                log.warning("[%s] destination file already exists: %s", title, target)
            else:
                log.info("[%s] renamed finished file %s to %s", title, source, target)
                return
            target = _below(self._place.output, with_revision(self._name, revision))


def _below(directory: str, name: str) -> str:
    """Return the path of a name, which may begin with a slash and still is relative, as in the original."""
    return os.path.normpath(f"{directory}/{name}")
