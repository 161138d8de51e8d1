"""What the rows of long turns tell of the histogram of turns."""

from __future__ import annotations

from bench.turns import longest_of

BEFORE = {0.005: 10.0, 0.01: 12.0, 0.025: 13.0, float("inf"): 13.0}


def test_a_turn_longer_than_all_before_is_told_exactly() -> None:
    assert longest_of((0.02, BEFORE), (0.0312, BEFORE)) == "31.2 ms"


def test_otherwise_the_bound_of_its_bucket_is_told() -> None:
    after = {0.005: 15.0, 0.01: 18.0, 0.025: 19.0, float("inf"): 19.0}

    assert longest_of((0.02, BEFORE), (0.02, after)) == "<= 10 ms"
