"""The voter: a node that answers the claims of others. Its promise is durable before the answer leaves.

See docs/design/cluster.md#claims.
"""

from __future__ import annotations

from nsqd.cluster.membership.facts import Keep
from nsqd.cluster.membership.leaders import Promise
from nsqd.cluster.ownership.candidate import MOST_AHEAD, PATIENT, Claimant
from nsqd.cluster.ownership.cases import Case, Cases, Invitation, Quorum, extent_of
from nsqd.cluster.ownership.election_frames import NEVER, Answer, Claim, Stage, Vote, pack_vote
from nsqd.cluster.wire.link import Link

YIELD = 3_000_000_000  # ns for which a voter does not claim what it has promised to another node
INVITED = 10_000_000_000  # ns for which a node with a longer replica claims at once, after another node's claim


class Voter:
    """The votes of one node. All times are monotonic ns."""

    def __init__(self, cases: Cases, claimant: Claimant, quorum: Quorum, keep: Keep) -> None:
        """`claimant`: this node's own claims, which may have to yield."""
        self._cases = cases
        self._cluster = cases.cluster
        self._ownership = cases.ownership
        self._claimant = claimant
        self._quorum = quorum
        self._keep = keep

    def vote(self, link: Link, claim: Claim, now: int) -> None:
        """Answer the claim of another node on a log."""
        assert link.peer is not None
        if self._ownership.owner(claim.log_id) is None:
            self._ownership.learn(claim.log_id, claim.lost)
        case = self._cases.case(claim.log_id)
        if claim.stage is Stage.PROMOTING:
            self._yield(link, case, claim, now)
            return
        answer = self._answer(link.peer.number, case, claim, now)
        if answer is Answer.PROMISED:
            self._promise(link, case, claim, now)
        else:
            self._send_vote(link, case, claim, answer, now)

    def _yield(self, link: Link, case: Case, claim: Claim, now: int) -> None:
        """Take note that another node promotes a log, and answer if it should not."""
        assert link.peer is not None
        if case.epoch > claim.lost:
            self._cluster.tell_owner(link, claim.log_id)
            return
        if self._cases.is_there(claim.log_id, now):
            self._send_vote(link, case, claim, Answer.HEARD, now)
            return
        attempt, number = self._claimant.attempt, link.peer.number
        if attempt is not None and attempt.is_won and attempt.case is case:
            if (claim.number, number) < (attempt.number, self._cluster.own.number):
                return
            self._claimant.call_off(attempt, "another node promotes the log under a greater number")
        case.yields_until, case.new_leader = now + self._cases.failover_after, number

    def _answer(self, number: int, case: Case, claim: Claim, now: int) -> Answer:
        """Return what to answer to a claim of a node; PROMISED: the promise is still to be written."""
        if case.epoch > claim.lost or claim.number <= case.epoch.number or case.log_id in self._ownership.closed:
            return Answer.OWNED
        if self._cases.is_there(case.log_id, now):
            return Answer.HEARD
        if self._gave_up(case) and (answer := self._answer_for_own(number, case, claim)) is not Answer.PROMISED:
            return answer
        promised = self._ownership.promises.get(case.log_id, Promise(0, number))
        attempt = self._claimant.attempt
        if attempt is not None and attempt.is_won and attempt.case is case:
            return Answer.PROMOTING
        if case.new_leader not in (None, number) and now < case.yields_until:
            return Answer.PROMOTING
        if self._is_longer(case, claim):
            ended_at = now - claim.ended if claim.ended != NEVER else 0
            case.invitation = Invitation(number, claim.stage, ended_at, now + INVITED)
            case.is_ordered |= claim.stage is Stage.ORDERED and case.lost_since is not None
            return Answer.LONGER
        if claim.number > promised.number or promised == Promise(claim.number, number):
            return Answer.PROMISED
        if attempt is not None and attempt.case is case and number < self._cluster.own.number:
            case.yields_until = now + YIELD  # both claim at once: the other one claims again, under a greater number
            self._claimant.fail(attempt, "another node claims the log", now)
        return Answer.TAKEN

    def _gave_up(self, case: Case) -> bool:
        """Return True if this node is the owner of a log, and gave it up."""
        return case.log_id in self._ownership.given_up and self._ownership.held.get(case.log_id) == case.epoch

    def _answer_for_own(self, number: int, case: Case, claim: Claim) -> Answer:
        """Return what this node has against a claim on a log that it gave up; PROMISED: nothing.

        It knows how far its log goes, and promises it to no node that may lack messages which others have. A node that leaves
        promises it to the node that it asked.
        """
        asked = self._ownership.given_up[case.log_id]
        is_short = claim.replica < self._cases.replicas.own_extent(case.log_id)
        if is_short and (claim.stage is Stage.CLEAN or asked is not None):
            return Answer.LONGER
        if not is_short:
            for part in self._cluster.parts:
                part.whole(case.log_id, number)
        return Answer.PROMISED if asked in (None, number) else Answer.CANNOT

    def _is_longer(self, case: Case, claim: Claim) -> bool:
        """Return True if this node's replica is longer than a claimant's, and this node can be expected to promote it."""
        if extent_of(case.replica) <= claim.replica or (
            self._quorum is Quorum.NONE and claim.stage is not Stage.ORDERED
        ):
            return False
        return claim.stage is Stage.CLEAN or case.failures < PATIENT

    def _promise(self, link: Link, case: Case, claim: Claim, now: int) -> None:
        """Promise a number to a node, and answer when that is durable.

        One that is too far above what is known is not promised, but the greatest that may be: nodes that a partition kept from
        a majority have outbid each other, and come within reach when they repeat their claims.
        """
        assert link.peer is not None
        promised = self._ownership.promises.get(case.log_id)
        most = max(case.epoch.number, promised.number if promised is not None else 0) + MOST_AHEAD
        number = min(claim.number, most)
        attempt = self._claimant.attempt
        if attempt is not None and attempt.case is case:
            self._claimant.fail(attempt, "another node claims the log", now)
        case.yields_until, case.new_leader = now + YIELD, None
        self._ownership.promise(case.log_id, Promise(number, link.peer.number))

        def kept(is_kept: bool) -> None:
            answer = Answer.PROMISED if is_kept and number == claim.number else Answer.CANNOT
            self._send_vote(link, case, claim, answer, self._cases.now)

        self._keep(kept)

    def _send_vote(self, link: Link, case: Case, claim: Claim, answer: Answer, now: int) -> None:
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
            self._cases.replicas.own_extent(case.log_id) if self._gave_up(case) else extent_of(case.replica),
            case.counts,
        )
        link.send_claiming(pack_vote(vote))
