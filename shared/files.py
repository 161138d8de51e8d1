"""Writing files that must survive a power cut, files of lines in which no half may stand, and opening what may be no file."""

import errno
import os
import tempfile
from pathlib import Path


def replace_file(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Write a small file atomically, durable on return. By default only its owner may read it. Raises OSError."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)  # of an earlier process with this number, maybe with another mode
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def replace_text(path: Path, text: str) -> None:
    """Write a file that operators edit, atomically, for its owner and group only. It keeps its owner. Raises OSError."""
    place, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(place, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
            if path.exists():
                before = path.stat()
                os.chown(name, before.st_uid, before.st_gid)
                os.chmod(name, before.st_mode & 0o640)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


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


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def public_problem(found: os.stat_result) -> str:
    """Return what is wrong with a file of secrets that everybody on this machine can read, and what to do; "": nobody can."""
    return "everybody on this machine can read it: run chmod o= on it" if found.st_mode & 0o007 else ""


def without_waiting(path: str, flags: int) -> int:
    """Open a file as `open` does, of which this is an opener: a named pipe has no end, or no content, instead of blocking."""
    return os.open(path, flags | os.O_NONBLOCK)
