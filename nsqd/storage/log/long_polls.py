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

    def add(self, poll: LongPoll) -> None:
        """Add a reader. Its `ready` is called once."""
        if self._has_ended:
            poll.ready()
        else:
            self.waiting.append(poll)

    def end(self) -> None:
        """End all waiting, now and from now on, because the node stops."""
        self._has_ended = True
        waiting, self.waiting = self.waiting, []
        for poll in waiting:
            poll.ready()

    def wake_ready(self, now: int, is_readable: Callable[[int, int], bool]) -> None:
        """Call `ready` of the readers whose waiting is over, and drop them.

        `is_readable(topic, end)`: True if every message of a topic before that ordinal can be read.
        """
        waiting, self.waiting = self.waiting, []
        for poll in waiting:
            if now >= poll.until or is_readable(poll.topic, poll.end):
                poll.ready()
            else:
                self.waiting.append(poll)
