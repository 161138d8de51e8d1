"""The looks at the nodes that alarms compare the last one with. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from admin.snapshot import Snapshot

SPACING = 60_000_000_000  # ns between two looks that are kept
LONGEST_WINDOW = 15 * SPACING  # the longest time over which alarms compare
MOST_LOOKS = 32  # that are kept: more than one a minute if nodes come and go
DISK_SPACING, DISK_LOOKS, LEAST_DISK = 300_000_000_000, 36, 1_500_000_000_000  # ns; number of looks; ns


class Past:
    """The looks of the last quarter of an hour, one a minute, and the disks of the last hours."""

    def __init__(self) -> None:
        self._kept: deque[Snapshot] = deque()
        self._disks: deque[tuple[int, dict[str, int]]] = deque(maxlen=DISK_LOOKS)

    def add(self, look: Snapshot) -> None:
        """Keep the channels of a look for later ones to compare with: one a minute, and the first of other nodes."""
        last = self._kept[-1] if self._kept else None
        if last is not None and look.at < last.at:  # the clock was set back: the times of before say nothing
            self._kept.clear()
            self._disks.clear()
        if last is None or not 0 <= look.at - last.at < SPACING or look.answered != last.answered:
            self._kept.append(Snapshot(look.at, answered=look.answered, channels=look.channels, left_out=look.left_out))
        while look.at - self._kept[0].at > LONGEST_WINDOW + SPACING or len(self._kept) > MOST_LOOKS:
            self._kept.popleft()
        if not self._disks or look.at - self._disks[-1][0] >= DISK_SPACING:
            self._disks.append((look.at, {name: one.disk_free for name, one in look.nodes.items() if one.disk_total}))

    def before(self, look: Snapshot, minutes: float) -> Snapshot | None:
        """Return the earliest look of the last minutes at which the same nodes answered, or None."""
        return next(self.looks_before(look, minutes), None)

    def looks_before(self, look: Snapshot, minutes: float) -> Iterator[Snapshot]:
        """Yield the looks of the last minutes at which the same nodes answered, the earliest first."""
        window = min(LONGEST_WINDOW, int(minutes * SPACING))
        for one in self._kept:
            if 0 < look.at - one.at <= window + SPACING // 2 and one.answered == look.answered:
                yield one

    def disk_before(self, look: Snapshot, node: str) -> tuple[int, int] | None:
        """Return the earliest (ns ago, bytes free) of a node's disk that is old enough to tell a rate, or None."""
        for at, free in self._disks:
            if node in free and look.at - at >= LEAST_DISK:
                return look.at - at, free[node]
        return None
