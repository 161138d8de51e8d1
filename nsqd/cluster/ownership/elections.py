"""Failover, as far as nodes decide about it: claims on the logs of nodes that are lost, and the votes on them.

A node that has a replica of a lost owner's log claims the log: it asks all nodes for a promise under a number that is greater
than all that is known of the log. Whoever promises does not hear the owner, and promises that number to nobody else; the
promise is durable before the answer leaves, so of two claims with one number at most one has a majority. A promise changes no
owner: the log has another owner when the claimant begins an epoch with the number, once it has promoted the log.

`cases` says what is known of logs, `claimant` claims one, and `voter` answers the claims of others. Nothing in these does input
or output, or asks a clock.

See docs/design/cluster.md#claims.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from nsqd.cluster.membership.cluster import Cluster
from nsqd.cluster.membership.facts import Keep
from nsqd.cluster.ownership.candidate import Attempt, Claimant, Witnesses
from nsqd.cluster.ownership.cases import Case, Cases, Quorum, ReplicaState, ReplicaView
from nsqd.cluster.ownership.election_frames import Counts, pack_counts, unpack_claim, unpack_counts, unpack_vote
from nsqd.cluster.ownership.voter import Voter
from nsqd.cluster.wire.frames import FrameKind
from nsqd.cluster.wire.link import Link
from nsqd.cluster.wire.part import Part
from nsqd.core.message.epoch import Epoch

__all__ = ["REPEAT", "Claims", "ReplicaState", "ReplicaView", "Quorum"]

REPEAT = 5_000_000_000  # ns after which COUNTS is sent again: a follower that stood still may count again


class Claims(Part):
    """The claims and votes of one node. All times are monotonic ns."""

    shown_as = "claims"
    takes = (FrameKind.COUNTS, FrameKind.CLAIM, FrameKind.VOTE)

    def __init__(
        self,
        cluster: Cluster,
        replicas: ReplicaView,
        keep: Keep,
        witnesses: Witnesses,
        quorum: Quorum,
        failover_after: int,
        unclean_after: int,
        random: Callable[[int], bytes],
        now: int,
    ) -> None:
        """Begin at `now`. `random` returns so many random bytes; `failover_after` and `unclean_after` are in ns."""
        self.quorum = quorum
        self.cases = Cases(cluster, replicas, failover_after, unclean_after, now)
        self.claimant = Claimant(self.cases, quorum, random, keep, witnesses)
        self.voter = Voter(self.cases, self.claimant, quorum, keep)
        self._cluster = cluster
        self._ownership = cluster.ownership
        cluster.disputes.needs_majority = quorum is not Quorum.ANY
        self._fenced: dict[bytes, Epoch] = {}  # what the parts were told
        self._links: dict[int, Link] = {}  # at the latest tick
        # by node number: a connection, and over it the last COUNTS of each log, and when
        self._sent: dict[int, tuple[Link, dict[bytes, tuple[Counts, int]]]] = {}

    @property
    def attempt(self) -> Attempt | None:
        """Return the claim of this node that goes on, or the promotion that follows from it."""
        return self.claimant.attempt

    # time

    def tick(self, now: int) -> None:
        """Do what is due. Call it several times a second, after Cluster.tick."""
        cases = self.cases
        if now - cases.now > cases.failover_after // 2:
            cases.stood_still()
            self.claimant.stood_still()
        cases.now = now
        links = self._cluster.links
        if any(self._links.get(number) is not link for number, link in links.items()):
            cases.met(now)
        self._links = dict(links)
        cases.look_at_replicas()
        for case in cases.by_log.values():
            if cases.watch(case, now):
                self.claimant.owner_is_back(case, now)
        self._tell_fences()
        self._claim(now)
        self._forget_connections()

    def _claim(self, now: int) -> None:
        attempt = self.claimant.attempt
        if not self._cluster.is_leaving or (attempt is not None and attempt.is_won):  # what was won is promoted
            self.claimant.tick(now)
        elif attempt is not None:
            self.claimant.fail(attempt, "this node leaves the cluster", now)

    def _forget_connections(self) -> None:
        """Forget what was sent over connections that are gone, and of logs that this node does not own any more."""
        links, held = self._cluster.links, self._ownership.held
        for number, (link, logs) in list(self._sent.items()):
            if links.get(number) is not link:
                del self._sent[number]
            for log_id in [one for one in logs if one not in held]:
                del logs[log_id]

    # which followers count

    def counts(
        self, log_id: bytes, epoch: Epoch, position: int, named: Iterable[int], link: Link, is_whole: bool
    ) -> None:
        """Tell a node which followers count of a log that this node owns, if that is news. Call it several times a second.

        `position`: the log's end when these began to count; `is_whole`: the node has everything, and keeps up.
        """
        assert link.peer is not None
        number, counts = link.peer.number, Counts(log_id, epoch, position, frozenset(named), is_whole)
        known, logs = self._sent.get(number, (None, {}))
        if known is not link:
            self._sent[number] = link, (logs := {})
        before, at = logs.get(log_id, (None, 0))
        if counts != before or self.cases.now - at >= REPEAT:
            logs[log_id] = counts, self.cases.now
            link.send_claiming(pack_counts(counts))

    # what others and the operator say

    def receive(self, link: Link, kind: FrameKind, content: bytes, now: int) -> None:
        """Take what another node says of claims. Raises PeerError."""
        if kind is FrameKind.COUNTS:
            self.cases.note_counts(link, unpack_counts(content))
        elif kind is FrameKind.CLAIM:
            self.voter.vote(link, unpack_claim(content), now)
        elif kind is FrameKind.VOTE:
            self.claimant.count(link, unpack_vote(content), now)

    def promote(self, log_id: bytes) -> None:
        """Claim a log because an operator says so. Raises as Claimant.promote, and KeyError if this node leaves."""
        if self._cluster.is_leaving:
            raise KeyError(log_id)
        self.claimant.promote(log_id)

    def given_up(self, log_id: bytes, why: str) -> None:
        """Note that the promotion of a log that was won has failed. It is claimed again after a pause."""
        self.claimant.given_up(log_id, why)

    def led(self, log_id: bytes, epoch: Epoch) -> None:
        """Take note of a new owner of a log."""
        if self.claimant.learned(log_id, epoch):
            self._fence(log_id, epoch)
        self._tell_fences()

    def _tell_fences(self) -> None:
        """Tell of each log that this node held and another one owns, once."""
        for log_id, epoch in self._ownership.lost():
            if self._fenced.get(log_id) != epoch:
                self._fenced[log_id] = epoch
                self._fence(log_id, epoch)

    def _fence(self, log_id: bytes, epoch: Epoch) -> None:
        own = self._cluster.own
        if log_id == own.log_id and self._cluster.is_leaving:
            return  # it was handed over, and no other log is begun
        for part in self._cluster.parts:
            part.fenced(log_id, epoch)
        if log_id != own.log_id and epoch.node != own.number:
            self._cluster.drop_log(log_id)

    # figures

    def unclaimed(self) -> list[bytes]:
        """Return the logs of which this node has a whole replica, and whose owner is lost: no node has taken them over."""
        cases, own, closed = self.cases.by_log.values(), self._cluster.own.number, self._ownership.closed
        lost = [case for case in cases if case.lost_since is not None and case.epoch.node != own]
        return [
            one.log_id
            for one in lost
            if one.replica is not None and one.replica.is_complete and one.log_id not in closed
        ]

    def figures(self) -> dict[str, Any]:
        """Return for /cluster what is known of the owners of logs, and of claims."""
        return {
            "quorum": self.quorum.value,
            "won": dict(self.claimant.won),
            "failed": self.claimant.failed,
            "called_off": self.claimant.called_off,
            "postponed": self.claimant.postponed,
            "logs": [self._figures(case) for _, case in sorted(self.cases.by_log.items())],
        }

    def _figures(self, case: Case) -> dict[str, Any]:
        attempt, replica = self.claimant.attempt, case.replica
        is_claimed = attempt is not None and attempt.case is case
        promised = self._ownership.promises.get(case.log_id)
        return {
            "log_id": case.log_id.hex(),
            "owner": case.epoch.node,
            "epoch": case.epoch.number,
            "owner_lost": case.lost_since is not None,
            "clean": replica is not None and self.cases.seems_clean(case, replica),
            "state": ("promoting" if attempt.is_won else "claiming") if attempt is not None and is_claimed else "",
            "promised": [promised.number, promised.node] if promised is not None else None,
            "reason": self.claimant.waits_for(case),
        }
