"""The log's clock over restarts: whatever is done to the wall clock, no delay moves that need not."""

import pytest

from nsqd.storage.log.clocks import ABSURD, NO_BOOT, Anchor, Clocks, LogClock, system_clocks

SECOND = 1_000_000_000
HOUR = 3600 * SECOND
WALL = 1_800_000_000 * SECOND
BOOT, OTHER = b"a" * 16, b"b" * 16
ANCHOR = Anchor(steady=WALL, wall=WALL, boot=100 * SECOND, boot_id=BOOT)


def clock(wall: int, boot: int, boot_id: bytes, monotonic: int = 7 * SECOND) -> LogClock:
    return LogClock(Clocks(lambda: monotonic, lambda: wall, lambda: boot, boot_id))


@pytest.mark.parametrize("set_by", [0, HOUR, -HOUR, 24 * HOUR, -24 * HOUR, 30 * 365 * 24 * HOUR])
def test_on_the_same_boot_the_wall_clock_may_be_set(set_by: int) -> None:
    log = clock(WALL + 10 * SECOND + set_by, 110 * SECOND, BOOT)
    log.resume(ANCHOR, WALL)
    assert log.now() == WALL + 10 * SECOND


def test_after_a_new_boot_the_wall_clock_tells() -> None:
    log = clock(WALL + 10 * SECOND, 3 * SECOND, OTHER)
    log.resume(ANCHOR, WALL)
    assert log.now() == WALL + 10 * SECOND


def test_a_machine_that_does_not_know_its_boot_believes_the_wall_clock() -> None:
    log = clock(WALL + 10 * SECOND, 105 * SECOND, NO_BOOT)
    log.resume(Anchor(WALL, WALL, 100 * SECOND, NO_BOOT), WALL)
    assert log.now() == WALL + 10 * SECOND


@pytest.mark.parametrize(("wall", "boot", "boot_id"), [(WALL - HOUR, 3, OTHER), (WALL, 99 * SECOND, BOOT)])
def test_time_never_goes_back(wall: int, boot: int, boot_id: bytes) -> None:
    log = clock(wall, boot, boot_id)
    log.resume(ANCHOR, WALL + SECOND // 2)
    assert log.now() == WALL + SECOND // 2


def test_an_absurd_absence_counts_as_none() -> None:
    log = clock(WALL + ABSURD + 1, 3 * SECOND, OTHER)
    log.resume(ANCHOR, WALL)
    assert log.now() == WALL


def test_the_time_since_the_last_group_counts_from_the_anchor_before_it() -> None:
    log = clock(WALL + 10 * SECOND, 110 * SECOND, BOOT)
    log.resume(ANCHOR, WALL + 900_000_000)
    assert log.now() == WALL + 10 * SECOND


def test_a_log_of_format_1_goes_on_by_the_wall_clock() -> None:
    log = clock(WALL + 10 * SECOND, 3 * SECOND, OTHER)
    log.resume(None, WALL)
    assert log.now() == WALL + 10 * SECOND


def test_dues_go_to_and_fro() -> None:
    log = clock(WALL, 0, OTHER)
    assert log.at(0) == 0
    assert log.monotonic(0) == 0
    assert log.monotonic(log.at(123)) == 123
    assert log.at(7 * SECOND) == log.now() == WALL


def test_an_anchor_is_made_once_a_second() -> None:
    log = clock(WALL, 5, OTHER)
    assert log.anchor_due == 0
    assert log.anchor() == Anchor(WALL, WALL, 5, OTHER)
    assert log.anchor_due == 8 * SECOND


def test_this_machine_tells_its_clocks() -> None:
    clocks = system_clocks()
    assert len(clocks.boot_id) == 16
    assert clocks.boot() >= 0
    assert clocks.wall() > WALL // 2
