"""The log's files. No other code of the log makes system calls; the simulator has a Disk of its own.

A call that fails raises its OSError, and is not tried again here. A change of the directory is durable after `sync_directory`,
a file's content after `sync`.
"""

import os
from pathlib import Path
from typing import Protocol

from shared.files import sync_directory

_RESERVE = "reserve"  # a file's name
_MOST_PIECES = 512  # of one writev: half of what Linux takes


class File(Protocol):
    """An open file."""

    def append(self, pieces: list[bytes], at: int) -> None:
        """Write the pieces one behind the other from `at` on. After an OSError any part of them may be there."""

    def sync(self) -> None:
        """Make the content durable. After an OSError nothing that was not durable before can be trusted."""

    def read(self, at: int, size: int) -> bytes:
        """Up to `size` bytes; fewer at the end of the file."""

    def read_cached(self, at: int, size: int) -> bytes | None:
        """Exactly `size` bytes; None if reading may have to wait for the disk. For the reactor's thread only."""

    def truncate(self, size: int) -> None:
        """Cut off the end."""

    def close(self) -> None: ...


class Disk(Protocol):
    """One directory of files."""

    def names(self) -> list[str]:
        """All files, sorted."""

    def create(self, name: str) -> File:
        """A new, empty file, or an existing one emptied."""

    def open(self, name: str) -> File:
        """An existing file, to be read and written."""

    def size(self, name: str) -> int:
        """Bytes in a file."""

    def rename(self, old: str, new: str) -> None: ...
    def remove(self, name: str) -> None: ...
    def sync_directory(self) -> None: ...
    def free(self) -> int:
        """Bytes that can still be written."""

    def total(self) -> int:
        """Bytes of the whole file system."""

    def reserved(self) -> int:
        """Bytes of the file that holds space for when the disk is full; 0: there is none."""

    def reserve(self, size: int) -> None:
        """Make that file, of `size` bytes."""

    def release(self) -> None:
        """Remove it."""


def read_from(disk: Disk, name: str, at: int, size: int) -> bytes:
    """Up to `size` bytes of a file; fewer at its end. Raises OSError."""
    file = disk.open(name)
    try:
        return file.read(at, size)
    finally:
        file.close()


_MOST_CACHED = 4 * 1024 * 1024  # bytes read at once in a turn


class RealFile:
    """Implements File."""

    __slots__ = ("_buffer", "_fd")

    def __init__(self, fd: int, buffer: bytearray) -> None:
        """`buffer`: what `read_cached` reads into; it grows."""
        self._fd = fd
        self._buffer = buffer

    def append(self, pieces: list[bytes], at: int) -> None:
        for start in range(0, len(pieces), _MOST_PIECES):
            part = pieces[start : start + _MOST_PIECES]
            size = sum(map(len, part))
            written = os.pwritev(self._fd, part, at)
            at += size
            if written < size:  # a disk that is nearly full, or 2 GiB at once
                rest = memoryview(b"".join(part))[written:]
                while rest:
                    written = os.pwrite(self._fd, rest, at - len(rest))
                    rest = rest[written:]

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def read(self, at: int, size: int) -> bytes:
        parts = []
        while size and (part := os.pread(self._fd, size, at)):
            parts.append(part)
            at += len(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read_cached(self, at: int, size: int) -> bytes | None:
        if size > _MOST_CACHED:
            return None
        buffer = self._buffer
        if size > len(buffer):
            buffer.extend(bytes(size - len(buffer)))
        part = memoryview(buffer)[:size]
        try:
            count = os.preadv(self._fd, [part], at, os.RWF_NOWAIT)
            return bytes(part) if count == size else None
        except OSError:  # EAGAIN, or the file system cannot tell
            return None
        finally:
            part.release()

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def close(self) -> None:
        os.close(self._fd)


class RealDisk:
    """Implements Disk over a directory, which is made if it is not there. Raises OSError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_dir():
            path.mkdir(mode=0o700)
            sync_directory(path.parent)
        # for as long as the process lives: a sync must not fail because there is no descriptor left
        self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        # for all files, which one thread reads: new memory each time costs as much as reading
        self._buffer = bytearray()

    def names(self) -> list[str]:
        return sorted(os.listdir(self.path))

    def create(self, name: str) -> File:
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        return RealFile(os.open(self.path / name, flags, 0o600), self._buffer)

    def open(self, name: str) -> File:
        return RealFile(os.open(self.path / name, os.O_RDWR | os.O_CLOEXEC), self._buffer)

    def size(self, name: str) -> int:
        return os.stat(self.path / name).st_size

    def rename(self, old: str, new: str) -> None:
        os.rename(self.path / old, self.path / new)

    def remove(self, name: str) -> None:
        os.unlink(self.path / name)

    def sync_directory(self) -> None:
        os.fsync(self._fd)

    def free(self) -> int:
        state = os.statvfs(self.path)
        return state.f_bavail * state.f_frsize

    def total(self) -> int:
        state = os.statvfs(self.path)
        return state.f_blocks * state.f_frsize

    def reserved(self) -> int:
        try:
            return os.stat(self.path / _RESERVE).st_size
        except FileNotFoundError:
            return 0

    def reserve(self, size: int) -> None:
        fd = os.open(self.path / _RESERVE, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, size)
        except OSError:
            self.release()
            raise
        finally:
            os.close(fd)

    def release(self) -> None:
        os.unlink(self.path / _RESERVE)
