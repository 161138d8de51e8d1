"""Backoff: a consumer whose messages fail asks for none for a while, then for one, and continues when that one succeeds.

The rules are go-nsq's. In WAITING, the RDY of all connections is 0, and results of messages that are still being handled do
not count. In PROBING, one connection has an RDY of 1. A success shortens the next wait, or ends the backoff; a failure
lengthens it.
"""

from enum import Enum, auto
from random import Random

from penstock.sansio.settings import Settings

MOST_DOUBLINGS = 60  # keeps the arithmetic in range, whatever the settings are


class Flow(Enum):
    """The messages that a consumer asks its nsqds for."""

    FULL = auto()
    WAITING = auto()  # nothing
    PROBING = auto()  # one message


class Backoff:
    """The backoff of one consumer. All times are in s, by the caller's clock."""

    __slots__ = ("_random", "_settings", "flow", "level", "until")

    def __init__(self, settings: Settings, random: Random) -> None:
        self._settings = settings
        self._random = random
        self.flow = Flow.FULL
        self.level = 0  # failures that are not made up for by successes
        self.until = 0.0  # when WAITING ends

    def fail(self, now: float) -> bool:
        """Note that a message failed. Returns True if `flow` changed."""
        if self.flow is Flow.WAITING or self._settings.max_backoff_duration_s <= 0:
            return False
        if self.delay(self.level + 1) <= self._settings.max_backoff_duration_s or not self.level:
            self.level += 1
        self._wait(now)
        return True

    def succeed(self, now: float) -> bool:
        """Note that a message was finished. Returns True if `flow` changed."""
        if self.flow is not Flow.PROBING:
            return False
        self.level -= 1
        if self.level:
            self._wait(now)
        else:
            self.flow = Flow.FULL
        return True

    def tick(self, now: float) -> bool:
        """Begin to probe when the wait is over. Returns True if `flow` changed."""
        if self.flow is Flow.WAITING and now >= self.until:
            self.flow = Flow.PROBING
            return True
        return False

    def delay(self, level: int) -> float:
        """Return the longest wait at this level, in s: it doubles from level to level."""
        return self._settings.backoff_multiplier_s * 2.0 ** min(level, MOST_DOUBLINGS)

    def _wait(self, now: float) -> None:
        delay = min(self.delay(self.level), self._settings.max_backoff_duration_s)
        if self._settings.backoff_strategy == "full_jitter":
            delay *= self._random.random()
        self.flow = Flow.WAITING
        self.until = now + delay

    def __repr__(self) -> str:
        return f"<Backoff: {self.flow.name}, level {self.level}>"
