"""Up to where a topic's messages are durable: what is read back must not be taken back by a power cut."""

from collections import deque

MOST = 4096  # marks that are remembered


class Marks:
    """Ends of a topic's sequence, each with the log's position from which on it is durable."""

    __slots__ = ("_end", "_waiting")

    def __init__(self, end: int) -> None:
        """Everything before `end` is durable."""
        self._end = end
        self._waiting: deque[tuple[int, int]] = deque()

    def add(self, position: int, end: int) -> None:
        """The sequence ends at `end`, as of the log's `position`."""
        if len(self._waiting) >= MOST:  # nothing is synced for long: what is durable is known more coarsely then
            self._waiting = deque(list(self._waiting)[1::2])
        self._waiting.append((position, end))

    def look(self, durable: int) -> int:
        """The log is durable up to there: the end of what is."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= durable:
            self._end = waiting.popleft()[1]
        return self._end
