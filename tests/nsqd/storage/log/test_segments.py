"""The files of a log: a header that is lost is rebuilt from `log.id`, another segment, and the file's name."""

from random import Random

import pytest

from nsqd.storage.log.files import segment_name
from nsqd.storage.log.identity import NAME, StoredIdentity, encode_identity, read_identity, write_identity
from nsqd.storage.log.reader import LogRecords
from nsqd.storage.log.records import HEADER_SIZE
from nsqd.storage.log.segments import LogError
from tests.nsqd.storage.log.test_damage import filled, open_node, served
from tests.nsqd.storage.sim_disk import PowerCut, SimDisk
from tests.nsqd.storage.small_log import LOG_ID, log_of, new_disk, new_writer, read, write

ONLY = segment_name(0, 0)
STORED = StoredIdentity(7, LOG_ID)


def test_the_bytes_of_a_wrong_header_are_copied_before_it_is_written_again() -> None:
    for moment in range(12):
        disk, _ = log_of(b"a")
        write_identity(disk, STORED)
        wrong = b"x" * HEADER_SIZE
        disk.put(ONLY, wrong + disk.content(ONLY)[HEADER_SIZE:])
        disk.cut_in = moment
        try:
            read(disk)
        except PowerCut:
            pass
        disk.cut_in, crashed = None, disk.crash(Random(moment))
        assert (read(crashed)[1], crashed.content(f"{ONLY}.0.damaged")) == ([b"a"], wrong)


def test_one_wrong_bit_in_a_header_is_reported_and_corrected() -> None:
    disk, writer = log_of(b"a")
    write(writer, b"b")
    whole = disk.content(ONLY)
    disk.flip(ONLY, 20, 8)
    reader, contents = read(disk)
    assert (contents, reader.damage.headers, disk.content(ONLY)) == ([b"a", b"b"], [ONLY], whole)


def test_a_checkpoint_whose_segment_has_lost_its_header_is_still_begun_with() -> None:
    disk = filled(tail_records=20)
    roots = [reader.segments[place].name for reader in [LogRecords(disk.kill())] for place in reader.roots()]
    assert len(roots) > 2
    disk.spoil(roots[0], 0, HEADER_SIZE)
    reader = LogRecords(disk.kill())
    assert [reader.segments[place].name for place in reader.roots()] == roots
    assert served(disk) == (set(served(filled())[0]), 0)


def test_a_log_id_is_written_at_the_first_start_and_added_to_a_log_without_one() -> None:
    disk = SimDisk()
    open_node(disk)
    stored = read_identity(disk)
    for content in (None, b"", b"x" * 32, encode_identity(stored)[:-1]):
        if content is None:
            disk.remove(NAME)
        else:
            disk.put(NAME, content)
        open_node(disk)
        again = read_identity(disk)
        assert (again.node, again.log_id) == (stored.node, stored.log_id)


def test_a_log_of_which_only_an_unfinished_segment_is_there_begins_anew() -> None:
    for left in (b"", bytes(40), bytes(9000), b"\1" * 300, b"\1" * 9000):
        disk = SimDisk()
        write_identity(disk, STORED)
        disk.put(ONLY, left)
        node = open_node(disk)
        assert (node.log.snapshot, node.log.start_results.damage.size) == (None, 0)
        assert node.log.start_results.torn == (len(left) - HEADER_SIZE) * any(left)
        node.publish()
        assert open_node(disk.kill()).broker.topics["t"].depth == 1


def test_a_log_id_of_another_log_is_refused_and_nothing_is_changed() -> None:
    disk = SimDisk()
    open_node(disk)
    disk.put(NAME, encode_identity(StoredIdentity(7, b"another log's id")))
    before = {name: disk.content(name) for name in disk.names()}
    with pytest.raises(LogError, match="different logs"):
        open_node(disk)
    assert {name: disk.content(name) for name in disk.names()} == before


def test_without_a_log_id_and_any_header_the_log_is_refused_with_what_it_would_take() -> None:
    disk = new_disk()
    write(new_writer(disk), b"a" * 5000)
    disk.spoil(ONLY, 0, HEADER_SIZE)
    with pytest.raises(LogError, match=r"put log\.id or another segment of the same log back"):
        LogRecords(disk)


def test_files_that_were_renamed_before_are_kept() -> None:
    disk = new_disk()
    for content in (b"\1" * 200, b"\2" * 200):
        disk.put(ONLY, content)
        assert LogRecords(disk).torn == 200 - HEADER_SIZE
    assert disk.content(f"{ONLY}.unreadable") == b"\1" * 200
    assert disk.content(f"{ONLY}.unreadable.2") == b"\2" * 200
