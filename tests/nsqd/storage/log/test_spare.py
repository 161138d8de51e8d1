"""The segment that is made ahead, on the simulated disk and on the real one."""

import errno
from pathlib import Path

import pytest

from nsqd.core.records import GROUP
from nsqd.storage.log.disk import RealDisk
from nsqd.storage.log.files import segment_name
from nsqd.storage.log.reader import LogRecords
from nsqd.storage.log.records import HEADER_SIZE, PREFIX_SIZE, seed_of, spare_header
from nsqd.storage.log.spare import NAME, Spare
from nsqd.storage.log.writer import BLOCK, LARGE_GROUP, Writer
from tests.cases import each
from tests.nsqd.storage.sim_disk import SimDisk
from tests.nsqd.storage.small_log import EPOCH, LOG_ID, new_disk, new_writer, read, write

GROUP_BYTES = PREFIX_SIZE + 1 + GROUP.size  # bytes of the record that begins a group


class NowSpare(Spare):
    """A Spare that makes the next segment at once, without a thread."""

    def _start(self) -> None:
        self._work()


def spares(disk: SimDisk) -> list[str]:
    return [name for name in disk.names() if name.startswith(NAME)]


def new_log(segment_size: int = 1600) -> tuple[SimDisk, Writer]:
    """A log with so much in its first segment that the next one is made ahead."""
    disk = new_disk()
    writer = new_writer(disk, segment_size=segment_size, spare=NowSpare)
    write(writer, b"a" * 200)
    return disk, writer


def test_a_segment_made_ahead_is_promoted_at_once() -> None:
    disk, writer = new_log()
    assert not spares(disk)
    writer.expect_syncs()
    assert disk.content(f"{NAME}1") == bytes(1600)
    write(writer, b"b")
    assert len(disk.names()) == 2  # the first segment is not full, but the syncs of the second are quicker
    assert len(disk.content(disk.names()[1])) == BLOCK
    writer.expect_syncs()
    write(writer, b"c")
    assert (len(disk.names()), read(disk)[1]) == (2, [b"a" * 200, b"b", b"c"])


@each("operation", ["create", "append", "sync", "rename"])
def test_without_it_the_log_goes_on(operation: str) -> None:
    disk, writer = new_log()
    disk.fail(operation, 1, errno.EIO)
    writer.expect_syncs()
    write(writer, b"b" * 2000)
    write(writer, b"c")
    assert not writer.failure
    assert not spares(disk)
    assert read(disk)[1] == [b"a" * 200, b"b" * 2000, b"c"]


def test_the_thread_makes_it_and_is_stopped(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    spare = Spare(disk, 10_000_000)
    spare.prepare(at_once=True)
    spare._thread.join()
    made = spare.claim("a")
    file, former = made
    assert (former, (tmp_path / "a").read_bytes()) == (0, bytes(10_000_000))
    file.close()
    spare.prepare(at_once=True)
    spare.close()
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


class Reusing:
    """A log whose first segment's file has become the newest segment."""

    def __init__(self, size: int = 16_000) -> None:
        self.disk = new_disk()
        self.writer = new_writer(self.disk, segment_size=size, spare=NowSpare)
        for _ in range(size // 1000 + 1):
            write(self.writer, b"o" * 980)
        self.writer.sync()
        self.writer.expect_syncs()  # the second segment is made of zeros
        write(self.writer, b"a")
        self.writer.expect_syncs()
        self.writer.sync()
        self.old = self.disk.content(segment_name(0, 0))
        assert self.writer.reuse(0, len(self.disk.content(segment_name(0, 0))))
        self.writer.begin_state(bytes(12))
        write(self.writer, b"b")
        self.name = segment_name(self.writer.base, 0)
        self.end = self.writer.written.position - self.writer.base + HEADER_SIZE  # offset in the file

    def restart(self, disk: SimDisk) -> LogRecords:
        """Read the log from its newest checkpoint on, as a start does."""
        reader = LogRecords(disk)
        list(reader.records(reader.roots()[0]))
        return reader


@each("kept", [0, 3, 8, 40, 4000])
def test_a_torn_group_is_cut_off_without_the_old_records(kept: int) -> None:
    log = Reusing()
    end, old = log.end, log.disk.content(log.name)
    write(log.writer, b"c" * 6000)
    torn = log.disk.kill()
    new = torn.content(log.name)
    torn.put(log.name, new[: end + kept] + old[end + kept :])
    reader = log.restart(torn)
    good = end + (GROUP_BYTES if kept >= GROUP_BYTES else 0)
    assert (reader.end, len(torn.content(log.name))) == (log.writer.base + good - HEADER_SIZE, good)
    if kept > 3:  # the first bytes of a length are zeros
        ((name, start, stop),) = reader.cuts
        assert (name, start) == (log.name, good)
        assert end + kept <= stop <= max(BLOCK, end + kept) + 1010  # up to the next old record
    else:
        assert reader.cuts == []


def test_a_corrupt_record_does_not_bring_the_old_ones_back() -> None:
    log = Reusing()
    write(log.writer, b"c" * 100)
    log.writer.sync()
    write(log.writer, b"d")  # its group states that the record before is durable
    disk = log.disk.kill()
    disk.flip(log.name, log.end + 60)
    reader = log.restart(disk)
    assert [(name, start) for name, start, _ in reader.damage.spots] == [(log.name, log.end + GROUP_BYTES)]
    assert reader.end == log.writer.written.position


@pytest.mark.parametrize("header", ["spare", "whole"])
def test_a_power_cut_may_leave_a_reused_file_without_its_first_group(header: str) -> None:
    log = Reusing()
    disk = log.disk.kill()
    content = disk.content(log.name)
    begun = spare_header(seed_of(LOG_ID, 0, 0, EPOCH)) if header == "spare" else content[:HEADER_SIZE]
    disk.put(log.name, begun + log.old[HEADER_SIZE:])
    reader = LogRecords(disk)
    list(reader.records())
    assert (reader.end, reader.files.rebuilt, reader.cuts) == (log.writer.base, [], [])
    assert reader.quarantine.copies == []


def test_no_zeros_are_written_for_large_groups() -> None:
    disk = new_disk()
    writer = new_writer(disk, segment_size=1_000_000, spare=NowSpare)
    for content in (bytes(2 * LARGE_GROUP), bytes(LARGE_GROUP), b"small"):  # the epoch is a group, too
        write(writer, content)
        writer.expect_syncs()
        assert disk.operations["create"] == 1
    write(writer, bytes(20_000))
    writer.expect_syncs()
    assert spares(disk)


def test_an_open_file_is_not_reused(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    disk.create("a").close()
    file = disk.open("a")
    spare = NowSpare(disk, 10**15)  # there is no room to make one of zeros
    spare.prepare()
    assert not spare.reuse("a", 10**15, 5)
    file.close()
    assert spare.reuse("a", 10**15, 5)
    assert disk.names() == [f"{NAME}2"]
    spare.close()
    assert disk.names() == []
