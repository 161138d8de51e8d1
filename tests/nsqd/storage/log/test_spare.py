"""The segment that is made ahead, on the simulated disk and on the real one."""

import errno
from pathlib import Path

import pytest

from nsqd.storage.log.disk import RealDisk
from nsqd.storage.log.spare import NAME, ROOM, Spare
from tests.nsqd.storage.sim_disk import SimDisk
from tests.nsqd.storage.small_log import new_disk, new_writer, read, write


class NowSpare(Spare):
    """A Spare that makes the next segment at once, without a thread."""

    def _start(self) -> None:
        self._fill()


def spares(disk: SimDisk) -> list[str]:
    return [name for name in disk.names() if name.startswith(NAME)]


def test_a_segment_made_ahead_is_taken_over_at_once() -> None:
    disk = new_disk()
    writer = new_writer(disk, segment_size=1600, spare=NowSpare)
    write(writer, b"a" * 200)
    assert not spares(disk)
    writer.expect_syncs()
    assert disk.content(f"{NAME}1") == bytes(1600)
    write(writer, b"b")
    assert len(disk.names()) == 2  # the first segment is not full, but the syncs of the second are quicker
    assert len(disk.content(disk.names()[1])) == 1600
    writer.expect_syncs()
    write(writer, b"c")
    assert len(disk.names()) == 2
    assert read(disk)[1] == [b"a" * 200, b"b", b"c"]


def test_what_was_not_used_is_cut_off_when_the_segment_ends_and_when_the_log_is_closed() -> None:
    disk = new_disk()
    writer = new_writer(disk, segment_size=1600, spare=NowSpare)
    write(writer, b"a" * 200)
    writer.expect_syncs()
    write(writer, b"b")
    second = writer.base
    writer.begin_state(bytes(12))
    write(writer, b"c")
    assert len(disk.content(disk.names()[1])) == 64 + writer.base - second
    write(writer, b"d" * 200)
    writer.expect_syncs()
    write(writer, b"e")
    assert len(disk.content(disk.names()[-1])) == 1600
    writer.sync()
    writer.close()
    assert len(disk.content(disk.names()[-1])) == 64 + writer.written.position - writer.base
    assert not spares(disk)


def test_nothing_is_made_ahead_for_who_writes_little() -> None:
    disk = new_disk()
    writer = new_writer(disk, segment_size=16_000, spare=NowSpare)
    write(writer, b"a")
    writer.expect_syncs()
    assert not spares(disk)


def test_what_another_process_left_is_removed() -> None:
    disk = new_disk()
    disk.put(f"{NAME}7", bytes(100))
    new_writer(disk)
    assert not spares(disk)


@pytest.mark.parametrize("operation", ["create", "append", "sync", "rename"])
def test_without_it_the_log_goes_on(operation: str) -> None:
    disk = new_disk()
    writer = new_writer(disk, segment_size=1600, spare=NowSpare)
    write(writer, b"a" * 200)
    disk.fail(operation, 1, errno.EIO)
    writer.expect_syncs()
    write(writer, b"b" * 2000)
    write(writer, b"c")
    assert not writer.failure
    assert not spares(disk)
    assert read(disk)[1] == [b"a" * 200, b"b" * 2000, b"c"]


def test_it_takes_no_space_where_there_is_little() -> None:
    disk = new_disk()
    disk.capacity = ROOM * 1000 - 1
    spare = NowSpare(disk, 1000)
    spare.prepare()
    assert (spare.ready, disk.names()) == (False, [])


def test_the_thread_makes_it_and_is_stopped(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    spare = Spare(disk, 10_000_000)
    spare.prepare()
    assert spare._thread is not None
    spare._thread.join()
    file = spare.claim("a")
    assert file is not None
    assert (tmp_path / "a").read_bytes() == bytes(10_000_000)
    file.close()
    spare.prepare()
    spare.close()
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
