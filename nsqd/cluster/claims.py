"""Take-over, as far as nodes decide about it: claims on the logs of nodes that are lost, and the votes on them.

A node that has a mirror of a lost owner's log claims the log: it asks all nodes for a promise under a number that is greater
than all that is known of the log. Whoever promises does not hear the owner, and promises that number to nobody else; the
promise is durable before the answer leaves, so of two claims with one number at most one has a majority. A promise changes no
owner: the log has another owner when the claimant begins an epoch with the number, once it has adopted the log.

Nothing here does input or output, or asks a clock.

See docs/design/cluster.md#claims.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from nsqd.cluster.cluster import Cluster
from nsqd.cluster.link import Link
from nsqd.cluster.membership import Standing
from nsqd.cluster.ownership import Promise
from nsqd.core.message.epoch import MOST_NUMBER, Epoch
from nsqd.protocols.peer.claims import (
    MOST_LOGS,
    NEVER,
    NO_MIRROR,
    Answer,
    Claim,
    Counts,
    Extent,
    Hold,
    Stage,
    Vote,
    pack_claim,
    pack_counts,
    pack_vote,
    unpack_claim,
    unpack_counts,
    unpack_vote,
)
from nsqd.protocols.peer.frames import FrameKind

STEP = 100  # a claim's number is so much above the greatest known: an origin that restarts alone does not outbid its adopter
MOST_AHEAD = 1000  # a voter promises no number that is further above what it knows and has promised
STAGGER = 500_000_000  # ns between the claims of two nodes whose mirrors may be equal
VOTE_WITHIN = 2_000_000_000  # ns for which answers are waited for
YIELD = 3_000_000_000  # ns for which a voter does not claim what it has promised to another node
INVITED = 10_000_000_000  # ns for which a node with a longer mirror claims at once, after another node's claim
PATIENT = 3  # claims of its own that fail before a node promises to one with a shorter mirror
SOON = 100_000_000  # ns: a claim is repeated so long after the last node should have lost the owner
FIRST_RETRY, LONGEST_RETRY = 1_000_000_000, 30_000_000_000  # ns between two claims that fail
FIRST_PAUSE, LONGEST_PAUSE = (
    5_000_000_000,
    600_000_000_000,
)  # ns: back-off after an owner came back, or an adoption failed
CALM = LONGEST_PAUSE  # ns: an owner that was heard for so long is not one whose connection flaps
REPEAT = 5_000_000_000  # ns after which COUNTS is sent again: a follower that stood still may count again
TELL_EVERY = 1_000_000_000  # ns between two words that a log is being adopted


class Quorum(StrEnum):
    """-takeover-quorum: whose promises a claim needs."""

    NONE = "none"  # nobody adopts, but on an operator's word, and then as for a majority
    MAJORITY = "majority"  # of the members and the followers that count
    ANY = "any"  # those of all nodes that can be reached


@dataclass(frozen=True, slots=True)
class MirrorState:
    """What a claim needs to know of a mirror."""

    log_id: bytes
    node: int  # number of the node that publishes into the log, or did
    end: int  # position up to which it is written
    epoch: Epoch  # the last one of which it knows; NO_EPOCH: none
    is_complete: bool  # it can be adopted
    ended_at: int | None  # when the owner's bytes ended, monotonic ns; None: they come


class MirrorView(Protocol):
    """The mirrors of this node, for claims."""

    def mirrors(self) -> Iterable[MirrorState]:
        """Return the state of each mirror."""


@dataclass(frozen=True, slots=True)
class _Invitation:
    """Another node has claimed a log, and this node's mirror is longer: it claims at once."""

    node: int  # number of the other node
    stage: Stage  # of its claim
    ended_at: int  # when its stream ended
    until: int


@dataclass(slots=True)
class _Case:
    """What is known about the take-over of one log."""

    log_id: bytes
    epoch: Epoch  # of the owner
    mirror: MirrorState | None = None
    counts: Counts | None = None  # the latest from that owner
    is_fresh: bool = False  # this node has not stood still since it came
    lost_since: int | None = None  # monotonic ns; None: the owner is there
    heard_since: int = 0  # since when it is there
    pause: int = 0  # ns by which a claim waits after the owner is lost, because it came back before
    retry_at: int = 0
    retry: int = FIRST_RETRY  # ns
    failures: int = 0  # of claims since the owner is lost, with a mirror that may lack something
    number: int = 0  # of the last claim, while it may be repeated
    least: int = 0  # the lowest number that voters may still promise
    yields_until: int = 0  # another node claims it
    adopter: int | None = None  # the node that says that it adopts it, until then
    invitation: _Invitation | None = None
    is_ordered: bool = False  # an operator says that it is to be adopted, whatever may be lacking
    why: str = ""  # why the last claim failed


@dataclass(slots=True)
class _Attempt:
    """A claim of this node on a log, and the votes on it so far."""

    case: _Case
    number: int
    serial: int
    lost: Epoch
    stage: Stage
    invitation: _Invitation | None
    deadline: int
    asked: frozenset[int] = frozenset()  # numbers of nodes
    votes: dict[int, Vote] = field(default_factory=dict)
    heard_at: dict[int, int] = field(default_factory=dict)  # when each voter heard the owner, by this node's clock
    has_asked: bool = False  # this node's own promise is durable, and the others are asked
    is_won: bool = False
    tell_due: int = 0


class Claims:
    """The claims and votes of one node. All times are monotonic ns."""

    def __init__(
        self,
        cluster: Cluster,
        mirrors: MirrorView,
        quorum: Quorum,
        takeover_after: int,
        unclean_after: int,
        random: Callable[[int], bytes],
        now: int,
    ) -> None:
        """Begin at `now`. `random` returns so many random bytes; `takeover_after` and `unclean_after` are in ns."""
        self.quorum = quorum
        # has what the node knows and has promised written durably, and then says whether that has succeeded
        self.keep: Callable[[Callable[[bool], None]], None] = lambda then: then(False)
        self.on_won: Callable[[bytes, int], None] = lambda log_id, number: None
        self.on_called_off: Callable[[bytes], None] = lambda log_id: (
            None
        )  # the owner is back before the log was adopted
        self.on_fenced: Callable[[bytes, Epoch], None] = lambda log_id, epoch: None
        # ns since any nsqlookupd heard a node, by its number; None: it was not heard
        self.heard_by_witness: Callable[[int], int | None] = lambda number: None
        self.attempt: _Attempt | None = None
        self.won = {"clean": 0, "unclean": 0}  # how many claims were won, since the start
        self.failed = self.called_off = 0
        self._cluster = cluster
        self._ownership = cluster.ownership
        self._mirrors = mirrors
        self._takeover_after, self._unclean_after = takeover_after, unclean_after
        self._random = random
        self._cases: dict[bytes, _Case] = {}
        self._runs: dict[int, tuple[int, int]] = {}  # by node number: the incarnation, and when it was first seen
        self._fenced: dict[bytes, Epoch] = {}  # what on_fenced was told
        self._sent: dict[tuple[int, bytes], tuple[Link, Counts, int]] = {}  # the last COUNTS, by node and log, and when
        self._serial = 0
        self._now = now
        cluster.on_claiming = self.receive
        cluster.on_owner = self._learned

    # time

    def tick(self, now: int) -> None:
        """Do what is due. Call it several times a second, after Cluster.tick."""
        if now - self._now > self._takeover_after // 2:
            self._stood_still()
        self._now = now
        self._look_at_mirrors()
        for case in self._cases.values():
            self._watch(case, now)
        self._tell_fences()
        attempt = self.attempt
        if attempt is None:
            self._begin_one(now)
        elif attempt.is_won:
            self._go_on(attempt, now)
        else:
            self._judge(attempt, now)

    def _stood_still(self) -> None:
        """Note that this node did: the owner may have gone on without it, and what others said of the owner is old."""
        for case in self._cases.values():
            case.is_fresh = False
        if self.attempt is not None and not self.attempt.is_won:
            self._fail(self.attempt, "this node stood still", self._now)

    def _look_at_mirrors(self) -> None:
        found = {mirror.log_id: mirror for mirror in self._mirrors.mirrors()}
        for log_id, mirror in found.items():
            epoch = mirror.epoch if mirror.epoch.number else Epoch(0, mirror.node, bytes(8))
            if self._ownership.owner(log_id) is None and len(self._ownership.epochs) < MOST_LOGS:
                self._ownership.learn(log_id, epoch)
            if log_id in self._ownership.epochs:
                self._case(log_id).mirror = mirror
        for log_id, case in list(self._cases.items()):
            if log_id not in found:
                case.mirror = None
            if log_id in self._ownership.epochs:
                self._case(log_id)
            else:
                del self._cases[log_id]

    def _case(self, log_id: bytes) -> _Case:
        """Return what is known about the take-over of a log whose owner is known; another owner begins with nothing."""
        epoch, case = self._ownership.epochs[log_id], self._cases.get(log_id)
        if case is None or case.epoch != epoch:
            mirror = case.mirror if case is not None else None
            case = self._cases[log_id] = _Case(log_id, epoch, mirror, heard_since=self._now)
        return case

    def _watch(self, case: _Case, now: int) -> None:
        """Note whether the owner of a log is lost or back."""
        lost = self._lost_since(case.log_id, now)
        if lost is not None:
            if case.lost_since is None:
                case.lost_since = lost
            return
        if case.lost_since is not None:
            case.lost_since, case.heard_since = None, now
            case.pause = _longer(case.pause)
            case.failures, case.invitation, case.retry_at, case.retry = 0, None, 0, FIRST_RETRY
            self._owner_is_back(case, now)
        elif case.pause and now - case.heard_since >= CALM:
            case.pause = 0

    def _owner_is_back(self, case: _Case, now: int) -> None:
        attempt = self.attempt
        if attempt is None or attempt.case is not case:
            return
        if attempt.is_won:
            self._call_off(attempt, "the owner is back")
        else:
            self._fail(attempt, "the owner is back", now)

    def _is_there(self, log_id: bytes, now: int) -> bool:
        """Return True if this node hears the owner of a log, or waits for a restart that it has announced."""
        return self._lost_since(log_id, now) is None

    def _lost_since(self, log_id: bytes, now: int) -> int | None:
        """Return since when the owner of a log is lost, at most `now`; None: it is there.

        An owner that is heard and does not say that it owns the log in this run is believed for -unclean-after.
        """
        owner = self._ownership.epochs[log_id]
        membership, number = self._cluster.membership, owner.node
        if number == self._cluster.own.number:
            if log_id in self._ownership.held:
                return now if log_id in self._ownership.given_up else None
            return self._unserved_since(number, 0, now)
        word = membership.words.get(number)
        if log_id in membership.forgotten and membership.forgotten[log_id].node.number == number:
            return now
        if word is None or word.standing is not Standing.MEMBER or number in membership.suspected:
            return now
        said = self._ownership.said(number, word.node.incarnation, log_id)
        if said is not None:
            return None if said is Hold.OWNS else now
        return self._unserved_since(number, word.node.incarnation, now)

    def _unserved_since(self, number: int, incarnation: int, now: int) -> int | None:
        """Return since when a run of a node is known that does not say that it owns a log; None: not for long."""
        run, since = self._runs.get(number, (-1, 0))
        if run != incarnation:
            self._runs[number] = incarnation, (since := now)
        return since if now - since >= self._unclean_after else None

    # which followers count

    def counts(
        self, log_id: bytes, epoch: Epoch, position: int, named: Iterable[int], link: Link, is_whole: bool
    ) -> None:
        """Tell a node which followers count of a log that this node owns, if that is news. Call it several times a second.

        `position`: the log's end when these began to count; `is_whole`: the node has everything, and keeps up.
        """
        assert link.peer is not None
        key, counts = (link.peer.number, log_id), Counts(log_id, epoch, position, frozenset(named), is_whole)
        known, before, at = self._sent.get(key, (None, None, 0))
        if known is not link or counts != before or self._now - at >= REPEAT:
            self._sent[key] = link, counts, self._now
            link.send_claiming(pack_counts(counts))

    def _note_counts(self, link: Link, counts: Counts) -> None:
        assert link.peer is not None
        if counts.epoch.node != link.peer.number or self._ownership.owner(counts.log_id) != counts.epoch:
            return
        case = self._case(counts.log_id)
        case.counts, case.is_fresh = counts, True

    def _seems_clean(self, case: _Case, mirror: MirrorState) -> bool:
        """Return True if this node's mirror has all that was acknowledged, as far as this node knows."""
        counts = case.counts
        return (
            counts is not None
            and case.is_fresh
            and counts.is_whole
            and self._cluster.own.number in counts.named
            and mirror.end >= counts.position
        )

    # claims

    def adopt(self, log_id: bytes) -> None:
        """Claim a log, whatever its mirror may lack, because an operator says so.

        Its owner must be lost, and a majority must promise, or all that can be reached with `any`. Raises KeyError if there
        is no complete mirror of the log here, ValueError if its owner is there.
        """
        case = self._cases[log_id]
        if case.mirror is None or not case.mirror.is_complete:
            raise KeyError(log_id)
        if case.lost_since is None:
            raise ValueError(f"node {case.epoch.node} owns the log, and is there")
        case.is_ordered, case.retry_at = True, 0

    def given_up(self, log_id: bytes, why: str) -> None:
        """Note that the adoption of a log that was won has failed. It is claimed again after a pause."""
        attempt = self.attempt
        if attempt is not None and attempt.is_won and attempt.case.log_id == log_id:
            case, self.attempt = attempt.case, None
            case.why, case.number, case.is_ordered = why, 0, False
            case.pause = _longer(case.pause)
            case.failures = max(case.failures, PATIENT)
            case.retry_at = self._now + case.pause

    def _begin_one(self, now: int) -> None:
        due = [(at, case.log_id) for case in self._cases.values() if (at := self._due(case, now)) is not None]
        if due and min(due)[0] <= now:
            self._begin(self._cases[min(due)[1]], now)

    def _due(self, case: _Case, now: int) -> int | None:
        """Return when a log is to be claimed; None: not by what is known now."""
        mirror, lost = case.mirror, case.lost_since
        if lost is None or mirror is None or not mirror.is_complete or self._ownership.holds(case.log_id):
            return None
        if case.epoch != self._ownership.epochs[case.log_id] or now < case.yields_until:
            return None
        if case.is_ordered:
            return case.retry_at
        if self.quorum is Quorum.NONE:
            return None
        if case.invitation is not None and now < case.invitation.until:
            return case.retry_at
        begun = lost + case.pause + self._rank(case) * STAGGER
        if not self._seems_clean(case, mirror):
            begun += self._unclean_after
        return max(begun, case.retry_at)

    def _rank(self, case: _Case) -> int:
        """Return how many nodes with a mirror as good as this one's claim before this node."""
        own = self._cluster.own.number
        named = sorted(case.counts.named) if case.counts is not None else []
        if own in named:
            return named.index(own)
        return len(named) + sum(
            node.number < own for node in self._cluster.membership.members if node.number not in named
        )

    def _begin(self, case: _Case, now: int) -> None:
        """Claim a log: promise it to this node, and when that is durable, ask the others."""
        if self._is_witnessed(case.epoch.node):
            case.retry_at, case.why = now + FIRST_RETRY, "an nsqlookupd hears the owner"
            return
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
        if now >= case.lost_since + case.pause + self._unclean_after:
            stage = Stage.UNCLEAN
        if case.is_ordered:
            stage = Stage.ORDERED
        self._serial = (self._serial + 1) % (1 << 32)
        attempt = _Attempt(case, number, self._serial, case.epoch, stage, invitation, now + VOTE_WITHIN)
        case.number, self.attempt = number, attempt
        self._ownership.promise(case.log_id, Promise(number, own))
        self.keep(lambda is_kept: self._ask(attempt) if is_kept else None)

    def _is_witnessed(self, number: int) -> bool:
        ago = self.heard_by_witness(number)
        return ago is not None and ago < self._takeover_after

    def _ask(self, attempt: _Attempt) -> None:
        """Ask all nodes for their promise: this node's own one is durable."""
        if self.attempt is not attempt or attempt.has_asked:
            return
        links = self._cluster.links
        attempt.has_asked, attempt.asked = True, frozenset(links)
        attempt.deadline = self._now + VOTE_WITHIN
        for link in links.values():
            self._send_claim(attempt, link, attempt.stage)

    def _send_claim(self, attempt: _Attempt, link: Link, stage: Stage) -> None:
        case = attempt.case
        ended_at = case.mirror.ended_at if case.mirror is not None else None
        ended = NEVER if ended_at is None else max(0, self._now - ended_at)
        extent = _extent(case.mirror)
        claim = Claim(case.log_id, attempt.number, attempt.serial, attempt.lost, extent, ended, stage)
        link.send_claiming(pack_claim(claim))

    def _judge(self, attempt: _Attempt, now: int) -> None:
        """Decide about a claim, if all have answered or the time is over."""
        missing = attempt.asked & self._cluster.links.keys() - attempt.votes.keys()
        is_refused = attempt.stage is Stage.CLEAN and any(map(_hears, attempt.votes.values()))
        if now < attempt.deadline and (missing or not attempt.has_asked) and not is_refused:
            return
        if not attempt.has_asked:
            self._fail(attempt, "the promise cannot be written", now)
            return
        why = self._why_not(attempt)
        if why:
            self._fail(attempt, why, now)
        else:
            self._win(attempt, now)

    def _why_not(self, attempt: _Attempt) -> str:
        """Return why a claim is not won by the answers that have come; "": it is."""
        case, answers = attempt.case, {number: vote.answer for number, vote in attempt.votes.items()}
        most = max(case.epoch.number, attempt.number) + MOST_AHEAD  # what is beyond cannot be promised to a node
        for vote in attempt.votes.values():
            if vote.answer is Answer.TAKEN and vote.promised < most:
                case.least = max(case.least, vote.promised + 1)
        found = set(answers.values())
        if self._is_there(case.log_id, self._now):
            return "the owner is back"
        if case.mirror is None or not case.mirror.is_complete:
            return "the mirror is not complete"
        for blocks, why in (
            (Answer.OWNED, "another node owns the log"),
            (Answer.ADOPTING, "another node adopts the log"),
            (Answer.LONGER, "another mirror is longer"),
        ):
            if blocks in found:
                return why
        if Answer.HEARD in found and (attempt.stage is Stage.CLEAN or self.quorum is Quorum.ANY):
            return "another node hears the owner"
        promised = {number for number, answer in answers.items() if answer is Answer.PROMISED}
        promised.add(self._cluster.own.number)
        if self.quorum is Quorum.ANY:
            if found - {Answer.PROMISED}:
                return "not all that can be reached have promised"
        elif not _is_majority(promised, self._voters(attempt)):
            return "no majority has promised"
        if attempt.stage is Stage.CLEAN and not self._is_clean(attempt, case.mirror):
            return "the mirror may lack something"
        return ""

    def _newest_counts(self, attempt: _Attempt) -> Counts | None:
        """Return the newest word about the followers that count which this node or a voter was told."""
        heard = [vote.counts for vote in attempt.votes.values()]
        known = [one for one in (attempt.case.counts, *heard) if one is not None and one.epoch == attempt.lost]
        if not known:
            return None
        newest = max(known, key=lambda one: one.position)
        named = frozenset().union(*(one.named for one in known if one.position == newest.position))
        return Counts(newest.log_id, newest.epoch, newest.position, named, newest.is_whole)

    def _voters(self, attempt: _Attempt) -> set[int]:
        """Return the numbers of the nodes of which a majority must promise: members, and followers that count.

        A follower that has left, or that an operator has forgotten, can promise nothing and is none.
        """
        membership = self._cluster.membership
        counts = self._newest_counts(attempt)
        named = counts.named if counts is not None else frozenset()
        gone = {number for number, word in membership.words.items() if word.standing is not Standing.MEMBER}
        return {node.number for node in membership.members} | (named - gone)

    def _is_clean(self, attempt: _Attempt, mirror: MirrorState) -> bool:
        """Return True if this node's mirror has all that was acknowledged, in view of what the voters know."""
        case, extent, invitation = attempt.case, _extent(mirror), attempt.invitation
        newest = self._newest_counts(attempt)
        if newest is None or mirror.end < newest.position:
            return False
        if any(vote.mirror > extent for vote in attempt.votes.values()):
            return False
        ended_at = None
        if self._seems_clean(case, mirror) and self._cluster.own.number in newest.named:
            ended_at = mirror.ended_at if not self._has_given_up(attempt.lost, case.log_id) else self._now
        elif invitation is not None and invitation.node in newest.named:  # that node has all, and this mirror is longer
            ended_at = invitation.ended_at
        if ended_at is None:
            return False
        return all(at <= ended_at + self._takeover_after for at in attempt.heard_at.values())

    def _has_given_up(self, owner: Epoch, log_id: bytes) -> bool:
        """Return True if the owner of a log is there, and says that it cannot go on: it acknowledges nothing any more."""
        word = self._cluster.membership.words.get(owner.node)
        said = self._ownership.said(owner.node, word.node.incarnation, log_id) if word is not None else None
        return said is Hold.GAVE_UP

    def _fail(self, attempt: _Attempt, why: str, now: int) -> None:
        case, self.attempt = attempt.case, None
        case.why = why
        self.failed += 1
        case.failures += attempt.stage is not Stage.CLEAN
        until = max((at for number, at in attempt.heard_at.items() if _hears(attempt.votes[number])), default=0)
        if attempt.stage is Stage.CLEAN and until + self._takeover_after > now:
            case.retry_at = until + self._takeover_after + SOON  # then the others will have lost the owner, too
            return
        jitter = int.from_bytes(self._random(2)) / 65536  # nodes must not claim in step
        is_taken = any(vote.answer is Answer.TAKEN for vote in attempt.votes.values())
        pause = SOON if is_taken and case.retry == FIRST_RETRY else case.retry
        case.retry_at = now + int(pause * (0.5 + jitter))
        case.retry = min(2 * case.retry, LONGEST_RETRY)

    def _win(self, attempt: _Attempt, now: int) -> None:
        case = attempt.case
        attempt.is_won, attempt.tell_due = True, now
        case.number = 0  # it is not claimed under this number again
        self.won["clean" if attempt.stage is Stage.CLEAN else "unclean"] += 1
        self._go_on(attempt, now)
        self.on_won(case.log_id, attempt.number)

    def _go_on(self, attempt: _Attempt, now: int) -> None:
        """Tell all nodes that the log is being adopted."""
        if now >= attempt.tell_due:
            attempt.tell_due = now + TELL_EVERY
            for link in self._cluster.links.values():
                self._send_claim(attempt, link, Stage.ADOPTING)

    def _call_off(self, attempt: _Attempt, why: str) -> None:
        """End an adoption before its epoch has begun."""
        self.attempt = None
        case = attempt.case
        case.why, case.is_ordered, case.pause = why, False, _longer(case.pause)
        case.retry_at = self._now + case.pause
        self.called_off += 1
        self.on_called_off(case.log_id)

    # frames

    def receive(self, link: Link, kind: FrameKind, content: bytes, now: int) -> None:
        """Take what another node says of claims. Raises PeerError."""
        if kind is FrameKind.COUNTS:
            self._note_counts(link, unpack_counts(content))
        elif kind is FrameKind.CLAIM:
            self._vote(link, unpack_claim(content), now)
        elif kind is FrameKind.VOTE:
            self._count(link, unpack_vote(content), now)

    def _count(self, link: Link, vote: Vote, now: int) -> None:
        """Note the answer of a voter."""
        attempt = self.attempt
        if attempt is None or (vote.log_id, vote.serial) != (attempt.case.log_id, attempt.serial) or link.peer is None:
            return
        if attempt.is_won:
            if vote.answer is Answer.HEARD and attempt.stage is Stage.CLEAN:
                self._call_off(attempt, "another node hears the owner")
            return
        if attempt.has_asked:
            attempt.votes[link.peer.number] = vote
            if vote.heard != NEVER:
                attempt.heard_at[link.peer.number] = now - vote.heard
            self._judge(attempt, now)

    def _vote(self, link: Link, claim: Claim, now: int) -> None:
        """Answer the claim of another node on a log."""
        assert link.peer is not None
        if self._ownership.owner(claim.log_id) is None:
            self._ownership.learn(claim.log_id, claim.lost)
        case = self._case(claim.log_id)
        if claim.stage is Stage.ADOPTING:
            self._yield(link, case, claim, now)
            return
        answer = self._answer(link.peer.number, case, claim, now)
        if answer is Answer.PROMISED:
            self._promise(link, case, claim, now)
        else:
            self._send_vote(link, case, claim, answer, now)

    def _yield(self, link: Link, case: _Case, claim: Claim, now: int) -> None:
        """Take note that another node adopts a log, and answer if it should not."""
        assert link.peer is not None
        if case.epoch > claim.lost:
            self._cluster.tell_owner(link, claim.log_id)
            return
        if self._is_there(claim.log_id, now):
            self._send_vote(link, case, claim, Answer.HEARD, now)
            return
        attempt, number = self.attempt, link.peer.number
        if attempt is not None and attempt.is_won and attempt.case is case:
            if (claim.number, number) < (attempt.number, self._cluster.own.number):
                return
            self._call_off(attempt, "another node adopts the log under a greater number")
        case.yields_until, case.adopter = now + self._takeover_after, number

    def _answer(self, number: int, case: _Case, claim: Claim, now: int) -> Answer:
        """Return what to answer to a claim of a node; PROMISED: the promise is still to be written."""
        if case.epoch > claim.lost or claim.number <= case.epoch.number:
            return Answer.OWNED
        if self._is_there(case.log_id, now):
            return Answer.HEARD
        promised = self._ownership.promises.get(case.log_id, Promise(0, number))
        if claim.number > max(case.epoch.number, promised.number) + MOST_AHEAD:
            return Answer.CANNOT
        attempt = self.attempt
        if attempt is not None and attempt.is_won and attempt.case is case:
            return Answer.ADOPTING
        if case.adopter not in (None, number) and now < case.yields_until:
            return Answer.ADOPTING
        if self._is_longer(case, claim):
            ended_at = now - claim.ended if claim.ended != NEVER else 0
            case.invitation = _Invitation(number, claim.stage, ended_at, now + INVITED)
            case.is_ordered |= claim.stage is Stage.ORDERED and case.lost_since is not None
            return Answer.LONGER
        if claim.number > promised.number or promised == Promise(claim.number, number):
            return Answer.PROMISED
        if attempt is not None and attempt.case is case and number < self._cluster.own.number:
            case.yields_until = now + YIELD  # both claim at once: the other one claims again, under a greater number
            self._fail(attempt, "another node claims the log", now)
        return Answer.TAKEN

    def _is_longer(self, case: _Case, claim: Claim) -> bool:
        """Return True if this node's mirror is longer than a claimant's, and this node can be expected to adopt it."""
        if _extent(case.mirror) <= claim.mirror or (self.quorum is Quorum.NONE and claim.stage is not Stage.ORDERED):
            return False
        return claim.stage is Stage.CLEAN or case.failures < PATIENT

    def _promise(self, link: Link, case: _Case, claim: Claim, now: int) -> None:
        """Promise a number to a node, and answer when that is durable."""
        assert link.peer is not None
        attempt = self.attempt
        if attempt is not None and attempt.case is case:
            self._fail(attempt, "another node claims the log", now)
        case.yields_until, case.adopter = now + YIELD, None
        self._ownership.promise(case.log_id, Promise(claim.number, link.peer.number))

        def kept(is_kept: bool) -> None:
            answer = Answer.PROMISED if is_kept else Answer.CANNOT
            self._send_vote(link, case, claim, answer, self._now)

        self.keep(kept)

    def _send_vote(self, link: Link, case: _Case, claim: Claim, answer: Answer, now: int) -> None:
        if answer is Answer.OWNED:
            self._cluster.tell_owner(link, case.log_id)
        heard = self._cluster.membership.heard_at(claim.lost.node)
        promised = self._ownership.promises.get(case.log_id)
        vote = Vote(
            case.log_id,
            claim.number,
            claim.serial,
            answer,
            promised.number if promised is not None else 0,
            NEVER if heard is None else max(0, now - heard),
            _extent(case.mirror),
            case.counts,
        )
        link.send_claiming(pack_vote(vote))

    # owners

    def _learned(self, log_id: bytes, epoch: Epoch) -> None:
        """Take note of a new owner of a log."""
        attempt = self.attempt
        if attempt is not None and attempt.case.log_id == log_id and epoch > attempt.lost:
            is_own = epoch.node == self._cluster.own.number
            if not attempt.is_won:
                self._fail(attempt, "another node owns the log", self._now)
            elif is_own or epoch.number >= attempt.number:
                self.attempt = None
                if not is_own:
                    self.on_fenced(log_id, epoch)
            else:
                self._call_off(attempt, "the owner has another epoch")
        self._tell_fences()

    def _tell_fences(self) -> None:
        """Tell of each log that this node held and another one owns, once."""
        for log_id, epoch in self._ownership.lost():
            if self._fenced.get(log_id) != epoch:
                self._fenced[log_id] = epoch
                self.on_fenced(log_id, epoch)

    # figures

    def figures(self) -> dict[str, Any]:
        """Return for /cluster what is known of the owners of logs, and of claims."""
        return {
            "quorum": self.quorum.value,
            "won": dict(self.won),
            "failed": self.failed,
            "called_off": self.called_off,
            "logs": [self._figures(case) for _, case in sorted(self._cases.items())],
        }

    def _figures(self, case: _Case) -> dict[str, Any]:
        attempt, mirror = self.attempt, case.mirror
        is_claimed = attempt is not None and attempt.case is case
        promised = self._ownership.promises.get(case.log_id)
        return {
            "log_id": case.log_id.hex(),
            "owner": case.epoch.node,
            "epoch": case.epoch.number,
            "owner_lost": case.lost_since is not None,
            "clean": mirror is not None and self._seems_clean(case, mirror),
            "state": ("adopting" if attempt.is_won else "claiming") if attempt is not None and is_claimed else "",
            "promised": [promised.number, promised.node] if promised is not None else None,
            "reason": case.why,
        }


def _extent(mirror: MirrorState | None) -> Extent:
    return Extent(mirror.epoch, mirror.end) if mirror is not None and mirror.is_complete else NO_MIRROR


def _hears(vote: Vote) -> bool:
    return vote.answer is Answer.HEARD


def _is_majority(promised: set[int], voters: set[int]) -> bool:
    return len(promised & voters) > len(voters) // 2


def _longer(pause: int) -> int:
    return min(max(FIRST_PAUSE, 2 * pause), LONGEST_PAUSE)
