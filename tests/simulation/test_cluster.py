"""Whole clusters in simulated lives; a failure names its seed, which replays exactly.

PENSTOCK_EFFORT and PENSTOCK_FIRST say how many seeds are run, and with which it begins (tests/effort.py).
"""

from collections import Counter

import pytest

from tests.effort import seeds
from tests.simulation.cluster import ClusterRun
from tests.simulation.totals import Totals

pytestmark = pytest.mark.long


def assert_at_least(counts: Counter[str], least: dict[str, int]) -> None:
    """Assert that each of these things happened so often."""
    assert {what: counts[what] >= number for what, number in least.items()} == dict.fromkeys(least, True), counts


@pytest.mark.parametrize("seed", seeds(2))
def test_what_a_cluster_has_promised_holds(seed: int) -> None:
    ClusterRun(seed).run()


LEAST: list[tuple[bool, tuple[int, ...], dict[str, int]]] = [  # by whether there are clients of Disque: seeds, counts
    (False, (111, 116, 127), {
        "acked with 1": 300, "acked with 2": 200, "acked with 3": 30, "deliveries": 2000, "starts": 30, "recovered": 1,
        "failovers": 5, "successions": 3, "rolling restarts": 1, "struck while it promotes": 1, "left behind": 1,
        "leaves": 1, "jobs: delete": 10, "jobs: bury": 3, "configurations": 5,
    }),
    (True, (1, 3, 4), {
        "disque: added": 500, "disque: deliveries": 400, "disque: acknowledged": 80, "disque: acknowledgements kept": 100,
        "disque: kept acknowledgements sent": 80, "disque: lent": 250, "disque: loans borrowed": 70,
        "disque: loans returned": 100, "disque: loans kept": 10, "disque: connections closed": 80, "disque: NACK": 30,
        "disque: WORKING": 10,
    }),
]  # fmt: skip


@pytest.mark.parametrize(("has_jobs", "chosen", "least"), LEAST)
def test_much_is_promised_and_much_happens(has_jobs: bool, chosen: tuple[int, ...], least: dict[str, int]) -> None:
    counts = Counter[str]()
    for seed in chosen:
        counts.update(ClusterRun(seed, has_jobs=has_jobs).run().counts)
    assert_at_least(counts, least)


def test_a_seed_replays_exactly() -> None:
    runs = [ClusterRun(3) for _ in range(2)]
    for run in runs:
        run.rounds = 1
    first, second = ((run.run().counts, run.now, run.lines) for run in runs)
    assert first == second


def test_the_totals_of_several_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClusterRun, "rounds", 1)
    totals = Totals()
    totals.add(100)
    lines = totals.lines()
    acknowledged = sum(totals.counts[f"acked with {n}"] for n in range(1, 8))
    assert lines[:2] == ["1 seeds, 0 failed", f"{acknowledged} acknowledged messages and jobs"]
    assert f"{totals.counts['acked with 2']} acked with 2" in lines
    assert acknowledged > 30
