"""A listener as the reactor sees it: who is let in, which protocol is spoken, and who may take a connection over."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from nsqd.protocols.conversation import Conversation
from nsqd.protocols.transport import Transport
from shared.log import log

QUIET = 10_000_000_000  # ns between two lines about connections beyond a limit

# Makes the peer of a new connection from its transport, the client's address and port, and the clock (monotonic ns, wall ns).
MakePeer = Callable[[Transport, str, str, int, int], Conversation]
# Takes a socket that leaves the reactor: the client's address ("" for a unix socket), and the input that is not answered.
Adopt = Callable[[socket.socket, str, bytes], None]


class Limiter(Protocol):
    """Who is let in, and how many are in."""

    def admits(self, ip: str, now: int) -> bool:
        """Return whether a new connection from `ip` ("" for a unix socket) is within the limits, and count it if so."""

    def count_off(self, ip: str) -> None:
        """Count off a connection from `ip` that was let in and is gone."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A listener and what belongs to it."""

    make_peer: MakePeer
    limiter: Limiter
    adopt: Adopt | None = None  # None: connections stay on the reactor


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The limits on how many connections may be open at a time."""

    total: int = 10_000
    per_ip: int = 0  # 0: no limit of its own


class TcpConnectionLimiter:
    """Counts connections against limits, in total and per address. Each refusal is counted by its reason."""

    def __init__(self, limits: ConnectionLimits, refused: Counter[str]) -> None:
        self._limits = limits
        self._refused = refused
        self._open = 0  # connections that were let in and are still open
        self._by_ip: dict[str, int] = {}  # the open connections by address; never 0
        self._quiet_until = 0

    def admits(self, ip: str, now: int) -> bool:
        limits, here = self._limits, self._by_ip.get(ip, 0)
        if self._open >= limits.total:
            return self._refuse("max_connections", f"{limits.total} connections are open", now)
        if ip and limits.per_ip and here >= limits.per_ip:
            return self._refuse("max_connections_per_ip", f"{limits.per_ip} connections of {ip} are open", now)
        self._open += 1
        self._by_ip[ip] = here + 1
        return True

    def count_off(self, ip: str) -> None:
        self._open -= 1
        rest = self._by_ip.pop(ip) - 1
        if rest:
            self._by_ip[ip] = rest

    def _refuse(self, reason: str, why: str, now: int) -> bool:
        self._refused[reason] += 1
        if now >= self._quiet_until:
            self._quiet_until = now + QUIET
            log.warning("TCP: refusing connections: %s", why)
        return False
