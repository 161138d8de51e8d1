"""Which events of a flood are recorded: the first few of each kind in a window, and then how many more there were.

10,000 wrong tokens a second so become a few records. A kind is a port, an address, a name, an action and an outcome. A window
begins with the first event of its kind and lasts WINDOW seconds. Pure: the time comes in. The caller holds a lock.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

from shared.audit.event import NODE, Event, Outcome

WINDOW = 10.0  # s
BURST = 5  # refusals and failures of a kind that are recorded one by one in a window
BURST_OF_CHANGES = 100  # topics and channels that came or went by themselves
# kinds remembered at a time: more addresses are counted together, whatever they try
MOST_KINDS = 1024
OTHERS = "(others)"  # the action of these

Kind = tuple[str, str, str, str, str]


@dataclass(slots=True)
class _Window:
    ends: float  # s, by the clock that `admits` is given
    room: int  # events that may still be recorded
    example: Event | None = None  # the first event that was left out
    count: int = 0  # events left out
    is_mixed: bool = False  # they have several targets


class RollUp:
    """The events of late that are summed up, by kind."""

    def __init__(self) -> None:
        self._windows: dict[Kind, _Window] = {}  # at most MOST_KINDS, and one for each port
        self.next_end = inf  # s: when the first window that has left out events ends; inf: there is none

    def admits(self, event: Event, now: float) -> bool:
        """Return whether the event is to be recorded by itself; else it is counted. Call `ended` before."""
        if event.outcome in (Outcome.DONE, Outcome.UNCERTAIN) and event.port != NODE:
            return True
        window = self._window(event, now)
        if window.room > 0:
            window.room -= 1
            return True
        if window.example is None:
            window.example = event
            self.next_end = min(self.next_end, window.ends)
        window.count += 1
        window.is_mixed |= event.target != window.example.target
        return False

    def ended(self, now: float) -> list[Event]:
        """Return what windows that have ended by now have left out, one event for each with a count."""
        if now < self.next_end:
            return []
        return self._close([kind for kind, window in self._windows.items() if window.ends <= now])

    def flush(self) -> list[Event]:
        """End all windows, and return what they have left out."""
        return self._close(list(self._windows))

    def _close(self, kinds: list[Kind]) -> list[Event]:
        closed = [(kind, self._windows.pop(kind)) for kind in kinds]
        self.next_end = min((window.ends for window in self._windows.values() if window.count), default=inf)
        return [_summary(kind, window) for kind, window in closed if window.count]

    def _window(self, event: Event, now: float) -> _Window:
        kind: Kind = event.port, event.address, event.who, event.action, event.outcome
        window = self._windows.get(kind)
        if window is not None and window.ends > now:
            return window
        self._windows.pop(kind, None)  # it has ended and left out nothing, or `ended` has returned it
        if len(self._windows) >= MOST_KINDS:
            self._windows = {one: some for one, some in self._windows.items() if some.ends > now or some.count}
        if len(self._windows) >= MOST_KINDS:
            kind = event.port, "", "", "", ""
            window = self._windows.get(kind)
            if window is not None and window.ends > now:
                return window
        window = self._windows[kind] = _Window(now + WINDOW, BURST_OF_CHANGES if event.port == NODE else BURST)
        return window


def _summary(kind: Kind, window: _Window) -> Event:
    assert window.example is not None
    port, address, who, action, _ = kind
    target = "" if window.is_mixed else window.example.target
    by = window.example.by if who else ""
    if not action:  # events of many kinds
        return Event(port, OTHERS, outcome=window.example.outcome, count=window.count)
    return replace(window.example, address=address, who=who, by=by, user="", target=target, count=window.count)
