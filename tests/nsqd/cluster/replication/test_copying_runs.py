"""Runs of copying, and bugs that are planted: each is found within MOST_SEEDS.

PENSTOCK_EFFORT and PENSTOCK_FIRST say how many seeds are run, and with which it begins (tests/effort.py).
"""

from collections.abc import Callable
from random import Random

import pytest

from nsqd.cluster.replication import stream
from nsqd.cluster.replication.manifest import ReplicaFile
from nsqd.cluster.replication.replica import Replica, ReplicaSync
from nsqd.cluster.replication.replicas import Kept, Replicas
from nsqd.storage.log.records import HEADER_SIZE
from tests.effort import seeds
from tests.nsqd.cluster.replication.copying_run import CopyingRun

pytestmark = pytest.mark.long
STEPS, MOST_SEEDS = 300, 300
Patch = pytest.MonkeyPatch


@pytest.mark.parametrize("seed", seeds(4))
def test_a_run(seed: int) -> None:
    CopyingRun(seed).run(STEPS)


def assert_found() -> None:
    for seed in range(MOST_SEEDS):
        try:
            CopyingRun(seed).run(STEPS)
        except AssertionError:
            return
    pytest.fail("the planted bug was not found")


def hole_in_a_replica(patch: Patch) -> None:
    append, random = Replica.append, Random(1)

    def with_holes(self: Replica, base: int, at: int, data: memoryview) -> None:
        append(self, base, at, memoryview(bytes(len(data))) if random.random() < 0.001 else data)

    patch.setattr(Replica, "append", with_holes)


def durable_is_reported_without_a_sync(patch: Patch) -> None:
    append = Replica.append

    def believing(self: Replica, base: int, at: int, data: memoryview) -> None:
        append(self, base, at, data)
        self.durable = self.end

    patch.setattr(Replica, "append", believing)


def durable_is_reported_before_the_switch(patch: Patch) -> None:
    send_copied = Replicas._send_copied

    def early(self: Replicas, kept: Kept, replica: Replica) -> None:
        send_copied(self, kept, replica)
        is_resyncing = replica.is_resyncing and replica._resync_files and replica._file is not None
        if kept.is_resumed and is_resyncing and kept.link is not None:
            position = replica._resync_files[-1].base + replica._size - HEADER_SIZE
            kept.reported = position, position
            kept.link.send(stream.pack_copied(position, position))

    patch.setattr(Replicas, "_send_copied", early)


@pytest.mark.parametrize(
    "plant", [hole_in_a_replica, durable_is_reported_without_a_sync, durable_is_reported_before_the_switch]
)
def test_a_planted_bug_is_found(plant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    plant(monkeypatch)
    assert_found()


@pytest.mark.campaign
def test_a_start_believes_what_it_finds(monkeypatch: Patch) -> None:
    def unchecked(self: Replica, file: ReplicaFile, limit: int | None) -> int:
        end = file.base + self._disk.size(file.name) - HEADER_SIZE
        return end if limit is None else min(end, limit)

    monkeypatch.setattr(Replica, "_checked_end", unchecked)
    assert_found()


@pytest.mark.campaign
def test_a_file_that_is_complete_is_not_synced_again(monkeypatch: Patch) -> None:
    """Its end came while its beginning was being synced."""
    synced = Replica.synced

    def closing(self: Replica, job: ReplicaSync) -> None:
        if job.position and job.files[-1] in self._unsynced:
            self._unsynced.remove(job.files[-1])
        synced(self, job)

    monkeypatch.setattr(Replica, "synced", closing)
    assert_found()
