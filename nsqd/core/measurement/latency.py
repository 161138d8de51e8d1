"""How long a channel's messages took, from publish to FIN: NSQ's end-to-end processing latency over a sliding window.

The window is two halves, as in the original: what is recorded goes into the newer half, the older one is dropped when the
newer is half a window old. So an answer covers between half a window and a whole one. Halves begin at multiples of half a
window by the monotonic clock, for every channel at the same moment.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from shared.histogram import Histogram


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What was recorded, at one moment. Nobody else holds the histograms: another thread may work on them."""

    percentiles: tuple[float, ...]  # descending
    halves: tuple[Histogram, ...]

    def result(self) -> dict[str, Any]:
        """As /stats tells it: the number of messages, and the nanoseconds of each percentile, the highest first."""
        merged = Histogram()
        for half in self.halves:
            merged.merge(half)
        values = [{"quantile": _number(q), "value": merged.quantile(q)} for q in self.percentiles]
        return {"count": merged.count, "percentiles": values}


class Latency:
    """See above. One for each channel when percentiles are configured."""

    __slots__ = ("_half", "_newer", "_number", "_older", "_percentiles", "_total")

    def __init__(self, percentiles: Iterable[float], window: int, total: Histogram | None = None) -> None:
        """`percentiles` are above 0 and at most 1, `window` is in ns. `total` is told of everything, for ever."""
        self._percentiles = tuple(sorted(percentiles, reverse=True))
        self._half = max(1, window // 2)  # ns
        self._total = total
        self._number = 0  # of the half window in which the newer half was begun
        self._newer = Histogram()
        self._older = Histogram()

    def record_many(self, latencies: Sequence[int], now: int) -> None:
        """Messages took `latencies` (ns) until `now` (monotonic ns). A negative one, from a clock set back, counts as 0."""
        self._move(now)
        if len(latencies) == 1:  # half of what a batch of one costs
            self._newer.record(latencies[0])
            if self._total is not None:
                self._total.record(latencies[0])
            return
        batch = Histogram()
        batch.record_many(latencies)
        self._newer.merge(batch)
        if self._total is not None:
            self._total.merge(batch)

    def snapshot(self, now: int) -> Snapshot:
        """The window that ends at `now`. Costs the copying of two small dicts."""
        self._move(now)
        return Snapshot(self._percentiles, (self._older.copy(), self._newer.copy()))

    def result(self, now: int) -> dict[str, Any]:
        """The window that ends at `now`, as /stats tells it."""
        return self.snapshot(now).result()

    def __repr__(self) -> str:
        return f"<Latency: {self._older.count} and {self._newer.count} in the halves>"

    def _move(self, now: int) -> None:
        number = now // self._half
        if number <= self._number:  # less: whoever asked last had a newer clock than this turn's
            return
        self._older = self._newer if number == self._number + 1 else Histogram()
        self._newer = Histogram()
        self._number = number


def result_of(snapshots: Iterable[Snapshot | None]) -> dict[str, Any]:
    """All of them as one, as /stats tells a topic's channels; percentiles are None if there is not one."""
    present = [snapshot for snapshot in snapshots if snapshot is not None]
    if not present:
        return {"count": 0, "percentiles": None}
    halves = tuple(half for snapshot in present for half in snapshot.halves)
    return Snapshot(present[0].percentiles, halves).result()


def _number(q: float) -> float:
    """As Go prints it: 1, not 1.0."""
    return int(q) if q == int(q) else q
