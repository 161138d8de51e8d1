"""The simulator finds bugs in remote deliveries and acknowledgements of jobs: each is planted, and a run must fail."""

from collections.abc import Callable
from typing import Any

import pytest

from nsqd.cluster.remote_jobs import lent_jobs
from nsqd.cluster.remote_jobs.job_owners import JobOwners
from nsqd.cluster.remote_jobs.lending import Lending, _Credit
from nsqd.cluster.remote_jobs.lent_jobs import LentJobs
from nsqd.cluster.wire.frames import KIND_AT, FrameKind
from nsqd.cluster.wire.link import Link
from nsqd.core.queues import Queues
from nsqd.net.promised import HttpReplies
from tests.simulation.test_cluster_bugs import Patch, assert_found

pytestmark = pytest.mark.long


def a_loan_leaves_before_its_record_has_copies(patch: Patch) -> None:
    replies = LentJobs.replies

    def at_once(self: LentJobs) -> HttpReplies | None:
        found = replies(self)
        if found is not None:
            found.deliver()
        return None

    patch.setattr(LentJobs, "replies", at_once)


def copies_that_come_too_late_are_not_waited_for(patch: Patch) -> None:
    patch.setattr(lent_jobs, "without_final", lambda frames: frames)


def a_new_leader_does_not_apply_what_it_keeps(patch: Patch) -> None:
    patch.setattr(JobOwners, "apply_kept", lambda self, promoted: None)


def new_leaders_are_not_asked(patch: Patch) -> None:
    patch.setattr(JobOwners, "owners", lambda self, number: {number} - {self._cluster.own.number})


def a_loan_that_returns_is_gone(patch: Patch) -> None:
    def forgetting(self: Lending, message_id: int, reservation: int, was_taken: bool) -> None:
        found = self._lent(message_id, reservation)
        if found is not None:
            self.queues.acknowledge(found)

    patch.setattr(Lending, "_release", forgetting)


def a_loan_that_returns_stays_out(patch: Patch) -> None:
    patch.setattr(Lending, "_release", lambda self, message_id, reservation, was_taken: None)


def a_lost_loan_counts_as_confirmed(patch: Patch) -> None:
    patch.setattr(Lending, "_take_back", lambda self, guest, behind, last: None)


def what_is_wanted_is_not_repeated(patch: Patch) -> None:
    admitted = Lending.admitted

    def silent(self: Lending, link: Link) -> None:
        admitted(self, link)
        self.output = [one for one in self.output if one[0] is not link or one[1][KIND_AT] != FrameKind.WANT]

    patch.setattr(Lending, "admitted", silent)


def one_job_is_lent_for_each_want(patch: Patch) -> None:
    patch.setattr(_Credit, "wait", lambda self: self.guest.lending.queues.wait(self.worker))


def messages_overtake_each_other(patch: Patch) -> None:
    def sending(self: LentJobs, held: lent_jobs._Held) -> None:
        for link, frame in held.frames:
            link.send_first(frame)
        self._flush()

    patch.setattr(lent_jobs, "_PROMISING", frozenset(FrameKind))
    patch.setattr(LentJobs, "_send", sending)


def answers_are_handled_behind_the_group(patch: Patch) -> None:
    conclude, announce = Lending.conclude, Lending.announce
    patch.setattr(Lending, "conclude", lambda self: None)

    def late(self: Lending) -> None:
        conclude(self)
        announce(self)

    patch.setattr(Lending, "announce", late)


def what_comes_too_late_is_dropped(patch: Patch) -> None:
    patch.setattr(Lending, "keep_unplaced", lambda self: self._unplaced.clear())


def an_acknowledgement_does_nothing(patch: Patch) -> None:
    acknowledge, count = Queues.acknowledge_row, iter(range(1 << 30))

    def forgetful(*given: Any) -> None:
        if next(count) % 10:
            acknowledge(*given)

    patch.setattr(Queues, "acknowledge_row", forgetful)


BUGS: list[Callable[[Patch], None]] = [
    a_loan_leaves_before_its_record_has_copies, copies_that_come_too_late_are_not_waited_for,
    a_new_leader_does_not_apply_what_it_keeps, new_leaders_are_not_asked, a_loan_that_returns_is_gone,
    a_loan_that_returns_stays_out, a_lost_loan_counts_as_confirmed, what_is_wanted_is_not_repeated,
    one_job_is_lent_for_each_want, messages_overtake_each_other, answers_are_handled_behind_the_group,
    what_comes_too_late_is_dropped, an_acknowledgement_does_nothing,
]  # fmt: skip


@pytest.mark.campaign
@pytest.mark.parametrize("plant", BUGS)
def test_a_planted_bug_is_found(plant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    plant(monkeypatch)
    assert_found(has_jobs=True)
