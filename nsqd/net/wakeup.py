"""What makes a waiting epoll return, from any thread."""

import select
import socket
from collections.abc import Callable

from nsqd.net.system import Poller


class WakeUp:
    """A pair of connected sockets: a byte is sent through it for each call of `wake`."""

    __slots__ = ("_read", "_write", "fd")

    def __init__(self, epoll: Poller, pair: Callable[[], tuple[socket.socket, socket.socket]]) -> None:
        self._read, self._write = pair()
        for end in (self._read, self._write):
            end.setblocking(False)
        self.fd = self._read.fileno()  # it is readable after `wake`, until `clear`
        epoll.register(self.fd, select.EPOLLIN)

    def wake(self) -> None:
        """Make the epoll return. From any thread."""
        try:
            self._write.send(b"\0")
        except OSError:
            pass  # it is full of wake-ups already, or the daemon has stopped turning

    def clear(self) -> None:
        """The epoll has returned."""
        self._read.recv(4096)

    def close(self) -> None:
        """Nobody is woken any more."""
        self._read.close()
        self._write.close()
