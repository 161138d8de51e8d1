"""Which events of a flood are recorded: the first few of each kind in a window, and then how many more there were.

So 10,000 wrong tokens a second become a few records. A kind is a port, an address, a name, an action and an outcome. The
windows are those of the log (shared/repeats.py). Pure.
"""

from __future__ import annotations

from dataclasses import replace

from shared.audit.event import NODE, Event, Outcome
from shared.repeats import Window, Windows

BURST = 5  # refusals and failures of a kind that are recorded one by one in a window
BURST_OF_CHANGES = 100  # topics and channels that the node itself created or deleted
OTHERS = "(others)"  # the action of events of further kinds when MOST_KINDS are open

Kind = tuple[str, str, str, str, str]


class RollUp(Windows[Kind, Event, Event]):
    """The recent events that are summed up, by kind."""

    def admits(self, event: Event, now: float) -> bool:
        """Return whether the event is to be recorded by itself; else it is counted. Call `ended` before."""
        if event.outcome in (Outcome.DONE, Outcome.UNCERTAIN) and event.port != NODE:
            return True
        kind: Kind = event.port, event.address, event.who, event.action, event.outcome
        burst = BURST_OF_CHANGES if event.port == NODE else BURST
        window = self.count(kind, (event.port, "", "", "", ""), burst, now)
        if window is None:
            return True
        if window.example is None:
            window.example = event
        elif event.target != window.example.target:
            window.example = replace(window.example, target="")  # there are several
        return False

    def summary(self, kind: Kind, window: Window[Event]) -> Event:
        """Return the event that is recorded instead of those that were left out, with their number."""
        assert window.example is not None
        port, address, who, action, _ = kind
        if not action:  # events of many kinds
            return Event(port, OTHERS, outcome=window.example.outcome, count=window.left_out)
        by = window.example.by if who else ""
        return replace(window.example, address=address, who=who, by=by, user="", count=window.left_out)
