"""A whole node in thousands of simulated lives; a failure names its seed, which replays exactly.

PENSTOCK_WHOLE_SEEDS says how many seeds are run, PENSTOCK_CRASH_FIRST with which it begins.
"""

import os

import pytest

from nsqd.core.keeping import WRITTEN, Durability, Keeping
from nsqd.storage.log.store import LogStore
from nsqd.storage.log.writer import SyncJob
from tests.simulation.run import WholeRun
from tests.storage.sim_disk import SimDisk

SEEDS = int(os.environ.get("PENSTOCK_WHOLE_SEEDS", "12"))
FIRST = int(os.environ.get("PENSTOCK_CRASH_FIRST", "0"))
FOUND_WITHIN = 200  # seeds


@pytest.mark.parametrize("durability", list(Durability))
def test_every_promise_is_kept(durability: Durability) -> None:
    acked = 0
    for seed in range(FIRST, FIRST + SEEDS):
        try:
            acked += WholeRun(seed, durability).run().acked
        except Exception as error:
            raise AssertionError(f"seed {seed}, {durability.value}: {error}") from error
    assert acked > 10 * SEEDS, "hardly anything was acknowledged"


def test_a_seed_replays_exactly() -> None:
    for seed in range(3):
        runs = [WholeRun(seed, Durability.INTERVAL) for _ in range(2)]
        first, second = ((run.run(), run.turns, run.clock.true, run.disk.operations, run.notes.lines) for run in runs)
        assert first == second


def assert_found(durability: Durability) -> None:
    """Some seed shows that something was lost."""
    for seed in range(FOUND_WITHIN):
        run = WholeRun(seed, durability)
        try:
            run.run()
        except AssertionError as error:
            found = str(error)
            break
    else:
        raise AssertionError("the bug was not found")
    assert run.ledger.verdict().lost or "looks like damage" in found, found


def test_acknowledging_before_the_sync_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LogStore, "durable", property(lambda store: store._writer.written))
    assert_found(Durability.ALWAYS)


def test_a_strict_topic_that_is_acknowledged_like_the_others_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Keeping, "promise", property(lambda keeping: WRITTEN))
    assert_found(Durability.OS)


def test_forgetting_to_sync_the_directory_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(job: SyncJob) -> None:
        for file in job.files:
            file.sync()

    monkeypatch.setattr(SyncJob, "run", run)
    monkeypatch.setattr(SimDisk, "sync_directory", lambda disk: None)
    assert_found(Durability.ALWAYS)
