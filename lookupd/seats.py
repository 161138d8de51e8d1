"""The seats of nsqlookupd's producers: how many may be connected, in total and from one address.

Pure. Law: a known producer gets in even if all seats are taken. It is known when it pinged for KNOWN_AFTER on an earlier
connection. So a flood of producers, even from the same address, does not end a cluster that works: its nsqd stay connected,
and come back after a restart.
"""

from __future__ import annotations

from collections import Counter, OrderedDict

from lookupd.producers import UNIX, Full, Limits, Peer, PeerInfo, count_down

KNOWN_AFTER = 30 * 1_000_000_000  # ns from IDENTIFY to the last PING; an nsqd pings each 15 s

Identity = tuple[str, str, int]  # IP address, broadcast address, TCP port: what an nsqd keeps over a new connection


class Seats:
    """The producers that are connected, and those that are known and may come back."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._seated: dict[Peer, int] = {}  # ns of IDENTIFY
        self._by_ip: Counter[str] = Counter()  # of those; never 0
        self._identities: Counter[Identity] = Counter()  # likewise
        self._known: OrderedDict[Identity, None] = (
            OrderedDict()
        )  # the one longest gone in front; at most limits.producers
        self._known_by_ip: Counter[str] = Counter()  # of those; at most limits.producers_per_ip each, never 0

    def __len__(self) -> int:
        return len(self._seated)

    @property
    def full(self) -> bool:
        """True if only known producers get in."""
        return len(self._seated) >= self.limits.producers

    def check(self, info: PeerInfo) -> None:
        """Raise Full if the producer may not come in."""
        identity = _identity(info)
        if identity in self._known and not self._identities[identity]:
            return
        if self.full:
            raise Full(f"{self.limits.producers} producers are connected")
        if self._by_ip[info.host] >= self.limits.producers_per_ip and info.host != UNIX:
            raise Full(f"{self.limits.producers_per_ip} producers of {info.host} are connected")

    def take(self, peer: Peer) -> None:
        """The producer is in, after `check`."""
        self._seated[peer] = peer.last_update
        self._by_ip[peer.info.host] += 1
        self._identities[_identity(peer.info)] += 1

    def leave(self, peer: Peer) -> None:
        """The producer is gone; it is remembered if it pinged for long enough."""
        since, identity = self._seated.pop(peer), _identity(peer.info)
        count_down(self._by_ip, peer.info.host)
        count_down(self._identities, identity)
        if peer.last_update - since >= KNOWN_AFTER:
            self._remember(identity)
        elif identity in self._known:
            self._known.move_to_end(identity)

    def _remember(self, identity: Identity) -> None:
        if identity not in self._known and self._known_by_ip[identity[0]] >= self.limits.producers_per_ip:
            self._forget(next(known for known in self._known if known[0] == identity[0]))
        if identity not in self._known:
            self._known_by_ip[identity[0]] += 1
        self._known[identity] = None
        self._known.move_to_end(identity)
        if len(self._known) > self.limits.producers:
            self._forget(next(iter(self._known)))

    def _forget(self, identity: Identity) -> None:
        del self._known[identity]
        count_down(self._known_by_ip, identity[0])


def _identity(info: PeerInfo) -> Identity:
    return info.host, info.broadcast_address, info.tcp_port
