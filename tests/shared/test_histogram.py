"""The histogram: its error bound for any values and any quantile, and merging."""

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shared.histogram import BUCKETS, ERROR, MAX_VALUE, RECORDED_AT_ONCE, Histogram, Samples

# Of all sizes alike: most of the numbers below 2**63 that are drawn evenly have 63 bits.
VALUES = st.one_of(
    st.integers(0, 200),
    st.integers(0, 62).flatmap(lambda bits: st.integers(1 << bits, (2 << bits) - 1)),
    st.integers(0, 62).map(lambda bits: 1 << bits),
)
LISTS = st.lists(VALUES, min_size=1, max_size=200)
SHARES = st.floats(0, 1)


def of(values: list[int]) -> Histogram:
    histogram = Histogram()
    histogram.record_many(values)
    return histogram


def exact(values: list[int], q: float) -> int:
    return sorted(values)[max(1, math.ceil(q * len(values))) - 1]


@given(LISTS, SHARES)
def test_any_quantile_is_within_the_error(values: list[int], q: float) -> None:
    true = exact(values, q)
    assert abs(of(values).quantile(q) - true) <= ERROR * true
    assert ERROR <= 0.02


@given(LISTS)
def test_count_sum_least_and_largest_are_exact_also_one_by_one(values: list[int]) -> None:
    histogram, one_by_one = of(values), Histogram()
    assert (histogram.count, histogram.sum) == (len(values), sum(values))
    assert (histogram.min, histogram.max) == (min(values), max(values))
    assert histogram.quantile(1) == max(values)
    for value in values:
        one_by_one.record(value)
    assert one_by_one == histogram


@given(VALUES, st.integers(1, 10))
def test_one_value_many_times(value: int, count: int) -> None:
    histogram = Histogram()
    histogram.record(value, count)
    assert histogram == of([value] * count)
    assert histogram.quantile(0.5) == value  # no larger and no smaller one was seen


@given(st.lists(st.lists(VALUES, max_size=50), min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_merging_is_recording_everything_in_any_order(parts: list[list[int]], random: Any) -> None:
    histograms = [of(part) for part in parts]
    random.shuffle(histograms)
    merged = Histogram()
    for histogram in histograms:
        before = histogram.copy()
        merged.merge(histogram)
        assert histogram == before
    assert merged == of([value for part in parts for value in part])


@given(LISTS, st.lists(VALUES, min_size=1, max_size=10))
def test_cumulative_counts(values: list[int], bounds: list[int]) -> None:
    counts = of(values).cumulative(bounds)
    assert counts == sorted(counts)
    for bound, count in zip(sorted(bounds), counts, strict=True):
        surely = sum(value * (1 + ERROR) < bound for value in values)
        perhaps = sum(value * (1 - ERROR) <= bound for value in values)
        assert surely <= count <= perhaps


def test_copies_and_limits() -> None:
    histogram = of([1, 2, 3])
    copy = histogram.copy()
    copy.record(1000)
    assert histogram == of([1, 2, 3])
    assert copy == of([1, 2, 3, 1000])

    assert of([-5, 7, 2**70]) == of([0, 7, MAX_VALUE])
    histogram = Histogram()
    histogram.record(-1)
    histogram.record(2**200)
    assert histogram == of([0, MAX_VALUE])
    every = [1 << bits | step << max(0, bits - 5) for bits in range(63) for step in range(32)]
    histogram = of([*range(64), *every, MAX_VALUE])
    assert len(histogram.buckets()) == BUCKETS
    histogram = Histogram()
    histogram.record_many([])
    histogram.record(5, 0)
    histogram.merge(Histogram())
    assert (histogram.quantile(0.99), histogram.count, histogram.cumulative([1, 2])) == (0, 0, [0, 0])


def test_every_sample_is_in_the_histogram_once_and_few_pile_up() -> None:
    samples, last = Samples(), 2 * RECORDED_AT_ONCE + 10
    for value in range(1, last + 1):
        before = samples.histogram() if value == last else Histogram()
        samples.note(value)
        samples.settle()
        assert len(samples._values) < RECORDED_AT_ONCE
    found = samples.histogram()
    assert (before.count, found.count, found.min, found.max) == (last - 1, last, 1, last)
    assert samples.histogram() == found
