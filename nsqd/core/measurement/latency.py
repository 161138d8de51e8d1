"""The time that a channel's messages took from publish to FIN: NSQ's end-to-end processing latency over a sliding window.

The window has two halves, as in the original. Latencies are recorded in the newer half, and the older half is dropped when the
newer one is half a window old. So a result covers between half a window and a whole one. Halves begin at multiples of half a
window on the monotonic clock, at the same moment for every channel.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from shared.histogram import Histogram


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A copy of the recorded latencies at one moment. It shares no histogram, so another thread may work on it."""

    percentiles: tuple[float, ...]  # descending
    halves: tuple[Histogram, ...]

    def result(self) -> dict[str, Any]:
        """Return the JSON value for /stats: the number of messages, and the ns of each percentile, the highest first."""
        merged = Histogram()
        for half in self.halves:
            merged.merge(half)
        values = [{"quantile": _number(q), "value": merged.quantile(q)} for q in self.percentiles]
        return {"count": merged.count, "percentiles": values}


class Latency:
    """The latencies of one channel. A channel has them if percentiles are configured."""

    __slots__ = ("_half", "_newer", "_number", "_older", "_percentiles", "_total")

    def __init__(self, percentiles: Iterable[float], window: int, total: Histogram | None = None) -> None:
        """Begin an empty window.

        `percentiles`: above 0 and at most 1; `window`: ns; `total`: a histogram that also gets every latency, indefinitely.
        """
        self._percentiles = tuple(sorted(percentiles, reverse=True))
        self._half = max(1, window // 2)  # ns
        self._total = total
        self._number = 0  # number of the half window in which the newer half began
        self._newer = Histogram()
        self._older = Histogram()

    def record_many(self, latencies: Sequence[int], now: int) -> None:
        """Record latencies (ns) at `now` (monotonic ns). A negative one, which a clock set back may cause, counts as 0."""
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
        """Return a copy of the window that ends at `now` (monotonic ns). It costs the copying of two small dicts."""
        self._move(now)
        return Snapshot(self._percentiles, (self._older.copy(), self._newer.copy()))

    def result(self, now: int) -> dict[str, Any]:
        """Return the JSON value for /stats of the window that ends at `now` (monotonic ns)."""
        return self.snapshot(now).result()

    def __repr__(self) -> str:
        return f"<Latency: {self._older.count} and {self._newer.count} in the halves>"

    def _move(self, now: int) -> None:
        number = now // self._half
        if number <= self._number:  # less: an earlier call had a newer clock than this turn's
            return
        self._older = self._newer if number == self._number + 1 else Histogram()
        self._newer = Histogram()
        self._number = number


def result_of(snapshots: Iterable[Snapshot | None]) -> dict[str, Any]:
    """Return the JSON value for /stats of all snapshots merged, as for a topic; without any, percentiles are None."""
    present = [snapshot for snapshot in snapshots if snapshot is not None]
    if not present:
        return {"count": 0, "percentiles": None}
    halves = tuple(half for snapshot in present for half in snapshot.halves)
    return Snapshot(present[0].percentiles, halves).result()


def _number(q: float) -> float:
    """Return the number as Go prints it: 1 rather than 1.0."""
    return int(q) if q == int(q) else q
