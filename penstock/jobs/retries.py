"""What happens to a job whose handler failed, and when a job at work is touched. Pure."""

from dataclasses import dataclass

from penstock.jobs.calls import Figures
from penstock.protocol.beanstalk import MAX_SECONDS

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
        """Check the values."""
        if self.max_attempts < 0 or not 0 <= self.first_delay_s <= self.max_delay_s <= MAX_SECONDS:
            raise ValueError(
                f"max_attempts must be at least 0, first_delay_s 0 to max_delay_s, max_delay_s at most {MAX_SECONDS}"
            )

    def delay_s(self, attempts: int) -> float | None:
        """Return the seconds before the next attempt, or None if the job is to be buried. `attempts` are those made.

        >>> Retries().delay_s(3)
        4.0
        """
        if self.max_attempts and attempts >= self.max_attempts:
            return None
        return min(self.max_delay_s, self.first_delay_s * 2.0 ** min(max(attempts - 1, 0), 60))


class TouchPlan:
    """When to touch one job that is at work; times are in seconds of any one clock.

    >>> plan = TouchPlan(now=0.0)
    >>> plan.is_due(0.2), plan.is_due(0.5), plan.asks_for_ttr
    (False, True, True)
    >>> plan.note_ttr(60, now=0.5)
    >>> plan.is_due(19.0), plan.is_due(20.0)
    (False, True)
    """

    __slots__ = ("_due", "_period", "is_busy")

    def __init__(self, now: float) -> None:
        self._due = now + LEARN_AFTER_S
        self._period = 0.0  # s between touches; 0: the time to run is not known
        self.is_busy = False  # True: a touch is in progress

    @property
    def asks_for_ttr(self) -> bool:
        """Return whether the job's time to run is still to be asked for.

        >>> TouchPlan(now=0.0).asks_for_ttr
        True
        """
        return not self._period

    def is_due(self, now: float) -> bool:
        """Return whether the next touch, or the question for the time to run, is due.

        >>> TouchPlan(now=0.0).is_due(1.0)
        True
        """
        return not self.is_busy and now >= self._due

    def note_ttr(self, ttr: float, now: float) -> None:
        """Plan the next touch for a job with `ttr` seconds to run, of which LEARN_AFTER_S or more are over.

        >>> plan = TouchPlan(now=0.0)
        >>> plan.note_ttr(1, now=0.3)
        >>> plan.is_due(0.4)
        True
        """
        self._period = max(ttr, 1.0) / TOUCH_SHARE
        self._due += self._period - LEARN_AFTER_S
        self._due = min(self._due, now + self._period)

    def note_touched(self, now: float) -> None:
        """Plan the next touch after one that was sent.

        >>> plan = TouchPlan(now=0.0)
        >>> plan.note_ttr(60, now=0.5)
        >>> plan.note_touched(20.0)
        >>> plan.is_due(39.0), plan.is_due(40.0)
        (False, True)
        """
        self._due = now + self._period

    def note_failed(self, now: float) -> None:
        """Plan the next attempt after a touch, or a question for the time to run, that the server failed at.

        >>> plan = TouchPlan(now=0.0)
        >>> plan.note_failed(0.5)
        >>> plan.is_due(1.4), plan.is_due(1.5), plan.asks_for_ttr
        (False, True, True)
        """
        self._due = now + min(self._period or FAILED_PAUSE_S, FAILED_PAUSE_S)


def figure(figures: Figures, name: str) -> int:
    """Return a whole number of a job's figures; 0 if a server leaves it out.

    >>> figure({"ttr": 60}, "ttr")
    60
    """
    value = figures.get(name, 0)
    return int(value) if isinstance(value, int | float) else 0
