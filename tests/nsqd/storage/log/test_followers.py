"""The record FOLLOWERS: it is there after a start, and after a checkpoint when the segment that held it is gone."""

from nsqd.core.records import RecordKind
from nsqd.storage.log.copying import LogSource
from nsqd.storage.log.followers import Followers
from nsqd.storage.log.reader import LogRecords
from tests.nsqd.storage.log.test_damage import open_node
from tests.nsqd.storage.log.test_epochs import publish
from tests.nsqd.storage.sim_disk import SimDisk
from tests.nsqd.storage.sim_node import SimNode

STATED = Followers((1, 2), 2, 3)


def source(node: SimNode, disk: SimDisk) -> LogSource:
    return LogSource(disk, node.log.writer, node.log.syncer, node.log.tidying)


def test_what_was_stated_is_there_after_a_start() -> None:
    disk = SimDisk()
    node = open_node(disk, tail_records=5)
    assert source(node, disk).followers == Followers()
    position = source(node, disk).state_followers(STATED)
    assert node.log.writer.written.position == position
    again = open_node(disk.kill())
    assert again.log.writer.followers == STATED


def test_a_checkpoint_repeats_it() -> None:
    disk = SimDisk()
    node = open_node(disk, tail_records=5)
    source(node, disk).state_followers(STATED)
    publish(node, 40, size=1000)
    checkpoints = [record.segment for record in LogRecords(disk.kill()).records() if record.kind == RecordKind.STATE]
    stated = [record.segment for record in LogRecords(disk.kill()).records() if record.kind == RecordKind.FOLLOWERS]
    assert checkpoints
    assert stated == [0, *checkpoints]


def test_a_log_without_followers_has_no_such_record() -> None:
    disk = SimDisk()
    node = open_node(disk, tail_records=5)
    publish(node, 40, size=1000)
    kinds = {record.kind for record in LogRecords(disk.kill()).records()}
    assert RecordKind.STATE in kinds
    assert RecordKind.FOLLOWERS not in kinds
