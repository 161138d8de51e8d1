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
        self._waiting: list[Watch] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, watch: Watch) -> None:
        """Its `ready` will be called once."""
        self._waiting.append(watch)

    def look(self, now: int, is_there: Callable[[int, int], bool]) -> None:
        """Tell those that need not wait any longer. `is_there`: whether everything of a topic before an ordinal is."""
        waiting, self._waiting = self._waiting, []
        for watch in waiting:
            if now >= watch.until or is_there(watch.topic, watch.end):
                watch.ready()
            else:
                self._waiting.append(watch)
