"""Limits on how many connections may be open at a time, for the listeners of a reactor and of an HTTP server."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass

from shared.log import log

QUIET = 10_000_000_000  # ns between two lines in the log about connections that are refused, or cannot be accepted


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The limits on how many connections may be open at a time."""

    total: int = 10_000
    per_ip: int = 0  # 0: no limit of its own


class ConnectionLimiter:
    """Counts connections against limits, in total and per address, and each refusal by its reason. Any thread may call it."""

    def __init__(self, protocol: str, limits: ConnectionLimits, refused: Counter[str]) -> None:
        """`protocol` names the connections in the log. `refused` counts the refusals; others may count reasons there, too."""
        self._protocol = protocol
        self._limits = limits
        self.refused = refused
        self._open = 0  # connections that were let in and are still open
        self._by_ip: dict[str, int] = {}  # the open connections by address; never 0
        self._quiet_until: dict[str, int] = {}  # by reason: when the log tells of it again, monotonic ns
        self._lock = threading.Lock()  # a connection may end in another thread than it was let in by

    def admits(self, ip: str, now: int) -> bool:
        """Return whether a new connection is within the limits, and count it if so.

        `ip` is "" for a unix socket. `now` is in monotonic ns.
        """
        limits = self._limits
        with self._lock:
            here = self._by_ip.get(ip, 0)
            if self._open >= limits.total:
                return self._refuse("max_connections", f"{limits.total} connections are open", now)
            if ip and limits.per_ip and here >= limits.per_ip:
                return self._refuse("max_connections_per_ip", f"{limits.per_ip} connections of {ip} are open", now)
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

    def _refuse(self, reason: str, why: str, now: int) -> bool:
        self.refused[reason] += 1
        if now >= self._quiet_until.get(reason, 0):
            self._quiet_until[reason] = now + QUIET
            log.warning("%s: refusing connections: %s", self._protocol, why)
        return False
