"""Epochs: the table, the record that begins one, and headers that are rebuilt with the right one."""

import errno
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqd.core.records import RecordKind
from nsqd.storage.log import opening
from nsqd.storage.log.epochs import NO_EPOCH, SIZE, Epoch, EpochTable, unpack
from nsqd.storage.log.identity import NAME, LogIdentity, StoredIdentity, decode_identity, encode_identity, read_identity
from nsqd.storage.log.reader import LogRecords
from nsqd.storage.log.records import HEADER_SIZE, decode_header
from nsqd.storage.log.space import Space
from nsqd.storage.log.spare import Spare
from nsqd.storage.log.writer import Writer
from tests.cases import each
from tests.nsqd.storage.log.test_damage import open_node
from tests.nsqd.storage.sim_disk import SimDisk
from tests.nsqd.storage.sim_node import SimNode
from tests.nsqd.storage.small_log import LOG_ID, frozen_clock, new_disk, read, write

EPOCHS = st.builds(Epoch, st.integers(1, 2**32 - 1), st.integers(0, 2**16 - 1), st.binary(min_size=8, max_size=8))


def publish(node: SimNode, count: int = 1, size: int = 10) -> None:
    for _ in range(count):
        node.publish(body=b"x" * size)


def lives(count: int, messages: int, size: int = 10, segment_size: int = 1000) -> SimDisk:
    """A node starts so often, and publishes each time."""
    disk = SimDisk()
    for _ in range(count):
        node = open_node(disk)
        node.log.writer.segment_size = segment_size
        publish(node, messages, size)
        disk = node.disk.kill()
    return disk


def begun(disk: SimDisk) -> list[tuple[Epoch, int]]:
    """The EPOCH records of the log, and where each of them stands."""
    found = [record for record in LogRecords(disk.kill()).records() if record.kind == RecordKind.EPOCH]
    return [(unpack(record.content), record.segment) for record in found]


@given(EPOCHS, st.binary(max_size=5))
def test_an_epoch_is_read_as_it_was_packed(epoch: Epoch, before: bytes) -> None:
    assert (len(epoch.pack()), unpack(before + epoch.pack() + b"x", len(before))) == (SIZE, epoch)


@given(st.lists(st.tuples(EPOCHS, st.integers(0, 50)), max_size=8, unique_by=lambda one: one[0]), st.randoms())
def test_a_table_has_the_epoch_of_each_position(given_: list[tuple[Epoch, int]], random: Random) -> None:
    epochs = sorted(given_, key=lambda one: (one[1], one[0]))  # nothing is left of all but the last at a position
    starts = [start for _, start in epochs]
    table = EpochTable()
    for epoch, start in given_ * 2:  # by a checkpoint, by the records before it, and by headers of segments
        table.begin(epoch, start)
    assert (list(table), table.highest) == (epochs, max((epoch.number for epoch, _ in epochs), default=0))
    expected = [NO_EPOCH, *(epoch for epoch, _ in epochs)]
    found = [table.at(position) for position in range(60)]
    assert found == [expected[sum(start <= position for start in starts)] for position in range(60)]
    oldest = random.randrange(60)
    table.forget_before(oldest)
    assert [table.at(position) for position in range(oldest, 60)] == found[oldest:]
    assert list(table) == epochs, "copies on other nodes may end in them"


def test_a_checkpoint_repeats_the_epochs_that_still_have_segments() -> None:
    disk = SimDisk()
    for _ in range(4):
        node = open_node(disk, 20)
        node.log.writer.segment_size = 4000
        publish(node, 30, 100)
        table = list(node.log.writer.epochs)
        node.log.close()
        disk = node.disk.kill()
    assert len(table) == 4
    reader = LogRecords(disk)
    root = max(reader.roots())
    assert root > 0, "no checkpoint was written"
    found = [unpack(record.content) for record in reader.records(root) if record.kind == RecordKind.EPOCH]
    oldest = table.index(max((one for one in table if one[1] <= reader.segments[0].base), key=lambda one: one[1]))
    assert found == [epoch for epoch, _ in table[oldest:]]
    assert list(open_node(disk).log.writer.epochs)[:-1] == table[oldest:]


@pytest.mark.parametrize("lost", [HEADER_SIZE, 4096])
def test_each_header_is_rebuilt_with_the_epoch_of_its_segment(lost: int) -> None:
    disk = lives(3, 20, 1000, 1 << 20)
    names = [segment.name for segment in LogRecords(disk.kill()).segments]
    headers = [decode_header(disk.content(name)) for name in names]
    for name in names:  # all of them at once: only log.id knows the epochs
        disk.spoil(name, 0, lost)
    segments = LogRecords(disk).segments
    assert [segment.header for segment in segments] == headers
    if lost == HEADER_SIZE:
        assert open_node(disk).broker.topics["t"].depth == 60


def test_a_log_id_of_the_version_before_is_read() -> None:
    old = bytes.fromhex("70656e6c6f67696400010007") + bytes(range(16)) + bytes.fromhex("2ec3ac0c")
    disk = SimDisk()
    disk.put(NAME, old)
    stored = read_identity(disk)
    assert stored == StoredIdentity(7, bytes(range(16)))


@given(st.integers(0, 1023), st.binary(min_size=16, max_size=16), st.lists(EPOCHS, max_size=5), st.data())
def test_a_log_id_is_read_as_it_was_written_and_any_other_content_is_none(
    node: int, log_id: bytes, epochs: list[Epoch], data: st.DataObject
) -> None:
    stored = StoredIdentity(node, log_id, tuple(epochs))
    content = encode_identity(stored)
    assert decode_identity(content) == stored
    bit = data.draw(st.integers(0, len(content) * 8 - 1))
    wrong = bytearray(content)
    wrong[bit // 8] ^= 1 << bit % 8
    assert decode_identity(bytes(wrong)) is None
    assert decode_identity(content[: data.draw(st.integers(0, len(content) - 1))]) is None


@each("number", range(1, 6))
@each("operation", ["create", "append"])
def test_a_disk_that_fails_at_the_start_leaves_no_segment_without_its_epochs_record(
    operation: str, number: int
) -> None:
    disk, epoch = new_disk(), Epoch(3, 7, b"eightby!")
    writer = Writer(disk, LogIdentity(7, LOG_ID, epoch), 0, frozen_clock(), Space(disk), Spare(disk, 4096))
    disk.fail(operation, number, errno.EIO)
    for content in (b"a", b"b", b"c"):
        write(writer, content)
    disk.repair()
    write(writer, b"d")
    assert writer.sync()
    assert list(writer.epochs) == [(epoch, 0)]
    reader, contents = read(disk.kill())
    assert [content for content in contents if len(content) == 1] == [b"a", b"b", b"c", b"d"]
    assert (begun(disk), {segment.header.epoch for segment in reader.segments}) == ([(epoch, 0)], {epoch})


def test_a_header_is_rebuilt_though_log_id_could_not_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    node = open_node(SimDisk())
    publish(node, 5)
    disk = node.disk.kill()
    with monkeypatch.context() as patched:
        patched.setattr(opening, "write_identity", refuse)
        node = open_node(disk)
    publish(node, 5)
    disk = node.disk.kill()
    last = LogRecords(disk.kill()).segments[-1]
    disk.spoil(last.name, 0, HEADER_SIZE)
    node = open_node(disk)  # the segment's own record has its epoch
    assert (node.broker.topics["t"].depth, node.log.start_results.torn) == (10, 0)
