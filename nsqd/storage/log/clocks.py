"""The log's own time: it goes on from start to start, and nobody sets it.

While the process lives it follows the monotonic clock. Once a second the log notes it beside two others, an anchor: the clock
of the machine's boot, which tells how long nobody was there if the machine was not started anew, and the wall clock for when it
was. So a wall clock that is set while we live, or between two lives on one boot, moves no delay.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from shared.log import log

ANCHOR_EVERY = 1_000_000_000  # ns
ABSURD = 400 * 86_400 * 1_000_000_000  # ns that nobody was there: surely a clock was wrong
JUMP = 1_000_000_000  # ns by which the wall clock may differ from what the boot clock tells before it is said
NO_BOOT = bytes(16)


@dataclass(frozen=True, slots=True)
class Clocks:
    """What the machine tells."""

    monotonic: Callable[[], int]  # ns
    wall: Callable[[], int]  # ns since the epoch
    boot: Callable[[], int]  # ns since the machine was started
    boot_id: bytes  # 16 bytes, another after each start of the machine; NO_BOOT: not known


@dataclass(frozen=True, slots=True)
class Anchor:
    """Three clocks at one time."""

    steady: int  # the log's
    wall: int
    boot: int
    boot_id: bytes


class LogClock:
    """See above."""

    def __init__(self, clocks: Clocks) -> None:
        self.clocks = clocks
        self.offset = clocks.wall() - clocks.monotonic()  # from the monotonic clock; a log begins at the wall's time
        self.anchor_due = 0  # when the next anchor is to be noted (monotonic ns): a second after the last one

    def now(self) -> int:
        """ns."""
        return self.clocks.monotonic() + self.offset

    def at(self, monotonic: int) -> int:
        """The log's time of a monotonic one; 0 stays 0."""
        return monotonic + self.offset if monotonic else 0

    def monotonic(self, steady: int) -> int:
        """The other way; 0 stays 0."""
        return steady - self.offset if steady else 0

    def resume(self, anchor: Anchor | None, last: int) -> None:
        """Go on from the log's last time, `last`, which may be later than its last anchor; and from what that tells."""
        wall = self.clocks.wall()
        if anchor is None:  # format 1: the log's time was the wall clock's
            anchor = Anchor(last, last, 0, NO_BOOT)
        away = wall - anchor.wall
        if anchor.boot_id == self.clocks.boot_id != NO_BOOT:
            jump, away = away, self.clocks.boot() - anchor.boot
            if abs(jump - away) > JUMP:
                log.warning("LOG: the wall clock was set by %.0f s while nobody was there", (jump - away) / 1e9)
        if away > ABSURD:
            log.error(
                "LOG: by the clock nobody was there for %d days: delays go on as if no time had passed",
                away // 86_400e9,
            )
            away = 0
        self.offset = max(last, anchor.steady + max(0, away)) - self.clocks.monotonic()

    def anchor(self) -> Anchor:
        """What the three clocks tell now, to be noted in the log."""
        self.anchor_due = self.clocks.monotonic() + ANCHOR_EVERY
        return Anchor(self.now(), self.clocks.wall(), self.clocks.boot(), self.clocks.boot_id)


def system_clocks() -> Clocks:
    """Those of this machine."""
    try:
        boot_id = bytes.fromhex(Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", ""))
    except (OSError, ValueError):
        boot_id = NO_BOOT
    return Clocks(time.monotonic_ns, time.time_ns, lambda: time.clock_gettime_ns(time.CLOCK_BOOTTIME), boot_id)
