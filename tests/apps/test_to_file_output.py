"""The files of a topic on a disk in memory, which fails, and on a real one."""

import gzip
import os
from pathlib import Path

import pytest

from apps.to_file.disk import Disk
from apps.to_file.output import Output, Place
from apps.to_file.rotation import Limits
from tests.apps.fake_disk import FakeDisk
from tests.cases import each

NAME = "t<REV>.log"


def place(work: str = "/out", gzip_level: int = 0, limits: Limits | None = None, output: str = "/out") -> Place:
    return Place("t/c", output, work, gzip_level, limits or Limits())


def write(output: Output, data: bytes, name: str = NAME) -> None:
    if not output.is_open:
        output.rotate(name, 0.0)
    output.append(data)
    output.sync()


@pytest.fixture
def disk() -> FakeDisk:
    return FakeDisk()


def cut_short(disk: FakeDisk, output: Output, *plan: bool) -> None:
    """Let a write fail halfway, and the following calls as `plan` says; then roll back."""
    disk.plan = [True, *plan]
    with pytest.raises(OSError, match="No space"):
        output.append(b"abcdef\n")
    output.roll_back()


def test_a_file_is_appended_to_and_its_directory_is_made(disk: FakeDisk) -> None:
    for data in (b"a\n", b"b\n"):
        output = Output(place("/out/deep", output="/out/deep"), disk)
        write(output, data, "sub/t.log")
        output.close()
    assert bytes(disk.durable_names["/out/deep/sub/t.log"].durable) == b"a\nb\n"


def test_a_gzip_file_is_never_appended_to_and_has_a_member_for_each_sync(disk: FakeDisk) -> None:
    for _ in range(2):
        output = Output(place(gzip_level=9), disk)
        write(output, b"a\n")
        assert disk.calls.count("write") % 2 == 1
        write(output, b"b\n")
        output.close()
    assert sorted(disk.names) == ["/out/t-000000.log", "/out/t-000001.log"]
    content = bytes(disk.names["/out/t-000001.log"].durable)
    assert content.count(b"\x1f\x8b\x08") == 2
    assert gzip.decompress(content) == b"a\nb\n"


def test_a_file_that_is_too_large_is_not_appended_to(disk: FakeDisk) -> None:
    for _ in range(4):
        output = Output(place(limits=Limits(size=3)), disk)
        write(output, b"a\n")
        output.close()
    assert {name: bytes(file.content) for name, file in disk.names.items()} == {
        "/out/t-000000.log": b"a\na\n",
        "/out/t-000001.log": b"a\na\n",
    }


def test_a_finished_file_goes_to_the_output_directory(disk: FakeDisk) -> None:
    output = Output(place(work="/open"), disk)
    write(output, b"a\n", "x/" + NAME)
    assert list(disk.names) == ["/open/x/t-000000.log"]
    output.close()
    assert list(disk.names) == list(disk.durable_names) == ["/out/x/t-000000.log"]
    write(output, b"b\n", "x/" + NAME)  # the original writes to the closed file here
    output.close()
    assert sorted(disk.durable_names) == ["/out/x/t-000000.log", "/out/x/t-000001.log"]


def test_a_name_that_exists_in_the_output_directory_is_skipped(disk: FakeDisk) -> None:
    write(Output(place(), disk), b"old\n")
    output = Output(place(work="/open"), disk)
    write(output, b"a\n")
    assert "/open/t-000001.log" in disk.names
    write(Output(place(), disk), b"new\n", "t-000001.log")  # while the file was open
    output.close()
    assert sorted(disk.names) == ["/out/t-000000.log", "/out/t-000001.log", "/out/t-000002.log"]
    assert bytes(disk.names["/out/t-000001.log"].content) == b"new\n"
    assert bytes(disk.names["/out/t-000002.log"].content) == b"a\n"


@pytest.mark.parametrize("step", ["move", "unlink", "sync_directory"])
def test_a_move_that_was_interrupted_goes_on(step: str, disk: FakeDisk) -> None:
    output = Output(place(work="/open"), disk)
    write(output, b"a\n")
    disk.plan = [False] * {"move": 2, "unlink": 4, "sync_directory": 5}[step] + [True]
    with pytest.raises(OSError, match="No space"):
        output.close()
    assert disk.calls[-1] == step
    output.rotate(NAME, 0.0)
    output.close()
    assert sorted(disk.names) == ["/out/t-000000.log", "/out/t-000001.log"]


@each("work", ["/out", "/open"])
def test_a_file_of_its_own_that_cannot_be_cut_is_left_for_a_new_revision(work: str) -> None:
    disk = FakeDisk()
    output = Output(place(work=work, limits=Limits(interval=9.0)), disk)
    write(output, b"good\n")
    cut_short(disk, output, True)
    assert not output.is_open
    write(output, b"abcdef\n")
    assert bytes(disk.names[f"{work}/t-000001.log"].durable) == b"abcdef\n"
    output.close()
    assert sorted(disk.durable_names) == ["/out/t-000000.log", "/out/t-000001.log"]
    assert bytes(disk.names["/out/t-000000.log"].content).startswith(b"good\n")


def test_failures_leave_no_empty_files(disk: FakeDisk) -> None:
    output = Output(place(gzip_level=1), disk)
    for failing in range(4):
        disk.plan = [False] * failing + [True]
        with pytest.raises(OSError, match="No space"):
            write(output, b"a\n")
        output.roll_back()
    write(output, b"a\n")
    assert len(disk.names) == 1


def test_another_writers_lines_are_never_cut(disk: FakeDisk) -> None:
    output, other = Output(place(), disk), Output(place(), disk)
    write(other, b"1\n")
    write(output, b"2\n")
    disk.plan = [True]
    with pytest.raises(OSError, match="No space"):
        output.append(b"abcdef\n")
    other.append(b"3\n")
    other.sync()
    output.roll_back()
    write(output, b"abcdef\n")
    assert bytes(disk.opened[0].content).split(b"\n")[-2:] == [b"abcdef", b""]
    assert b"1\n2\nabc3\n" in bytes(disk.opened[0].content)


def test_after_a_write_in_part_to_a_shared_file_the_next_line_stands_alone(disk: FakeDisk) -> None:
    other, output = Output(place(), disk), Output(place(), disk)
    write(other, b"1\n")
    write(output, b"2\n")
    cut_short(disk, output)
    write(output, b"abcdef\n")
    assert bytes(disk.opened[0].durable) == b"1\n2\nabc\nabcdef\n"


def test_a_line_that_a_crash_has_cut_is_ended_first(disk: FakeDisk) -> None:
    disk.make_directory("/out")
    fd = disk.open("/out/t.log", False)
    disk.write(fd, b"whole\nhal")
    write(Output(place(), disk), b"half\n", "t.log")
    assert bytes(disk.names["/out/t.log"].durable) == b"whole\nhal\nhalf\n"


@each("gzip_level", [0, 6])
def test_a_file_that_is_removed_is_noticed_before_anything_in_it_counts(gzip_level: int) -> None:
    disk = FakeDisk()
    output = Output(place(gzip_level=gzip_level), disk)
    write(output, b"a\n")
    disk.remove_directory("/out")
    with pytest.raises(FileNotFoundError, match="was removed"):
        write(output, b"b\n")
    output.roll_back()
    write(output, b"b\n")
    assert disk.durable_lines() == {b"b"}


def test_an_empty_gzip_file_is_one_that_gzip_can_read(disk: FakeDisk) -> None:
    output = Output(place(gzip_level=6), disk)
    output.rotate(NAME, 0.0)
    output.close()
    assert len(disk.opened[0].durable) > 0
    assert gzip.decompress(disk.opened[0].durable) == b""


# ---- the real disk


def test_the_real_disk_does_what_the_one_in_memory_does(tmp_path: Path) -> None:
    disk, path = Disk(), str(tmp_path / "a" / "b" / "file")
    disk.make_directory(os.path.dirname(path))
    assert os.stat(tmp_path / "a").st_mode & 0o007 == 0
    fd = disk.open(path, exclusive=True)
    with pytest.raises(FileExistsError):
        disk.open(path, exclusive=True)
    second = disk.open(path, exclusive=False)
    assert (disk.lock(fd), disk.lock(second)) == (True, False)
    disk.close(fd)
    assert disk.lock(second)
    assert not disk.ends_within_a_line(second)
    disk.write(second, b"ab\ncd")
    assert disk.ends_within_a_line(second)
    disk.truncate(second, 3)
    disk.write(second, b"e\n")
    disk.sync(second)
    assert disk.size(second) == 5
    other = str(tmp_path / "other")
    disk.move(path, other)
    assert not disk.exists(path)
    assert Path(other).read_bytes() == b"ab\ne\n"
    os.link(other, path)  # a move that was interrupted
    disk.move(path, other)
    Path(path).write_bytes(b"another file")
    with pytest.raises(FileExistsError):
        disk.move(path, other)
    assert not disk.is_removed(second)
    disk.remove(other)
    assert disk.is_removed(second)
    disk.close(second)


def test_the_real_disk_under_the_output(tmp_path: Path) -> None:
    output = Output(place(str(tmp_path / "work"), 6, output=str(tmp_path / "out")), Disk())
    write(output, b"a\n")
    write(output, b"b\n")
    output.close()
    assert gzip.decompress((tmp_path / "out/t-000000.log").read_bytes()) == b"a\nb\n"
    assert list((tmp_path / "work").iterdir()) == []
