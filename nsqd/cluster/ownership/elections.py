"""Elections: which node is to lead the log of a lost node.

A node with a replica of a lost leader's log becomes a candidate: it asks all nodes for their votes, under a number greater
than any that is known of the log. A voter grants a number only without contact with the leader, and to one candidate only. Its
vote is durable before it replies, so of two candidates with one number at most one has a majority. A vote changes no leader:
the log has another one when the candidate begins an epoch with the number, once it has promoted its replica.

`cases` has the states of logs, `candidate` begins elections, and `voter` replies to the candidates of other nodes.

See docs/contributing/design/cluster-protocol.md#elections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from nsqd.cluster.ownership.candidate import Candidate, Witnesses
from nsqd.cluster.ownership.cases import Case, Cases, Quorum
from nsqd.cluster.ownership.election_frames import (
    InSyncReplicas,
    pack_in_sync,
    unpack_in_sync,
    unpack_vote_reply,
    unpack_vote_request,
)
from nsqd.cluster.ownership.voter import Voter
from nsqd.cluster.wire.frames import FrameKind
from nsqd.cluster.wire.link import Link
from nsqd.cluster.wire.part import Part
from nsqd.core.message.epoch import Epoch

REPEAT = 5_000_000_000  # ns after which IN_SYNC is sent again: a follower that was paused may count again


class Elections(Part):
    """The elections and votes of one node. All times are monotonic ns."""

    shown_as = "elections"
    takes = (FrameKind.IN_SYNC, FrameKind.VOTE_REQUEST, FrameKind.VOTE_REPLY)

    def __init__(self, cases: Cases, witnesses: Witnesses, random: Callable[[int], bytes]) -> None:
        """`random` returns the given number of random bytes."""
        self.cases = cases
        self.candidate = Candidate(cases, random, witnesses)
        self.voter = Voter(cases, self.candidate)
        self._cluster, self._leaders = cases.cluster, cases.leaders
        cases.cluster.disputes.needs_majority = cases.quorum is not Quorum.ANY
        self._fenced: dict[bytes, Epoch] = {}  # the lost logs of which the parts were notified
        self._links: dict[int, Link] = {}  # at the latest tick
        # by node number: a connection, and over it the last IN_SYNC of each log, and when
        self._sent: dict[int, tuple[Link, dict[bytes, tuple[InSyncReplicas, int]]]] = {}

    # time

    def tick(self, now: int) -> None:
        cases = self.cases
        if now - cases.now > cases.failover_after // 2:
            cases.handle_pause()
            self.candidate.handle_pause()
        cases.now = now
        links = self._cluster.links
        if any(self._links.get(number) is not link for number, link in links.items()):
            cases.met(now)
        self._links = dict(links)
        cases.update_replicas()
        for case in cases.by_log.values():
            if cases.watch(case, now):
                self.candidate.leader_is_back(case, now)
        self._notify_fenced()
        self._elect(now)
        self._forget_connections()

    def _elect(self, now: int) -> None:
        attempt = self.candidate.attempt
        if not self._cluster.is_leaving or (attempt is not None and attempt.is_won):
            self.candidate.tick(now)  # also of a node that leaves: a won election leads to a promotion
        elif attempt is not None:
            self.candidate.fail(attempt, "this node leaves the cluster", now)

    def _forget_connections(self) -> None:
        """Forget what was sent over closed connections, and of logs that this node no longer leads."""
        links, held = self._cluster.links, self._leaders.held
        for number, (link, logs) in list(self._sent.items()):
            if links.get(number) is not link:
                del self._sent[number]
            for log_id in [one for one in logs if one not in held]:
                del logs[log_id]

    # in-sync followers

    def send_in_sync(self, link: Link, in_sync: InSyncReplicas) -> None:
        """Send a node the in-sync followers of a log that this node leads, if they changed. Call it several times a second."""
        number, log_id = link.node.number, in_sync.log_id
        known, logs = self._sent.get(number, (None, {}))
        if known is not link:
            self._sent[number] = link, (logs := {})
        before, at = logs.get(log_id, (None, 0))
        if in_sync != before or self.cases.now - at >= REPEAT:
            logs[log_id] = in_sync, self.cases.now
            link.send_first(pack_in_sync(in_sync))

    # other nodes and the operator

    def receive(self, link: Link, kind: FrameKind, content: bytes, now: int) -> None:
        if kind is FrameKind.IN_SYNC:
            self.cases.note_in_sync(link, unpack_in_sync(content))
        elif kind is FrameKind.VOTE_REQUEST:
            self.voter.vote(link, unpack_vote_request(content), now)
        elif kind is FrameKind.VOTE_REPLY:
            self.candidate.count(link, unpack_vote_reply(content), now)

    def promote(self, log_id: bytes) -> None:
        """Begin an election on an operator's order. Raises as Candidate.promote, and KeyError if this node leaves."""
        if self._cluster.is_leaving:
            raise KeyError(log_id)
        self.candidate.promote(log_id)

    def led(self, log_id: bytes, epoch: Epoch) -> None:
        if self.candidate.learned(log_id, epoch):
            self._fence(log_id, epoch)
        self._notify_fenced()

    def _notify_fenced(self) -> None:
        """Notify the parts of each log that this node held and another one leads, once."""
        for log_id, epoch in self._leaders.lost():
            if self._fenced.get(log_id) != epoch:
                self._fenced[log_id] = epoch
                self._fence(log_id, epoch)

    def _fence(self, log_id: bytes, epoch: Epoch) -> None:
        own = self._cluster.own
        if log_id == own.log_id and self._cluster.is_leaving:
            return  # it was transferred, and no other log is begun
        for part in self._cluster.parts:
            part.fenced(log_id, epoch)
        if log_id != own.log_id and epoch.node != own.number:
            self._cluster.drop_log(log_id)

    # statistics

    def leaderless(self) -> list[bytes]:
        """Return the logs of which this node has a whole replica, and whose leader is lost, or may be: it is not connected."""
        links = self._cluster.links
        return [one.log_id for one in self._followed() if one.lost_since is not None or one.epoch.node not in links]

    def has_unserved_log(self) -> bool:
        return any(one.lost_since is not None for one in self._followed())

    def _followed(self) -> Iterator[Case]:
        """Yield the cases of the logs of other leaders of which this node has a whole replica."""
        for log_id, case in self.cases.by_log.items():
            is_whole = case.replica is not None and case.replica.is_complete
            if is_whole and case.epoch.node != self._cluster.own.number and log_id not in self._leaders.closed:
                yield case

    def figures(self) -> dict[str, Any]:
        """Return the leaders of logs and the elections, for /cluster. A closed log needs no leader."""
        closed = self._leaders.closed
        return {
            "quorum": self.cases.quorum.value,
            "won": dict(self.candidate.won),
            "failed": self.candidate.failed,
            "called_off": self.candidate.called_off,
            "postponed": self.candidate.postponed,
            "logs": [self._figures(case) for log_id, case in sorted(self.cases.by_log.items()) if log_id not in closed],
        }

    def _figures(self, case: Case) -> dict[str, Any]:
        attempt, replica = self.candidate.attempt, case.replica
        is_candidate = attempt is not None and attempt.case is case
        voted = self._leaders.votes.get(case.log_id)
        return {
            "log_id": case.log_id.hex(),
            "leader": case.epoch.node,
            "epoch": case.epoch.number,
            "leader_lost": case.lost_since is not None,
            "clean": replica is not None and self.cases.seems_clean(case, replica),
            "state": ("promoting" if attempt.is_won else "candidate") if attempt is not None and is_candidate else "",
            "voted": [voted.number, voted.node] if voted is not None else None,
            "reason": self.candidate.waits_for(case),
        }
