"""The log's files. No other code of the log makes system calls; the simulator substitutes a Disk of its own.

A call that fails raises its OSError, and this module does not retry it. A change of the directory is durable after
`sync_directory`, a file's content after `sync`.
"""

import os
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Protocol

from shared.files import make_directory

RESERVE_NAME = "reserve"  # name of the file that reserves space
_MOST_BUFFERS = 512  # buffers of one writev: half of the number that Linux accepts


class File(Protocol):
    """An open file in the log's directory."""

    def append(self, buffers: Sequence[bytes | memoryview], at: int) -> None:
        """Write the buffers one after the other from offset `at` on. After an OSError any part of them may be in the file."""

    def sync(self) -> None:
        """Make the content durable. After an OSError, nothing that was not durable before can be trusted."""

    def read(self, at: int, size: int) -> bytes:
        """Return up to `size` bytes from offset `at` on; fewer at the end of the file."""

    def read_cached(self, at: int, size: int) -> bytes | None:
        """Return exactly `size` bytes, or None if reading may have to wait for the disk. For the reactor's thread only."""

    def truncate(self, size: int) -> None:
        """Cut the file off at `size` bytes."""

    def drop_cached(self) -> None:
        """Drop the file's synced content from the page cache, because it is not read soon."""

    def close(self) -> None: ...


class Disk(Protocol):
    """The directory that holds one log's files."""

    def names(self) -> list[str]:
        """Return the names of all files, sorted."""

    def create(self, name: str) -> File:
        """Create an empty file, or empty the existing one, and return it open."""

    def open(self, name: str) -> File:
        """Open an existing file for reading and writing."""

    def size(self, name: str) -> int:
        """Return the size of a file in bytes."""

    def rename(self, old: str, new: str) -> None: ...
    def rename_unopened(self, old: str, new: str) -> bool:
        """Rename a file unless it is open by `open`. Returns False, and changes nothing, if it is."""

    def remove(self, name: str) -> None: ...
    def sync_directory(self) -> None: ...
    def free(self) -> int:
        """Return the number of bytes that can still be written."""

    def total(self) -> int:
        """Return the size of the whole file system in bytes."""

    def reserved(self) -> int:
        """Return the size in bytes of the file that reserves space for a full disk; 0 if there is no such file."""

    def reserve(self, size: int) -> None:
        """Create the file that reserves space, with `size` bytes."""

    def release(self) -> None:
        """Remove the file that reserves space."""


def read_from(disk: Disk, name: str, at: int, size: int) -> bytes:
    """Return up to `size` bytes of a file from offset `at` on; fewer at the end of the file. Raises OSError."""
    with closing(disk.open(name)) as file:
        return file.read(at, size)


def replace_file(disk: Disk, name: str, data: bytes) -> None:
    """Write a whole file durably: as `name`.tmp at first, which is synced and then renamed. Raises OSError."""
    with closing(disk.create(f"{name}.tmp")) as file:
        file.append([data], 0)
        file.sync()
    disk.rename(f"{name}.tmp", name)
    disk.sync_directory()


_MOST_CACHED = 4 * 1024 * 1024  # bytes that a turn reads with one call, at most


class RealFile:
    """A file of the operating system. Implements File."""

    __slots__ = ("_buffer", "_fd", "_on_close")

    def __init__(self, fd: int, buffer: bytearray, on_close: Callable[[], None] = lambda: None) -> None:
        """Wrap a file descriptor. `buffer` is the memory that `read_cached` reads into; it grows as needed."""
        self._fd, self._buffer, self._on_close = fd, buffer, on_close

    def append(self, buffers: Sequence[bytes | memoryview], at: int) -> None:
        for start in range(0, len(buffers), _MOST_BUFFERS):
            part = buffers[start : start + _MOST_BUFFERS]
            size = sum(map(len, part))
            written = os.pwritev(self._fd, part, at)
            at += size
            if written < size:  # the disk is nearly full, or the write was 2 GiB or more
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
        except OSError:  # EAGAIN, or the file system does not support RWF_NOWAIT
            return None
        finally:
            part.release()

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def drop_cached(self) -> None:
        os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        os.close(self._fd)
        self._on_close()


class RealDisk:
    """A Disk over a directory, which is created if it does not exist. Raises OSError."""

    def __init__(self, path: Path, is_read_only: bool = False) -> None:
        """`is_read_only`: files are only read, and need no permission for more."""
        self.path = path
        self._flags = (os.O_RDONLY if is_read_only else os.O_RDWR) | os.O_CLOEXEC
        make_directory(path)
        # The descriptor stays open while the process lives: a sync must not fail because no descriptor is left.
        self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        # One thread reads all files, so they share a buffer: allocating memory for each read costs as much as reading.
        self._buffer = bytearray()
        self._opened = Counter[str]()  # files that `open` has opened and that are not closed, by name
        self._lock = threading.Lock()  # guards `_opened`, and names while it is changed: any thread may open a file

    def names(self) -> list[str]:
        return sorted(os.listdir(self.path))

    def create(self, name: str) -> File:
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        return RealFile(os.open(self.path / name, flags, 0o600), self._buffer)

    def open(self, name: str) -> File:
        with self._lock:
            fd = os.open(self.path / name, self._flags)
            self._opened[name] += 1
        return RealFile(fd, self._buffer, partial(self._closed, name))

    def _closed(self, name: str) -> None:
        with self._lock:
            self._opened[name] -= 1
            if not self._opened[name]:
                del self._opened[name]

    def size(self, name: str) -> int:
        return os.stat(self.path / name).st_size

    def rename(self, old: str, new: str) -> None:
        os.rename(self.path / old, self.path / new)

    def rename_unopened(self, old: str, new: str) -> bool:
        with self._lock:
            if old in self._opened:
                return False
            os.rename(self.path / old, self.path / new)
            return True

    def remove(self, name: str) -> None:
        os.unlink(self.path / name)

    def sync_directory(self) -> None:
        os.fsync(self._fd)

    def close(self) -> None:
        """Close the directory: no other method may be called afterwards. Open files stay open."""
        os.close(self._fd)

    def free(self) -> int:
        return (state := os.statvfs(self.path)).f_bavail * state.f_frsize

    def total(self) -> int:
        return (state := os.statvfs(self.path)).f_blocks * state.f_frsize

    def reserved(self) -> int:
        try:
            return os.stat(self.path / RESERVE_NAME).st_size
        except FileNotFoundError:
            return 0

    def reserve(self, size: int) -> None:
        fd = os.open(self.path / RESERVE_NAME, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, size)
        except OSError:
            self.release()
            raise
        finally:
            os.close(fd)

    def release(self) -> None:
        os.unlink(self.path / RESERVE_NAME)
