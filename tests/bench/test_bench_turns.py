"""bench prints the rows of long turns."""

from __future__ import annotations

import pytest

from bench.turns import longest_of
from tests.bench.test_bench import quick_bench

BEFORE = {0.005: 10.0, 0.01: 12.0, 0.025: 13.0, float("inf"): 13.0}


def test_a_turn_longer_than_all_before_is_told_exactly() -> None:
    assert longest_of((0.02, BEFORE), (0.0312, BEFORE)) == "31.2 ms"


def test_otherwise_the_bound_of_its_bucket_is_told() -> None:
    after = {0.005: 15.0, 0.01: 18.0, 0.025: 19.0, float("inf"): 19.0}

    assert longest_of((0.02, BEFORE), (0.02, after)) == "<= 10 ms"


@pytest.mark.process
def test_it_measures_a_row_of_turns() -> None:
    printed = quick_bench("turns-delete-jobs,turns-empty-deferred,turns-start")

    rows = [line.split()[0] for line in printed.splitlines() if line.startswith("turns-")]
    assert rows == ["turns-delete-jobs", "turns-empty-deferred", "turns-start"]
