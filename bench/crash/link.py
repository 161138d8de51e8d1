"""The checker's connections: non-blocking sockets, all served in one loop until the server is gone.

A pass lets every link queue its commands, syncs the history, only then sends, and then reads. So the history has everything
that a server can have received. After a crash the checker still reads the replies that the server had sent: they count.
"""

from __future__ import annotations

import math
import selectors
import socket
import time
from collections.abc import Callable, Sequence

from bench.crash.history import History
from bench.crash.ledger import Ledger
from bench.crash.mix import Mix

_CONNECT_TIMEOUT = 5.0  # s
_MOST_READ = 1 << 18  # bytes of one read
_PASS = 0.01  # longest s that a pass waits for input
_CLOSING = 5.0  # s in which connections must end once their server is dead

Address = tuple[str, int]
Books = tuple[Ledger, History, Mix]  # of all links of a trial


def dial(address: Address) -> socket.socket:
    """Open a non-blocking connection with TCP_NODELAY."""
    sock = socket.create_connection(address, timeout=_CONNECT_TIMEOUT)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setblocking(False)
    return sock


class Link:
    """One connection. A subclass queues commands (`step`), and handles the bytes that arrive (`received`)."""

    def __init__(self, sock: socket.socket, ledger: Ledger, history: History, mix: Mix) -> None:
        """Take a socket that never blocks."""
        self.socket = sock
        self._ledger, self._history, self._mix = ledger, history, mix
        self._in = b""  # the beginning of an incomplete reply
        self.closed = False  # nothing more comes
        self.queued = 0  # bytes queued so far
        self.sent = 0  # bytes of these that the kernel has taken
        self._out = bytearray()

    def step(self, now: int) -> None:
        """Queue the commands of this pass; the default is none."""

    def received(self, data: bytes, now: int) -> None:
        """Handle bytes that have arrived at `now`."""
        raise NotImplementedError

    def outstanding(self) -> int:
        """Return the number of publishes that were sent and have no reply."""
        return 0

    def say(self, data: bytes) -> None:
        """Queue bytes for the next flush."""
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
        """Read once what has arrived; `now` is monotonic ns."""
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
        self.socket.close()


class LinkLoop:
    """The loop over all links of the checker."""

    def __init__(self, links: Sequence[Link], history: History) -> None:
        self.links = links
        self.asked: Callable[[], None] = lambda: None  # called when a pass has just sent publishes
        self._history = history
        self._selector = selectors.DefaultSelector()
        for link in links:
            self._selector.register(link.socket, selectors.EVENT_READ, link)

    def run(self, done: Callable[[], bool], rest_from: float = math.inf) -> None:
        """Serve the links until `done`, or until the server has closed every link.

        From `rest_from` (monotonic ns) on, only flush and read.
        """
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
        """Read everything that the server had sent before it died."""
        deadline = time.monotonic() + _CLOSING
        while self._selector.get_map() and time.monotonic() < deadline:
            self._read(_PASS)
        self._history.sync()

    def outstanding(self) -> int:
        """Return the number of publishes that were sent and have no reply."""
        return sum(link.outstanding() for link in self.links)

    def close(self) -> None:
        """Close the selector and all links."""
        self._selector.close()
        for link in self.links:
            link.close()

    def _read(self, timeout: float) -> None:
        for key, _ in self._selector.select(timeout):
            link: Link = key.data
            link.read(time.monotonic_ns())
            if link.closed:
                self._selector.unregister(link.socket)
