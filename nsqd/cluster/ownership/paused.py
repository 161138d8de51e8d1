"""A node that was paused delivers nothing until it knows which nodes lead its logs now.

While a process is stopped (SIGSTOP, a virtual machine that is moved), other nodes may promote its log and deliver its messages.
Their frames wait in its connections, or they have closed these. So all deliveries of its first turns are held until each
connected node has sent a frame that is certainly new; at most for `-failover-after`. It is the first part, because ticks of
others may let messages leave.

See docs/contributing/design/cluster-protocol.md#membership.
"""

from __future__ import annotations

from nsqd.cluster.membership.cluster import Cluster
from nsqd.cluster.wire.part import Part
from nsqd.core.broker import Broker
from shared.log import log

SETTLED = 1_250_000_000  # ns after the pause from which on frames are new; nodes send a heartbeat every second


class PausedDeliveries(Part):
    """Holds and releases the deliveries of one node."""

    def __init__(self, cluster: Cluster, broker: Broker, failover_after: int) -> None:
        """`failover_after`: ns without contact after which other nodes may promote this node's log."""
        self._cluster, self._broker = cluster, broker
        self._failover_after = failover_after
        self._linked: frozenset[int] = frozenset()  # numbers of the nodes that were connected before the pause

    def tick(self, now: int) -> None:
        agenda, links = self._broker.agenda, self._cluster.links
        if now - agenda.now > agenda.longest_gap:  # the clock of the port may be the first to continue
            agenda.note_pause(now)
        since = agenda.stood_still_at
        if not since:
            self._linked = frozenset(links)
            agenda.longest_gap = self._failover_after // 2  # except at the start, which may take long
            return
        members = {node.number for node in self._cluster.membership.members}
        current = {number for number, link in links.items() if link.received_at >= since + SETTLED}
        if now < since + self._failover_after and self._linked & members - current:
            return
        log.info("CLUSTER: this node was paused, and held its deliveries for %.1f s", (now - since) / 1e9)
        self._broker.resume()
