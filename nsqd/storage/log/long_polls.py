"""Readers that wait until a topic has more messages to read."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LongPoll:
    """One reader that waits for messages of a topic."""

    topic: int
    end: int  # ordinal: the reader waits for every message before it
    until: int  # monotonic ns at which the reader stops waiting
    ready: Callable[[], None]


class LongPolls:
    """All readers that wait. For the reactor's thread."""

    def __init__(self) -> None:
        self.waiting: list[LongPoll] = []
        self._has_ended = False

    def add(self, watch: LongPoll) -> None:
        """Add a watch. Its `ready` is called once."""
        if self._has_ended:
            watch.ready()
        else:
            self.waiting.append(watch)

    def end(self) -> None:
        """Let nobody wait any more, because the node stops."""
        self._has_ended = True
        waiting, self.waiting = self.waiting, []
        for watch in waiting:
            watch.ready()

    def wake_ready(self, now: int, is_there: Callable[[int, int], bool]) -> None:
        """Call `ready` of the watches that are over, and drop them.

        `is_there(topic, end)` tells whether every message of a topic before that ordinal can be read.
        """
        waiting, self.waiting = self.waiting, []
        for watch in waiting:
            if now >= watch.until or is_there(watch.topic, watch.end):
                watch.ready()
            else:
                self.waiting.append(watch)
