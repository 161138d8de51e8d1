"""When a job whose handler failed is tried again, and when a job at work is touched. Pure."""

from dataclasses import dataclass

from penstock.jobs.calls import MAX_U32
from penstock.protocol.beanstalk import Stats

LEARN_AFTER_S = 0.3  # s of work after which a job's time to run is asked for: the shortest is 1 s
FAILED_PAUSE_S = 1.0  # s before the next attempt after a touch that the server failed at
TOUCH_SHARE = 3  # a job is touched after a third of its time to run, so that two touches may be lost


@dataclass(frozen=True, slots=True)
class Retries:
    """How often a job is tried whose handler raises, and how long it waits before each new attempt.

    The first delay is `first_delay_s`; each further one is twice as long, up to `max_delay_s`. After `max_attempts` (0: no
    limit) reserves the job is buried. Raises ValueError for values that can never be valid.

    >>> [Retries(first_delay_s=10, max_attempts=4).delay_s(attempts) for attempts in (1, 2, 3, 4)]
    [10.0, 20.0, 40.0, None]
    """

    max_attempts: int = 10
    first_delay_s: float = 1
    max_delay_s: float = 3600

    def __post_init__(self) -> None:
        """Raise ValueError for values that can never be valid."""
        if self.max_attempts < 0 or not 0 <= self.first_delay_s <= self.max_delay_s <= MAX_U32:
            raise ValueError(f"expected max_attempts >= 0 and 0 <= first_delay_s <= max_delay_s <= {MAX_U32}")

    def delay_s(self, attempts: int) -> float | None:
        """Return the seconds before the next attempt, or None if the job is to be buried. `attempts` are those made.

        >>> Retries().delay_s(3)
        4.0
        """
        if self.max_attempts and attempts >= self.max_attempts:
            return None
        return min(self.max_delay_s, self.first_delay_s * 2.0 ** min(max(attempts - 1, 0), 60))


class TouchPlan:
    """When to touch one job that is at work; times are in seconds of any one clock."""

    __slots__ = ("_due", "_period", "is_busy")

    def __init__(self, now: float) -> None:
        self._due = now + LEARN_AFTER_S
        self._period = 0.0  # s between touches; 0: the time to run is not known
        self.is_busy = False  # True: a touch is in progress

    @property
    def asks_for_ttr(self) -> bool:
        """Return whether the job's time to run is still to be asked for."""
        return not self._period

    def is_due(self, now: float) -> bool:
        """Return whether the next touch, or the request for the time to run, is due."""
        return not self.is_busy and now >= self._due

    def note_ttr(self, ttr: float, now: float) -> None:
        """Plan the next touch for a job with `ttr` seconds to run, of which LEARN_AFTER_S or more are over."""
        self._period = max(ttr, 1.0) / TOUCH_SHARE
        self._due = min(self._due + self._period - LEARN_AFTER_S, now + self._period)

    def note_touched(self, now: float) -> None:
        """Plan the next touch after one that was sent."""
        self._due = now + self._period

    def note_failed(self, now: float) -> None:
        """Plan the next attempt after the server failed to touch the job, or to return its time to run."""
        self._due = now + min(self._period or FAILED_PAUSE_S, FAILED_PAUSE_S)


def whole_stat(stats: Stats, name: str) -> int:
    """Return one of a job's statistics as a whole number; 0 if the server leaves it out."""
    value = stats.get(name, 0)
    return int(value) if isinstance(value, int | float) else 0
