"""The file of an audit as a start finds it: where its chain ends, and what a crash has left of its last line."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass

from shared.audit.chain import EMPTY, MOST_LINE, BrokenChainError, Head, decode, digest

TAIL = 8 * MOST_LINE  # bytes that are read at the end


@dataclass(frozen=True, slots=True)
class End:
    """What the end of an audit file says when it is opened."""

    head: Head = EMPTY
    torn: int = 0  # bytes of half a line behind the last whole one, which were cut off
    is_damaged: bool = False  # the last line is no record: the chain cannot be told from it


def open_end(path: str) -> End:
    """Return where the chain ends, and cut off half a line. The file is made if it is not there.

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
    is_damaged = False
    for line in reversed(lines):
        try:
            return End(Head(decode(line)["seq"], digest(lines[-1])), torn, is_damaged)
        except BrokenChainError:
            is_damaged = True
    raise OSError("this file has something else at its end than audit records")
