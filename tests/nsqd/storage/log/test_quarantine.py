"""Bytes that a start cuts off or skips are copied first: durably, once, within bounds, and without failing the start."""

import errno

import pytest

from nsqd.storage.log import quarantine
from nsqd.storage.log.files import segment_name
from nsqd.storage.log.quarantine import DAMAGED, TORN, Quarantine
from tests.nsqd.storage.sim_disk import PowerCut, SimDisk
from tests.nsqd.storage.small_log import WALL, new_disk, new_writer, read, write

SEGMENT = segment_name(0, 0)


def log_of(*contents: bytes, stated: bool) -> SimDisk:
    """Each in a group of its own, all durable. `stated`: the log says so, as it does when it is idle."""
    disk = new_disk()
    writer = new_writer(disk)
    for content in contents:
        write(writer, content)
    assert writer.sync()
    if stated:
        assert writer.write_mark()
        assert writer.sync()
    return disk


def flip(disk: SimDisk, what: bytes) -> tuple[int, int]:
    """One bit in the record with that content is wrong. Returns from where to where the record stands."""
    at = disk.content(SEGMENT).index(what)
    disk.flip(SEGMENT, at, 4)
    return at - 9, at + len(what)


def copies(disk: SimDisk) -> dict[str, bytes]:
    return {name: disk.content(name) for name in disk.names() if name.endswith((TORN, DAMAGED))}


def test_below_the_stated_mark_one_wrong_bit_costs_one_record_which_is_copied_and_counted() -> None:
    for what in (b"first", b"second", b"the last"):
        disk = log_of(b"first", b"second", b"the last", stated=True)
        start, end = flip(disk, what)
        damaged = disk.content(SEGMENT)[start:end]
        for _ in range(2):  # the same spot is not copied again
            reader, contents = read(disk)
            assert contents[:-1] == [one for one in (b"first", b"second", b"the last") if one != what]
            assert contents[-1].startswith(WALL.to_bytes(8, "big"))  # the anchor in the group of the mark
            assert reader.damage.spots == [(SEGMENT, start, end)]
            assert (reader.damage.size, reader.torn) == (end - start, 0)
            assert copies(disk) == {f"{SEGMENT}.{start}.damaged": damaged}


def test_behind_the_stated_mark_everything_from_the_wrong_record_on_is_copied_counted_apart_and_cut_off() -> None:
    disk = log_of(b"first", b"second", b"the last", stated=False)
    start, _ = flip(disk, b"second")
    torn = disk.content(SEGMENT)[start:]
    reader, contents = read(disk)
    assert (contents, reader.cuts) == ([b"first"], [(SEGMENT, start, start + len(torn))])
    assert (reader.torn, reader.damage.size) == (len(torn), 0)
    assert disk.content(SEGMENT + f".{start}.torn") == torn
    assert b"the last" in torn
    reader, contents = read(disk)
    assert (contents, reader.torn, len(copies(disk))) == ([b"first"], 0, 1)


def test_a_power_cut_at_any_moment_of_a_repair_loses_no_byte() -> None:
    for moment in range(12):
        disk = log_of(b"first", b"second", b"the last", stated=False)
        start, _ = flip(disk, b"second")
        torn, disk.cut_in = disk.content(SEGMENT)[start:], moment
        try:
            read(disk)
        except PowerCut:
            pass
        for _ in range(10):
            disk.cut_in, crashed = None, disk.crash(disk.random)
            read(crashed)
            assert copies(crashed) == {f"{SEGMENT}.{start}.torn": torn}
            assert crashed.content(SEGMENT) == disk.content(SEGMENT)[:start]


def test_without_space_for_a_copy_the_start_goes_on_and_says_so() -> None:
    disk = log_of(b"first", b"second", stated=False)
    start, _ = flip(disk, b"second")
    disk.fail("append", 1, errno.ENOSPC)
    reader, contents = read(disk)
    assert contents == [b"first"]
    assert "no copy was made: No space left" in reader.quarantine.notes[SEGMENT, start]
    assert copies(disk) == {}
    assert not [name for name in disk.names() if name.endswith(".tmp")]


def test_with_a_disk_that_fails_nothing_is_cut() -> None:
    disk = log_of(b"first", b"second", stated=False)
    flip(disk, b"second")
    before = disk.content(SEGMENT)
    disk.fail("append", 1, errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        read(disk)
    assert disk.content(SEGMENT) == before


def test_of_torn_copies_the_oldest_make_room_and_corrupt_ones_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quarantine, "MOST_BYTES", 100)
    disk = new_disk()
    Quarantine(disk).copy_damaged(SEGMENT, 64, b"d" * 30, DAMAGED)
    for at in range(100, 109):
        Quarantine(disk).copy_damaged(SEGMENT, at, b"t" * 30, TORN)
    assert list(copies(disk)) == [f"{SEGMENT}.107.torn", f"{SEGMENT}.108.torn", f"{SEGMENT}.64.damaged"]
    full = Quarantine(disk)
    full.copy_damaged(SEGMENT, 200, b"d" * 30, DAMAGED)
    full.copy_damaged(SEGMENT, 300, b"t" * 80, TORN)
    assert "use up their limit" in full.notes[SEGMENT, 200]
    assert "use up their limit" in full.notes[SEGMENT, 300]
    assert len(copies(disk)) == 3
