"""Readers that wait until there is more of a topic to read."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Watch:
    """One of them."""

    topic: int
    end: int  # everything before it is waited for
    until: int  # monotonic ns; not longer
    ready: Callable[[], None]


class Watches:
    """All of them. In the reactor's thread."""

    def __init__(self) -> None:
        self.waiting: list[Watch] = []

    def add(self, watch: Watch) -> None:
        """Its `ready` will be called once."""
        self.waiting.append(watch)

    def look(self, now: int, is_there: Callable[[int, int], bool]) -> None:
        """Tell those that need not wait any longer. `is_there`: whether everything of a topic before an ordinal is."""
        waiting, self.waiting = self.waiting, []
        for watch in waiting:
            if now >= watch.until or is_there(watch.topic, watch.end):
                watch.ready()
            else:
                self.waiting.append(watch)
