"""The snapshots of the nodes with which alarms compare the latest one. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

from admin.nodes.snapshot import ChannelFigures, Key, Snapshot

SPACING = 60_000_000_000  # ns between two snapshots of the last quarter of an hour
RECENT, SPARSE = 15 * SPACING, 5 * SPACING  # ns: that quarter, and between two of the snapshots before it
LONGEST_WINDOW = 60 * SPACING  # the longest time over which alarms compare
MOST_SNAPSHOTS = 32  # of the last quarter: more than one a minute if nodes join
DISK_SPACING, DISK_SAMPLES, LEAST_DISK = 300_000_000_000, 36, 1_500_000_000_000  # ns; number of samples; ns


class Past:
    """The snapshots of the last hour, first one in five minutes and then one a minute, and the disks of the last hours."""

    def __init__(self) -> None:
        self._kept: deque[Snapshot] = deque()
        self._older: deque[Snapshot] = deque()  # than RECENT
        self._disks: deque[tuple[int, dict[str, int]]] = deque(maxlen=DISK_SAMPLES)

    def add(self, look: Snapshot) -> None:
        """Keep what is compared later of a snapshot: one a minute, and the first one of each node."""
        last = self._kept[-1] if self._kept else None
        if last is not None and look.at < last.at:  # the clock was set back: the earlier times are useless
            self._kept.clear()
            self._older.clear()
            self._disks.clear()
        is_due = last is None or not 0 <= look.at - last.at < SPACING
        if is_due or not all(any(_has_channels(one, node) for one in self._kept) for node in look.answered):
            kept = {name: getattr(look, name) for name in ("answered", "parts", "given_up", "left_out")}
            self._kept.append(Snapshot(look.at, **kept))
        while look.at - self._kept[0].at > RECENT + SPACING:
            old = self._kept.popleft()
            if not self._older or old.at - self._older[-1].at >= SPARSE:
                self._older.append(old)
        while self._older and look.at - self._older[0].at > LONGEST_WINDOW + SPACING:
            self._older.popleft()
        while len(self._kept) > MOST_SNAPSHOTS:
            del self._kept[-2]  # the oldest ones make the windows long
        if not self._disks or look.at - self._disks[-1][0] >= DISK_SPACING:
            self._disks.append((look.at, {name: one.disk_free for name, one in look.nodes.items() if one.disk_total}))

    def change(self, look: Snapshot, minutes: float) -> ChannelChange:
        """Return the change of the channels over the last minutes, of each node since its first snapshot in that time.

        So a node that joins or leaves does not change the gain of the others. A log that another node has promoted since then
        continues there, so its earlier messages count.
        """
        promoted = [name for name, one in look.nodes.items() if one.state.is_gone and one.record.led_by is not None]
        kept, change = list(self.looks_before(look, minutes)), ChannelChange()
        for node in (*look.answered, *promoted):
            before = next((one for one in kept if _has_channels(one, node)), None)
            has_now = _has_channels(look, node)
            if before is not None and (node in promoted or has_now):
                change.add(before.parts[node], look.parts[node] if has_now else {}, before.at)
        return change

    def looks_before(self, look: Snapshot, minutes: float) -> Iterator[Snapshot]:
        """Yield the snapshots of the last minutes that left out no channel, the earliest first."""
        window = min(LONGEST_WINDOW, int(minutes * SPACING))
        for one in chain(self._older, self._kept):
            if 0 < look.at - one.at <= window + SPACING // 2 and not one.left_out:
                yield one

    def disk_before(self, look: Snapshot, node: str) -> tuple[int, int] | None:
        """Return the earliest (ns ago, bytes free) of a node's disk that is old enough for a rate, or None."""
        for at, free in self._disks:
            if node in free and look.at - at >= LEAST_DISK:
                return look.at - at, free[node]
        return None


@dataclass(slots=True)
class ChannelChange:
    """The channels before and now, summed up over the nodes that can be compared."""

    before: dict[Key, ChannelFigures] = field(default_factory=dict)
    now: dict[Key, ChannelFigures] = field(default_factory=dict)
    since: int = 0  # ns since the epoch: the earliest time of `before`; 0: there is none

    def add(self, before: Mapping[Key, ChannelFigures], now: Mapping[Key, ChannelFigures], since: int) -> None:
        """Add the channels of one node, whose earlier values are of the time `since` (ns since the epoch)."""
        self.since = min(self.since or since, since)
        for sums, part in ((self.before, before), (self.now, now)):
            for key, figures in part.items():
                sums[key] = sums[key].plus(figures) if key in sums else figures


def _has_channels(look: Snapshot, node: str) -> bool:
    return node in look.answered and node in look.parts
