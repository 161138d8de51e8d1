"""The setting `retry`: how its values are written, and the delays that they mean."""

from random import Random

import pytest

from shared.retry import LONGEST, Retry
from shared.values import SECOND
from tests.cases import each


@each("text, shown", [
    ("none", "none"), ("fixed(5s)", "fixed(5s)"), ("exponential(1s, 10m)", "exponential(1s,10m0s)"),
    ("exponential(1ms,720h)", "exponential(1ms,720h0m0s)"), ("fixed( 90s )", "fixed(1m30s)"),
])  # fmt: skip
def test_a_value_is_read_and_written(text: str, shown: str) -> None:
    assert str(Retry.parse(text)) == shown
    assert Retry.parse(shown) == Retry.parse(text)


@each("text", [
    "", "5s", "fixed", "fixed()", "fixed(0)", "fixed(-1s)", "fixed(999us)", "fixed(721h)", "fixed(1s, 2s)", "fixed(1s) ",
    "exponential(1s)", "exponential(2s, 1s)", "exponential(1s, 1s)", "exponential(0s, 1s)", "Fixed(1s)", "fixed(1s)\n",
])  # fmt: skip
def test_what_means_no_delay_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        Retry.parse(text)


def test_delays_double_up_to_the_longest_and_come_apart() -> None:
    retry, latest, earliest = Retry.parse("exponential(1s, 10s)"), lambda below: 0, lambda below: below - 1
    assert [retry.delay(failures, latest) // SECOND for failures in (1, 2, 3, 4, 5, 70_000)] == [1, 2, 4, 8, 10, 10]
    assert retry.delay(3, earliest) == 3 * SECOND
    assert (
        len({retry.delay(1, Random(1).randrange) for _ in range(9)})
        == 1
        < len({retry.delay(1, random.randrange) for random in [Random(2)] for _ in range(9)})
    )
    assert {Retry.parse("fixed(2s)").delay(failures, earliest) for failures in (1, 2, 9)} == {2 * SECOND}
    assert Retry().delay(1, earliest) == 0
    assert Retry(1, LONGEST).delay(1 << 40, latest) == LONGEST
