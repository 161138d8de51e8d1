"""A whole node in thousands of simulated lives; a failure names its seed, which replays exactly.

PENSTOCK_EFFORT and PENSTOCK_FIRST say how many seeds are run, and with which it begins (tests/effort.py). From 11 on every
change of the disk is tried.
"""

import pytest

from bench.crash.link import Link
from bench.crash.messages import Findings
from bench.crash.mix import MS
from nsqd.storage.log.segments import LogError
from nsqd.storage.log.store import LogStore
from nsqd.storage.log.writer import SyncJob
from shared.topic_config import Durability
from tests.effort import EFFORT, seeds
from tests.nsqd.cluster.planted import Bug, Patch, setting
from tests.nsqd.storage.sim_disk import PowerCut, SimDisk
from tests.simulation.run import WholeRun, small_steps

pytestmark = pytest.mark.long

SEEDS = seeds(6)
FOUND_WITHIN = 200  # seeds
STEP = max(1, round(23 / EFFORT))  # of all changes of the disk, each so manyth is tried


@pytest.mark.parametrize("durability", list(Durability))
def test_every_promise_is_kept(durability: Durability) -> None:
    acked = 0
    for seed in SEEDS:
        try:
            acked += WholeRun(seed, durability).run().acked
        except Exception as error:
            raise AssertionError(f"seed {seed}, {durability.value}: {error}") from error
    assert acked > 10 * len(SEEDS), "hardly anything was acknowledged"


def test_a_seed_replays_exactly() -> None:
    runs = [WholeRun(2, Durability.INTERVAL) for _ in range(2)]
    first, second = ((run.run(), run.turns, run.clock.true, run.disk.operations, run.notes.lines) for run in runs)
    assert first == second


def sync_files_only(job: SyncJob) -> None:
    for file in job.files:
        file.sync()


BUGS: list[tuple[Bug, Durability, int]] = [
    (setting("acknowledging_before_the_sync",
             (LogStore, "durable", property(lambda store: store._writer.written))), Durability.ALWAYS, 0),
    (setting("acknowledging_a_strict_topic_like_the_others",
             (LogStore, "marks_of", lambda store, durability, replicate: (store.written,))), Durability.OS, 40),
    (setting("forgetting_to_sync_the_directory", (SyncJob, "run", sync_files_only),
             (SimDisk, "sync_directory", lambda disk: None)), Durability.ALWAYS, 0),
]  # fmt: skip


@pytest.mark.parametrize(("plant", "durability", "first"), BUGS)
def test_a_planted_bug_is_found(plant: Bug, durability: Durability, first: int, monkeypatch: Patch) -> None:
    """Some seed shows that something was lost, or that a log cannot be opened; `first`: one that once did."""
    plant(monkeypatch)
    for seed in range(first, first + FOUND_WITHIN):
        run = WholeRun(seed, durability)
        try:
            run.run()
        except (AssertionError, LogError) as error:
            found = str(error)
            break
    else:
        pytest.fail("the bug was not found")
    assert run.ledger.findings().lost or "looks like damage" in found or "was renamed" in found, found


class KilledAt(WholeRun):
    """One life, always the same, that is killed at its `number`th change of the disk; then what is there is taken out."""

    def __init__(self, number: int, cut: bool) -> None:
        super().__init__(5, Durability.ALWAYS)
        self.sizes = 2000, 20_000, 100, 3000  # segments are begun, cleaned and removed, and checkpoints written
        self.number = number
        self.cut = cut
        self.died = False

    def run(self) -> Findings:
        links = list[Link]()
        with small_steps():
            self.disk.cut_in = self.number
            try:
                self.work(self.start(), links, 40 * MS)
            except PowerCut:
                self.died = True
            self.crash(links, self.cut)
            self.drain()
        return self.judge()


@pytest.mark.parametrize("cut", [False, True], ids=["killed", "power-cut"])
def test_it_can_end_at_every_single_change_of_the_disk(cut: bool) -> None:
    number, died = 0, True
    while died:
        run = KilledAt(number, cut)
        try:
            run.run()
        except Exception as error:
            raise AssertionError(f"change {number}: {error}") from error
        died = run.died
        number += STEP
    assert number > 100, "that was not much"
