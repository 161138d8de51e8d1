"""The connections of nsqlookupd's TCP port that have not identified themselves.

Pure. Law: the number of these connections is bounded, and a new one is always accepted: it displaces the oldest one. So
silent connections cannot keep an nsqd from identifying itself, which it does with its first packet.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable

from lookupd.producers import count_down

MOST = 1_024  # connections
MOST_PER_IP = 256  # connections of one address; beyond that, a new one displaces one of the same address


class PendingConnections:
    """Connections that have not sent IDENTIFY yet, or that are being told why they must close."""

    def __init__(self) -> None:
        self._guests: OrderedDict[object, tuple[str, Callable[[], None]]] = OrderedDict()  # the oldest first
        self._by_ip: Counter[str] = Counter()  # holds no zeros

    def __len__(self) -> int:
        return len(self._guests)

    def enter(self, guest: object, ip: str, send_away: Callable[[], None]) -> bool:
        """Add a connection as the newest one. Returns True if it displaced another one, whose `send_away` is then called."""
        self.leave(guest)
        full = len(self._guests) >= MOST
        crowded = self._by_ip[ip] >= MOST_PER_IP
        if full or crowded:
            oldest = next(one for one, (whose, _) in self._guests.items() if not crowded or whose == ip)
            leave = self._guests[oldest][1]
            self.leave(oldest)
            leave()
        self._guests[guest] = ip, send_away
        self._by_ip[ip] += 1
        return full or crowded

    def leave(self, guest: object) -> None:
        """Remove a connection that has a seat, or is closed. May be called twice."""
        ip, _ = self._guests.pop(guest, ("", None))
        if ip:
            count_down(self._by_ip, ip)
