"""By how much the backlogs of topics and channels changed over the last five minutes: the base of a time to drain.

What each of them holds (messages that wait, are in flight or deferred) is kept once in EVERY s for SPAN s, as one number for
each place of the series. Messages that came or went with a promoted log change nothing. Callers pass the time.
"""

from array import array
from collections import deque

SPAN, EVERY = 300, 30  # s
_UNKNOWN = -1


class HeldChanges:
    """What each place holds in the latest round, and held in some rounds before. 50,000 places take 4 MB."""

    __slots__ = ("_at", "_before", "_now")

    def __init__(self) -> None:
        self._at = 0  # when the latest round ended, s since the epoch
        self._now = array("q")  # messages, by place
        self._before: deque[tuple[int, array[int]]] = deque()  # rounds of the last SPAN s, the oldest first

    def enter(self, place: int, held: int) -> None:
        """Give a place to a new subject, of which nothing is known."""
        if place >= len(self._now):
            self._now.extend([_UNKNOWN] * (place + 1 - len(self._now)))
        self._now[place] = held
        for _, values in self._before:
            if place < len(values):
                values[place] = _UNKNOWN

    def set(self, place: int, held: int) -> None:
        """Set what a place holds now."""
        self._now[place] = held

    def shift(self, place: int, messages: int) -> None:
        """Note that messages came with a log, or went with it: as if they had always been there, or never."""
        for _, values in self._before:
            if place < len(values) and values[place] != _UNKNOWN:
                values[place] = max(0, values[place] + messages)

    def end_look(self, at: int) -> None:
        """Note that all places are set as of `at`, s since the epoch."""
        self._at = at
        while self._before and (self._before[0][0] < at - SPAN or self._before[-1][0] > at):
            self._before.popleft()
        if not self._before or at - self._before[-1][0] >= EVERY:
            self._before.append((at, array("q", self._now)))

    def change(self, place: int) -> tuple[int, int] | None:
        """Return (messages, s): how many more messages a place holds than at most SPAN s ago; None: that is not known yet."""
        for at, values in self._before:
            if at < self._at and place < len(values) and values[place] != _UNKNOWN:
                return self._now[place] - values[place], self._at - at
        return None

    def __repr__(self) -> str:
        return f"<HeldChanges of {len(self._now)} places, {len(self._before)} looks before>"
