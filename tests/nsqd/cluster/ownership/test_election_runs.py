"""Any histories of nodes with elections, and bugs that are planted in them: each is found."""

from collections.abc import Callable
from typing import Any

import pytest

from nsqd.cluster.membership.leaders import Leaders, Vote
from nsqd.cluster.ownership import candidate as candidate
from nsqd.cluster.ownership.candidate import Candidate
from nsqd.cluster.ownership.cases import Cases, Quorum
from nsqd.cluster.ownership.election_frames import Answer, VoteRequest
from nsqd.cluster.ownership.voter import Voter
from nsqd.cluster.wire.link import Link
from nsqd.core.message.epoch import Epoch
from tests.effort import seeds
from tests.nsqd.cluster.ownership.election_run import ElectionRun

pytestmark = pytest.mark.long
SEEDS = seeds(8, in_short=7)
MOST_SEEDS = 300  # in which a bug must be found
Patch = pytest.MonkeyPatch


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


def is_found(first: int, quorum: Quorum | None = None) -> bool:
    """Play histories from the seed `first` on, that which found the bug when it was planted first, until one fails."""
    for seed in range(first, first + MOST_SEEDS):
        try:
            run(seed, quorum)
        except AssertionError:
            return True
    return False


def promise_is_not_durable(patch: Patch) -> None:
    def vote(self: Voter, link: Link, case: Any, request: VoteRequest, now: int) -> None:
        self._leaders.vote(case.log_id, Vote(request.number, link.peer.number))
        self._send_vote(link, case, request, Answer.GRANTED, now)

    patch.setattr(Voter, "_vote", vote)


def promise_is_forgotten_at_a_start(patch: Patch) -> None:
    begin = Leaders.__init__
    patch.setattr(Leaders, "__init__", lambda self, known=(), votes=(), closed=(): begin(self, known, (), closed))


def promise_fences(patch: Patch) -> None:
    vote = Voter._vote

    def fence(self: Voter, link: Link, case: Any, request: VoteRequest, now: int) -> None:
        vote(self, link, case, request, now)
        self._leaders.learn(case.log_id, Epoch(request.number, link.peer.number, bytes(8)))

    patch.setattr(Voter, "_vote", fence)


def lower_epoch_wins(patch: Patch) -> None:
    learn_if(patch, lambda known, epoch: epoch < known)


def epochs_of_one_number_are_reported_as_equal(patch: Patch) -> None:
    learn_if(patch, lambda known, epoch: epoch.number > known.number)


def learn_if(patch: Patch, is_news: Callable[[Epoch, Epoch], bool]) -> None:
    def learn(self: Leaders, log_id: bytes, epoch: Epoch) -> bool:
        known = self.epochs.get(log_id)
        if known is not None and not is_news(known, epoch):
            return False
        self.epochs[log_id] = epoch
        return True

    patch.setattr(Leaders, "learn", learn)


def out_of_date_replica_promotes(patch: Patch) -> None:
    patch.setattr(Cases, "seems_clean", lambda self, case, replica: True)
    patch.setattr(Candidate, "_is_clean", lambda self, attempt, replica: True)


def longer_replica_says_nothing(patch: Patch) -> None:
    patch.setattr(Voter, "_is_longer", lambda self, case, request: False)
    patch.setattr(Candidate, "_is_clean", lambda self, attempt, replica: True)


def majority_is_off_by_one(patch: Patch) -> None:
    patch.setattr(candidate, "_is_majority", lambda voted, voters: len(voted & voters) >= len(voters) // 2)


def paused_node_is_clean(patch: Patch) -> None:
    patch.setattr(Cases, "handle_pause", lambda self: None)
    patch.setattr(Candidate, "handle_pause", lambda self: None)


def announced_restart_is_not_waited_for(patch: Patch) -> None:
    lost = Cases._lost_since

    def lost_since(self: Cases, log_id: bytes, now: int) -> int | None:
        number = self.leaders.epochs[log_id].node
        return now if number in self.cluster.membership._back_by else lost(self, log_id, now)

    patch.setattr(Cases, "_lost_since", lost_since)


def no_witness_is_asked(patch: Patch) -> None:
    patch.setattr(Candidate, "_needs_witness", lambda self, attempt: False)


def a_witness_in_contact_with_the_leader_is_not_believed(patch: Patch) -> None:
    witnessed = Candidate._witnessed
    patch.setattr(Candidate, "_witnessed", lambda self, attempt, ago: witnessed(self, attempt, None))


def a_silent_witness_is_waited_for(patch: Patch) -> None:
    patch.setattr(candidate, "WITNESS_WITHIN", 1 << 60)


@pytest.mark.campaign
@pytest.mark.parametrize(("bug", "first"), [
    (no_witness_is_asked, 4), (a_witness_in_contact_with_the_leader_is_not_believed, 4), (a_silent_witness_is_waited_for, 4),
    (promise_is_not_durable, 26), (promise_is_forgotten_at_a_start, 1), (promise_fences, 0), (lower_epoch_wins, 0),
    (out_of_date_replica_promotes, 0), (longer_replica_says_nothing, 9), (majority_is_off_by_one, 1),
    (paused_node_is_clean, 43), (announced_restart_is_not_waited_for, 5),
])  # fmt: skip
def test_a_planted_bug_is_found(bug: Callable[[Patch], None], first: int, monkeypatch: Patch) -> None:
    bug(monkeypatch)
    assert is_found(first)


@pytest.mark.campaign
def test_that_epochs_of_one_number_count_as_equal_is_found(monkeypatch: Patch) -> None:
    """With a majority, only an election that a leader has reached by its restarts has the number of another epoch."""
    epochs_of_one_number_are_reported_as_equal(monkeypatch)
    assert is_found(17, Quorum.ANY)
