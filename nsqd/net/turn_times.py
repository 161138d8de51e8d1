"""How long the turns of the reactor take, from the return of epoll until everything is sent.

A turn is the longest that a client can wait for another one, so the longest turns matter to an operator. Recording a value
in a histogram costs 1.5 us, of many together a tenth of that; so a turn only appends its duration to a list.
"""

from collections.abc import Callable
from time import monotonic_ns

from shared.histogram import Histogram

RECORDED_AT_ONCE = 1000  # turns: recording them takes about 0.1 ms


class TurnTimes:
    """The durations of all turns since the start, in ns."""

    def __init__(self, clock: Callable[[], int] = monotonic_ns) -> None:
        """Begin without turns. `clock` returns monotonic ns."""
        self.clock = clock
        self._durations: list[int] = []  # of the last turns, not in the histogram yet
        self._histogram = Histogram()

    def note_end(self, began: int) -> None:
        """Note that the turn that began at `began`, by `clock`, is over."""
        durations = self._durations
        durations.append(self.clock() - began)
        if len(durations) >= RECORDED_AT_ONCE:
            self._record()

    def _record(self) -> None:
        self._histogram.record_many(self._durations)
        self._durations.clear()

    def histogram(self) -> Histogram:
        """Return a copy of the durations of all turns that are over."""
        self._record()
        return self._histogram.copy()
