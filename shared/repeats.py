"""Which lines of a log are repetitions: the first lines of each kind are written, the rest of a window are counted.

The kind of a line is the call that logs it: its source line and its format string. It is not the text, which a peer can
vary at will. A window begins with the first line of its kind and lasts WINDOW seconds. The burst is greater than one
because an operator needs single lines such as "LOOKUP: adding peer" for each of several peers. A traceback is a
kilobyte that says the same each time, so only the first is written. A line at FATAL is always written.

Pure: there is no clock and no file; the time comes in, and what is to be written goes out.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from math import inf

WINDOW = 10.0  # s
BURST = 100  # lines of a kind in a window at DEBUG and INFO: at most 100 MB a day, whatever a peer does
BURST_OF_TROUBLE = 20  # lines of a kind in a window at WARNING and ERROR
MOST_KINDS = 1024  # kinds remembered at a time; the code has some 200 calls. Beyond that all others are one kind

Kind = tuple[str, int, str]  # source file, line, format string
_OTHERS: Kind = ("", 0, "")


@dataclass(frozen=True, slots=True)
class Repeated:
    """Lines of one kind that a window has left out."""

    level: int
    example: str  # the text of the first line that was left out
    count: int

    def __str__(self) -> str:
        return f"{self.example} ... repeated {self.count} times in {WINDOW:g} s"


@dataclass(slots=True)
class _Window:
    ends: float  # s, by the clock that `admits` is given
    room: int  # lines that may still be written
    level: int = 0
    example: str = ""
    count: int = 0  # lines left out


@dataclass(slots=True)
class Repeats:
    """The open windows. The caller holds a lock."""

    _windows: dict[Kind, _Window] = field(default_factory=dict)  # at most MOST_KINDS and one more
    next_end: float = inf  # when the first window that has left out lines ends; inf: there is none

    def admits(self, record: logging.LogRecord, now: float) -> bool:
        """Return whether the line is to be written. Call `ended` before."""
        if record.levelno >= logging.CRITICAL:
            return True
        kind = (record.pathname, record.lineno, str(record.msg))
        window = self._windows.get(kind)
        if window is None or window.ends <= now:
            window = self._open(kind, record, now)
        if window.room > 0:
            window.room -= 1
            return True
        if not window.count:
            window.level, window.example = record.levelno, record.getMessage().rstrip("\n")
            self.next_end = min(self.next_end, window.ends)
        window.count += 1
        return False

    def leave_out(self, kind: Kind, now: float) -> bool:
        """Count a line of this kind and return True, if its window is leaving out lines anyway: no record needs to be made."""
        window = self._windows.get(kind)
        if window is None or not window.count or window.ends <= now:
            return False
        window.count += 1
        return True

    def ended(self, now: float) -> list[Repeated]:
        """Return what windows that have ended by now have left out. Each is returned once."""
        if now < self.next_end:
            return []
        return self._close([kind for kind, window in self._windows.items() if window.ends <= now])

    def flush(self) -> list[Repeated]:
        """End all windows, and return what they have left out."""
        return self._close(list(self._windows))

    def _close(self, kinds: list[Kind]) -> list[Repeated]:
        closed = [self._windows.pop(kind) for kind in kinds]
        self.next_end = min((window.ends for window in self._windows.values() if window.count), default=inf)
        return [Repeated(window.level, window.example, window.count) for window in closed if window.count]

    def _open(self, kind: Kind, record: logging.LogRecord, now: float) -> _Window:
        self._windows.pop(kind, None)  # it has ended and left out nothing, or `ended` has returned it
        if len(self._windows) >= MOST_KINDS:
            self._windows = {one: window for one, window in self._windows.items() if window.ends > now or window.count}
        if len(self._windows) >= MOST_KINDS:
            kind = _OTHERS
            if kind in self._windows and self._windows[kind].ends > now:
                return self._windows[kind]
        room = 1 if record.exc_info else BURST_OF_TROUBLE if record.levelno >= logging.WARNING else BURST
        window = self._windows[kind] = _Window(now + WINDOW, room)
        return window
