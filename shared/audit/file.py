"""The file of an audit at the start: the end of its chain, and half a line that a crash has left."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass

from shared.audit.chain import EMPTY, MOST_LINE, BrokenChainError, Head, decode, digest

TAIL = 8 * MOST_LINE  # bytes that are read at the end


@dataclass(frozen=True, slots=True)
class End:
    """The end of an audit file when it is opened."""

    head: Head = EMPTY
    torn: int = 0  # bytes of half a line after the last whole one, which were cut off
    is_corrupt: bool = False  # the last line is no record


def open_end(path: str) -> End:
    """Return the end of the chain, and cut off half a line. The file is made if it does not exist.

    Raises OSError, also if it is another kind of file.
    """
    place = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o640)
    try:
        found = os.fstat(place)
        if not stat.S_ISREG(found.st_mode):
            raise OSError("not a regular file")
        tail = os.pread(place, TAIL, max(0, found.st_size - TAIL))
        whole = tail.rfind(b"\n") + 1
        torn = len(tail) - whole
        end = _end_of(tail[:whole].splitlines(), torn)
        if torn:
            os.ftruncate(place, found.st_size - torn)
    finally:
        os.close(place)
    return end


def _end_of(lines: list[bytes], torn: int) -> End:
    """Return the end of the chain in the last lines. Raises OSError if the file is none of an audit: it is left as it is."""
    if torn > MOST_LINE:
        raise OSError("this file has a longer line at its end than an audit")
    if not lines:
        return End(torn=torn)
    is_corrupt = False
    for line in reversed(lines):
        try:
            return End(Head(decode(line)["seq"], digest(lines[-1])), torn, is_corrupt)
        except BrokenChainError:
            is_corrupt = True
    raise OSError("this file has something else at its end than audit records")
