"""The log's clock over restarts: whatever is done to the wall clock, no delay moves that need not."""

import pytest

from nsqd.storage.log.clocks import (
    ABSURD,
    NO_BOOT,
    NOTE,
    Anchor,
    Clocks,
    LogClock,
    drop_note,
    note_of,
    read_note,
    system_clocks,
    write_note,
)
from tests.cases import each
from tests.nsqd.storage.small_log import new_disk

SECOND = 1_000_000_000
HOUR = 3600 * SECOND
WALL = 1_800_000_000 * SECOND
BOOT, OTHER = b"a" * 16, b"b" * 16
ANCHOR = Anchor(steady=WALL, wall=WALL, boot=100 * SECOND, boot_id=BOOT)


def clock(wall: int, boot: int, boot_id: bytes, monotonic: int = 7 * SECOND) -> LogClock:
    return LogClock(Clocks(lambda: monotonic, lambda: wall, lambda: boot, boot_id))


@each("set_by", [0, HOUR, -HOUR, 24 * HOUR, -24 * HOUR, 30 * 365 * 24 * HOUR])
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
    assert (log.at(0), log.monotonic(0), log.monotonic(log.at(123))) == (0, 0, 123)
    assert log.at(7 * SECOND) == log.now() == WALL


def test_an_anchor_is_made_once_a_second() -> None:
    log = clock(WALL, 5, OTHER)
    assert (log.anchor_due, log.anchor(), log.anchor_due) == (0, Anchor(WALL, WALL, 5, OTHER), 8 * SECOND)


def test_this_machine_tells_its_clocks() -> None:
    clocks = system_clocks()
    assert len(clocks.boot_id) == 16
    assert clocks.boot() >= 0
    assert clocks.wall() > WALL // 2


@pytest.mark.parametrize("skew", [-HOUR, 0, HOUR])
def test_the_time_of_another_nodes_log_goes_on_by_what_this_machine_noted(skew: int) -> None:
    before = clock(WALL + skew, 50 * SECOND, OTHER)  # this machine's clocks, when the owner's were those of ANCHOR
    note = note_of(before.clocks, WALL)
    log = clock(WALL + skew + 30 * SECOND, 80 * SECOND, OTHER)
    log.resume(ANCHOR, WALL, note)
    assert log.now() == WALL + 30 * SECOND


def test_a_note_that_is_older_than_the_anchor_is_better_and_an_absurd_one_is_not_taken() -> None:
    log = clock(WALL + HOUR, 100 * SECOND, OTHER)
    log.resume(ANCHOR, WALL, Anchor(WALL - 4 * SECOND, WALL + HOUR - 10 * SECOND, 90 * SECOND, OTHER))
    assert log.now() == WALL + 6 * SECOND
    log = clock(WALL + 10 * SECOND, 110 * SECOND, BOOT)
    log.resume(ANCHOR, WALL, Anchor(WALL + ABSURD + 1, WALL, 90 * SECOND, BOOT))
    assert log.now() == WALL + 10 * SECOND


def test_a_note_is_kept_beside_the_log_until_it_is_dropped() -> None:
    disk = new_disk()
    assert read_note(disk) is None
    write_note(disk, ANCHOR)
    write_note(disk, note := Anchor(5, 6, 7, OTHER))
    assert read_note(disk) == note
    drop_note(disk)
    drop_note(disk)
    assert read_note(disk) is None


@each("content", [b"", b"[]", b"{}", b"[1,2,3]", b'[1,2,3,"00"]', b'[-1,2,3,"' + b"00" * 16 + b'"]', b"[1e999,1,1,1]"])
def test_a_damaged_note_is_none(content: bytes) -> None:
    disk = new_disk()
    file = disk.create(NOTE)
    file.append([content or b" "], 0)
    file.close()
    assert read_note(disk) is None
