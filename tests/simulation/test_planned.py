"""Schedules and batches in the simulated cluster: much is published, and each bug that is planted is found by some run."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from nsqd.cluster.ownership.cases import Quorum
from nsqd.core.batches.batches import Batches
from nsqd.core.batches.table import BatchTable, NamedBatch
from nsqd.core.broker import Broker
from nsqd.core.message.attributes import Attributes
from nsqd.core.records import RecordKind
from nsqd.core.scheduling.table import Key, Schedule
from nsqd.tasks import schedule_task
from nsqd.tasks.schedule_task import ScheduleTask
from tests.nsqd.cluster.planted import Bug, Patch, instead_of, setting
from tests.simulation import cluster
from tests.simulation.cluster import ClusterRun

pytestmark = pytest.mark.long
MOST_SEEDS = 300
LIVES = count()


def _published(promoted: Broker, schedule: Schedule, over: int) -> int:
    return schedule.since


@instead_of(ScheduleTask, "_take_over")
def schedules_of_promoted_logs_are_dropped(take_over: Any, self: ScheduleTask, promoted: Broker, key: Key) -> None:
    promoted.context.schedules.remove(key)


@instead_of(BatchTable, "dump")
def a_checkpoint_lacks_the_follow_ups(dump: Any, self: BatchTable) -> Iterator[tuple[RecordKind, bytes]]:
    return (record for record in dump(self) if record[0] is not RecordKind.FOLLOW_UP)


@instead_of(Batches, "attributes")
def the_key_of_a_follow_up_changes(attributes: Any, self: Batches, batch: NamedBatch, number: int) -> Attributes:
    right, life = attributes(self, batch, number), self.__dict__.setdefault("life", next(LIVES))
    return replace(right, key=f"{right.key}:{life}")


def and_it_is_kept(patch: Patch) -> None:
    the_key_of_a_follow_up_changes(patch)
    patch.setattr(Batches, "note_followed", lambda self, batch, numbers: None)


BUGS: dict[str, tuple[Bug, str]] = {
    "the ticks of a promoted log are forgotten": (
        setting(
            "", (schedule_task, "_published", _published), (ScheduleTask, "_is_promoted", lambda self, topic, key: False)
        ), "again",
    ),
    "schedules of a promoted log are dropped": (schedules_of_promoted_logs_are_dropped, "lost: schedule"),
    "a checkpoint lacks the follow-ups": (a_checkpoint_lacks_the_follow_ups, "lost: follow-up"),
    "a follow-up is kept, and has another key in each life": (and_it_is_kept, "again"),
    "promoted schedules stay where they are": (
        setting("", (ScheduleTask, "_take_over_batch", lambda self: False)), "overdue",
    ),
}  # fmt: skip


@pytest.mark.campaign
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str, monkeypatch: Patch) -> None:
    plant, found = BUGS[bug]
    plant(monkeypatch)
    monkeypatch.setattr(cluster, "QUORUMS", (Quorum.MAJORITY,))
    monkeypatch.setattr(ClusterRun, "plans", 1.0)
    with pytest.raises(AssertionError, match=found):
        assert not [ClusterRun(seed, 3, False).run() for seed in range(MOST_SEEDS)]


def test_much_is_published_over_failovers(monkeypatch: Patch) -> None:
    monkeypatch.setattr(ClusterRun, "plans", 1.0)
    counts = ClusterRun(101).run().counts
    least = {"ticks": 150, "follow-ups": 20, "failovers": 3}
    assert {name: min(number, counts[name]) for name, number in least.items()} == least
