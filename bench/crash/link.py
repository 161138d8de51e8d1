"""The checker's connections: sockets that never block, all served in one loop until the server is gone.

A pass reads what came, lets every link say what it wants to, syncs the history, and only then sends: so the history knows of
everything that a server can have got. After a crash what the server had sent is still read: such a reply counts.
"""

from __future__ import annotations

import math
import selectors
import socket
import time
from collections.abc import Callable, Sequence

from bench.crash.history import History

_CONNECT_TIMEOUT = 5.0  # s
_MOST_READ = 1 << 18  # bytes at once
_PASS = 0.01  # s a pass waits for input at most
_LAST_WORDS = 5.0  # s that connections may take to end once their server is dead

Address = tuple[str, int]


def dial(address: Address) -> socket.socket:
    """A connection that never blocks."""
    sock = socket.create_connection(address, timeout=_CONNECT_TIMEOUT)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setblocking(False)
    return sock


class Link:
    """One connection. A subclass says what it sends (`step`) and what it makes of what comes (`received`)."""

    def __init__(self, sock: socket.socket) -> None:
        """`sock` never blocks."""
        self.socket = sock
        self.closed = False  # nothing more will come
        self.queued = 0  # bytes said so far
        self.sent = 0  # bytes of these that the kernel has taken
        self._out = bytearray()

    def step(self, now: int) -> None:
        """Say what is to be said now."""

    def received(self, data: bytes, now: int) -> None:
        """What came."""
        raise NotImplementedError

    def outstanding(self) -> int:
        """Publishes that were sent and have no reply."""
        return 0

    def say(self, data: bytes) -> None:
        """Send it, with the next flush."""
        self._out += data
        self.queued += len(data)

    def flush(self) -> None:
        """Send as much as the kernel takes."""
        try:
            while self._out:
                count = self.socket.send(self._out)
                self.sent += count
                del self._out[:count]
        except BlockingIOError:
            pass
        except OSError:  # the server is gone; what it had sent can still be read
            self._out.clear()

    def read(self, now: int) -> None:
        """Take one piece of what is there at `now` (monotonic ns)."""
        try:
            data = self.socket.recv(_MOST_READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self.received(data, now)
        else:
            self.closed = True

    def close(self) -> None:
        """Hang up."""
        self.socket.close()


class Loop:
    """All links of the checker."""

    def __init__(self, links: Sequence[Link], history: History) -> None:
        self.links = links
        self.asked: Callable[[], None] = lambda: None  # called when a pass has just sent publishes
        self._history = history
        self._selector = selectors.DefaultSelector()
        for link in links:
            self._selector.register(link.socket, selectors.EVENT_READ, link)

    def run(self, done: Callable[[], bool], rest_from: float = math.inf) -> None:
        """Talk until it is done, or the server has hung up on every link. From `rest_from` (monotonic ns) on only listen."""
        while not done() and self._selector.get_map():
            now, before = time.monotonic_ns(), self.outstanding()
            for link in self.links:
                if not link.closed and now < rest_from:
                    link.step(now)
            self._history.sync()
            for link in self.links:
                link.flush()
            if self.outstanding() > before:
                self.asked()
            self._read(_PASS)

    def listen_to_the_end(self) -> None:
        """The server is dead: read what it had sent."""
        deadline = time.monotonic() + _LAST_WORDS
        while self._selector.get_map() and time.monotonic() < deadline:
            self._read(_PASS)
        self._history.sync()

    def outstanding(self) -> int:
        """Publishes that were sent and have no reply."""
        return sum(link.outstanding() for link in self.links)

    def close(self) -> None:
        """Hang up everywhere."""
        self._selector.close()
        for link in self.links:
            link.close()

    def _read(self, timeout: float) -> None:
        for key, _ in self._selector.select(timeout):
            link: Link = key.data
            link.read(time.monotonic_ns())
            if link.closed:
                self._selector.unregister(link.socket)
