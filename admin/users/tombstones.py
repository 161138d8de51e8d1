"""The tombstones that operators have made with this nsqadmin, newest first. Pure.

nsqlookupd does not keep them: the node deletes the topic, so its registration ends, and with it the tombstone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from admin.users.roles import Who

SHOWN = 24 * 3600.0  # s
MOST = 200  # of all nodes


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A topic that was hidden on a node, and deleted there."""

    topic: str
    node: str
    user: str  # "": unknown
    at: float  # s since the epoch


@dataclass(slots=True)
class Tombstones:
    """Remembers in memory the latest tombstones and their users, because nsqlookupd does not."""

    clock: Callable[[], float]  # s since the epoch
    _made: deque[Tombstone] = field(default_factory=lambda: deque(maxlen=MOST))

    def add(self, topic: str, node: str, user: str) -> None:
        """Remember a tombstone, in the place of an earlier one for the same topic and node."""
        kept = [one for one in self._made if (one.topic, one.node) != (topic, node)]
        self._made.clear()
        self._made.extend([*kept, Tombstone(topic, node, user, self.clock())])

    def seen_by(self, who: Who, node: str = "") -> list[Tombstone]:
        """Return the tombstones of the last day that the user sees, the newest first; `node` "": of all nodes."""
        since = self.clock() - SHOWN
        return [
            one for one in reversed(self._made) if one.at > since and node in ("", one.node) and who.sees(one.topic)
        ]
