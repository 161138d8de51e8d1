"""Which lines of a log are repetitions: the first lines of each kind are written, the rest of a window are counted.

The kind of a line is the call that logs it: its source line and its format string. It is not the text, which a peer can
vary at will. A window begins with the first line of its kind and lasts WINDOW seconds. The burst is greater than one
because an operator needs single lines such as "LOOKUP: adding peer" for each of several peers. A traceback is a
kilobyte that says the same each time, so only the first is written. A line at FATAL is always written.

An audit counts refusals in the same windows (shared/audit/rollup.py). Pure: the time comes in, and summaries go out.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import Generic, TypeVar

WINDOW = 10.0  # s
BURST = 100  # lines of a kind in a window at DEBUG and INFO: at most 100 MB a day, whatever a peer does
BURST_OF_WARNINGS = 20  # lines of a kind in a window at WARNING and ERROR
MOST_KINDS = 1024  # kinds remembered at a time; the log has some 200

Kind = tuple[str, int, str]  # source file, line, format string
_OTHERS: Kind = ("", 0, "")
K = TypeVar("K")
Event = TypeVar("Event")
Summary = TypeVar("Summary")


@dataclass(slots=True)
class Window(Generic[Event]):
    """The time from the first event of a kind on."""

    ends: float  # s, by the clock that `count` is given
    room: int  # events that still pass
    example: Event | None = None  # the first event that was left out
    left_out: int = 0  # number of events


class Windows(ABC, Generic[K, Event, Summary]):
    """The open windows by kind. The caller holds a lock."""

    def __init__(self) -> None:
        self._windows: dict[K, Window[Event]] = {}  # at most MOST_KINDS, and those of `others`
        self.next_end = inf  # s: when the first window that has left out events ends; inf: there is none

    @abstractmethod
    def summary(self, kind: K, window: Window[Event]) -> Summary:
        """Return the summary of a window that has left out events."""

    def count(self, kind: K, others: K, burst: int, now: float) -> Window[Event] | None:
        """Count an event. Returns None if it passes, else its window, which may need an example. Call `ended` before.

        `burst` events of a kind pass. `others`: the kind of events of further kinds when MOST_KINDS are open.
        """
        window = self._windows.get(kind)
        if window is None or window.ends <= now:
            window = self._open(kind, others, burst, now)
        if window.room > 0:
            window.room -= 1
            return None
        if not window.left_out:
            self.next_end = min(self.next_end, window.ends)
        window.left_out += 1
        return window

    def ended(self, now: float) -> list[Summary]:
        """Return the summaries of the windows that have ended by now, each once."""
        if now < self.next_end:
            return []
        return self._close([kind for kind, window in self._windows.items() if window.ends <= now])

    def flush(self) -> list[Summary]:
        """End all windows, and return their summaries."""
        return self._close(list(self._windows))

    def _close(self, kinds: Iterable[K]) -> list[Summary]:
        closed = [(kind, self._windows.pop(kind)) for kind in kinds]
        self.next_end = min((window.ends for window in self._windows.values() if window.left_out), default=inf)
        return [self.summary(kind, window) for kind, window in closed if window.left_out]

    def _open(self, kind: K, others: K, burst: int, now: float) -> Window[Event]:
        self._windows.pop(kind, None)  # it has ended and left out nothing, or `ended` has returned it
        if len(self._windows) >= MOST_KINDS:
            self._windows = {one: old for one, old in self._windows.items() if old.ends > now or old.left_out}
        if len(self._windows) >= MOST_KINDS:
            kind = others
            if kind in self._windows and self._windows[kind].ends > now:
                return self._windows[kind]
        window = self._windows[kind] = Window(now + WINDOW, burst)
        return window


@dataclass(frozen=True, slots=True)
class Repeated:
    """Lines of one kind that a window has left out."""

    level: int
    example: str  # the text of the first line that was left out
    count: int

    def __str__(self) -> str:
        return f"{self.example} ... repeated {self.count} times in {WINDOW:g} s"


class Repeats(Windows[Kind, tuple[int, str], Repeated]):
    """The lines of a log that are left out."""

    def admits(self, record: logging.LogRecord, now: float) -> bool:
        """Return whether the line is to be written. Call `ended` before."""
        if record.levelno >= logging.CRITICAL:
            return True
        kind = (record.pathname, record.lineno, str(record.msg))
        burst = 1 if record.exc_info else BURST_OF_WARNINGS if record.levelno >= logging.WARNING else BURST
        window = self.count(kind, _OTHERS, burst, now)
        if window is not None and window.example is None:
            window.example = record.levelno, record.getMessage().rstrip("\n")
        return window is None

    def leave_out(self, kind: Kind, now: float) -> bool:
        """Count a line of this kind and return True, if its window is leaving out lines anyway: no record needs to be made."""
        window = self._windows.get(kind)
        if window is None or not window.left_out or window.ends <= now:
            return False
        window.left_out += 1
        return True

    def summary(self, kind: Kind, window: Window[tuple[int, str]]) -> Repeated:
        """Return the line that is written instead of those that were left out."""
        assert window.example is not None
        return Repeated(*window.example, window.left_out)
