"""The lag of a follower in time: since when the oldest byte waits that it has not confirmed. Pure."""

from __future__ import annotations

from shared.values import SECOND

# ns for which a follower confirms nothing until it lags: it reports at the latest a second after it has written something
LAGGING = 5 * SECOND
MOST_SAMPLES = 64  # at a tick of 250 ms, the last 16 s are known to the tick, and times before that less exactly


class WriteTimes:
    """The ends that a log had, each with the time at which it was seen (monotonic ns). All ends ascend."""

    def __init__(self, end: int) -> None:
        """Begin with a log that ends at the position `end`, in bytes."""
        self._end = end
        self._samples: list[tuple[int, int]] = []

    def note(self, end: int, now: int) -> None:
        """Note the log's end at `now`. Beyond MOST_SAMPLES, every second sample is dropped."""
        if end > self._end:
            self._end = end
            self._samples.append((end, now))
            if len(self._samples) > MOST_SAMPLES:
                del self._samples[1::2]

    def forget(self, position: int) -> None:
        """Forget the samples up to a position that all followers have confirmed."""
        self._samples = [sample for sample in self._samples if sample[0] > position]

    def age(self, position: int, now: int) -> int:
        """Return for how many ns the oldest byte from `position` on has been in the log; 0 if there is none."""
        written = next((at for end, at in self._samples if end > position), now)
        return now - written
