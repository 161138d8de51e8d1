"""The candidate: a node that wants to lead the log of a lost node, and asks all nodes for their vote.

It is a candidate for one log at a time, until it has begun its epoch in it.

See docs/contributing/design/cluster-protocol.md#elections.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from nsqd.cluster.membership.leaders import Vote
from nsqd.cluster.ownership.cases import (
    FIRST_RETRY,
    LONGEST_RETRY,
    Case,
    Cases,
    Invitation,
    Quorum,
    ReplicaState,
    extent_of,
)
from nsqd.cluster.ownership.election_frames import (
    NEVER,
    Answer,
    InSyncReplicas,
    Stage,
    VoteReply,
    VoteRequest,
    pack_vote_request,
)
from nsqd.cluster.wire.link import Link
from nsqd.core.message.epoch import MOST_NUMBER, Epoch

# an election's number is this much above the greatest known: a leader that restarts alone does not outbid its successor
STEP = 100
MOST_AHEAD = 1000  # a voter votes for no number that is further above what it knows and has voted for
STAGGER = 500_000_000  # ns between the elections of two nodes whose replicas may be equal
WITNESS_WITHIN = 1_000_000_000  # ns to wait for responses of nsqlookupds: without one, nothing is postponed
PATIENT = 3  # failed elections of its own after which a node votes for a shorter replica
SOON = 100_000_000  # ns after the last node should have lost the leader, until an election is repeated
AFTER_FAILURE = 5_000_000_000  # ns for which a log whose promotion has failed here is left to others
ANNOUNCE_EVERY = 1_000_000_000  # ns between two announcements that a log is being promoted

# asks all nsqlookupds about a node, by its number, and reports how many ns ago one had contact with it, None: none had
Witnesses = Callable[[int, Callable[[int | None], None]], None]


@dataclass(slots=True)
class Attempt:
    """An election of this node on a log, and the votes on it so far."""

    case: Case
    number: int
    serial: int
    lost: Epoch
    stage: Stage
    invitation: Invitation | None
    deadline: int
    asked: frozenset[int] = frozenset()  # numbers of nodes
    replies: dict[int, VoteReply] = field(default_factory=dict)
    # each voter's last contact with the leader, by this node's clock
    contacts: dict[int, int] = field(default_factory=dict)
    awaits_witness: bool = False  # the nsqlookupds are asked first; no node has voted yet
    has_asked: bool = False  # this node's own vote is durable, and the others are asked
    is_won: bool = False
    announce_due: int = 0


class Candidate:
    """The elections of one node. All times are monotonic ns."""

    def __init__(self, cases: Cases, random: Callable[[int], bytes], witnesses: Witnesses) -> None:
        """`random` returns the given number of random bytes."""
        self.attempt: Attempt | None = None
        self.won = {"clean": 0, "unclean": 0}  # how many elections were won, since the start
        self.failed = self.called_off = self.postponed = 0
        self._cases, self._cluster, self._leaders = cases, cases.cluster, cases.leaders
        self._random, self._ask_witnesses = random, witnesses
        self._serial = 0

    # time

    def tick(self, now: int) -> None:
        """Begin an election if one is due, or continue one."""
        attempt = self.attempt
        if attempt is None:
            self._begin_one(now)
        elif attempt.is_won:
            self._announce(attempt, now)
        elif attempt.awaits_witness:
            if now >= attempt.deadline:
                self._vote(attempt)
        else:
            self._judge(attempt, now)

    def handle_pause(self) -> None:
        """Handle that this node was paused: the reports of others about the leader are old."""
        if self.attempt is not None and not self.attempt.is_won:
            self.fail(self.attempt, "this node was paused", self._cases.now)

    def leader_is_back(self, case: Case, now: int) -> None:
        """Handle that the leader of a log is back."""
        attempt = self.attempt
        if attempt is None or attempt.case is not case:
            return
        if attempt.is_won:
            self.call_off(attempt, "the leader is back")
        else:
            self.fail(attempt, "the leader is back", now)

    # events

    def promote(self, log_id: bytes) -> None:
        """Begin an election for a log on an operator's order, even if its replica may lack messages.

        Its leader must be lost, and a majority must vote for this node, or all that can be reached with `any`. Raises KeyError
        if there is no complete replica of the log here, ValueError if its leader is connected.
        """
        case = self._cases.by_log[log_id]
        if case.replica is None or not case.replica.is_complete:
            raise KeyError(log_id)
        if case.lost_since is None:
            raise ValueError(f"node {case.epoch.node} leads the log, and is connected")
        case.is_ordered, case.retry_at, case.yields_until = True, 0, 0

    def promotion_failed(self, log_id: bytes, why: str) -> None:
        """Handle that the promotion after a won election has failed. The log has a candidate again after a pause."""
        attempt = self.attempt
        if attempt is not None and attempt.is_won and attempt.case.log_id == log_id:
            case, self.attempt = attempt.case, None
            case.why, case.number, case.is_ordered = why, 0, False
            case.failures = max(case.failures, PATIENT)
            self._pause(case, self._cases.now, AFTER_FAILURE)

    def learned(self, log_id: bytes, epoch: Epoch) -> bool:
        """Handle a new leader of a log. Returns True if another node leads the log that this one was promoting."""
        attempt = self.attempt
        if attempt is None or attempt.case.log_id != log_id or epoch <= attempt.lost:
            return False
        is_own = epoch.node == self._cluster.own.number
        if not attempt.is_won:
            self.fail(attempt, "another node leads the log", self._cases.now)
        elif is_own or epoch.number >= attempt.number:
            self.attempt = None
            return not is_own
        else:
            self.call_off(attempt, "the leader has another epoch")
        return False

    def count(self, link: Link, reply: VoteReply, now: int) -> None:
        """Handle the reply of a voter."""
        attempt = self.attempt
        if attempt is None or (reply.log_id, reply.serial) != (attempt.case.log_id, attempt.serial):
            return
        if attempt.is_won:
            if reply.answer is Answer.IN_CONTACT and attempt.stage is Stage.CLEAN:
                self.call_off(attempt, "another node is in contact with the leader")
            return
        if attempt.has_asked:
            attempt.replies[link.node.number] = reply
            if reply.contact_age != NEVER:
                attempt.contacts[link.node.number] = now - reply.contact_age
            self._judge(attempt, now)

    # elections

    def _begin_one(self, now: int) -> None:
        due = [(at, case.log_id) for case in self._cases.by_log.values() if (at := self._due(case, now)) is not None]
        if due and min(due)[0] <= now:
            self._begin(self._cases.by_log[min(due)[1]], now)

    def _due(self, case: Case, now: int) -> int | None:
        """Return the time at which an election for a log is to begin. None if it must not, as far as is known now."""
        replica, lost = case.replica, case.lost_since
        if lost is None or replica is None or not replica.is_complete or self._leaders.holds(case.log_id):
            return None
        if case.log_id in self._leaders.closed:
            return None
        if case.epoch != self._leaders.epochs[case.log_id] or now < case.yields_until:
            return None
        if case.is_ordered:
            return case.retry_at
        if self._cases.quorum is Quorum.NONE:
            return None
        if case.invitation is not None and now < case.invitation.until:
            return case.retry_at
        begun = lost + self._rank(case) * STAGGER
        if not self._cases.seems_clean(case, replica):
            begun += self._cases.unclean_after
        return max(begun, case.retry_at)

    def waits_for(self, case: Case) -> str:
        """Return the reason why this node is no candidate for a log. "" if it may be one, or has no replica."""
        replica, lost = case.replica, case.lost_since
        if lost is None or replica is None or case.log_id in self._leaders.closed:
            return ""
        if not replica.is_complete:
            return "the copy here is not complete"
        if case.is_ordered:
            return case.why
        if self._cases.quorum is Quorum.NONE:
            return "-failover-quorum is none: an operator may order the promotion"
        left = lost + self._cases.unclean_after - self._cases.now
        if not self._cases.seems_clean(case, replica) and left > 0:
            return f"the copy here may lack messages: it is promoted in {left // 1_000_000_000} s (-unclean-after)"
        return case.why

    def _rank(self, case: Case) -> int:
        """Return the number of nodes with an equal replica that are candidates before this node."""
        own = self._cluster.own.number
        named = sorted(case.in_sync.named) if case.in_sync is not None else []
        if own in named:
            return named.index(own)
        return len(named) + sum(
            node.number < own for node in self._cluster.membership.members if node.number not in named
        )

    def _begin(self, case: Case, now: int) -> None:
        """Begin an election: ask the nsqlookupds, vote for this node, and when that is durable, ask the others."""
        own, votes = self._cluster.own.number, self._leaders.votes
        voted = votes.get(case.log_id)
        number = case.number
        if not number or voted != Vote(number, own) or number < max(case.least, case.epoch.number + 1):
            number = max(case.epoch.number + STEP, case.least)
            if voted is not None:  # the node with that vote may begin a few epochs, out of contact
                number = max(number, voted.number + (1 if voted.node == own else STEP))
        if number > MOST_NUMBER:
            case.retry_at, case.why = now + LONGEST_RETRY, "the epoch has the greatest number"
            return
        assert case.lost_since is not None
        invitation = case.invitation if case.invitation is not None and now < case.invitation.until else None
        stage = Stage.CLEAN if invitation is None else invitation.stage
        if now >= case.lost_since + self._cases.unclean_after:
            stage = Stage.UNCLEAN
        if case.is_ordered:
            stage = Stage.ORDERED
        self._serial = (self._serial + 1) % (1 << 32)
        attempt = Attempt(case, number, self._serial, case.epoch, stage, invitation, now + WITNESS_WITHIN)
        self.attempt = attempt
        if self._needs_witness(attempt):
            attempt.awaits_witness = True
            self._ask_witnesses(case.epoch.node, lambda ago: self._witnessed(attempt, ago))
        else:
            self._vote(attempt)

    def _needs_witness(self, attempt: Attempt) -> bool:
        """Return True if the nsqlookupds are to be asked: the leader is unreachable, and has not stepped down."""
        membership, number = self._cluster.membership, attempt.lost.node
        is_silent = number not in membership.records or number in membership.suspected
        return is_silent and not self._cases.is_without(attempt.case.log_id)

    def _witnessed(self, attempt: Attempt, ago: int | None) -> None:
        """Handle the nsqlookupd responses. `ago`: ns since a contact of one with the leader, or None. Ignore late ones."""
        if self.attempt is not attempt or not attempt.awaits_witness:
            return
        left = self._cases.failover_after - ago if ago is not None else 0
        if left <= 0:
            self._vote(attempt)
            return
        case, self.attempt = attempt.case, None
        self.postponed += 1
        case.retry_at, case.why = self._cases.now + left + SOON, "an nsqlookupd is in contact with the leader"

    def _vote(self, attempt: Attempt) -> None:
        """Vote for this node, and ask the others when that is durable."""
        case, own = attempt.case, Vote(attempt.number, self._cluster.own.number)
        attempt.awaits_witness, attempt.deadline = False, self._cases.now + self._cases.failover_after
        case.number = attempt.number
        self._leaders.vote(case.log_id, own)
        self._cases.keep(lambda is_kept: self._ask(attempt) if is_kept else None)

    def _ask(self, attempt: Attempt) -> None:
        """Ask all nodes for their vote: this node's own one is durable."""
        if self.attempt is not attempt or attempt.has_asked:
            return
        links = self._cluster.links
        attempt.has_asked, attempt.asked = True, frozenset(links)
        attempt.deadline = self._cases.now + self._cases.failover_after
        for link in links.values():
            self._send_request(attempt, link, attempt.stage)

    def _send_request(self, attempt: Attempt, link: Link, stage: Stage) -> None:
        case = attempt.case
        ended_at = case.replica.ended_at if case.replica is not None else None
        ended = NEVER if ended_at is None else max(0, self._cases.now - ended_at)
        extent = extent_of(case.replica)
        request = VoteRequest(case.log_id, attempt.number, attempt.serial, attempt.lost, extent, ended, stage)
        link.send_first(pack_vote_request(request))

    def _judge(self, attempt: Attempt, now: int) -> None:
        """Decide an election, if all have replied or the time is over."""
        missing = attempt.asked & self._cluster.links.keys() - attempt.replies.keys()
        is_refused = attempt.stage is Stage.CLEAN and bool(_in_contact(attempt))
        if now < attempt.deadline and (missing or not attempt.has_asked) and not is_refused:
            return
        if not attempt.has_asked:
            self.fail(attempt, "the vote cannot be written", now)
            return
        why = self._why_not(attempt)
        if why:
            self.fail(attempt, why, now)
        else:
            self._win(attempt, now)

    def _why_not(self, attempt: Attempt) -> str:
        """Return the reason why an election is not won with the replies so far, or ""."""
        case, answers = attempt.case, {number: reply.answer for number, reply in attempt.replies.items()}
        most = attempt.number + MOST_AHEAD  # a higher number is reached in steps, by this node and the voters alike
        for reply in attempt.replies.values():
            if reply.answer is Answer.TAKEN:
                case.least = max(case.least, min(reply.voted + 1, most))
        found = set(answers.values())
        if case.log_id in self._leaders.closed:
            return "the log is closed"
        if self._cases.is_there(case.log_id):
            return "the leader is back"
        if case.replica is None or not case.replica.is_complete:
            return "the replica is not complete"
        for blocks, why in (
            (Answer.LED, "another node leads the log"),
            (Answer.PROMOTING, "another node promotes the log"),
            (Answer.LONGER, "another replica is longer"),
        ):
            if blocks in found:
                return why
        if Answer.IN_CONTACT in found and (attempt.stage is Stage.CLEAN or self._cases.quorum is Quorum.ANY):
            return "another node is in contact with the leader"
        voted = {number for number, answer in answers.items() if answer is Answer.GRANTED}
        voted.add(self._cluster.own.number)
        if self._cases.quorum is Quorum.ANY:
            if found - {Answer.GRANTED}:
                return "not all reachable nodes have voted"
        elif len(voted & (voters := self._voters(attempt))) <= len(voters) // 2:
            return "no majority has voted for it"
        if attempt.stage is Stage.CLEAN and not self._is_clean(attempt, case.replica):
            return "the replica may lack messages"
        return ""

    def _newest_in_sync(self, attempt: Attempt) -> InSyncReplicas | None:
        """Return the newest list of in-sync followers that this node or a voter has received."""
        reported = [reply.in_sync for reply in attempt.replies.values()]
        known = [one for one in (attempt.case.in_sync, *reported) if one is not None and one.epoch == attempt.lost]
        if not known:
            return None
        newest = max(known, key=lambda one: one.position)
        named = frozenset().union(*(one.named for one in known if one.position == newest.position))
        return InSyncReplicas(newest.log_id, newest.epoch, newest.position, named, newest.is_whole)

    def _voters(self, attempt: Attempt) -> set[int]:
        """Return the numbers of the nodes of which a majority must vote for this one: members, and in-sync followers.

        A follower that has left, or that an operator has forgotten, cannot vote and is none.
        """
        membership = self._cluster.membership
        in_sync = self._newest_in_sync(attempt)
        named = in_sync.named if in_sync is not None else frozenset()
        return {node.number for node in membership.members} | (named - membership.departed())

    def _is_clean(self, attempt: Attempt, replica: ReplicaState) -> bool:
        """Return True if this node's replica has all acknowledged messages, as far as the voters know."""
        case, extent, invitation = attempt.case, extent_of(replica), attempt.invitation
        newest = self._newest_in_sync(attempt)
        if newest is None or replica.end < newest.position:
            return False
        if any(reply.replica > extent for reply in attempt.replies.values()):
            return False
        ended_at = None
        if self._cases.seems_clean(case, replica) and self._cluster.own.number in newest.named:
            ended_at = replica.ended_at if not self._cases.is_without(case.log_id) else self._cases.now
        elif invitation is not None and invitation.node in newest.named:
            ended_at = invitation.ended_at  # that node has everything, and this replica is longer
        if ended_at is None:
            return False
        return all(at <= ended_at + self._cases.failover_after for at in attempt.contacts.values())

    def fail(self, attempt: Attempt, why: str, now: int) -> None:
        """End an election that is not won. It is repeated after a pause."""
        case, self.attempt = attempt.case, None
        case.why = why
        self.failed += 1
        nearest = max((reply.voted for reply in attempt.replies.values() if reply.answer is Answer.CANNOT), default=0)
        climbs, case.nearest = case.nearest < nearest < attempt.number, nearest
        case.failures += attempt.stage is not Stage.CLEAN and not climbs
        until = max((attempt.contacts.get(number, 0) for number in _in_contact(attempt)), default=0)
        if attempt.stage is Stage.CLEAN and until + self._cases.failover_after > now:
            case.retry_at = until + self._cases.failover_after + SOON  # then the others will have lost the leader, too
            return
        is_taken = any(reply.answer is Answer.TAKEN for reply in attempt.replies.values())
        is_short = climbs or (is_taken and case.retry == FIRST_RETRY)
        self._pause(case, now, SOON if is_short else case.retry)
        if not climbs:  # a voter comes nearer to the number with each election
            case.retry = min(2 * case.retry, LONGEST_RETRY)

    def _pause(self, case: Case, now: int, pause: int) -> None:
        """Let the next election for a log begin after about that pause, in ns."""
        jitter = int.from_bytes(self._random(2)) / 65536  # nodes must not repeat their elections in step
        case.retry_at = now + int(pause * (0.5 + jitter))

    def _win(self, attempt: Attempt, now: int) -> None:
        case = attempt.case
        attempt.is_won, attempt.announce_due = True, now
        case.number = 0  # no other election has this number
        self.won["clean" if attempt.stage is Stage.CLEAN else "unclean"] += 1
        self._announce(attempt, now)
        for part in self._cluster.parts:
            part.won(case.log_id, attempt.number, attempt.stage is Stage.CLEAN)

    def _announce(self, attempt: Attempt, now: int) -> None:
        """Announce to all nodes that the log is being promoted."""
        if now >= attempt.announce_due:
            attempt.announce_due = now + ANNOUNCE_EVERY
            for link in self._cluster.links.values():
                self._send_request(attempt, link, Stage.PROMOTING)

    def call_off(self, attempt: Attempt, why: str) -> None:
        """End a promotion before its epoch has begun."""
        self.attempt = None
        case = attempt.case
        case.why, case.is_ordered = why, False
        self._pause(case, self._cases.now, FIRST_RETRY)
        self.called_off += 1
        for part in self._cluster.parts:
            part.called_off(case.log_id)


def _in_contact(attempt: Attempt) -> list[int]:
    """Return the numbers of the voters that are in contact with the leader."""
    return [number for number, reply in attempt.replies.items() if reply.answer is Answer.IN_CONTACT]
