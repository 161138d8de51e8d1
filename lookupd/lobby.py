"""The connections of nsqlookupd's TCP port that have not identified themselves.

Pure. Law: their number is bounded, and a newcomer always gets in: the oldest one is sent away for it. So silent connections
cannot keep an nsqd from identifying itself, which it does with its first packet.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable

from lookupd.producers import count_down

MOST = 1_024  # connections
MOST_PER_IP = 256  # of one address: from there on it displaces its own


class Lobby:
    """Connections that have not identified themselves yet, or are being told why they must go."""

    def __init__(self) -> None:
        self._guests: OrderedDict[object, tuple[str, Callable[[], None]]] = OrderedDict()  # the oldest in front
        self._by_ip: Counter[str] = Counter()  # never 0

    def __len__(self) -> int:
        return len(self._guests)

    def enter(self, guest: object, ip: str, send_away: Callable[[], None]) -> bool:
        """Let a connection in, as the newest. True if another one was sent away for it, which calls its `send_away`."""
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
        """It has a seat, or is gone. May be called twice."""
        ip, _ = self._guests.pop(guest, ("", None))
        if ip:
            count_down(self._by_ip, ip)
