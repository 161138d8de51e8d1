"""The log's end: groups, segments, what is durable, and what happens when the disk fails."""

import errno
import logging

import pytest

from nsqd.core.records import RecordKind
from nsqd.storage.log.files import segment_name
from nsqd.storage.log.records import HEADER_SIZE, decode_header
from nsqd.storage.log.spare import SpareFile
from tests.nsqd.storage.sim_disk import SimDisk
from tests.nsqd.storage.small_log import IDENTITY, all_records, log_of, new_writer, read, write


def test_nothing_is_made_before_there_is_something_to_write() -> None:
    disk, writer = log_of()
    assert writer.write() == 0
    assert writer.sync()
    assert disk.names() == []


def test_a_group_is_one_write_and_begins_with_the_durable_mark() -> None:
    disk, writer = log_of()
    write(writer, b"a", b"b")
    first = writer.written.position
    assert writer.sync()
    before = disk.operations["append"]
    write(writer, b"c")
    assert disk.operations["append"] == before + 1
    reader, contents = read(disk.kill())
    assert (contents, reader.end) == ([b"a", b"b", b"c"], writer.written.position)
    groups = [record for record in all_records(reader) if record.kind == RecordKind.GROUP]
    # the epoch has a group of its own
    assert [int.from_bytes(group.content[:8], "big") for group in groups] == [0, 0, first]


def test_the_directory_is_synced_once_for_each_segment() -> None:
    disk, writer = log_of(segment_size=300)
    for number in range(1, 4):
        write(writer, b"a" * 100)
        assert writer.sync()
        write(writer, b"b" * 200)
        assert writer.sync()
        assert disk.operations["sync_directory"] == number
    assert len(disk.names()) == 3


def test_positions_count_bytes_of_records_over_all_segments() -> None:
    disk, writer = log_of(position=1000, segment_size=100)
    for number in range(6):
        write(writer, b"%d" % number * 30)
    names = disk.names()
    assert len(names) > 2
    end = 1000
    for name in names:
        header = decode_header(disk.content(name))
        assert (header.base, header.node, header.log_id) == (end, IDENTITY.node, IDENTITY.log_id)
        assert name == segment_name(end, 0)
        end += len(disk.content(name)) - HEADER_SIZE
    assert end == writer.written.position


def test_a_sync_of_what_was_written_before_does_not_cover_what_came_since() -> None:
    disk, writer = log_of(segment_size=50)
    covered, job = write(writer, b"a" * 60), writer.sync_job()
    write(writer, b"b" * 60)  # a segment of its own, while the sync runs
    job.run()
    writer.synced(job)
    assert writer.durable.position == covered < writer.written.position
    assert writer.sync()
    assert writer.durable.position == writer.written.position
    assert read(disk.crash(disk.random))[1] == [b"a" * 60, b"b" * 60]


def test_files_that_are_durable_are_closed() -> None:
    disk, writer = log_of(segment_size=50)
    for number in range(5):
        write(writer, b"%d" % number * 60)
    assert disk.open_files == 5
    writer.sync()
    assert disk.open_files == 1
    writer.close()
    assert disk.open_files == 0


def test_a_group_that_cannot_be_written_stays_and_keeps_its_order() -> None:
    disk, writer = log_of()
    write(writer, b"a")
    disk.fail("append", 1, errno.ENOSPC, times=2)
    waits_for = write(writer, b"b")
    assert waits_for > writer.written.position
    assert "No space left" in writer.failure
    assert writer.sync()
    assert writer.durable.position < waits_for
    write(writer, b"c")
    assert writer.failure
    assert write(writer, b"d") >= waits_for
    assert (writer.failure, read(disk.kill())[1]) == ("", [b"a", b"b", b"c", b"d"])


@pytest.mark.parametrize("before", [[], [b"a"]])
def test_a_reply_to_a_group_that_cannot_be_written_waits_for_the_end_of_the_group(before: list[bytes]) -> None:
    """A copy on another node may end within a group."""
    disk, writer = log_of()
    for content in before:  # otherwise the record that begins the epoch comes first
        write(writer, content)
    disk.fail("append", 1, errno.EIO)
    waits_for = write(writer, b"b" * 1000)
    assert writer.group
    assert waits_for > writer.written.position + 1000
    assert writer.write() == waits_for
    assert not writer.group


def test_a_group_of_which_a_part_was_written_is_written_again_in_its_place() -> None:
    for seed in range(30):
        disk, writer = log_of()
        disk.random.seed(seed)
        write(writer, b"a")
        disk.fail("append", 1, errno.EIO)
        write(writer, b"b" * 200)
        reader, contents = read(disk.kill())  # killed before it is written again
        assert contents in ([b"a"], [b"a", b"b" * 200])
        assert not reader.damage.spots
        write(writer, b"c")
        assert read(disk.kill())[1] == [b"a", b"b" * 200, b"c"]


def test_that_nothing_can_be_written_is_logged_once_and_its_end_too(caplog: pytest.LogCaptureFixture) -> None:
    disk, writer = log_of()
    write(writer, b"one")
    disk.fail("append", 1, errno.ENOSPC, times=3)
    with caplog.at_level(logging.INFO, "penstock"):
        for _ in range(5):
            write(writer, b"more")
    assert caplog.messages == [
        "LOG: cannot write to the log: No space left on device: no publish is acknowledged until writing works again",
        "LOG: writing works again",
    ]


def test_a_segment_that_was_begun_before_a_write_failed_is_not_begun_again() -> None:
    disk = SimDisk()
    writer = new_writer(disk, segment_size=200)
    write(writer, b"x" * 300)
    writer.begun.clear()
    disk.fail("append", 2, errno.ENOSPC)  # the first one writes the header
    write(writer, b"kept")
    assert writer.failure
    writer._spare.ready.append(SpareFile("spare.9", None))
    writer.write()
    assert (writer.failure, len(writer.begun)) == ("", 1)
    writer.close()
    assert read(disk)[1][-1] == b"kept"
