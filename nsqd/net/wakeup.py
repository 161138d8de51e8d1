"""A pair of sockets that makes a waiting epoll return, from any thread."""

import select
import socket
from collections.abc import Callable

from nsqd.net.system import Poller


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
