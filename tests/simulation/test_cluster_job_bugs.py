"""The simulator finds bugs in remote deliveries and acknowledgements of jobs: each is planted, and a run must fail."""

from itertools import count
from typing import Any

import pytest

from nsqd.cluster.membership.cluster import Cluster
from nsqd.cluster.remote_jobs import lent_jobs
from nsqd.cluster.remote_jobs.job_owners import JobOwners
from nsqd.cluster.remote_jobs.lending import Lending, _Credit
from nsqd.cluster.remote_jobs.lent_jobs import LentJobs
from nsqd.cluster.wire.frames import KIND_AT, FrameKind
from nsqd.cluster.wire.link import Link
from nsqd.core.work_queue.tube import Tube
from tests.nsqd.cluster.planted import Bug, Patch, instead_of, setting
from tests.simulation.test_cluster_bugs import assert_found

pytestmark = pytest.mark.long
CALLS = count(1)


@instead_of(LentJobs, "replies")
def a_loan_leaves_before_its_record_has_copies(replies: Any, self: LentJobs) -> None:
    found = replies(self)
    if found is not None:
        found.deliver()


@instead_of(Lending, "_release")
def a_loan_that_returns_is_gone(right: Any, self: Lending, message_id: int, reservation: int, was_taken: bool) -> None:
    found = self._lent(message_id, reservation)
    if found is not None:
        self.queues.acknowledge(found)


@instead_of(Lending, "admitted")
def what_is_wanted_is_not_repeated(admitted: Any, self: Lending, link: Link) -> None:
    admitted(self, link)
    self.output = [one for one in self.output if one[0] is not link or one[1][KIND_AT] != FrameKind.WANT]


def send_at_once(self: LentJobs, held: lent_jobs._Held) -> None:
    for link, frame in held.frames:
        link.send_first(frame)
    self._flush()


def answers_are_handled_behind_the_group(patch: Patch) -> None:
    conclude, announce = Lending.conclude, Lending.announce
    patch.setattr(Lending, "conclude", lambda self: None)
    patch.setattr(Lending, "announce", lambda self: (conclude(self), announce(self)))


@instead_of(Tube, "finish_row")
def an_acknowledgement_does_nothing(finish: Any, *given: Any) -> None:
    if next(CALLS) % 10:
        finish(*given)


BUGS: list[Bug] = [
    a_loan_leaves_before_its_record_has_copies,
    setting("copies_that_come_too_late_are_not_waited_for", (lent_jobs, "without_final", lambda frames: frames)),
    setting("a_new_leader_does_not_apply_what_it_keeps", (JobOwners, "apply_kept", lambda self, promoted: None)),
    setting("an_acknowledgement_is_not_kept_for_members_that_are_away", (Cluster, "is_any_member_away", False)),
    a_loan_that_returns_is_gone,
    setting("a_loan_that_returns_stays_out", (Lending, "_release", lambda self, message_id, reservation, was_taken: None)),
    setting("a_lost_loan_counts_as_confirmed", (Lending, "_take_back", lambda self, guest, behind, last: None)),
    what_is_wanted_is_not_repeated,
    setting("one_job_is_lent_for_each_want", (_Credit, "wait", lambda self: self.guest.lending.queues.wait(self.worker))),
    setting("messages_overtake_each_other", (lent_jobs, "_PROMISING", frozenset(FrameKind)), (LentJobs, "_send", send_at_once)),
    answers_are_handled_behind_the_group,
    setting("what_comes_too_late_is_dropped", (Lending, "keep_unplaced", lambda self: self._unplaced.clear())),
    an_acknowledgement_does_nothing,
]  # fmt: skip


@pytest.mark.campaign
@pytest.mark.parametrize("plant", BUGS)
def test_a_planted_bug_is_found(plant: Bug, monkeypatch: Patch) -> None:
    plant(monkeypatch)
    assert_found(has_jobs=True)
