"""The claimant: a node that wants to own the log of a lost node, and asks all nodes for their promise.

It claims one log at a time, and goes on to claim it until it has begun its epoch in it.

See docs/design/cluster.md#claims.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from nsqd.cluster.membership.facts import Keep
from nsqd.cluster.membership.leaders import Promise
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
from nsqd.cluster.ownership.election_frames import NEVER, Answer, Claim, Counts, Stage, Vote, pack_claim
from nsqd.cluster.wire.link import Link
from nsqd.cluster.wire.node_identity import Standing
from nsqd.core.message.epoch import MOST_NUMBER, Epoch

STEP = 100  # a claim's number is so much above the greatest known: an origin that restarts alone does not outbid its new leader
MOST_AHEAD = 1000  # a voter promises no number that is further above what it knows and has promised
STAGGER = 500_000_000  # ns between the claims of two nodes whose replicas may be equal
WITNESS_WITHIN = 1_000_000_000  # ns for which answers of nsqlookupds are waited for: without one, nothing is postponed
VOTE_WITHIN = 2_000_000_000  # ns for which answers are waited for
PATIENT = 3  # claims of its own that fail before a node promises to one with a shorter replica
SOON = 100_000_000  # ns: a claim is repeated so long after the last node should have lost the owner
AFTER_FAILURE = 5_000_000_000  # ns: a log whose promotion has failed here is left to others for so long
TELL_EVERY = 1_000_000_000  # ns between two words that a log is being promoted

# asks all nsqlookupds about a node, by its number, and then tells how many ns ago one heard it last; None: none has
Witnesses = Callable[[int, Callable[[int | None], None]], None]


@dataclass(slots=True)
class Attempt:
    """A claim of this node on a log, and the votes on it so far."""

    case: Case
    number: int
    serial: int
    lost: Epoch
    stage: Stage
    invitation: Invitation | None
    deadline: int
    asked: frozenset[int] = frozenset()  # numbers of nodes
    votes: dict[int, Vote] = field(default_factory=dict)
    heard_at: dict[int, int] = field(default_factory=dict)  # when each voter heard the owner, by this node's clock
    awaits_witness: bool = False  # the nsqlookupds are asked first; nothing is promised yet
    has_asked: bool = False  # this node's own promise is durable, and the others are asked
    is_won: bool = False
    tell_due: int = 0


class Claimant:
    """The claims of one node. All times are monotonic ns."""

    def __init__(
        self, cases: Cases, quorum: Quorum, random: Callable[[int], bytes], keep: Keep, witnesses: Witnesses
    ) -> None:
        """`random` returns so many random bytes."""
        self.attempt: Attempt | None = None
        self.won = {"clean": 0, "unclean": 0}  # how many claims were won, since the start
        self.failed = self.called_off = self.postponed = 0
        self._cases = cases
        self._cluster = cases.cluster
        self._ownership = cases.ownership
        self._quorum = quorum
        self._random = random
        self._keep, self._ask_witnesses = keep, witnesses
        self._serial = 0

    # time

    def tick(self, now: int) -> None:
        """Claim a log if one is due, or go on with a claim."""
        attempt = self.attempt
        if attempt is None:
            self._begin_one(now)
        elif attempt.is_won:
            self._go_on(attempt, now)
        elif attempt.awaits_witness:
            if now >= attempt.deadline:
                self._promise(attempt)
        else:
            self._judge(attempt, now)

    def stood_still(self) -> None:
        """Note that this node did: what others said of the owner is old."""
        if self.attempt is not None and not self.attempt.is_won:
            self.fail(self.attempt, "this node stood still", self._cases.now)

    def owner_is_back(self, case: Case, now: int) -> None:
        """Note that the owner of a log is heard again."""
        attempt = self.attempt
        if attempt is None or attempt.case is not case:
            return
        if attempt.is_won:
            self.call_off(attempt, "the owner is back")
        else:
            self.fail(attempt, "the owner is back", now)

    # what it is told

    def promote(self, log_id: bytes) -> None:
        """Claim a log, whatever its replica may lack, because an operator says so.

        Its owner must be lost, and a majority must promise, or all that can be reached with `any`. Raises KeyError if there
        is no complete replica of the log here, ValueError if its owner is there.
        """
        case = self._cases.by_log[log_id]
        if case.replica is None or not case.replica.is_complete:
            raise KeyError(log_id)
        if case.lost_since is None:
            raise ValueError(f"node {case.epoch.node} owns the log, and is there")
        case.is_ordered, case.retry_at = True, 0

    def given_up(self, log_id: bytes, why: str) -> None:
        """Note that the promotion of a log that was won has failed. It is claimed again after a pause."""
        attempt = self.attempt
        if attempt is not None and attempt.is_won and attempt.case.log_id == log_id:
            case, self.attempt = attempt.case, None
            case.why, case.number, case.is_ordered = why, 0, False
            case.failures = max(case.failures, PATIENT)
            self._pause(case, self._cases.now, AFTER_FAILURE)

    def learned(self, log_id: bytes, epoch: Epoch) -> bool:
        """Take note of a new owner of a log. Returns True if another node owns the log that this one was promoting."""
        attempt = self.attempt
        if attempt is None or attempt.case.log_id != log_id or epoch <= attempt.lost:
            return False
        is_own = epoch.node == self._cluster.own.number
        if not attempt.is_won:
            self.fail(attempt, "another node owns the log", self._cases.now)
        elif is_own or epoch.number >= attempt.number:
            self.attempt = None
            return not is_own
        else:
            self.call_off(attempt, "the owner has another epoch")
        return False

    def count(self, link: Link, vote: Vote, now: int) -> None:
        """Note the answer of a voter."""
        attempt = self.attempt
        if attempt is None or (vote.log_id, vote.serial) != (attempt.case.log_id, attempt.serial) or link.peer is None:
            return
        if attempt.is_won:
            if vote.answer is Answer.HEARD and attempt.stage is Stage.CLEAN:
                self.call_off(attempt, "another node hears the owner")
            return
        if attempt.has_asked:
            attempt.votes[link.peer.number] = vote
            if vote.heard != NEVER:
                attempt.heard_at[link.peer.number] = now - vote.heard
            self._judge(attempt, now)

    # claims

    def _begin_one(self, now: int) -> None:
        due = [(at, case.log_id) for case in self._cases.by_log.values() if (at := self._due(case, now)) is not None]
        if due and min(due)[0] <= now:
            self._begin(self._cases.by_log[min(due)[1]], now)

    def _due(self, case: Case, now: int) -> int | None:
        """Return when a log is to be claimed; None: not by what is known now."""
        replica, lost = case.replica, case.lost_since
        if lost is None or replica is None or not replica.is_complete or self._ownership.holds(case.log_id):
            return None
        if case.log_id in self._ownership.closed:
            return None
        if case.epoch != self._ownership.epochs[case.log_id] or now < case.yields_until:
            return None
        if case.is_ordered:
            return case.retry_at
        if self._quorum is Quorum.NONE:
            return None
        if case.invitation is not None and now < case.invitation.until:
            return case.retry_at
        begun = lost + self._rank(case) * STAGGER
        if not self._cases.seems_clean(case, replica):
            begun += self._cases.unclean_after
        return max(begun, case.retry_at)

    def waits_for(self, case: Case) -> str:
        """Return why a log without an owner, of which there is a copy here, is not claimed now; "": nothing is in the way."""
        replica, lost = case.replica, case.lost_since
        if lost is None or replica is None or case.log_id in self._ownership.closed:
            return ""
        if not replica.is_complete:
            return "the copy here is not complete"
        if case.is_ordered:
            return case.why
        if self._quorum is Quorum.NONE:
            return "-failover-quorum is none: an operator may say that it is promoted"
        left = lost + self._cases.unclean_after - self._cases.now
        if not self._cases.seems_clean(case, replica) and left > 0:
            return f"the copy here may lack messages: it is promoted in {left // 1_000_000_000} s (-unclean-after)"
        return case.why

    def _rank(self, case: Case) -> int:
        """Return how many nodes with a replica as good as this one's claim before this node."""
        own = self._cluster.own.number
        named = sorted(case.counts.named) if case.counts is not None else []
        if own in named:
            return named.index(own)
        return len(named) + sum(
            node.number < own for node in self._cluster.membership.members if node.number not in named
        )

    def _begin(self, case: Case, now: int) -> None:
        """Claim a log: ask the nsqlookupds, promise the log to this node, and when that is durable, ask the others."""
        own, promises = self._cluster.own.number, self._ownership.promises
        promised = promises.get(case.log_id)
        number = case.number
        if not number or promised != Promise(number, own) or number < max(case.least, case.epoch.number + 1):
            number = max(case.epoch.number + STEP, case.least)
            if promised is not None:  # whoever it was promised to may begin a few epochs, unheard
                number = max(number, promised.number + (1 if promised.node == own else STEP))
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
            self._promise(attempt)

    def _needs_witness(self, attempt: Attempt) -> bool:
        """Return True if a log is claimed because its owner is silent, and it has not given the log up."""
        membership, number = self._cluster.membership, attempt.lost.node
        is_silent = number not in membership.words or number in membership.suspected
        return is_silent and not self._cases.is_without(attempt.case.log_id)

    def _witnessed(self, attempt: Attempt, ago: int | None) -> None:
        """Take the word of the nsqlookupds: one heard the owner so many ns ago, None: none has. A late one says nothing."""
        if self.attempt is not attempt or not attempt.awaits_witness:
            return
        left = self._cases.failover_after - ago if ago is not None else 0
        if left <= 0:
            self._promise(attempt)
            return
        case, self.attempt = attempt.case, None
        self.postponed += 1
        case.retry_at, case.why = self._cases.now + left + SOON, "an nsqlookupd hears the owner"

    def _promise(self, attempt: Attempt) -> None:
        """Promise the log to this node, and ask the others when that is durable."""
        case, own = attempt.case, Promise(attempt.number, self._cluster.own.number)
        attempt.awaits_witness, attempt.deadline = False, self._cases.now + VOTE_WITHIN
        case.number = attempt.number
        self._ownership.promise(case.log_id, own)
        self._keep(lambda is_kept: self._ask(attempt) if is_kept else None)

    def _ask(self, attempt: Attempt) -> None:
        """Ask all nodes for their promise: this node's own one is durable."""
        if self.attempt is not attempt or attempt.has_asked:
            return
        links = self._cluster.links
        attempt.has_asked, attempt.asked = True, frozenset(links)
        attempt.deadline = self._cases.now + VOTE_WITHIN
        for link in links.values():
            self._send_claim(attempt, link, attempt.stage)

    def _send_claim(self, attempt: Attempt, link: Link, stage: Stage) -> None:
        case = attempt.case
        ended_at = case.replica.ended_at if case.replica is not None else None
        ended = NEVER if ended_at is None else max(0, self._cases.now - ended_at)
        extent = extent_of(case.replica)
        claim = Claim(case.log_id, attempt.number, attempt.serial, attempt.lost, extent, ended, stage)
        link.send_claiming(pack_claim(claim))

    def _judge(self, attempt: Attempt, now: int) -> None:
        """Decide about a claim, if all have answered or the time is over."""
        missing = attempt.asked & self._cluster.links.keys() - attempt.votes.keys()
        is_refused = attempt.stage is Stage.CLEAN and any(map(_hears, attempt.votes.values()))
        if now < attempt.deadline and (missing or not attempt.has_asked) and not is_refused:
            return
        if not attempt.has_asked:
            self.fail(attempt, "the promise cannot be written", now)
            return
        why = self._why_not(attempt)
        if why:
            self.fail(attempt, why, now)
        else:
            self._win(attempt, now)

    def _why_not(self, attempt: Attempt) -> str:
        """Return why a claim is not won by the answers that have come; "": it is."""
        case, answers = attempt.case, {number: vote.answer for number, vote in attempt.votes.items()}
        most = attempt.number + MOST_AHEAD  # what is beyond is reached in steps, by this node and the voters alike
        for vote in attempt.votes.values():
            if vote.answer is Answer.TAKEN:
                case.least = max(case.least, min(vote.promised + 1, most))
        found = set(answers.values())
        if case.log_id in self._ownership.closed:
            return "the log is closed"
        if self._cases.is_there(case.log_id, self._cases.now):
            return "the owner is back"
        if case.replica is None or not case.replica.is_complete:
            return "the replica is not complete"
        for blocks, why in (
            (Answer.OWNED, "another node owns the log"),
            (Answer.PROMOTING, "another node promotes the log"),
            (Answer.LONGER, "another replica is longer"),
        ):
            if blocks in found:
                return why
        if Answer.HEARD in found and (attempt.stage is Stage.CLEAN or self._quorum is Quorum.ANY):
            return "another node hears the owner"
        promised = {number for number, answer in answers.items() if answer is Answer.PROMISED}
        promised.add(self._cluster.own.number)
        if self._quorum is Quorum.ANY:
            if found - {Answer.PROMISED}:
                return "not all that can be reached have promised"
        elif not _is_majority(promised, self._voters(attempt)):
            return "no majority has promised"
        if attempt.stage is Stage.CLEAN and not self._is_clean(attempt, case.replica):
            return "the replica may lack something"
        return ""

    def _newest_counts(self, attempt: Attempt) -> Counts | None:
        """Return the newest word about the followers that count which this node or a voter was told."""
        heard = [vote.counts for vote in attempt.votes.values()]
        known = [one for one in (attempt.case.counts, *heard) if one is not None and one.epoch == attempt.lost]
        if not known:
            return None
        newest = max(known, key=lambda one: one.position)
        named = frozenset().union(*(one.named for one in known if one.position == newest.position))
        return Counts(newest.log_id, newest.epoch, newest.position, named, newest.is_whole)

    def _voters(self, attempt: Attempt) -> set[int]:
        """Return the numbers of the nodes of which a majority must promise: members, and followers that count.

        A follower that has left, or that an operator has forgotten, can promise nothing and is none.
        """
        membership = self._cluster.membership
        counts = self._newest_counts(attempt)
        named = counts.named if counts is not None else frozenset()
        gone = {number for number, word in membership.words.items() if word.standing is not Standing.MEMBER}
        return {node.number for node in membership.members} | (named - gone)

    def _is_clean(self, attempt: Attempt, replica: ReplicaState) -> bool:
        """Return True if this node's replica has all that was acknowledged, in view of what the voters know."""
        case, extent, invitation = attempt.case, extent_of(replica), attempt.invitation
        newest = self._newest_counts(attempt)
        if newest is None or replica.end < newest.position:
            return False
        if any(vote.replica > extent for vote in attempt.votes.values()):
            return False
        ended_at = None
        if self._cases.seems_clean(case, replica) and self._cluster.own.number in newest.named:
            ended_at = replica.ended_at if not self._cases.is_without(case.log_id) else self._cases.now
        elif (
            invitation is not None and invitation.node in newest.named
        ):  # that node has all, and this replica is longer
            ended_at = invitation.ended_at
        if ended_at is None:
            return False
        return all(at <= ended_at + self._cases.failover_after for at in attempt.heard_at.values())

    def fail(self, attempt: Attempt, why: str, now: int) -> None:
        """End a claim that is not won. It is repeated after a pause."""
        case, self.attempt = attempt.case, None
        case.why = why
        self.failed += 1
        nearest = max((vote.promised for vote in attempt.votes.values() if vote.answer is Answer.CANNOT), default=0)
        climbs, case.nearest = case.nearest < nearest < attempt.number, nearest
        case.failures += attempt.stage is not Stage.CLEAN and not climbs
        until = max((at for number, at in attempt.heard_at.items() if _hears(attempt.votes[number])), default=0)
        if attempt.stage is Stage.CLEAN and until + self._cases.failover_after > now:
            case.retry_at = until + self._cases.failover_after + SOON  # then the others will have lost the owner, too
            return
        is_taken = any(vote.answer is Answer.TAKEN for vote in attempt.votes.values())
        is_short = climbs or (is_taken and case.retry == FIRST_RETRY)
        self._pause(case, now, SOON if is_short else case.retry)
        if not climbs:  # a voter comes nearer to the number with each claim
            case.retry = min(2 * case.retry, LONGEST_RETRY)

    def _pause(self, case: Case, now: int, pause: int) -> None:
        """Claim a log again after about that pause, in ns."""
        jitter = int.from_bytes(self._random(2)) / 65536  # nodes must not claim in step
        case.retry_at = now + int(pause * (0.5 + jitter))

    def _win(self, attempt: Attempt, now: int) -> None:
        case = attempt.case
        attempt.is_won, attempt.tell_due = True, now
        case.number = 0  # it is not claimed under this number again
        self.won["clean" if attempt.stage is Stage.CLEAN else "unclean"] += 1
        self._go_on(attempt, now)
        for part in self._cluster.parts:
            part.won(case.log_id, attempt.number, attempt.stage is Stage.CLEAN)

    def _go_on(self, attempt: Attempt, now: int) -> None:
        """Tell all nodes that the log is being promoted."""
        if now >= attempt.tell_due:
            attempt.tell_due = now + TELL_EVERY
            for link in self._cluster.links.values():
                self._send_claim(attempt, link, Stage.PROMOTING)

    def call_off(self, attempt: Attempt, why: str) -> None:
        """End a promotion before its epoch has begun."""
        self.attempt = None
        case = attempt.case
        case.why, case.is_ordered = why, False
        self._pause(case, self._cases.now, FIRST_RETRY)
        self.called_off += 1
        for part in self._cluster.parts:
            part.called_off(case.log_id)


def _hears(vote: Vote) -> bool:
    return vote.answer is Answer.HEARD


def _is_majority(promised: set[int], voters: set[int]) -> bool:
    return len(promised & voters) > len(voters) // 2
