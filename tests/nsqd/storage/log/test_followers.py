"""The record FOLLOWERS: a start finds it, and each checkpoint repeats it."""

from nsqd.core.records import RecordKind
from nsqd.storage.log.copying import LogSource, whole_records
from nsqd.storage.log.followers import Followers
from nsqd.storage.log.reader import LogRecords
from nsqd.storage.log.records import HEADER_SIZE
from tests.nsqd.storage.log.test_damage import open_node
from tests.nsqd.storage.log.test_epochs import publish
from tests.nsqd.storage.sim_disk import SimDisk
from tests.nsqd.storage.sim_node import SimNode

STATED = Followers((1, 2), 2, 3)


def test_a_checkpoint_and_a_start_keep_it() -> None:
    node = open_node(SimDisk(), tail_records=5)
    source = LogSource(node.disk, node.log.writer, node.log.syncer, node.log.tidying)
    assert source.followers == Followers()
    assert source.state_followers(STATED) == node.log.writer.written.position
    assert open_node(node.disk.kill()).log.writer.followers == STATED
    publish(node, 40, size=1000)
    records = list(LogRecords(node.disk.kill()).records())
    checkpoints = [record.segment for record in records if record.kind == RecordKind.STATE]
    assert checkpoints
    assert [record.segment for record in records if record.kind == RecordKind.FOLLOWERS] == [0, *checkpoints]


def test_a_record_that_is_larger_than_a_chunk_is_read_as_a_whole_and_alone() -> None:
    node = SimNode(SimDisk(), segment_size=1 << 20)
    publish(node, 3, size=1000)
    source = LogSource(node.disk, node.log.writer, node.log.syncer, node.log.tidying)
    file, at, sizes = source.file(0), HEADER_SIZE, list[int]()
    while at < source.file_end(0, None):
        data, wrong = source.read(file, at, source.file_end(0, None), 800)
        assert (wrong, whole_records(data, file.seed, at)) == (0, len(data))
        sizes.append(len(data))
        at += len(data)
    assert 1000 < max(sizes) < 1600
