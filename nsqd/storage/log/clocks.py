"""The log's own time: it continues from start to start, and setting a clock does not change it.

While the process runs, the log's time follows the monotonic clock. Once a second the log notes it with two other clocks, in an
anchor. A start computes how long the daemon was down with the clock of the machine's boot if the machine was not restarted,
otherwise with the wall clock. So setting the wall clock, while the daemon runs or between two runs on one boot, moves no delay.

See docs/contributing/design/log.md#clocks.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from nsqd.storage.log.disk import Disk, read_from, replace_file
from shared.log import log

ANCHOR_EVERY = 1_000_000_000  # ns between two anchors
ABSURD = 400 * 86_400 * 1_000_000_000  # ns of downtime above which a clock was surely wrong
JUMP = 1_000_000_000  # ns by which wall and boot clock may disagree about the downtime before a warning
NO_BOOT = bytes(16)
NOTE = "clock.json"  # in the directory of another node's log: that log's time, by this machine's clocks
NOTE_BEGUN = f"{NOTE}.tmp"
MOST_NOTE = 1000  # bytes


@dataclass(frozen=True, slots=True)
class Clocks:
    """The clocks of the machine, as functions that read them."""

    monotonic: Callable[[], int]  # ns
    wall: Callable[[], int]  # ns since the epoch
    boot: Callable[[], int]  # ns since the machine was started
    boot_id: bytes  # 16 bytes, different after each start of the machine; NO_BOOT: unknown


@dataclass(frozen=True, slots=True)
class Anchor:
    """The readings of three clocks at one time."""

    steady: int  # the log's time, ns
    wall: int
    boot: int
    boot_id: bytes


class LogClock:
    """The clock of one log, which converts monotonic times to the log's time and back."""

    def __init__(self, clocks: Clocks) -> None:
        self.clocks = clocks
        # ns from the monotonic clock to the log's time; a new log begins at the wall's time
        self.offset = clocks.wall() - clocks.monotonic()
        self.anchor_due = 0  # when the next anchor is due (monotonic ns): a second after the last one

    def now(self) -> int:
        """Return the log's time in ns."""
        return self.clocks.monotonic() + self.offset

    def at(self, monotonic: int) -> int:
        """Convert a monotonic time to the log's time; 0 stays 0."""
        return monotonic + self.offset if monotonic else 0

    def monotonic(self, steady: int) -> int:
        """Convert a time of the log to a monotonic time; 0 stays 0."""
        return steady - self.offset if steady else 0

    def resume(self, anchor: Anchor | None, last: int, noted: Anchor | None = None) -> None:
        """Continue from the log's last time, `last`, and from the downtime since `anchor`, the log's last anchor.

        `last` may be later than the anchor. `noted`: the note of this machine when the log was another node's, with its own
        clocks and the log's time. It is better than the anchor, which has the clocks of that node.
        """
        wall = self.clocks.wall()
        if noted is not None and noted.steady - last <= ABSURD:
            anchor = noted
        if anchor is None:  # the log has lost its anchors: its time was near the wall clock's
            anchor = Anchor(last, last, 0, NO_BOOT)
        away = wall - anchor.wall
        if anchor.boot_id == self.clocks.boot_id != NO_BOOT:
            jump, away = away, self.clocks.boot() - anchor.boot
            if abs(jump - away) > JUMP:
                log.warning("LOG: the wall clock was set by %.0f s while nsqd was stopped", (jump - away) / 1e9)
        if away > ABSURD:
            line = "LOG: by the clock, nsqd was stopped for %d days: delays continue as if no time had passed"
            log.error(line, away // 86_400e9)
            away = 0
        self.offset = max(last, anchor.steady + max(0, away)) - self.clocks.monotonic()

    def anchor(self) -> Anchor:
        """Return the current readings of the three clocks, to be noted in the log."""
        self.anchor_due = self.clocks.monotonic() + ANCHOR_EVERY
        return Anchor(self.now(), self.clocks.wall(), self.clocks.boot(), self.clocks.boot_id)


def note_of(clocks: Clocks, steady: int) -> Anchor:
    """Return the note for a log whose time is `steady` now, with this machine's clocks."""
    return Anchor(steady, clocks.wall(), clocks.boot(), clocks.boot_id)


def write_note(disk: Disk, note: Anchor) -> None:
    """Write a note to the directory of a log, durably. Raises OSError."""
    replace_file(disk, NOTE, json.dumps([note.steady, note.wall, note.boot, note.boot_id.hex()]).encode())


def read_note(disk: Disk) -> Anchor | None:
    """Return the note in the directory of a log; None if there is none, or if it is corrupt. Raises OSError."""
    if NOTE not in disk.names():
        return None
    try:
        steady, wall, boot, boot_id = json.loads(read_from(disk, NOTE, 0, MOST_NOTE))
        note = Anchor(int(steady), int(wall), int(boot), bytes.fromhex(boot_id))
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None
    return note if len(note.boot_id) == len(NO_BOOT) and min(note.steady, note.wall, note.boot) >= 0 else None


def drop_note(disk: Disk) -> None:
    """Remove the note: the log itself has an anchor of this machine. Raises OSError."""
    if NOTE in disk.names():
        disk.remove(NOTE)
        disk.sync_directory()


def system_clocks() -> Clocks:
    """Return the clocks of this machine."""
    try:
        boot_id = bytes.fromhex(Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", ""))
    except (OSError, ValueError):
        boot_id = NO_BOOT
    return Clocks(time.monotonic_ns, time.time_ns, lambda: time.clock_gettime_ns(time.CLOCK_BOOTTIME), boot_id)
