"""The slots of nsqlookupd's producers: how many may be connected, in total and from one address.

Pure. Invariants: a known producer is accepted even if all slots are taken. A producer is known if it was pinging for
KNOWN_AFTER on an earlier connection. So a flood of producers, even from the same address, does not end a working cluster: its
nsqd stay connected, and come back after a restart. A producer that has sent nothing since IDENTIFY loses its slot to a new
one; an nsqd with topics registers them at once.
"""

from __future__ import annotations

from collections import Counter, OrderedDict

from lookupd.producers import UNIX, Full, Limits, Peer, PeerInfo, count_down

KNOWN_AFTER = 30 * 1_000_000_000  # ns from IDENTIFY to the last PING; an nsqd pings every 15 s

Identity = tuple[str, str, int]  # IP address, broadcast address, TCP port, which an nsqd keeps when it reconnects


class ProducerSlots:
    """The producers that are connected, and those that are known and may come back."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._connected: dict[Peer, int] = {}  # ns since the epoch of IDENTIFY, by producer
        self._by_ip: Counter[str] = Counter()  # number of connected producers, by IP address; holds no zeros
        self._identities: Counter[Identity] = Counter()  # number of connected producers, by identity; holds no zeros
        # Producers that have sent nothing since IDENTIFY, the oldest in front; some that have since may still be in it.
        self._silent: OrderedDict[Peer, None] = OrderedDict()
        # Known producers, the one that left first in front; at most limits.producers.
        self._known: OrderedDict[Identity, None] = OrderedDict()
        # Known producers by IP address; at most limits.producers_per_ip each.
        self._known_by_ip: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._connected)

    @property
    def full(self) -> bool:
        """True if only known producers are accepted."""
        return len(self._connected) >= self.limits.producers

    def make_room(self, info: PeerInfo) -> bool:
        """Make sure that the producer can have a slot. Returns True if a silent one was disconnected for it. Raises Full."""
        identity = _identity(info)
        if identity in self._known and not self._identities[identity]:
            return False
        crowded = self._by_ip[info.host] >= self.limits.producers_per_ip and info.host != UNIX
        if not (crowded or self.full):
            return False
        silent = self._oldest_silent(info.host if crowded else "")
        if silent is None and crowded:
            raise Full(f"{self.limits.producers_per_ip} producers of {info.host} are connected")
        if silent is None:
            raise Full(f"{self.limits.producers} producers are connected")
        self.remove(silent)
        silent.hang_up()
        return True

    def _oldest_silent(self, host: str) -> Peer | None:
        """Return the oldest silent producer of an address, or of any address with "", but not one that is known."""
        for peer in list(self._silent):
            if not peer.silent or _identity(peer.info) in self._known:
                del self._silent[peer]
            elif host in ("", peer.info.host):
                return peer
        return None

    def add(self, peer: Peer) -> None:
        """Give the producer a slot. Call `make_room` first."""
        self._silent[peer] = None
        self._connected[peer] = peer.last_update
        self._by_ip[peer.info.host] += 1
        self._identities[_identity(peer.info)] += 1

    def remove(self, peer: Peer) -> None:
        """Free the producer's slot, and remember the producer if it pinged for long enough. May be called twice."""
        if peer not in self._connected:
            return
        since, identity = self._connected.pop(peer), _identity(peer.info)
        self._silent.pop(peer, None)
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
