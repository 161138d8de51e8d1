"""The calls of the operating system that nsq_to_file makes. Every method raises OSError; a test puts another disk here."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from shared.files import sync_directory

MODE, DIRECTORY_MODE = 0o666, 0o770  # as the original's, before the umask


class Disk:
    """Files by descriptor. Files and names are durable only after `sync` or `sync_directory`."""

    def open(self, path: str, exclusive: bool) -> int:
        """Open a file for appending, and make it if needed. With `exclusive` it must not exist (FileExistsError)."""
        return os.open(
            path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | (os.O_EXCL if exclusive else 0), MODE
        )

    def lock(self, fd: int) -> bool:
        """Return whether no other nsq_to_file has the file open; this one keeps the lock until the file is closed."""
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # another one has it, or the file system has no locks: then this program may not be alone
            return False
        return True

    def size(self, fd: int) -> int:
        """Return the size of the file in bytes."""
        return os.fstat(fd).st_size

    def is_removed(self, fd: int) -> bool:
        """Return whether the file has no name: its content will be lost."""
        return os.fstat(fd).st_nlink == 0

    def ends_within_a_line(self, fd: int) -> bool:
        """Return whether the file has bytes and the last one is not a line feed."""
        size = self.size(fd)
        return size > 0 and os.pread(fd, 1, size - 1) != b"\n"

    def write(self, fd: int, data: bytes) -> None:
        """Append all bytes. After an error, any number of them is in the file."""
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(fd, rest) :]

    def truncate(self, fd: int, size: int) -> None:
        """Cut the file to `size` bytes."""
        os.ftruncate(fd, size)

    def sync(self, fd: int) -> None:
        """Make the content durable."""
        os.fsync(fd)

    def close(self, fd: int) -> None:
        """Close the file, and give up its lock."""
        os.close(fd)

    def exists(self, path: str) -> bool:
        """Return whether the path has a name, be it of a dangling link."""
        try:
            os.lstat(path)
        except FileNotFoundError:
            return False
        return True

    def make_directory(self, path: str) -> None:
        """Make a directory and those above it that are missing, durable on return."""
        if os.path.isdir(path):
            return
        above = os.path.dirname(os.path.abspath(path))
        self.make_directory(above)
        with suppress(FileExistsError):  # made meanwhile; if it is a file, opening a file below it fails
            os.mkdir(path, DIRECTORY_MODE)
        self.sync_directory(above)

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable."""
        sync_directory(Path(path))

    def move(self, source: str, target: str) -> None:
        """Give a file another name, durable on return. FileExistsError if the target exists; it is never replaced.

        After an error it may have both names; the next call then continues.
        """
        try:
            os.link(source, target, follow_symlinks=False)
        except FileExistsError:
            if not os.path.samefile(source, target):
                raise
        self.sync_directory(os.path.dirname(target) or ".")
        os.unlink(source)
        self.sync_directory(os.path.dirname(source) or ".")

    def remove(self, path: str) -> None:
        """Remove a file."""
        os.unlink(path)
