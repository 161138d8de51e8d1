"""The functions of the operating system that a simulator replaces, and the pair of sockets that wakes the reactor."""

import select
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from shared.process.listen import leave_spare


class Poller(Protocol):
    """A level-triggered poller with the interface of select.epoll."""

    def register(self, fd: int, eventmask: int) -> None: ...
    def modify(self, fd: int, eventmask: int) -> None: ...
    def unregister(self, fd: int) -> None: ...
    def poll(self, timeout: float, maxevents: int) -> list[tuple[int, int]]:
        """Return (file descriptor, events) for those that are ready, waiting at most `timeout` s."""

    def fileno(self) -> int: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class System:
    """The functions that give the reactor its poller and its pair of connected sockets, and look after descriptors."""

    poller: Callable[[], Poller] = select.epoll
    pair: Callable[[], tuple[socket.socket, socket.socket]] = socket.socketpair
    # raises OSError EMFILE if too few descriptors are left for the node itself
    leave_spare: Callable[[], None] = leave_spare


class WakeUp:
    """A pair of connected sockets: each call of `wake` sends a byte through it."""

    def __init__(self, epoll: Poller, pair: Callable[[], tuple[socket.socket, socket.socket]]) -> None:
        self._read, self._write = pair()
        for end in (self._read, self._write):
            end.setblocking(False)
        self.fd = self._read.fileno()  # readable after `wake`, until `clear`
        epoll.register(self.fd, select.EPOLLIN)

    def wake(self) -> None:
        """Make the epoll return. May be called from any thread."""
        try:
            self._write.send(b"\0")
        except OSError:
            pass  # the socket is full of wake-ups already, or the daemon has stopped turning

    def clear(self) -> None:
        """Discard the bytes that woke the epoll."""
        self._read.recv(4096)

    def close(self) -> None:
        """Close both sockets: `wake` has no effect from now on."""
        self._read.close()
        self._write.close()
