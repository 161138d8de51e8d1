"""The voter: replies to the candidates of other nodes. A vote is durable before the reply is sent.

See docs/contributing/design/cluster-protocol.md#elections.
"""

from __future__ import annotations

from nsqd.cluster.membership.leaders import Vote
from nsqd.cluster.ownership.candidate import MOST_AHEAD, PATIENT, STAGGER, Candidate
from nsqd.cluster.ownership.cases import Case, Cases, Invitation, Quorum, extent_of
from nsqd.cluster.ownership.election_frames import NEVER, Answer, Stage, VoteReply, VoteRequest, pack_vote_reply
from nsqd.cluster.wire.link import Link

YIELD = 3_000_000_000  # ns for which the greater one of two candidates leaves the log to the other one
INVITED = 10_000_000_000  # ns for which a node with a longer replica becomes a candidate at once, after another node


class Voter:
    """The votes of one node. All times are monotonic ns."""

    def __init__(self, cases: Cases, candidate: Candidate) -> None:
        """`candidate`: this node's own elections, which may have to yield."""
        self._cases, self._cluster, self._leaders = cases, cases.cluster, cases.leaders
        self._candidate = candidate

    def vote(self, link: Link, request: VoteRequest, now: int) -> None:
        """Reply to the vote request of another node."""
        if self._leaders.leader(request.log_id) is None:
            self._leaders.learn(request.log_id, request.lost)
        case = self._cases.case(request.log_id)
        if request.stage is Stage.PROMOTING:
            self._yield(link, case, request, now)
            return
        answer = self._answer(link.node.number, case, request, now)
        if answer is Answer.GRANTED:
            self._vote(link, case, request, now)
        else:
            self._send_vote(link, case, request, answer, now)

    def _yield(self, link: Link, case: Case, request: VoteRequest, now: int) -> None:
        """Record that another node promotes a log, and reply if it must not."""
        if case.epoch > request.lost:
            self._cluster.send_leader(link, request.log_id)
            return
        if self._cases.is_there(request.log_id):
            self._send_vote(link, case, request, Answer.IN_CONTACT, now)
            return
        attempt, number = self._candidate.attempt, link.node.number
        if attempt is not None and attempt.is_won and attempt.case is case:
            if (request.number, number) < (attempt.number, self._cluster.own.number):
                return
            self._candidate.call_off(attempt, "another node promotes the log under a greater number")
        case.yields_until, case.new_leader = now + self._cases.failover_after, number

    def _answer(self, number: int, case: Case, request: VoteRequest, now: int) -> Answer:
        """Return the answer to a request of a node. With GRANTED, the vote is still to be written."""
        if case.epoch > request.lost or request.number <= case.epoch.number or case.log_id in self._leaders.closed:
            return Answer.LED
        if self._cases.is_there(case.log_id):
            return Answer.IN_CONTACT
        if self._gave_up(case) and (answer := self._answer_for_own(number, case, request)) is not Answer.GRANTED:
            return answer
        voted = self._leaders.votes.get(case.log_id, Vote(0, number))
        attempt = self._candidate.attempt
        if attempt is not None and attempt.is_won and attempt.case is case:
            return Answer.PROMOTING
        if case.new_leader not in (None, number) and now < case.yields_until:
            return Answer.PROMOTING
        if case.replica is not None and case.replica.is_opening:
            return Answer.CANNOT
        if self._is_longer(case, request):
            ended_at = now - request.ended if request.ended != NEVER else 0
            case.invitation = Invitation(number, request.stage, ended_at, now + INVITED)
            case.is_ordered |= request.stage is Stage.ORDERED and case.lost_since is not None
            return Answer.LONGER
        if request.number > voted.number or voted == Vote(request.number, number):
            return Answer.GRANTED
        if attempt is not None and attempt.case is case and number < self._cluster.own.number:
            case.yields_until = now + YIELD  # of two candidates, the other one tries again, under a greater number
            self._candidate.fail(attempt, "another node is a candidate", now)
        return Answer.TAKEN

    def _gave_up(self, case: Case) -> bool:
        """Return True if this node is the leader of a log, and has stepped down."""
        return case.log_id in self._leaders.stepped_down and self._leaders.held.get(case.log_id) == case.epoch

    def _answer_for_own(self, number: int, case: Case, request: VoteRequest) -> Answer:
        """Return this node's answer about a log of which it has stepped down.

        It knows the extent of its log, and votes for no node that may lack messages which others have. A node that leaves
        votes only for the node that it asked.
        """
        asked = self._leaders.stepped_down[case.log_id]
        is_short = request.replica < self._cases.replicas.own_extent(case.log_id)
        if is_short and (request.stage is Stage.CLEAN or asked is not None):
            return Answer.LONGER
        if not is_short:
            for part in self._cluster.parts:
                part.whole(case.log_id, number)
        return Answer.GRANTED if asked in (None, number) else Answer.CANNOT

    def _is_longer(self, case: Case, request: VoteRequest) -> bool:
        """Return True if this node's replica is longer than a candidate's, and this node can be expected to promote it."""
        if extent_of(case.replica) <= request.replica or (
            self._cases.quorum is Quorum.NONE and request.stage is not Stage.ORDERED
        ):
            return False
        return request.stage is Stage.CLEAN or case.failures < PATIENT

    def _vote(self, link: Link, case: Case, request: VoteRequest, now: int) -> None:
        """Grant a number to a node, and reply when the vote is durable.

        If the number is too far above what is known, the greatest allowed one is granted instead: nodes that a partition kept
        from a majority have outbid each other, and come within reach when they repeat their elections.
        """
        voted = self._leaders.votes.get(case.log_id)
        most = max(case.epoch.number, voted.number if voted is not None else 0) + MOST_AHEAD
        number = min(request.number, most)
        attempt = self._candidate.attempt
        if attempt is not None and attempt.case is case:
            self._candidate.fail(attempt, "another node is a candidate", now)
        case.yields_until, case.new_leader = now + self._cases.failover_after + STAGGER, None
        self._leaders.vote(case.log_id, Vote(number, link.node.number))

        def kept(is_kept: bool) -> None:
            answer = Answer.GRANTED if is_kept and number == request.number else Answer.CANNOT
            self._send_vote(link, case, request, answer, self._cases.now)

        self._cases.keep(kept)

    def _send_vote(self, link: Link, case: Case, request: VoteRequest, answer: Answer, now: int) -> None:
        if answer is Answer.LED:
            self._cluster.send_leader(link, case.log_id)
        contact = self._cluster.membership.last_contact(request.lost.node)
        voted = self._leaders.votes.get(case.log_id)
        reply = VoteReply(
            case.log_id,
            request.number,
            request.serial,
            answer,
            voted.number if voted is not None else 0,
            NEVER if contact is None else max(0, now - contact),
            self._cases.replicas.own_extent(case.log_id) if self._gave_up(case) else extent_of(case.replica),
            case.in_sync,
        )
        link.send_first(pack_vote_reply(reply))
