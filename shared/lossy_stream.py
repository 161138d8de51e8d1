"""Standard error or output that never waits: text that a stuck reader does not take is dropped, and the lines are counted.

The reader of a pipe, a socket or a terminal may pause (a stuck log shipper, Ctrl-S), and a disk may be full. A write that
waited for it would stop the thread that serves clients. Regular files and /dev/null are written as always.

A pipe and a terminal are opened again, because O_NONBLOCK belongs to the open file description, which other processes share.
Where that is not allowed, each write asks the system first, and has at most PIPE_BUF bytes, which a pipe takes whole.
"""

from __future__ import annotations

import io
import os
import select
import socket
import stat
import sys
import threading
from collections.abc import Callable
from typing import TextIO

RETRY = 1.0  # s between two attempts to write the number of lost lines


def describe_loss(lines: int) -> str:
    """Return the text of the line that reports how many lines were dropped."""
    return f"dropped {lines} lines before this one, because their reader took no more"


def make_lossy(name: str, report: Callable[[int], str]) -> None:
    """Replace `sys.stdout` or `sys.stderr`, which is named, unless it is closed or has no descriptor, as in tests."""
    try:
        fd = getattr(sys, name).fileno()
    except (AttributeError, OSError, ValueError):  # AttributeError: it is None, because the descriptor was closed
        return
    setattr(sys, name, LossyStream(fd, report))


def is_behind(*streams: TextIO) -> bool:
    """Return whether lines of one of the streams were dropped and are not reported yet."""
    return any(isinstance(stream, LossyStream) and stream.lost for stream in streams)


class LossyStream(io.TextIOBase):
    """A text stream over a file descriptor, for all threads. It writes whole lines, and the rest of a line when flushed."""

    def __init__(self, fd: int, report: Callable[[int], str]) -> None:
        """`report` returns the line that reports how many lines were dropped; it ends with a newline."""
        self.lost = 0  # lines that were dropped and not reported yet
        self.report = report
        self._fd = fd
        self._write = _writer(fd)  # returns how many bytes were taken; raises OSError
        self._unfinished = ""  # the beginning of a line
        self._rest = b""  # the end of a text whose beginning was taken
        self._lock = threading.RLock()

    def write(self, text: str) -> int:
        """Write the lines that are complete now, as far as they are taken. Returns the size of the text. Never raises."""
        with self._lock:
            whole, newline, self._unfinished = (self._unfinished + text).rpartition("\n")
            if newline:
                self._send(whole + newline)
        return len(text)

    def flush(self) -> None:
        """Write what waits: the rest of a line, or the number of dropped lines."""
        with self._lock:
            text, self._unfinished = self._unfinished, ""
            self._send(text)

    def fileno(self) -> int:
        return self._fd

    def isatty(self) -> bool:
        return os.isatty(self._fd)

    def writable(self) -> bool:
        return True

    def _send(self, text: str) -> None:
        """Write the rest of an earlier text, and then, all or nothing, the number of dropped lines and the text."""
        self._rest = self._put(self._rest)
        data = ((self.report(self.lost) if self.lost else "") + text).encode("utf-8", "backslashreplace")
        rest = data if self._rest else self._put(data)
        if len(rest) < len(data):
            self.lost, self._rest = 0, rest
        else:
            self.lost += text.count("\n")

    def _put(self, data: bytes) -> bytes:
        """Write the data, and return the part that was not taken."""
        while data:
            try:
                taken = self._write(data)
            except OSError:  # it would wait; or the disk is full, or the reader is gone: the line is lost anyway
                break
            if not taken:
                break
            data = data[taken:]
        return data


def _writer(fd: int) -> Callable[[bytes], int]:
    """Return a function that writes to what the descriptor is, and does not wait for a reader."""
    mode = os.fstat(fd).st_mode
    if stat.S_ISSOCK(mode):
        sock = socket.socket(fileno=os.dup(fd))
        return lambda data: sock.send(data, socket.MSG_DONTWAIT)
    if stat.S_ISFIFO(mode) or os.isatty(fd):
        try:
            own = os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError:  # another user's, without a reader, or there is no /proc
            return lambda data: os.write(fd, data[: select.PIPE_BUF]) if _is_writable(fd) else 0
        os.dup2(own, fd)
        os.close(own)
    return lambda data: os.write(fd, data)


def _is_writable(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    return bool(poll.poll(0))
