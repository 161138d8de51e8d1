"""When a schedule is due: at one time, every so often, or by a cron expression in a time zone.

Each of the three computes its first tick after a time, in whole seconds since the epoch. Where a time zone leaves out an
hour or repeats one, a cron expression means what it does in Debian's cron, as cronsim implements it. One with a fixed hour and
minute is due once: at the first minute after a gap, or in the first of two equal hours. One that begins a field for minutes or
hours with `*` follows real time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from typing import Any

MOST_EXPRESSION = 200  # characters of a cron expression, or of the name of a time zone
CRON_FIELDS = 5  # cronsim would take a sixth, for seconds


@dataclass(frozen=True, slots=True)
class At:
    """The recurrence of a schedule that is due once, at `time` (s since the epoch)."""

    time: int

    def next_after(self, after: int) -> int | None:
        """Return the first tick later than `after`; None: there is none."""
        return self.time if self.time > after else None


@dataclass(frozen=True, slots=True)
class Every:
    """Due every `period` seconds, counted from `start`."""

    period: int
    start: int

    def next_after(self, after: int) -> int | None:
        """Return the first tick later than `after`."""
        return self.start + self.period * max(1, (after - self.start) // self.period + 1)


@dataclass(frozen=True, slots=True)
class Cron:
    """Due when the clock of a time zone matches a cron expression."""

    expression: str
    timezone: str
    # of that name: read once, whatever becomes of its file; None: this machine does not know it
    zone: tzinfo | None = field(compare=False, repr=False)

    def next_after(self, after: int) -> int | None:
        """Return the first tick later than `after`; None: there is none within 50 years, or the zone is not known."""
        if self.zone is None:
            return None
        from cronsim import CronSim

        for found in CronSim(self.expression, datetime.fromtimestamp(after, self.zone)):
            tick = int(found.timestamp())
            if tick > after:  # in the second of two equal hours, cronsim begins in the first
                return tick
        return None


Recurrence = At | Every | Cron


def find_zone(name: str) -> tzinfo:
    """Return the time zone of that name, as this machine knows it. Raises ValueError."""
    from zoneinfo import ZoneInfo

    if name == "UTC":
        return UTC  # cronsim computes three times as fast with it
    try:
        return ZoneInfo(name if len(name) <= MOST_EXPRESSION else "")
    except (KeyError, OSError, ValueError):
        raise ValueError(f"this machine does not know the time zone {name[:100]!r}") from None


def read_cron(expression: str, timezone: str) -> Cron:
    """Return the recurrence of a cron expression. Raises ValueError for a wrong expression or time zone."""
    from cronsim import CronSim, CronSimError

    zone, fields = find_zone(timezone), expression.split()
    if len(expression) > MOST_EXPRESSION or len(fields) != CRON_FIELDS or not expression.isascii():
        raise ValueError("expected five fields, such as 30 6 * * MON")
    try:
        CronSim(expression, datetime.fromtimestamp(0, zone))
    except CronSimError as error:
        raise ValueError(str(error)) from None
    return Cron(" ".join(fields), timezone, zone)


def pack_recurrence(recurrence: Recurrence) -> list[Any]:
    """Return a recurrence as msgpack can hold it."""
    match recurrence:
        case At(time):
            return ["at", time]
        case Every(period, start):
            return ["every", period, start]
        case Cron(expression, timezone):
            return ["cron", expression, timezone]


def unpack_recurrence(packed: list[Any]) -> Recurrence:
    """Return the recurrence that `pack_recurrence` packed. Raises ValueError."""
    match packed:
        case ["at", int(time)]:
            return At(time)
        case ["every", int(period), int(start)] if period > 0:
            return Every(period, start)
        case ["cron", str(expression), str(timezone)]:
            try:
                return read_cron(expression, timezone)
            except ValueError:  # the node that took it knew the zone
                return Cron(expression, timezone, None)
    raise ValueError("a schedule is never due")
