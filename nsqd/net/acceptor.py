"""Accept connections for all listeners of the reactor, as far as their limits let them in.

When the machine has no descriptor left, accepting pauses for ACCEPT_PAUSE. A connection that is not let in is closed without
a word, as its protocol is not known yet.
"""

import select
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from nsqd.net.system import Poller
from nsqd.protocols.transport import NEVER
from shared.connection_limiter import QUIET, ConnectionLimiter
from shared.log import log
from shared.process.listen import BACKLOG, OUT_OF_RESOURCES, leave_spare

ACCEPT_PAUSE = 100_000_000  # ns without accepting after EMFILE: spinning on it would starve the open connections
ACCEPT_BATCH = 64  # new connections in a turn


@dataclass(frozen=True, slots=True)
class Accepted:
    """A connection that was let in, with the client's address."""

    socket: socket.socket
    ip: str  # "" for a unix socket
    port: str


class Acceptor:
    """The listeners of the reactor, registered with its epoll."""

    def __init__(self, epoll: Poller, leave_spare: Callable[[], None] = leave_spare) -> None:
        """Accept nothing yet. `leave_spare` is that of nsqd.net.system.System."""
        self._epoll = epoll
        self._leave_spare = leave_spare
        self._listeners: dict[int, tuple[socket.socket, ConnectionLimiter]] = {}  # by file descriptor
        self._quiet_about_pauses_until = 0
        self.again = NEVER  # ns: when listeners that hit EMFILE accept again; NEVER: none did

    def __contains__(self, fd: int) -> bool:
        return fd in self._listeners

    def listen(self, sock: socket.socket, limiter: ConnectionLimiter) -> None:
        """Accept connections of a listening, non-blocking socket that the limiter lets in."""
        self._listeners[sock.fileno()] = sock, limiter
        self._epoll.register(sock.fileno(), select.EPOLLIN)

    def stop(self, fd: int, now: int) -> list[Accepted]:
        """Accept no more connections of this listener; return those that still wait there and are let in."""
        # a listener has at most BACKLOG connections waiting; more than that are of clients that keep coming
        waiting = [accepted for _ in range(BACKLOG // ACCEPT_BATCH) for accepted in self.accept(fd, now)]
        del self._listeners[fd]
        self._epoll.unregister(fd)
        return waiting

    def accept(self, fd: int, now: int) -> Iterator[Accepted]:
        """Yield the connections that wait at a listener and are let in, up to ACCEPT_BATCH; close the others."""
        listener, limiter = self._listeners[fd]
        for _ in range(ACCEPT_BATCH):
            try:
                self._leave_spare()
                sock, address = listener.accept()
            except BlockingIOError:
                return
            except OSError as failure:
                if failure.errno in OUT_OF_RESOURCES:
                    self._pause(failure, now)
                    return
                continue  # ECONNABORTED and similar: that connection is gone, the next may be fine
            ip, port = (str(address[0]), str(address[1])) if isinstance(address, tuple) else ("", "")
            if limiter.admits(ip, now):
                yield Accepted(sock, ip, port)
            else:
                sock.close()

    def resume(self, now: int) -> None:
        """Make the listeners accept again once their pause is over."""
        if now >= self.again:
            self.again = NEVER
            for fd in self._listeners:
                self._epoll.modify(fd, select.EPOLLIN)

    def _pause(self, failure: OSError, now: int) -> None:
        if now >= self._quiet_about_pauses_until:
            self._quiet_about_pauses_until = now + QUIET
            log.error("TCP: cannot accept: %s; trying again", failure.strerror)
        if self.again == NEVER:
            for fd in self._listeners:
                self._epoll.modify(fd, 0)
        self.again = now + ACCEPT_PAUSE
