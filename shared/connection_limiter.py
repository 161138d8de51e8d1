"""Limits on how many connections may be open at a time, for the listeners of a reactor and of an HTTP server.

A connection is a stranger while its client is not known, or, with HTTP, while it is idle. At a limit a new connection
displaces the oldest stranger, and at the limit of its address the oldest one of that address. So strangers push out
strangers only, and a new client has time to prove who it is. Connections of known clients stay.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

from shared.log import log

QUIET = 10_000_000_000  # ns between two lines in the log about connections that are refused, or cannot be accepted
SHARE = 10  # one address other than loopback may have 1/SHARE of all connections, unless a limit per address is given
MOST_TRIED = 32  # strangers that are looked at to displace one

# Ends a connection, or returns False if its client is known, None if it is busy and may be idle later. Any thread may call it.
# It calls no limiter.
Displace = Callable[[], bool | None]


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The limits on how many connections may be open at a time."""

    total: int = 10_000
    per_ip: int = 0  # 0: 1/SHARE of `total` for addresses other than loopback

    def of(self, ip: str) -> int:
        """Return the maximum number of connections of an address; "" is a unix socket, which has no limit of its own."""
        if not ip:
            return self.total
        if self.per_ip:
            return self.per_ip
        is_loopback = ip == "::1" or ip.startswith(("127.", "::ffff:127."))
        return self.total if is_loopback else max(1, self.total // SHARE)


class ConnectionLimiter:
    """Counts connections against limits, in total and per address, and each refusal by its reason. Any thread may call it."""

    def __init__(self, protocol: str, limits: ConnectionLimits, refused: Counter[str]) -> None:
        """`protocol` names the connections in the log. `refused` counts the refusals; others may count reasons there, too."""
        self._protocol = protocol
        self._limits = limits
        self.refused = refused
        self._open = 0  # connections that were let in and are still open
        self._by_ip: dict[str, int] = {}  # the open connections by address; never 0
        # connections that may be displaced, by address and then by their objects, the oldest first; neither is ever empty
        self._strangers: dict[str, dict[object, Displace]] = {}
        self._oldest: dict[object, str] = {}  # the addresses of all of these, the oldest first
        self._quiet_until: dict[str, int] = {}  # by reason: when the log reports it again, monotonic ns
        self._lock = threading.RLock()  # a connection may end in another thread than it was let in by

    def admits(self, ip: str, now: int) -> bool:
        """Count a new connection, which may displace another one, if it is within the limits. `now`: monotonic ns."""
        limits, most = self._limits, self._limits.of(ip)
        with self._lock:
            here = self._by_ip.get(ip, 0)
            is_full, is_crowded = self._open >= limits.total, most < limits.total and here >= most
            if (is_full or is_crowded) and not self._displace_one(ip if is_crowded else None):
                if is_full:
                    return self._refuse("max_connections", f"{limits.total} connections are open", now)
                return self._refuse("max_connections_per_ip", f"{most} connections of {ip} are open", now)
            self._open += 1
            self._by_ip[ip] = here + 1
            return True

    def count_off(self, ip: str) -> None:
        """Count off a connection from `ip` that was let in and has ended."""
        with self._lock:
            self._open -= 1
            rest = self._by_ip.pop(ip) - 1
            if rest:
                self._by_ip[ip] = rest

    def watch(self, connection: object, ip: str, displace: Displace) -> None:
        """Let an open connection be displaced while its client is unknown. Call `stop_displacing` when it ends."""
        with self._lock:
            self._strangers.setdefault(ip, {})[connection] = displace
            self._oldest[connection] = ip

    def stop_displacing(self, connection: object) -> None:
        """Forget a connection that has ended or is served by another object. May be called for any."""
        with self._lock:
            ip = self._oldest.pop(connection, None)
            if ip is not None:
                here = self._strangers[ip]
                del here[connection]
                if not here:
                    del self._strangers[ip]

    def _displace_one(self, ip: str | None) -> bool:
        """Displace the oldest stranger of an address, None: of all. Returns False if there is none."""
        candidates = self._oldest if ip is None else self._strangers.get(ip, {})
        for connection in list(islice(candidates, MOST_TRIED)):
            owner_ip = self._oldest[connection]
            displace = self._strangers[owner_ip][connection]
            self.stop_displacing(connection)
            is_ending = displace()
            if is_ending:
                self.refused["displaced"] += 1
                return True
            if is_ending is None:
                self.watch(connection, owner_ip, displace)
        return False

    def _refuse(self, reason: str, why: str, now: int) -> bool:
        self.refused[reason] += 1
        if now >= self._quiet_until.get(reason, 0):
            self._quiet_until[reason] = now + QUIET
            log.warning("%s: refusing connections: %s", self._protocol, why)
        return False
