"""The last contact with each node of a cluster, also after its connection ended.

A candidate for a log may ask whether the log's leader is unreachable everywhere, or only to itself. Pure: `now` is monotonic
ns. The number of nodes is bounded, for each IP address, too: so one address cannot displace the nodes of others.

See docs/contributing/design/nsqlookupd.md#nodes-of-a-cluster.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass

from lookupd.producers import DEFAULT_LIMITS, Limits, PeerInfo, count_down
from shared.values import SECOND

KEEP = 600 * SECOND  # ns from the last contact with a node until it is forgotten

NodeKey = tuple[str, int, str, str]  # name of the cluster, node number, log id, IP address of the connection


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """A node of a cluster, and the last contact with it."""

    info: PeerInfo
    connected: bool
    last_contact: float  # s ago


class ClusterNodes:
    """The nodes of clusters in contact within KEEP, the one with the oldest contact first."""

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        self._contacts: OrderedDict[NodeKey, tuple[PeerInfo, int]] = OrderedDict()  # and when, monotonic ns
        self._by_host: Counter[str] = Counter()  # entries of each IP address; holds no zeros
        self._connections: Counter[NodeKey] = Counter()  # of each node; holds no zeros

    def connected(self, info: PeerInfo, now: int) -> None:
        """Note a connection that has identified itself. Producers that are in no cluster are ignored."""
        key = _key(info)
        if key is not None:
            self._connections[key] += 1
            self.note_contact(info, now)

    def disconnected(self, info: PeerInfo) -> None:
        """Note that such a connection ended: the last contact does not change."""
        key = _key(info)
        if key is not None and key in self._connections:
            count_down(self._connections, key)

    def note_contact(self, info: PeerInfo, now: int) -> None:
        """Note that bytes came from a connection."""
        key = _key(info)
        if key is None:
            return
        self._expire(now)
        if key not in self._contacts:
            self._make_room(info.host)
            self._by_host[info.host] += 1
        self._contacts[key] = info, now
        self._contacts.move_to_end(key)

    def nodes(self, now: int) -> list[ClusterNode]:
        """Return the known nodes, the one with the oldest contact first."""
        self._expire(now)
        return [
            ClusterNode(info, key in self._connections, (now - at) / SECOND)
            for key, (info, at) in self._contacts.items()
        ]

    def _expire(self, now: int) -> None:
        while self._contacts and now - next(iter(self._contacts.values()))[1] > KEEP:
            self._remove(next(iter(self._contacts)))

    def _make_room(self, host: str) -> None:
        """Remove the node with the oldest contact: of this address if it has too many, else of any if there are too many."""
        if self._by_host[host] >= self._limits.producers_per_ip:
            self._remove(next(key for key in self._contacts if key[3] == host))
        elif len(self._contacts) >= self._limits.producers:
            self._remove(next(iter(self._contacts)))

    def _remove(self, key: NodeKey) -> None:
        del self._contacts[key]
        count_down(self._by_host, key[3])

    def check(self) -> None:
        """Assert the invariants that the comments on the fields state. Tests call it at the end."""
        times = [at for _, at in self._contacts.values()]
        assert times == sorted(times)
        assert self._by_host == Counter(key[3] for key in self._contacts)
        assert all(count > 0 for count in (*self._by_host.values(), *self._connections.values()))
        assert len(self._contacts) <= self._limits.producers
        assert all(count <= self._limits.producers_per_ip for count in self._by_host.values())


def _key(info: PeerInfo) -> NodeKey | None:
    if not info.cluster or not info.cluster_address or info.node_id is None:
        return None
    return info.cluster, info.node_id, info.log_id, info.host
