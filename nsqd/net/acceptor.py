"""Accept connections for all TCP listeners, within limits in total and per address.

When the machine has no descriptor left, accepting pauses for ACCEPT_PAUSE. Each refusal is counted by its reason. A connection
beyond a limit is closed without a word, as its protocol is not known yet.
"""

import select
import socket
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from nsqd.net.system import Poller
from nsqd.protocols.transport import NEVER
from shared.listen import OUT_OF_RESOURCES
from shared.log import log

ACCEPT_PAUSE = 100_000_000  # ns without accepting after EMFILE: spinning on it would starve the open connections
ACCEPT_BATCH = 64  # new connections in a turn
QUIET = 10_000_000_000  # ns between two lines about connections beyond a limit, and about missing descriptors


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The limits on how many connections may be open at a time."""

    total: int = 10_000
    per_ip: int = 0  # 0: no limit of its own


@dataclass(frozen=True, slots=True)
class Accepted:
    """A connection that was let in, with the client's address."""

    socket: socket.socket
    ip: str  # "" for a unix socket
    port: str


class Acceptor:
    """The listeners of the node, registered with the reactor's epoll, and the count of open connections."""

    def __init__(self, epoll: Poller, limits: ConnectionLimits, refused: Counter[str]) -> None:
        self._epoll = epoll
        self._limits = limits
        self._refused = refused
        self._listeners: dict[int, socket.socket] = {}
        self._open = 0  # connections that were let in and are still open
        self._by_ip: dict[str, int] = {}  # the open connections by address; never 0
        self._quiet_until = 0
        self._quiet_about_pauses_until = 0
        self.again = NEVER  # ns: when listeners that hit EMFILE accept again; NEVER: none did

    def __contains__(self, fd: int) -> bool:
        return fd in self._listeners

    def listen(self, sock: socket.socket) -> None:
        """Accept connections of a listening, non-blocking socket."""
        self._listeners[sock.fileno()] = sock
        self._epoll.register(sock.fileno(), select.EPOLLIN)

    def accept(self, fd: int, now: int) -> Iterator[Accepted]:
        """Yield the connections that wait at a listener and are within the limits, up to ACCEPT_BATCH; close the others."""
        listener = self._listeners[fd]
        for _ in range(ACCEPT_BATCH):
            try:
                sock, address = listener.accept()
            except BlockingIOError:
                return
            except OSError as failure:
                if failure.errno in OUT_OF_RESOURCES:
                    self._pause(failure, now)
                    return
                continue  # ECONNABORTED and similar: that connection is gone, the next may be fine
            ip, port = (str(address[0]), str(address[1])) if isinstance(address, tuple) else ("", "")
            if self._admits(ip, now):
                yield Accepted(sock, ip, port)
            else:
                sock.close()

    def count_off(self, ip: str) -> None:
        """Count off a connection from address `ip` that was let in and is gone."""
        self._open -= 1
        rest = self._by_ip.pop(ip) - 1
        if rest:
            self._by_ip[ip] = rest

    def resume(self, now: int) -> None:
        """Make the listeners accept again once their pause is over."""
        if now >= self.again:
            self.again = NEVER
            for fd in self._listeners:
                self._epoll.modify(fd, select.EPOLLIN)

    def _admits(self, ip: str, now: int) -> bool:
        limits, here = self._limits, self._by_ip.get(ip, 0)
        if self._open >= limits.total:
            return self._refuse("max_connections", f"{limits.total} connections are open", now)
        if ip and limits.per_ip and here >= limits.per_ip:
            return self._refuse("max_connections_per_ip", f"{limits.per_ip} connections of {ip} are open", now)
        self._open += 1
        self._by_ip[ip] = here + 1
        return True

    def _refuse(self, reason: str, why: str, now: int) -> bool:
        self._refused[reason] += 1
        if now >= self._quiet_until:
            self._quiet_until = now + QUIET
            log.warning("TCP: refusing connections: %s", why)
        return False

    def _pause(self, failure: OSError, now: int) -> None:
        if now >= self._quiet_about_pauses_until:
            self._quiet_about_pauses_until = now + QUIET
            log.error("TCP: cannot accept: %s; trying again", failure.strerror)
        if self.again == NEVER:
            for fd in self._listeners:
                self._epoll.modify(fd, 0)
        self.again = now + ACCEPT_PAUSE
