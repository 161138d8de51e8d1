"""Segments back into records: torn bytes are cut off, corrupt ones are skipped, and all others are served."""

import logging

import pytest

from nsqd.storage.log.files import segment_name
from nsqd.storage.log.identity import LogIdentity
from nsqd.storage.log.reader import LogRecords
from nsqd.storage.log.reading import replayed
from nsqd.storage.log.records import HEADER_SIZE, VERSION, SegmentHeader
from nsqd.storage.log.segments import UNFINISHED, LogError
from nsqd.storage.log.space import Space
from nsqd.storage.log.spare import Spare
from nsqd.storage.log.writer import Writer
from tests.cases import each
from tests.nsqd.storage.sim_disk import SimDisk
from tests.nsqd.storage.small_log import (
    EPOCH,
    LOG_ID,
    OF_THE_LOG,
    frozen_clock,
    log_of,
    new_disk,
    new_writer,
    read,
    write,
)

ONLY = segment_name(0, 0)


def test_a_tail_that_is_cut_anywhere_is_cut_off_at_a_record() -> None:
    disk, writer = log_of(b"a" * 10)
    promised = writer.durable.position
    write(writer, b"b" * 10, b"c" * 10)
    whole = disk.content(ONLY)
    for size in range(promised + HEADER_SIZE, len(whole)):
        disk.put(ONLY, whole[:size])
        reader, contents = read(disk)
        assert contents == [b"a" * 10, b"b" * 10, b"c" * 10][: len(contents)]
        end = reader.end + HEADER_SIZE
        assert reader.torn == max(0, len(whole[:size].rstrip(b"\0")) - end)
        assert len(disk.content(ONLY)) == end
        assert not reader.damage.spots
        assert read(disk)[0].torn == 0  # it was repaired


def test_zeros_where_records_were_promised_are_damage_up_to_there_and_no_further() -> None:
    disk, writer = log_of(b"a")
    first = writer.durable.position + HEADER_SIZE
    write(writer, b"b")
    writer.sync()
    promised = writer.durable.position + HEADER_SIZE
    write(writer, b"c")
    disk.spoil(ONLY, first, promised)
    disk.put(ONLY, disk.content(ONLY) + bytes(4096))
    reader, contents = read(disk)
    assert (contents, reader.end) == ([b"a", b"c"], writer.written.position)
    assert reader.damage.spots == [(ONLY, first, promised)]


def three_segments() -> tuple[SimDisk, list[str]]:
    """A log of nine records in segments, all durable but the last group."""
    disk, writer = log_of(*(b"%d" % number * 20 for number in range(8)), segment_size=150)
    write(writer, b"8" * 20)
    return disk, disk.names()


@each("left", [None, b"", bytes(200)])
def test_a_missing_or_empty_segment_in_the_middle_is_corrupt(left: bytes | None) -> None:
    disk, names = three_segments()
    assert len(names) > 2
    disk.remove(names[1])
    if left is not None:
        disk.put(names[1], left)
    reader, contents = read(disk)
    assert (len(contents), contents[0][:1], contents[-1][:1]) == (9 - 2, b"0", b"8")
    assert reader.damage.size > 40
    assert left is not None or disk.names() == [names[0], *names[2:]]


def test_a_root_that_was_torn_at_once_does_not_hide_which_bytes_before_it_are_durable() -> None:
    disk, names = three_segments()
    disk.put(names[-1], disk.content(names[-1])[: HEADER_SIZE + 1])
    assert len(names) > 3
    disk.flip(names[1], disk.content(names[1]).index(b"1" * 20), 1)
    reader = LogRecords(disk)
    assert not list(reader.records(len(names) - 1))
    contents = [record.content[:1] for record in reader.records() if record.kind not in OF_THE_LOG]
    assert (contents[0], contents[-1], len(reader.damage.spots)) == (b"0", b"6", 1)


def test_segments_behind_a_gap_that_were_never_promised_are_cut_off() -> None:
    disk = new_disk()
    writer = new_writer(disk, segment_size=50)
    for number in range(4):
        write(writer, b"%d" % number * 60)
    disk.remove(disk.names()[1])
    whole = {name: disk.content(name) for name in disk.names()}
    reader, contents = read(disk)
    assert contents == [b"0" * 60]
    first, *kept = disk.names()
    assert (first, kept) == (segment_name(0, 0), [f"{name}.0.torn" for name in list(whole)[1:]])
    assert [disk.content(name) for name in kept] == list(whole.values())[1:]
    assert reader.torn > 120
    assert not reader.damage.spots


def test_what_was_read_survives_a_power_cut_although_its_writer_never_synced_it() -> None:
    disk = new_disk()
    write(new_writer(disk), b"a")
    killed = disk.kill()
    assert read(killed)[1] == [b"a"]
    for _ in range(20):
        assert read(killed.crash(killed.random))[1] == [b"a"]


def test_a_log_that_cannot_be_identified_is_refused_and_left_alone() -> None:
    disk = new_disk()
    content = bytes(HEADER_SIZE) + b"x" * UNFINISHED
    disk.put(segment_name(0, 0), content)
    with pytest.raises(LogError, match="cannot be read"):
        LogRecords(disk)
    assert disk.content(segment_name(0, 0)) == content


def test_a_renamed_segment_is_refused_and_nothing_is_removed() -> None:
    disk, names = three_segments()
    disk.put(names[0].replace(".0.", ".1."), disk.content(names[0]))
    with pytest.raises(LogError, match="was renamed"):
        LogRecords(disk)
    assert names[0] in disk.names()
    disk, names = three_segments()
    disk.rename(names[1], segment_name(7, 0))
    with pytest.raises(LogError, match="was renamed"):
        LogRecords(disk)


def test_segments_of_two_logs_are_refused() -> None:
    disk, names = three_segments()
    other = Writer(
        disk, LogIdentity(7, b"another log's id", EPOCH), 1 << 30, frozen_clock(), Space(disk), Spare(disk, 4096)
    )
    write(other, b"a")
    with pytest.raises(LogError, match="different logs"):
        LogRecords(disk)
    assert len(disk.names()) == len(names) + 1


def test_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = new_disk()
    monkeypatch.setattr("nsqd.storage.log.records.VERSION", VERSION + 1)
    write(new_writer(disk), b"a")
    monkeypatch.undo()
    with pytest.raises(LogError, match=f"version {VERSION + 1}"):
        LogRecords(disk)


def test_of_two_generations_the_newer_is_read_and_the_older_removed() -> None:
    disk, names = three_segments()
    header = SegmentHeader(7, 1, LOG_ID, int(names[0][:20]), EPOCH)
    disk.put(names[0].replace(".0.", ".1."), header.encode())
    disk.put(names[0].replace(".0.", ".2.") + ".tmp", b"half")
    reader = LogRecords(disk)
    assert reader.segments[0].header.generation == 1
    assert names[0] not in disk.names()
    assert not any(name.endswith(".tmp") for name in disk.names())


def test_a_file_named_beyond_all_positions_is_left_alone() -> None:
    disk = new_disk()
    write(new_writer(disk), b"one")
    beyond = f"{1 << 64:020d}.0.log"
    disk.put(beyond, b"x" * 100)
    assert read(disk)[1] == [b"one"]
    assert beyond in disk.names()


def test_a_record_of_an_unknown_kind_is_ignored_with_a_line(caplog: pytest.LogCaptureFixture) -> None:
    disk = new_disk()
    writer = new_writer(disk)
    writer.append(99, b"of a later version")
    writer.write()
    writer.sync()
    with caplog.at_level(logging.WARNING, "penstock"):
        replayed(LogRecords(disk.kill()))
    assert "LOG: ignoring a record of unknown kind 99" in caplog.text
