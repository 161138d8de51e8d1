"""The log's end: groups, segments, what is durable, and what happens when the disk fails."""

import errno
import logging

import pytest

from nsqd.core.records import RecordKind
from tests.nsqd.storage.small_log import all_records, log_of, read, write


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


def test_a_power_cut_does_not_bring_a_failed_write_back_in_place_of_what_was_written_there() -> None:
    """A copy may have that: then the log and the copy would differ at one position of one epoch."""
    left = set()
    for seed in range(100):
        disk, writer = log_of()
        disk.random.seed(seed)
        write(writer, b"a")
        writer.sync()
        disk.fail("append", 1, errno.EIO)
        write(writer, b"b" * 200)
        write(writer, b"c")
        left.add(len(read(disk.crash(disk.random))[1]))
    assert left == {1, 3}


def test_a_failed_write_that_cannot_be_cut_off_durably_is_a_failed_sync() -> None:
    disk, writer = log_of()
    write(writer, b"a")
    disk.fail("append", 1, errno.EIO)
    write(writer, b"b")
    disk.fail("sync", 1, errno.EIO)
    write(writer, b"c")
    assert writer.durable.broken


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
