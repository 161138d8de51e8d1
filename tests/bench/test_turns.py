"""The longest turn, from the histogram of turns."""

from bench.turns import longest_of

BEFORE = {0.005: 10.0, 0.01: 12.0, 0.025: 13.0, float("inf"): 13.0}


def test_the_longest_turn_is_exact_or_the_bound_of_its_bucket() -> None:
    assert longest_of((0.02, BEFORE), (0.0312, BEFORE)) == "31.2 ms"
    after = {0.005: 15.0, 0.01: 18.0, 0.025: 19.0, float("inf"): 19.0}
    assert longest_of((0.02, BEFORE), (0.02, after)) == "<= 10 ms"
