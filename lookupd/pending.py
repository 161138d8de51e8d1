"""The connections of nsqlookupd's TCP port that have not identified themselves.

Pure. Invariant: the number of these connections is bounded, and a new one is always accepted: it displaces the oldest one.
So silent connections cannot keep an nsqd from identifying itself, which it does with its first packet.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable

from lookupd.producers import count_down

MOST = 1_024  # connections
MOST_PER_IP = 256  # connections of one address; beyond that, a new one displaces one of the same address


class PendingConnections:
    """Connections that have not sent IDENTIFY yet, or that get their last error."""

    def __init__(self) -> None:
        self._connections: OrderedDict[object, tuple[str, Callable[[], None]]] = OrderedDict()  # the oldest first
        self._by_ip: Counter[str] = Counter()  # holds no zeros

    def __len__(self) -> int:
        return len(self._connections)

    def add(self, connection: object, ip: str, close: Callable[[], None]) -> bool:
        """Add a connection as the newest one. Returns True if it displaced another one, whose `close` is then called."""
        self.remove(connection)
        full = len(self._connections) >= MOST
        crowded = self._by_ip[ip] >= MOST_PER_IP
        if full or crowded:
            oldest = next(one for one, (whose, _) in self._connections.items() if not crowded or whose == ip)
            close_oldest = self._connections[oldest][1]
            self.remove(oldest)
            close_oldest()
        self._connections[connection] = ip, close
        self._by_ip[ip] += 1
        return full or crowded

    def remove(self, connection: object) -> None:
        """Remove a connection that has identified itself, or is closed. May be called twice."""
        ip, _ = self._connections.pop(connection, ("", None))
        if ip:
            count_down(self._by_ip, ip)
