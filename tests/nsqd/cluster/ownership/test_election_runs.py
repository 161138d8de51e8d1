"""Any histories of nodes with elections, and bugs that are planted in them: each is found."""

from typing import Any

import pytest

from nsqd.cluster.membership.leaders import Leaders, Vote
from nsqd.cluster.ownership import candidate
from nsqd.cluster.ownership.candidate import Candidate
from nsqd.cluster.ownership.cases import Cases, Quorum
from nsqd.cluster.ownership.election_frames import Answer, VoteRequest
from nsqd.cluster.ownership.voter import Voter
from nsqd.cluster.wire.link import Link
from nsqd.core.message.epoch import Epoch
from tests.effort import seeds
from tests.nsqd.cluster.ownership.election_run import ElectionRun
from tests.nsqd.cluster.planted import Bug, Patch, instead_of, setting

pytestmark = pytest.mark.long
SEEDS = seeds(14)
MOST_SEEDS = 300  # in which a bug must be found


def run(seed: int, quorum: Quorum | None = None) -> ElectionRun:
    one = ElectionRun(seed, quorum or (Quorum.ANY if seed % 3 == 0 else Quorum.MAJORITY))
    one.play()
    return one


def test_any_history_ends_with_one_leader_of_each_log() -> None:
    runs = [run(seed) for seed in SEEDS]
    assert sum(one.won_clean for one in runs) > len(SEEDS)
    assert sum(one.won_unclean for one in runs) > 0
    assert sum(one.fences for one in runs) > 0
    assert sum(one.witness.postponing for one in runs if one.witness is not None) > 0


@instead_of(Voter, "_vote")
def promise_is_not_durable(vote: Any, self: Voter, link: Link, case: Any, request: VoteRequest, now: int) -> None:
    self._leaders.vote(case.log_id, Vote(request.number, link.peer.number))
    self._send_vote(link, case, request, Answer.GRANTED, now)


@instead_of(Leaders, "__init__")
def promise_is_forgotten_at_a_start(
    begin: Any, self: Leaders, known: Any = (), votes: Any = (), closed: Any = ()
) -> None:
    begin(self, known, (), closed)


@instead_of(Voter, "_vote")
def promise_fences(vote: Any, self: Voter, link: Link, case: Any, request: VoteRequest, now: int) -> None:
    vote(self, link, case, request, now)
    self._leaders.learn(case.log_id, Epoch(request.number, link.peer.number, bytes(8)))


def _learn_if(is_news: bool, leaders: Leaders, log_id: bytes, epoch: Epoch) -> bool:
    if is_news:
        leaders.epochs[log_id] = epoch
    return is_news


@instead_of(Leaders, "learn")
def lower_epoch_wins(learn: Any, self: Leaders, log_id: bytes, epoch: Epoch) -> bool:
    return _learn_if(log_id not in self.epochs or epoch < self.epochs[log_id], self, log_id, epoch)


@instead_of(Leaders, "learn")
def epochs_of_one_number_count_as_equal(learn: Any, self: Leaders, log_id: bytes, epoch: Epoch) -> bool:
    """With a majority, only an election that a leader has reached by its restarts has the number of another epoch."""
    return _learn_if(log_id not in self.epochs or epoch.number > self.epochs[log_id].number, self, log_id, epoch)


@instead_of(Cases, "is_there")
def announced_restart_is_not_waited_for(is_there: Any, self: Cases, log_id: bytes) -> bool:
    number = self.leaders.epochs[log_id].node
    return number not in self.cluster.membership._back_by and bool(is_there(self, log_id))


@instead_of(Candidate, "_witnessed")
def a_witness_in_contact_with_the_leader_is_not_believed(
    witnessed: Any, self: Candidate, attempt: Any, ago: Any
) -> None:
    witnessed(self, attempt, None)


@instead_of(Candidate, "_voters")
def majority_is_off_by_one(voters: Any, self: Candidate, attempt: Any) -> set[int]:
    found: set[int] = voters(self, attempt)
    granted = {number for number, reply in attempt.replies.items() if reply.answer is Answer.GRANTED}
    return found - set(sorted(found - granted - {self._cluster.own.number})[:2])


IS_CLEAN = Candidate, "_is_clean", lambda self, attempt, replica: True
BUGS: list[tuple[Bug, int, Quorum | None]] = [  # each with the seed that found it when it was planted first
    (setting("no_witness_is_asked", (Candidate, "_needs_witness", lambda self, attempt: False)), 4, None),
    (a_witness_in_contact_with_the_leader_is_not_believed, 4, None),
    (setting("a_silent_witness_is_waited_for", (candidate, "WITNESS_WITHIN", 1 << 60)), 4, None),
    (promise_is_not_durable, 26, None), (promise_is_forgotten_at_a_start, 1, None), (promise_fences, 0, None),
    (lower_epoch_wins, 0, None), (epochs_of_one_number_count_as_equal, 17, Quorum.ANY),
    (setting("out_of_date_replica_promotes", (Cases, "seems_clean", lambda self, case, replica: True), IS_CLEAN), 0, None),
    (setting("longer_replica_says_nothing", (Voter, "_is_longer", lambda self, case, request: False), IS_CLEAN), 9, None),
    (majority_is_off_by_one, 1, None),
    (setting("paused_node_is_clean",
             (Cases, "handle_pause", lambda self: None), (Candidate, "handle_pause", lambda self: None)), 43, None),
    (announced_restart_is_not_waited_for, 5, None),
]  # fmt: skip


@pytest.mark.campaign
@pytest.mark.parametrize(("plant", "first", "quorum"), BUGS)
def test_a_planted_bug_is_found(plant: Bug, first: int, quorum: Quorum | None, monkeypatch: Patch) -> None:
    plant(monkeypatch)

    def play_all() -> None:
        for seed in range(first, first + MOST_SEEDS):
            run(seed, quorum)

    with pytest.raises(AssertionError):
        play_all()
