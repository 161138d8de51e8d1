"""A histogram of non-negative integers (nanoseconds, bytes) in logarithmic buckets: small, mergeable, exact to 1.6 %.

A bucket holds the values that have the same exponent and the same five leading bits of mantissa as a 32-bit float: 32
buckets for each doubling. A quantile is the middle of its bucket, so it differs from the true one by at most ERROR; count,
sum, minimum and maximum are exact. Only buckets that are not empty take memory, at most BUCKETS. Pure.
"""

import math
import sys
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from struct import Struct

ERROR = 0.016  # relative error of any quantile: 1/64, and the error of rounding to 32 bits
BUCKETS = 1_889
MAX_VALUE = 2**63 - 1  # a larger value counts as this one, a negative one as 0

RECORDED_AT_ONCE = 1000  # values of Samples: recording them takes about 0.1 ms

_MANTISSA = 5  # bits of the mantissa that distinguish buckets
_COARSE = 7 - _MANTISSA  # bits to drop: the upper half of a 32-bit float has 7 bits of mantissa
_BIAS = 127  # of a 32-bit float's exponent
_FLOAT = Struct(">f")
_UPPER_HALF = 1 if sys.byteorder == "little" else 0


class Histogram:
    """The values that were recorded, by bucket, with their exact count, sum, minimum and maximum."""

    __slots__ = ("_counts", "count", "max", "min", "sum")

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}  # bucket -> number of values; holds no zeros; the numbers sum up to `count`
        self.count = 0
        self.sum = 0
        self.min = 0  # 0 until something is recorded
        self.max = 0

    def record(self, value: int, count: int = 1) -> None:
        """Record `value` as seen `count` times. Values outside of 0 to MAX_VALUE are clamped."""
        if count <= 0:
            return
        value = min(max(value, 0), MAX_VALUE)
        bucket = _bucket(value)
        self._counts[bucket] = self._counts.get(bucket, 0) + count
        if not self.count or value < self.min:
            self.min = value
        if value > self.max:
            self.max = value
        self.count += count
        self.sum += value * count

    def record_many(self, values: Sequence[int]) -> None:
        """Record each of `values` as seen once. Fast for thousands, because no Python code runs for each value."""
        if not values:
            return
        least, largest = min(values), max(values)
        if least < 0 or largest > MAX_VALUE:
            values = [min(max(value, 0), MAX_VALUE) for value in values]
            least, largest = min(values), max(values)
        halves = memoryview(array("f", values)).cast("B").cast("H")[_UPPER_HALF::2]
        counts: dict[int, int] = {}
        for half, count in Counter(halves).items():
            bucket = half >> _COARSE
            counts[bucket] = counts.get(bucket, 0) + count
        self._add(counts, len(values), sum(values), least, largest)

    def merge(self, other: "Histogram") -> None:
        """Add everything that `other` recorded to this histogram. `other` does not change."""
        if other.count:
            self._add(other._counts, other.count, other.sum, other.min, other.max)

    def _add(self, counts: dict[int, int], count: int, total: int, least: int, largest: int) -> None:
        for bucket, number in counts.items():
            self._counts[bucket] = self._counts.get(bucket, 0) + number
        self.min = min(self.min, least) if self.count else least
        self.max = max(self.max, largest)
        self.count += count
        self.sum += total

    def quantile(self, q: float) -> int:
        """Return the least value that at least the share `q` (0 to 1) of values does not exceed, within ERROR; 0 if empty."""
        rank = max(1, math.ceil(q * self.count))
        passed = 0
        for bucket in sorted(self._counts) if rank < self.count else ():
            passed += self._counts[bucket]
            if passed >= rank:
                return min(max(_middle(bucket), self.min), self.max)
        return self.max  # the maximum, which is exact

    def cumulative(self, bounds: Sequence[int]) -> list[int]:
        """Return for each of the sorted `bounds` how many values do not exceed it, up to ERROR. The counts never decrease."""
        buckets = sorted(self._counts)
        middles = [_middle(bucket) for bucket in buckets]
        sums = [0, *accumulate(self._counts[bucket] for bucket in buckets)]
        return [sums[bisect_right(middles, bound)] for bound in sorted(bounds)]

    def buckets(self) -> dict[int, int]:
        """Return the number of values in each bucket, by the bucket's middle, ascending."""
        return {_middle(bucket): self._counts[bucket] for bucket in sorted(self._counts)}

    def copy(self) -> "Histogram":
        """Return an independent copy, at the cost of copying a dict."""
        other = Histogram()
        other._counts = self._counts.copy()
        other.count, other.sum, other.min, other.max = self.count, self.sum, self.min, self.max
        return other

    def __eq__(self, other: object) -> bool:
        names = self.__slots__
        return isinstance(other, Histogram) and all(getattr(self, name) == getattr(other, name) for name in names)

    __hash__ = None  # type: ignore[assignment]  # histograms are mutable


class Samples:
    """Values that come one at a time, for a histogram. To note one costs a list's append; `Histogram.record` costs 1.5 us."""

    __slots__ = ("_histogram", "_values", "note")

    def __init__(self) -> None:
        self._values: list[int] = []  # those that are not in the histogram yet
        self._histogram = Histogram()
        # takes a value; the owner calls `settle` now and then, so that values do not pile up
        self.note = self._values.append

    def settle(self) -> None:
        """Record the values that were noted, if they are many: a tenth of a microsecond for each of them."""
        if len(self._values) >= RECORDED_AT_ONCE:
            self._record()

    def _record(self) -> None:
        self._histogram.record_many(self._values)
        self._values.clear()

    def histogram(self) -> Histogram:
        """Return a copy of the histogram of all values that were noted."""
        self._record()
        return self._histogram.copy()


def _bucket(value: int) -> int:
    """Return the number of the bucket that holds `value`. Numbers ascend with the values."""
    form = _FLOAT.pack(value)
    return (form[0] << 8 | form[1]) >> _COARSE


def _edge(bucket: int) -> float:
    """Return the least value of a bucket."""
    exponent, mantissa = bucket >> _MANTISSA, bucket % (1 << _MANTISSA)
    return math.ldexp(1 + mantissa / (1 << _MANTISSA), exponent - _BIAS) if bucket else 0.0


def _middle(bucket: int) -> int:
    """Return the integer that represents a bucket: the harmonic middle, whose relative error is equal at both edges."""
    low, high = _edge(bucket), _edge(bucket + 1)
    if high - low <= 1:
        return math.ceil(low)
    return round(2 * low * high / (low + high))
