"""The lines of -status-every: how long the last requests took, for each destination and for all together.

    [127.0.0.1:4150]: finished 250 - 99th: 4.21ms - 95th: 2.02ms - avg: 1.37ms

As in the original, a line covers exactly -status-every requests, and the very first request is in none.
"""

from collections.abc import Collection, Sequence
from math import ceil

from shared.log import log

ENOUGH = 100  # with fewer requests a 99th percentile says nothing


class Timings:
    """The durations of requests to one destination; `every` requests make a line, 0 none."""

    def __init__(self, every: int, prefix: str) -> None:
        self._every = every
        self._prefix = prefix
        self._begun = False  # the first request was seen
        self._window: list[float] = []  # s; fewer than `every`

    def add(self, seconds: float, count: int = 1) -> list[str]:
        """Record `count` requests that took `seconds` each. Return the lines that are complete now."""
        if not self._every or not count:
            return []
        if not self._begun:
            self._begun = True
            count -= 1
        self._window += [seconds] * count
        lines = []
        while len(self._window) >= self._every:
            lines.append(self._line(self._window[: self._every]))
            del self._window[: self._every]
        return lines

    def _line(self, durations: list[float]) -> str:
        durations.sort()
        p99, p95 = percentile(99, durations) * 1000, percentile(95, durations) * 1000
        average = sum(durations) / len(durations) * 1000
        return (
            f"{self._prefix} finished {len(durations)} - 99th: {p99:.2f}ms - 95th: {p95:.2f}ms - avg: {average:.2f}ms"
        )


class Status:
    """The Timings of all destinations together and, if there are several, of each."""

    def __init__(self, every: int, names: Collection[str]) -> None:
        if 0 < every < ENOUGH:
            log.warning("use at least %d for -status-every: percentiles of %d say little", ENOUGH, every)
        self._all = Timings(every, "[aggregate]:")
        self._each = {name: Timings(every if len(names) > 1 else 0, f"[{name}]:") for name in names}

    def add(self, name: str, seconds: float, count: int = 1) -> list[str]:
        """Record `count` requests to one destination. Return the lines that are complete now."""
        return self._each[name].add(seconds, count) + self._all.add(seconds, count)


def check_every(every: int) -> str:
    """Return the reason why the value of -status-every is invalid, or ""."""
    return "must not be negative" if every < 0 else ""


def percentile(percent: float, ordered: Sequence[float]) -> float:
    """Return the percentile by the original's rule, which lies up to one element above the nearest rank."""
    return ordered[min(ceil(percent / 100 * len(ordered) + 0.5), len(ordered) - 1)]
