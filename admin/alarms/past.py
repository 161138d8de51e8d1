"""The looks at the nodes that alarms compare the last one with. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from admin.nodes.snapshot import ChannelFigures, Key, Snapshot

SPACING = 60_000_000_000  # ns between two looks that are kept
LONGEST_WINDOW = 15 * SPACING  # the longest time over which alarms compare
MOST_LOOKS = 32  # that are kept: more than one a minute if nodes come
DISK_SPACING, DISK_LOOKS, LEAST_DISK = 300_000_000_000, 36, 1_500_000_000_000  # ns; number of looks; ns


class Past:
    """The looks of the last quarter of an hour, one a minute, and the disks of the last hours."""

    def __init__(self) -> None:
        self._kept: deque[Snapshot] = deque()
        self._disks: deque[tuple[int, dict[str, int]]] = deque(maxlen=DISK_LOOKS)

    def add(self, look: Snapshot) -> None:
        """Keep the channels of a look for later ones to compare with: one a minute, and the first one of each node."""
        last = self._kept[-1] if self._kept else None
        if last is not None and look.at < last.at:  # the clock was set back: the times of before say nothing
            self._kept.clear()
            self._disks.clear()
        is_due = last is None or not 0 <= look.at - last.at < SPACING
        if is_due or not all(any(_told(one, node) for one in self._kept) for node in look.answered):
            self._kept.append(Snapshot(look.at, answered=look.answered, parts=look.parts, left_out=look.left_out))
        while look.at - self._kept[0].at > LONGEST_WINDOW + SPACING:
            self._kept.popleft()
        while len(self._kept) > MOST_LOOKS:
            del self._kept[-2]  # the oldest ones make the windows long
        if not self._disks or look.at - self._disks[-1][0] >= DISK_SPACING:
            self._disks.append((look.at, {name: one.disk_free for name, one in look.nodes.items() if one.disk_total}))

    def change(self, look: Snapshot, minutes: float) -> Change:
        """Return how channels changed over the last minutes: each node since it told first in that time.

        So a node that comes or goes changes nothing of what the others gained. A log that another node has promoted since goes
        on there: it counts with what it had before.
        """
        promoted = [name for name, one in look.nodes.items() if one.state.is_gone and one.record.led_by is not None]
        kept, change = list(self.looks_before(look, minutes)), Change()
        for node in (*look.answered, *promoted):
            before = next((one for one in kept if _told(one, node)), None)
            if before is not None and (node in promoted or _told(look, node)):
                change.add(before.parts[node], look.parts[node] if _told(look, node) else {}, before.at)
        return change

    def looks_before(self, look: Snapshot, minutes: float) -> Iterator[Snapshot]:
        """Yield the looks of the last minutes that left out no channel, the earliest first."""
        window = min(LONGEST_WINDOW, int(minutes * SPACING))
        for one in self._kept:
            if 0 < look.at - one.at <= window + SPACING // 2 and not one.left_out:
                yield one

    def disk_before(self, look: Snapshot, node: str) -> tuple[int, int] | None:
        """Return the earliest (ns ago, bytes free) of a node's disk that is old enough to tell a rate, or None."""
        for at, free in self._disks:
            if node in free and look.at - at >= LEAST_DISK:
                return look.at - at, free[node]
        return None


@dataclass(slots=True)
class Change:
    """What channels had before and have now, summed up over the nodes that can be compared."""

    before: dict[Key, ChannelFigures] = field(default_factory=dict)
    now: dict[Key, ChannelFigures] = field(default_factory=dict)
    since: int = 0  # ns since the epoch: the earliest time of what was before; 0: there is nothing to compare with

    def add(self, before: Mapping[Key, ChannelFigures], now: Mapping[Key, ChannelFigures], since: int) -> None:
        """Add a node."""
        self.since = min(self.since or since, since)
        for sums, part in ((self.before, before), (self.now, now)):
            for key, figures in part.items():
                sums[key] = sums[key].plus(figures) if key in sums else figures


def _told(look: Snapshot, node: str) -> bool:
    """Return whether a look has the channels of the node."""
    return node in look.answered and node in look.parts
