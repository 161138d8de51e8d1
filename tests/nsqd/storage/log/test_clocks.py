"""The log's clock over restarts: no delay moves without need, whatever happens to the wall clock."""

from random import Random

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


@each("wall, boot, boot_id, anchor, last, now", [
    # on the same boot the wall clock may be set
    *((WALL + 10 * SECOND + set_by, 110 * SECOND, BOOT, ANCHOR, WALL, WALL + 10 * SECOND)
      for set_by in (0, HOUR, -HOUR, 24 * HOUR, -24 * HOUR, 30 * 365 * 24 * HOUR)),
    (WALL + 10 * SECOND, 3 * SECOND, OTHER, ANCHOR, WALL, WALL + 10 * SECOND),  # a new boot: by the wall clock
    # a machine that does not know its boot: by the wall clock
    (WALL + 10 * SECOND, 105 * SECOND, NO_BOOT, Anchor(WALL, WALL, 100 * SECOND, NO_BOOT), WALL, WALL + 10 * SECOND),
    # time never goes back
    (WALL - HOUR, 3, OTHER, ANCHOR, WALL + SECOND // 2, WALL + SECOND // 2),
    (WALL, 99 * SECOND, BOOT, ANCHOR, WALL + SECOND // 2, WALL + SECOND // 2),
    (WALL + ABSURD + 1, 3 * SECOND, OTHER, ANCHOR, WALL, WALL),  # an absurd absence counts as none
    # the time since the last group counts from the anchor before it
    (WALL + 10 * SECOND, 110 * SECOND, BOOT, ANCHOR, WALL + 900_000_000, WALL + 10 * SECOND),
    (WALL + 10 * SECOND, 3 * SECOND, OTHER, None, WALL, WALL + 10 * SECOND),  # a log without an anchor
])  # fmt: skip
def test_the_clock_of_a_log_after_a_start(
    wall: int, boot: int, boot_id: bytes, anchor: Anchor | None, last: int, now: int
) -> None:
    log = clock(wall, boot, boot_id)
    log.resume(anchor, last)
    assert log.now() == now


@pytest.mark.parametrize("skew", [-HOUR, 0, HOUR])
def test_the_time_of_another_nodes_log_continues_from_the_note(skew: int) -> None:
    before = clock(WALL + skew, 50 * SECOND, OTHER)  # this machine's clocks, when the leader's were those of ANCHOR
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
    assert all(read_note(disk.crash(Random(seed))) is None for seed in range(5)), "durably"


@each("content", [b"", b"[]", b"{}", b"[1,2,3]", b'[1,2,3,"00"]', b'[-1,2,3,"' + b"00" * 16 + b'"]', b"[1e999,1,1,1]"])
def test_a_corrupt_note_is_none(content: bytes) -> None:
    disk = new_disk()
    file = disk.create(NOTE)
    file.append([content or b" "], 0)
    file.close()
    assert read_note(disk) is None
