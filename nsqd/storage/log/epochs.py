"""The epochs of a log: each period in which one process owns and writes it.

Every start of a leader begins an epoch. Its first record, EPOCH, says where it begins, which is where the one before ended.
After a power cut that is before positions that the earlier epoch had reached: other copies of the log may hold bytes of it from
there on, and the epoch distinguishes them from the later bytes at the same position.

See docs/contributing/design/log.md#epochs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from nsqd.core.message.epoch import NO_EPOCH, RANDOM_SIZE, SIZE, Epoch, unpack

__all__ = ["MOST_ENDED", "NO_EPOCH", "RANDOM_SIZE", "SIZE", "Epoch", "EpochTable", "unpack"]

MOST_ENDED = 1000  # epochs that are remembered though none of their segments is left


class EpochTable:
    """The epoch of each log position. Ascending; before the first one that is known: NO_EPOCH."""

    def __init__(self) -> None:
        self._epochs: list[Epoch] = []
        self._starts: list[int] = []  # log position at which each of them begins

    def begin(self, epoch: Epoch, start: int) -> None:
        """Note that `epoch` begins at the log position `start`. One that is known already is ignored."""
        if epoch in self._epochs:
            return
        place = bisect_right(self._starts, start)
        while place and self._starts[place - 1] == start and self._epochs[place - 1] > epoch:
            place -= 1  # nothing is left of the earlier epoch, and the later one began at the same position
        self._epochs.insert(place, epoch)
        self._starts.insert(place, start)

    def at(self, position: int) -> Epoch:
        """Return the epoch of the record that begins at a log position."""
        place = bisect_right(self._starts, position)
        return self._epochs[place - 1] if place else NO_EPOCH

    def forget_before(self, position: int) -> None:
        """Forget the epochs that ended at or before a log position, except for the last MOST_ENDED.

        No segment of them is left here, but copies on other nodes may end in them.
        """
        gone = max(0, bisect_right(self._starts, position) - 1 - MOST_ENDED)
        del self._epochs[:gone], self._starts[:gone]

    def __iter__(self) -> Iterator[tuple[Epoch, int]]:
        """Yield each epoch and the log position at which it begins."""
        return zip(list(self._epochs), list(self._starts), strict=True)

    @property
    def highest(self) -> int:
        """Return the highest number of an epoch; 0 if there is none."""
        return max((epoch.number for epoch in self._epochs), default=0)
