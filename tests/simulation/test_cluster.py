"""Several whole nodes in simulated lives; a failure names its seed, which replays exactly.

PENSTOCK_CLUSTER_SEEDS says how many seeds are run, PENSTOCK_CRASH_FIRST with which it begins.
"""

import os
from collections import Counter

import pytest

from nsqd.core.retention.policy import Durability
from nsqd.storage.log.segments import LogError
from nsqd.storage.log.store import LogStore
from tests.simulation.cluster import ClusterRun

pytestmark = pytest.mark.long

SEEDS = int(os.environ.get("PENSTOCK_CLUSTER_SEEDS", "4"))
FIRST = int(os.environ.get("PENSTOCK_CRASH_FIRST", "0"))
FOUND_WITHIN = 100  # seeds


@pytest.mark.parametrize("durability", list(Durability))
def test_each_node_keeps_its_own_promises(durability: Durability) -> None:
    acked, happened = 0, Counter[str]()
    for seed in range(FIRST, FIRST + SEEDS):
        run = ClusterRun(seed, durability)
        try:
            acked += sum(verdict.acked for verdict in run.run())
        except Exception as error:
            raise AssertionError(f"seed {seed}, {durability.value}: {error}") from error
        happened.update(word for machine in run.machines for word in machine.happened)
    assert acked > 30 * SEEDS, "hardly anything was acknowledged"
    assert happened.keys() >= {"struck", "backup"}, happened


def test_a_seed_replays_exactly() -> None:
    runs = [ClusterRun(1, Durability.INTERVAL) for _ in range(2)]
    first, second = (
        (run.run(), run.steps, [(one.clock.true, one.turns, one.happened, one.notes.lines) for one in run.machines])
        for run in runs
    )
    assert first == second


def test_acknowledging_before_the_sync_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LogStore, "durable", property(lambda store: store._writer.written))
    for seed in range(FOUND_WITHIN):
        try:
            ClusterRun(seed, Durability.ALWAYS).run()
        except (AssertionError, LogError):
            return
    raise AssertionError("the bug was not found")
