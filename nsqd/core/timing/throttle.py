"""The limits of a channel or tube and its shards: messages in flight, and messages delivered in a second.

Both are settings of topics and channels. They hold for all consumers of this node together. A reader that nothing limits has no
throttle.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from shared.values import SECOND

UNLIMITED = 1 << 62  # messages
# The scan wakes a reader every 25 ms, later under load: messages that a rate allows meanwhile may be delivered at once.
BURST = SECOND // 10  # ns


class Throttled(Protocol):
    """The part of a channel or tube that a throttle needs."""

    throttle: Throttle | None  # of the reader and its shards; None: nothing limits it

    @property
    def shards(self) -> Sequence[Throttled]:
        """Return the readers of this name in all logs."""

    @property
    def in_flight_count(self) -> int:
        """Return the number of messages that were delivered and not answered."""

    def wake(self) -> object:
        """Enter the reader into the agenda if it can deliver."""

    def schedule_scan(self, due: int) -> None:
        """See to it that the scan looks at this reader by `due` (monotonic ns)."""


class Throttle:
    """How much a reader and its shards may deliver now: a bound of what is in flight, and a token bucket."""

    __slots__ = ("_concurrency", "_credit", "_rate", "_reader", "_refilled", "due")

    def __init__(self, reader: Throttled, concurrency: int, rate: int, now: int) -> None:
        """`concurrency`: messages in flight, `rate`: messages per second; 0: any number. `now`: monotonic ns."""
        self._reader = reader
        self._concurrency = concurrency
        self._rate = rate
        self._credit = SECOND  # a message costs SECOND of it; each ns brings `rate`
        self._refilled = now  # when `_credit` was right (monotonic ns)
        self.due: int | None = None  # when the rate allows the next message (monotonic ns); None: none waits for it

    def free(self, now: int) -> int:
        """Return the number of messages that may be delivered at `now` (monotonic ns)."""
        free = UNLIMITED
        if self._concurrency:
            free = self._concurrency - sum(one.in_flight_count for one in self._reader.shards)
        if self._rate:
            most = SECOND + self._rate * BURST
            self._credit = min(most, self._credit + (now - self._refilled) * self._rate)
            self._refilled = now
            free = min(free, self._credit // SECOND)
        return max(0, free)

    def lets(self, reader: Throttled, now: int) -> bool:
        """Return True if a reader that has messages may deliver at `now` (monotonic ns). If not, it is woken when it may."""
        if self.free(now):
            return True
        if self._rate and self._credit < SECOND:
            self.due = now - (self._credit - SECOND) // self._rate
            reader.schedule_scan(self.due)
        return False

    def spend(self, count: int) -> None:
        """Note that `count` messages have been delivered."""
        if self._rate:
            self._credit -= count * SECOND

    def wake(self) -> None:
        """Wake the reader and its shards: messages are no longer in flight, or time has passed."""
        for one in self._reader.shards:
            one.wake()

    def scan(self, now: int) -> None:
        """Wake the reader and its shards if the time for which one of them waits has come."""
        if self.due is not None and self.due <= now:
            self.due = None
            self.wake()

    def __repr__(self) -> str:
        return f"<Throttle: {self._concurrency} in flight, {self._rate} per second>"


def limit(reader: Throttled, concurrency: int, rate: int, now: int) -> None:
    """Limit a reader and its shards from now on, in place of earlier limits; 0: any number. `now`: monotonic ns."""
    throttle = Throttle(reader, concurrency, rate, now) if concurrency or rate else None
    for one in reader.shards:
        one.throttle = throttle
        one.wake()
