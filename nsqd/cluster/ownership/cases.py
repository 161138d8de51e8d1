"""The logs that may be promoted, as a node knows them: their leaders, its replicas of them, and the in-sync followers.

See docs/contributing/design/cluster-protocol.md#elections.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from nsqd.cluster.membership.cluster import Cluster
from nsqd.cluster.membership.facts import Keep
from nsqd.cluster.membership.leader_frames import MOST_LOGS, NO_REPLICA, LogExtent
from nsqd.cluster.ownership.election_frames import InSyncReplicas, Stage
from nsqd.cluster.wire.link import Link
from nsqd.core.message.epoch import Epoch

FIRST_RETRY = 1_000_000_000  # ns between two elections that fail, at first
LONGEST_RETRY = 30_000_000_000  # ns


class Quorum(StrEnum):
    """-failover-quorum: whose votes an election needs."""

    NONE = "none"  # no promotion, except on an operator's order, and then as for a majority
    MAJORITY = "majority"  # of the members and the in-sync followers
    ANY = "any"  # those of all nodes that can be reached


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """The state of a replica, for an election."""

    log_id: bytes
    node: int  # number of the node that publishes into the log, or did
    end: int  # position up to which it is written
    epoch: Epoch  # the last one of which it knows; NO_EPOCH: none
    is_complete: bool  # it can be promoted
    ended_at: int | None  # when the leader's bytes ended, monotonic ns; None: they come
    is_opening: bool = False  # its end is not known yet


class ReplicaView(Protocol):
    """The replicas of this node, for elections."""

    def replicas(self) -> Iterable[ReplicaState]:
        """Return the state of each replica."""

    def own_extent(self, log_id: bytes) -> LogExtent:
        """Return the extent of a log that this node leads or led until it stepped down. NO_REPLICA if unknown in this run."""


@dataclass(frozen=True, slots=True)
class Invitation:
    """Another node is a candidate for a log, and this node's replica is longer: it becomes one at once."""

    node: int  # number of the other node
    stage: Stage  # of its election
    ended_at: int  # when its stream ended
    until: int


@dataclass(slots=True)
class Case:
    """The state of the failover of one log."""

    log_id: bytes
    epoch: Epoch  # of the leader
    replica: ReplicaState | None = None
    in_sync: InSyncReplicas | None = None  # the latest from that leader
    is_fresh: bool = False  # this node has not been paused since it came
    lost_since: int | None = None  # monotonic ns; None: the leader is connected
    retry_at: int = 0
    retry: int = FIRST_RETRY  # ns
    failures: int = 0  # of elections with a replica that may lack messages, since the leader is lost, or a node came
    number: int = 0  # of the last election, while it may be repeated
    least: int = 0  # the lowest number that voters may still vote for
    nearest: int = 0  # the greatest number granted by voters that could not grant the last one
    yields_until: int = 0  # another node is a candidate for it
    new_leader: int | None = None  # the node that announces the promotion, until then
    invitation: Invitation | None = None
    is_ordered: bool = False  # an operator has ordered the promotion, even if messages are missing
    why: str = ""  # why the last election failed


class Cases:
    """The logs that may be promoted, as one node knows them. All times are monotonic ns."""

    def __init__(
        self,
        cluster: Cluster,
        replicas: ReplicaView,
        keep: Keep,
        quorum: Quorum,
        failover_after: int,
        unclean_after: int,
        now: int,
    ) -> None:
        """Begin at `now`. `failover_after` and `unclean_after` are in ns."""
        self.cluster, self.leaders, self.replicas = cluster, cluster.leaders, replicas
        self.keep, self.quorum = keep, quorum
        self.failover_after, self.unclean_after = failover_after, unclean_after
        self.by_log: dict[bytes, Case] = {}
        self.now = now  # of the latest tick

    # state

    def update_replicas(self) -> None:
        """Update the states of this node's replicas, and drop logs that are no longer known."""
        found = {replica.log_id: replica for replica in self.replicas.replicas()}
        for log_id, replica in found.items():
            epoch = replica.epoch if replica.epoch.number else Epoch(0, replica.node, bytes(8))
            if self.leaders.leader(log_id) is None and len(self.leaders.epochs) < MOST_LOGS:
                self.leaders.learn(log_id, epoch)
            if log_id in self.leaders.epochs:
                self.case(log_id).replica = replica
        for log_id, case in list(self.by_log.items()):
            if log_id not in found:
                case.replica = None
            if log_id in self.leaders.epochs:
                self.case(log_id)
            else:
                del self.by_log[log_id]

    def case(self, log_id: bytes) -> Case:
        """Return the case of a log whose leader is known. A new leader resets it."""
        epoch, case = self.leaders.epochs[log_id], self.by_log.get(log_id)
        if case is None or case.epoch != epoch:
            replica = case.replica if case is not None else None
            case = self.by_log[log_id] = Case(log_id, epoch, replica)
        return case

    def watch(self, case: Case, now: int) -> bool:
        """Note whether the leader of a log is lost. Returns True if it was, and is back."""
        if not self.is_there(case.log_id):
            if case.lost_since is None:
                case.lost_since = now
            return False
        if case.lost_since is not None:
            case.lost_since = None
            case.failures, case.invitation, case.retry_at, case.retry, case.why = 0, None, 0, FIRST_RETRY, ""
            case.is_ordered = False  # the order was about that loss
            return True
        return False

    def note_in_sync(self, link: Link, in_sync: InSyncReplicas) -> None:
        """Record the in-sync followers that the leader of a log has reported."""
        if in_sync.epoch.node != link.node.number or self.leaders.leader(in_sync.log_id) != in_sync.epoch:
            return
        case = self.case(in_sync.log_id)
        case.in_sync, case.is_fresh = in_sync, True

    def met(self, now: int) -> None:
        """Note that another node is connected: elections that failed without it are repeated soon, and count no more."""
        for case in self.by_log.values():
            case.failures, case.retry, case.retry_at = 0, FIRST_RETRY, min(case.retry_at, now + FIRST_RETRY)

    def handle_pause(self) -> None:
        """Note that this node did: the leaders may have gone on without it."""
        for case in self.by_log.values():
            case.is_fresh = False

    # queries

    def seems_clean(self, case: Case, replica: ReplicaState) -> bool:
        """Return True if this node's replica has all that was acknowledged, as far as this node knows."""
        in_sync = case.in_sync
        return (
            in_sync is not None
            and case.is_fresh
            and in_sync.is_whole
            and self.cluster.own.number in in_sync.named
            and replica.end >= in_sync.position
        )

    def is_there(self, log_id: bytes) -> bool:
        """Return True if this node is in contact with the leader of a log, or waits for a restart that it has announced.

        A connected node that only knows that it leads the log has lost it: its disk was replaced.
        """
        membership, number = self.cluster.membership, self.leaders.epochs[log_id].node
        if number == self.cluster.own.number:
            return self.leaders.holds(log_id)
        if log_id in membership.forgotten and membership.forgotten[log_id].node.number == number:
            return False
        return membership.is_member(number) and number not in membership.suspected and not self.is_without(log_id)

    def is_without(self, log_id: bytes) -> bool:
        """Return True if the leader of a log is connected but does not lead it: it has stepped down, or has lost the log."""
        leader = self.leaders.epochs[log_id]
        record = self.cluster.membership.records.get(leader.node)
        return record is not None and self.leaders.is_without(leader.node, record.node.incarnation, log_id)


def extent_of(replica: ReplicaState | None) -> LogExtent:
    """Return the extent of a replica that can be promoted. NO_REPLICA if it cannot, or does not exist."""
    return LogExtent(replica.epoch, replica.end) if replica is not None and replica.is_complete else NO_REPLICA
