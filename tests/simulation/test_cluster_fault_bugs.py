"""Each kind of run with faults of its own finds bugs that it is for: each is planted, and some of MOST_SEEDS runs must fail."""

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from nsqd.cluster.membership.members import Membership
from nsqd.cluster.replication import repair as mending
from nsqd.cluster.replication.repair import LogRepair
from nsqd.cluster.wire.node_identity import Standing
from nsqd.storage.log.cache import Cache
from nsqd.storage.log.copies import Copies
from nsqd.storage.log.copying import LogSource
from nsqd.storage.log.syncer import Syncer
from nsqd.storage.log.writer import SyncJob, Writer
from tests.simulation import promoted
from tests.simulation.cluster import ClusterRun
from tests.simulation.damage import DamagedRun
from tests.simulation.exodus import ExodusRun
from tests.simulation.flips import FlippedRun
from tests.simulation.outages import OutageRun
from tests.simulation.slow import SlowRun
from tests.simulation.test_cluster_bugs import MOST_SEEDS, a_promise_is_not_durable
from tests.simulation.test_damage_histories import a_damaged_replica_is_promoted, make
from tests.simulation.unlimited import UnlimitedRun

pytestmark = pytest.mark.long
Patch = pytest.MonkeyPatch


# flipped bits


def a_promoted_log_is_not_repaired(patch: Patch) -> None:
    patch.setattr(promoted, "repair_promoted", lambda disk, reading, replicas: False)


def damaged_messages_do_not_wait(patch: Patch) -> None:
    patch.setattr(LogRepair, "is_awaited", lambda self, file, start: False)


def damaged_bytes_are_sent(patch: Patch) -> None:
    patch.setattr(LogSource, "read_repaired", lambda self, base, file, at, end, size: self.read(file, at, end, size))


# corrupt files


def missing_segments_are_not_restored(patch: Patch) -> None:
    patch.setattr(mending, "_fetch_segments", lambda *_: [])


# a slow follower


def a_reply_waits_for_the_slowest_follower(patch: Patch) -> None:
    move = Copies._move

    def moving(self: Copies, n: int, is_durable: bool, marks: Any) -> None:
        positions = self._positions
        slowest = min((pair[is_durable] for pair in positions), default=0)
        self._positions = [(slowest, slowest)] * len(positions)
        move(self, n, is_durable, marks)
        self._positions = positions

    patch.setattr(Copies, "_move", moving)


# liveness


def a_read_sometimes_wakes_no_client(patch: Patch) -> None:
    collect, calls = Cache.collect, count(1)

    def collecting(self: Cache) -> Any:
        on_read = self.on_read
        if next(calls) % 20 == 0:
            self.on_read = lambda topic: None
        try:
            return collect(self)
        finally:
            self.on_read = on_read

    patch.setattr(Cache, "collect", collecting)


# leaving and forgetting


def a_forgotten_log_is_taken_back(patch: Patch) -> None:
    merge = Membership.merge

    def merging(self: Membership, words: Any, now: int) -> Any:
        found = merge(self, [one for one in words if one.standing is not Standing.FORGOTTEN], now)
        self.forgotten.clear()
        return found

    patch.setattr(Membership, "merge", merging)


# power cuts of all nodes


def the_timer_syncs_nothing(patch: Patch) -> None:
    patch.setattr(Syncer, "timer", lambda self, due=True: None)


def a_sync_leaves_the_newest_file_out(patch: Patch) -> None:
    sync_job = Writer.sync_job

    def making(self: Writer) -> SyncJob | None:
        job = sync_job(self)
        return job if job is None or len(job.files) == 1 else SyncJob(job.position, job.files[:-1], job.disk)

    patch.setattr(Writer, "sync_job", making)


BUGS: list[tuple[type[ClusterRun], Callable[[Patch], None]]] = [
    (FlippedRun, damaged_messages_do_not_wait), (FlippedRun, damaged_bytes_are_sent),
    (DamagedRun, missing_segments_are_not_restored), (SlowRun, a_reply_waits_for_the_slowest_follower),
    (ClusterRun, a_read_sometimes_wakes_no_client), (UnlimitedRun, a_promise_is_not_durable),
    (ExodusRun, a_forgotten_log_is_taken_back), (OutageRun, the_timer_syncs_nothing),
    (OutageRun, a_sync_leaves_the_newest_file_out),
]  # fmt: skip


def seeds_until_found(kind: type[ClusterRun]) -> int:
    """Return the number of seeds until one fails; more than MOST_SEEDS: none does."""
    for seed in range(MOST_SEEDS):
        try:
            kind(seed, has_jobs=False).run()
        except (AssertionError, ValueError):
            return seed + 1
    return MOST_SEEDS + 1


@pytest.mark.campaign
@pytest.mark.parametrize(("kind", "plant"), BUGS)
def test_a_planted_bug_is_found(kind: type[ClusterRun], plant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    plant(monkeypatch)
    assert seeds_until_found(kind) <= MOST_SEEDS


def test_a_promoted_log_that_is_not_repaired_is_found_in_its_history(monkeypatch: Patch) -> None:
    a_promoted_log_is_not_repaired(monkeypatch)

    def play_all() -> None:
        for seed in range(20):
            make(seed).play(a_damaged_replica_is_promoted)

    with pytest.raises(AssertionError):
        play_all()
