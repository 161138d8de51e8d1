"""What elections need of replication: the states of this node's replicas, and for followers, the in-sync ones.

See docs/contributing/design/cluster-protocol.md#elections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from nsqd.cluster.membership.cluster import Cluster
from nsqd.cluster.ownership.cases import ReplicaState
from nsqd.cluster.ownership.election_frames import InSyncReplicas
from nsqd.cluster.ownership.elections import Elections
from nsqd.cluster.replication.copying import Copying
from nsqd.cluster.replication.leader import LeaderSide
from nsqd.cluster.replication.replicas import Kept
from nsqd.cluster.wire.link import Link
from nsqd.cluster.wire.part import Part
from nsqd.core.message.epoch import NO_EPOCH
from shared.log import log


class KeptReplicas:
    """The replicas of this node, for elections. Implements nsqd.cluster.ownership.cases.ReplicaView."""

    def __init__(self, copying: Copying, clock: Callable[[], int]) -> None:
        """Look at the copies that a node keeps and sends. `clock` returns monotonic ns."""
        self.own_extent = copying.extent
        self._replicas = copying.replicas
        self._clock = clock
        self._links: dict[bytes, Link] = {}  # by log id: the connection over which its bytes come, or came last
        self._ended: dict[bytes, int] = {}  # when they ended, monotonic ns

    def replicas(self) -> Iterable[ReplicaState]:
        kept = self._replicas.kept
        for log_id in [one for one in (*self._links, *self._ended) if one not in kept]:
            self._links.pop(log_id, None)
            self._ended.pop(log_id, None)
        return [self._state(one) for one in kept.values()]

    def _state(self, kept: Kept) -> ReplicaState:
        replica = kept.replica
        end = replica.end if replica is not None else 0
        epochs = [epoch for epoch, start in replica.manifest.epochs if start < end] if replica is not None else []
        epoch = epochs[-1] if epochs else NO_EPOCH
        is_complete = end > 0 and not kept.failure
        return ReplicaState(kept.log_id, kept.node, end, epoch, is_complete, self._ended_at(kept), kept.is_opening)

    def _ended_at(self, kept: Kept) -> int | None:
        """Return the time at which the stream of bytes to a replica ended. None if they still come."""
        log_id, link = kept.log_id, kept.link
        if link is not None:
            self._links[log_id] = link
        if link is not None and kept.is_resumed and kept.replica is not None and not kept.replica.is_resyncing:
            self._ended.pop(log_id, None)
            return None
        last = self._links.get(log_id)
        at = last.received_at if last is not None and link is None else self._clock()
        return self._ended.setdefault(log_id, at)


def step_down_broken(cluster: Cluster, leader_side: LeaderSide) -> None:
    """Step down as the leader of the log into which this node publishes, once a sync of it has failed.

    From then on no publish is acknowledged until a restart, and nothing that comes later is sent to followers. Call it several
    times a second.
    """
    log_id = cluster.own.log_id
    if leader_side.source.is_broken and cluster.leaders.holds(log_id):
        log.critical("CLUSTER: a sync of this node's log has failed: another node may promote the log")
        leader_side.extent()  # notes how far the followers are: they may be lost, too
        cluster.step_down(log_id)


class InSyncReports(Part):
    """Sends all nodes the in-sync followers of this node's logs, and steps down from its own log after a failed sync.

    A follower must know that it is in sync before a client has a reply that needs its copy. If this node ended in between, the
    follower would wait for -unclean-after.
    """

    def __init__(self, cluster: Cluster, elections: Elections, copying: Copying) -> None:
        self._cluster, self._elections, self._copying = cluster, elections, copying
        # the in-sync followers of each log, and the log's end when they began to count
        self._counting: dict[LeaderSide, tuple[frozenset[int], int]] = {}

    def pump(self, now: int) -> None:
        for leader_side in self._copying.leader_sides.values():
            if leader_side.has_news:
                self._report(leader_side)

    def tick(self, now: int) -> None:
        step_down_broken(self._cluster, self._copying.leader_side)
        leader_sides = self._copying.leader_sides.values()
        for leader_side in self._counting.keys() - set(leader_sides):
            del self._counting[leader_side]
        for leader_side in leader_sides:
            self._report(leader_side)

    def _report(self, leader_side: LeaderSide) -> None:
        leader_side.has_news = False
        source, counting = leader_side.source, leader_side.in_sync.counting
        known, position = self._counting.get(leader_side, (None, 0))
        position = position if known == counting else source.end
        self._counting[leader_side] = counting, position
        for number, link in self._cluster.links.items():
            follower = leader_side.followers.get(number)
            is_whole = follower is not None and follower.link is link and follower.is_caught_up
            in_sync = InSyncReplicas(source.log_id, source.epoch, position, counting, is_whole)
            self._elections.send_in_sync(link, in_sync)
