"""The runs of copying find bugs: each of these is planted, and some run must fail.

PENSTOCK_EFFORT does not count here: a bug must be found within MOST_SEEDS.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from nsqd.cluster.replication import common_point as common
from nsqd.cluster.replication import leader as leader_side
from nsqd.cluster.replication import stream
from nsqd.cluster.replication.manifest import ReplicaFile
from nsqd.cluster.replication.replica import Replica, ReplicaSync
from nsqd.cluster.replication.replicas import Kept, Replicas
from nsqd.storage.log.records import HEADER_SIZE
from tests.nsqd.cluster.replication.copying_run import CopyingRun
from tests.nsqd.cluster.replication.test_copying_runs import STEPS

pytestmark = pytest.mark.long
MOST_SEEDS = 300


def assert_found(first: int = 0) -> None:
    """Assert that a run fails. `first`: the first seed to try, for a bug that few runs find."""
    for seed in range(first, first + MOST_SEEDS):
        try:
            CopyingRun(seed).run(STEPS)
        except AssertionError:
            return
    pytest.fail("the planted bug was not found")


def test_a_hole_in_a_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    append, random = Replica.append, Random(1)

    def with_holes(self: Replica, base: int, at: int, data: bytes) -> None:
        append(self, base, at, bytes(len(data)) if random.random() < 0.001 else data)

    monkeypatch.setattr(Replica, "append", with_holes)
    assert_found()


def test_durable_is_told_without_a_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    append = Replica.append

    def believing(self: Replica, base: int, at: int, data: bytes) -> None:
        append(self, base, at, data)
        self.durable = self.end

    monkeypatch.setattr(Replica, "append", believing)
    assert_found()


def test_what_is_written_aside_is_told_as_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    tell = Replicas._tell

    def telling(self: Replicas, kept: Kept, replica: Replica) -> None:
        tell(self, kept, replica)
        if (
            kept.is_resumed
            and replica.is_aside
            and replica._aside
            and replica._file is not None
            and kept.link is not None
        ):
            position = replica._aside[-1].base + replica._size - HEADER_SIZE
            kept.reported = position, position
            kept.link.send(stream.pack_copied(position, position))

    monkeypatch.setattr(Replicas, "_tell", telling)
    assert_found()


@pytest.mark.campaign
def test_a_start_believes_what_it_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    def unchecked(self: Replica, file: ReplicaFile, limit: int | None) -> int:
        end = file.base + self._disk.size(file.name) - HEADER_SIZE
        return end if limit is None else min(end, limit)

    monkeypatch.setattr(Replica, "_checked_end", unchecked)
    assert_found()


@pytest.mark.campaign
def test_a_file_that_is_complete_is_not_synced_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its end came while its beginning was being synced."""
    synced = Replica.synced

    def closing(self: Replica, job: ReplicaSync) -> None:
        if job.position and job.files[-1] in self._unsynced:
            self._unsynced.remove(job.files[-1])
        synced(self, job)

    monkeypatch.setattr(Replica, "synced", closing)
    assert_found()


def test_a_replica_that_is_kept_as_a_diverged_copy_is_sent_only_what_it_lacked(monkeypatch: pytest.MonkeyPatch) -> None:
    def first_missing(log: common.Segments, bases: Sequence[int], end: int, have: stream.Have) -> int:
        following = [*bases[1:], 1 << 62]
        return next(
            base for base, stop in zip(bases, following, strict=True) if base not in have.segments or stop > end
        )

    monkeypatch.setattr(leader_side, "first_missing", first_missing)
    assert_found(1833)
