"""Each kind of run with faults of its own finds bugs that it is for: each is planted, and some of MOST_SEEDS runs must fail."""

from itertools import count
from typing import Any

import pytest

from nsqd.cluster.membership.members import Membership
from nsqd.cluster.replication.repair import LogRepair, OfferedReplicas
from nsqd.cluster.wire.node_identity import Standing
from nsqd.storage.log.cache import Cache
from nsqd.storage.log.copies import Copies
from nsqd.storage.log.copying import LogSource
from nsqd.storage.log.syncer import Syncer
from nsqd.storage.log.writer import SyncJob, Writer
from tests.nsqd.cluster.planted import Bug, Patch, instead_of, setting
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
CALLS = count(1)

a_promoted_log_is_not_repaired = setting(
    "a_promoted_log_is_not_repaired", (promoted, "repair_promoted", lambda disk, reading, replicas: False)
)


@instead_of(LogSource, "read_repaired")
def damaged_bytes_are_sent(right: Any, self: LogSource, base: int, file: Any, at: int, end: int, size: int) -> Any:
    return self.read(file, at, end, size)


@instead_of(Copies, "_move")
def a_reply_waits_for_the_slowest_follower(move: Any, self: Copies, n: int, is_durable: bool, marks: Any) -> None:
    positions = self._positions
    slowest = min((pair[is_durable] for pair in positions), default=0)
    self._positions = [(slowest, slowest)] * len(positions)
    move(self, n, is_durable, marks)
    self._positions = positions


@instead_of(Cache, "collect")
def a_read_sometimes_wakes_no_client(collect: Any, self: Cache) -> Any:
    on_read = self.on_read
    if next(CALLS) % 20 == 0:
        self.on_read = lambda topic: None
    try:
        return collect(self)
    finally:
        self.on_read = on_read


@instead_of(Membership, "merge")
def a_forgotten_log_is_taken_back(merge: Any, self: Membership, words: Any, now: int) -> Any:
    found = merge(self, [one for one in words if one.standing is not Standing.FORGOTTEN], now)
    self.forgotten.clear()
    return found


@instead_of(Writer, "sync_job")
def a_sync_leaves_the_newest_file_out(sync_job: Any, self: Writer) -> SyncJob | None:
    job = sync_job(self)
    return job if job is None or len(job.files) == 1 else SyncJob(job.position, job.files[:-1], job.disk)


BUGS: list[tuple[type[ClusterRun], Bug]] = [
    (FlippedRun, setting("damaged_messages_do_not_wait", (LogRepair, "is_awaited", lambda self, file, start: False))),
    (FlippedRun, damaged_bytes_are_sent),
    (DamagedRun, setting("missing_segments_are_not_restored", (OfferedReplicas, "_next_segments", lambda *_: []))),
    (SlowRun, a_reply_waits_for_the_slowest_follower), (ClusterRun, a_read_sometimes_wakes_no_client),
    (UnlimitedRun, a_promise_is_not_durable), (ExodusRun, a_forgotten_log_is_taken_back),
    (OutageRun, setting("the_timer_syncs_nothing", (Syncer, "timer", lambda self, due=True: None))),
    (OutageRun, a_sync_leaves_the_newest_file_out),
]  # fmt: skip


@pytest.mark.campaign
@pytest.mark.parametrize(("kind", "plant"), BUGS)
def test_a_planted_bug_is_found(kind: type[ClusterRun], plant: Bug, monkeypatch: Patch) -> None:
    plant(monkeypatch)

    def run_all() -> None:
        for seed in range(MOST_SEEDS):
            kind(seed, has_jobs=False).run()

    with pytest.raises((AssertionError, ValueError)):
        run_all()


def test_a_promoted_log_that_is_not_repaired_is_found_in_its_history(monkeypatch: Patch) -> None:
    a_promoted_log_is_not_repaired(monkeypatch)

    def play_all() -> None:
        for seed in range(20):
            make(seed).play(a_damaged_replica_is_promoted)

    with pytest.raises(AssertionError):
        play_all()
