"""When schedules are due: cron in time zones that leave out or repeat an hour, periods, single times, and bad input."""

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsqd.core.scheduling.recurrence import At, Every, pack_recurrence, read_cron, unpack_recurrence
from tests.cases import each
from tests.effort import tries

HOUR = 3600


def ticks(expression: str, zone: str, start: str, count: int) -> list[str]:
    """Return the first ticks after a time in the zone: minutes and offset from UTC."""
    cron, found = read_cron(expression, zone), []
    at = int(datetime.fromisoformat(start).replace(tzinfo=ZoneInfo(zone)).timestamp())
    for _ in range(count):
        following = cron.next_after(at)
        assert following is not None
        assert following > at
        at = following
        found.append(datetime.fromtimestamp(at, ZoneInfo(zone)).strftime("%d %H:%M%z"))
    return found


BERLIN, HAVANA, LORD_HOWE = "Europe/Berlin", "America/Havana", "Australia/Lord_Howe"


@each("expression, zone, start, expected", [
    # in Berlin, 02:00 to 03:00 is missing on 29 March 2026, and is repeated on 25 October
    ("30 2 * * *", BERLIN, "2026-03-28 00:00", ["28 02:30+0100", "29 03:00+0200", "30 02:30+0200"]),
    ("0,30 2 * * *", BERLIN, "2026-03-28 12:00", ["29 03:00+0200", "30 02:00+0200"]),
    ("0 */2 * * *", BERLIN, "2026-03-29 00:00", ["29 04:00+0200", "29 06:00+0200"]),
    ("30 * * * *", BERLIN, "2026-03-29 01:00", ["29 01:30+0100", "29 03:30+0200"]),
    ("30 2 * * *", BERLIN, "2026-10-24 12:00", ["25 02:30+0200", "26 02:30+0100"]),
    ("30 * * * *", BERLIN, "2026-10-25 01:00", ["25 01:30+0200", "25 02:30+0200", "25 02:30+0100", "25 03:30+0100"]),
    ("0 9 * * MON-FRI", BERLIN, "2026-03-27 10:00", ["30 09:00+0200", "31 09:00+0200"]),
    # midnight is missing on 8 March 2026 in Havana
    ("0 0 * * *", HAVANA, "2026-03-07 12:00", ["08 01:00-0400", "09 00:00-0400"]),
    # half an hour is missing on 4 October 2026 on Lord Howe Island
    ("15 2 * * *", LORD_HOWE, "2026-10-03 12:00", ["04 02:30+1100", "05 02:15+1100"]),
])  # fmt: skip
def test_missing_and_repeated_hours(expression: str, zone: str, start: str, expected: list[str]) -> None:
    assert ticks(expression, zone, start, len(expected)) == expected


def test_a_fixed_time_is_not_repeated_in_the_second_of_two_equal_hours() -> None:
    cron = read_cron("30 2 * * *", BERLIN)
    second = int(datetime(2026, 10, 25, 1, 10, tzinfo=UTC).timestamp())  # 02:10 for the second time
    assert cron.next_after(second) == int(datetime(2026, 10, 26, 1, 30, tzinfo=UTC).timestamp())


@settings(max_examples=tries(200), deadline=None)
@given(st.integers(0, 366 * 24 * 60), st.sampled_from([BERLIN, HAVANA, LORD_HOWE, "UTC", "America/New_York"]))
def test_a_wildcard_follows_real_time(minute: int, zone: str) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=minute)
    found = read_cron("*/20 * * * *", zone).next_after(int(start.timestamp()))
    real = start + timedelta(minutes=1)
    while real.astimezone(ZoneInfo(zone)).minute % 20:
        real += timedelta(minutes=1)
    assert found == int(real.timestamp())


def test_periods_count_from_their_start_and_times_come_once() -> None:
    every = Every(600, 1000)
    assert [every.next_after(after) for after in (0, 1000, 1599, 1600, 10**9)] == [1600, 1600, 1600, 2200, 10**9 + 600]
    assert (At(5).next_after(4), At(5).next_after(5)) == (5, None)


@each("recurrence", [At(5), Every(600, 1000), read_cron("30  6 * * MON", BERLIN)])
def test_a_recurrence_is_packed(recurrence: At | Every) -> None:
    assert unpack_recurrence(pack_recurrence(recurrence)) == recurrence


EXPRESSIONS = (
    "", "* * * *", "* * * * * *", "60 * * * *", "a * * * *", "@daily", "*/0 * * * *", "5-1 * * * *", "0 0 30 2 *",
    "\u0665 * * * *", "1," * 200 + "1 * * * *", "0\0 * * * *",
)  # fmt: skip
ZONES = ("", "Mars", "Europe", "../../etc/passwd", "/etc/passwd", "\0", "\ud800", "a" * 9999)


@each("expression, zone", [*((one, "UTC") for one in EXPRESSIONS), *(("* * * * *", zone) for zone in ZONES)])
def test_bad_input(expression: str, zone: str) -> None:
    with pytest.raises(ValueError):
        read_cron(expression, zone)


@each("packed", [[], ["at"], ["at", "5"], ["every", 0, 1], ["cron", 1, 2], "at", None])
def test_bad_packed(packed: Any) -> None:
    with pytest.raises(ValueError):
        unpack_recurrence(packed)
