"""Connections in a process that was forked: `os.fork`, multiprocessing, gunicorn --preload.

A fork copies the descriptors of all connections. If two processes used one connection, each would read responses of the other.
Each class of a client that keeps a connection holds a `Guard` for it, and compares the process id before it uses the
connection: it then opens a new one, or raises an error if its messages or jobs belong to the parent.

A child sends nothing over a connection of its parent, not even when it closes or forgets it, and it keeps no such connection
open. Before other code of the child runs, each such descriptor is replaced by one whose other end is closed.
"""

import os
import socket
from contextlib import suppress
from weakref import WeakSet


class Guard:
    """A connection that this process has opened. It is guarded for as long as this object exists.

    Example::

        guard = Guard(connected.fileno())
        if guard.is_inherited:
            connect_again()
    """

    __slots__ = ("__weakref__", "_fd", "_file", "_pid")

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._file = _file_of(fd)  # the number may belong to another file when the connection is closed
        self._pid = os.getpid()
        _ALL.add(self)

    @property
    def is_inherited(self) -> bool:
        """Return True in a process that was forked since: the connection belongs to the parent."""
        return os.getpid() != self._pid

    def replace(self, dead: socket.socket) -> None:
        """Let the descriptor lead to a dead socket, if it is still that of the connection."""
        with suppress(OSError):  # it is closed
            if _file_of(self._fd) == self._file:
                os.dup2(dead.fileno(), self._fd, inheritable=False)


def _file_of(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


_ALL: WeakSet[Guard] = WeakSet()


def _cut_inherited() -> None:
    """Replace all connections of the parent. Called in the child."""
    held = [*_ALL]
    _ALL.clear()
    if not held:
        return
    with suppress(OSError):  # no more files can be opened: `is_inherited` alone protects the connections
        dead, other = socket.socketpair()
        with dead:
            other.close()
            dead.setblocking(False)
            for one in held:
                one.replace(dead)


os.register_at_fork(after_in_child=_cut_inherited)
