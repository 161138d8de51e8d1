"""Write files that must survive a power cut, append whole lines, and open paths that may be named pipes."""

import errno
import os
from pathlib import Path


def replace_file(path: Path, content: bytes, mode: int = 0o600, owner: os.stat_result | None = None) -> None:
    """Write a small file atomically, with the owner and group of `owner`; it is durable on return. Raises OSError."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)  # of an earlier process with this number, maybe with another mode
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(content)
            if owner is not None:
                os.fchown(fd, owner.st_uid, owner.st_gid)
                os.fchmod(fd, mode)  # whatever the umask is
            file.flush()
            os.fsync(fd)
        os.rename(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def replace_text(path: Path, text: str) -> None:
    """Write a file that operators edit, as `replace_file` does. It keeps its owner, and its group may read it if it could."""
    before = path.stat() if path.exists() else None
    replace_file(path, text.encode(), before.st_mode & 0o640 if before is not None else 0o600, before)


def append_whole(path: str, lines: bytes, sync: bool = False) -> None:
    """Append whole lines to a file, or nothing if the disk is full. Owner and group may read it. Raises OSError.

    The file is opened for each call, so that one which log rotation has renamed gets nothing more. `sync`: durable on return.
    """
    place = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        before = os.fstat(place).st_size
        try:
            if os.write(place, lines) < len(lines):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if sync:
                os.fdatasync(place)
        except OSError:
            os.ftruncate(place, before)  # half a line would spoil the next one
            raise
    finally:
        os.close(place)


def make_directory(path: Path) -> None:
    """Make a directory for its owner alone, durably, unless it exists. Raises OSError."""
    if not path.is_dir():
        path.mkdir(mode=0o700)
        sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def public_problem(found: os.stat_result) -> str:
    """Return an error if all users of this machine can read a file of secrets, and how to change that, or ""."""
    return "all users of this machine can read it: run chmod o= on it" if found.st_mode & 0o007 else ""


def without_waiting(path: str, flags: int) -> int:
    """Open a file, as the `opener` of `open`. A named pipe without a writer does not block."""
    return os.open(path, flags | os.O_NONBLOCK)
