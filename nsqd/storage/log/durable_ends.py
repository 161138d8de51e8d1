"""Where the durable part of a topic ends: a message that was read back must not vanish in a power cut.

The same holds for the part that has its copies on other nodes: "durable" then means "copied".
"""

from collections import deque

MOST = 4096  # pairs that are remembered, at most


class DurableEnds:
    """The ends of a topic's sequence over time, each with the log position that must be durable for it."""

    __slots__ = ("_end", "_waiting")

    def __init__(self, end: int) -> None:
        """Begin with everything before the ordinal `end` durable."""
        self._end = end
        self._waiting: deque[tuple[int, int]] = deque()

    def add(self, position: int, end: int) -> None:
        """Note that the sequence ends at ordinal `end` when the log ends at `position`."""
        # no sync for a long time: remember every other pair only, so the durable end is coarser
        if len(self._waiting) >= MOST:
            self._waiting = deque(list(self._waiting)[1::2])
        self._waiting.append((position, end))

    def end_at(self, durable: int) -> int:
        """Return the ordinal up to which messages are durable, given that the log is durable up to `durable`."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= durable:
            self._end = waiting.popleft()[1]
        return self._end
