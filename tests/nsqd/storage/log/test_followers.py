"""The record FOLLOWERS: a start finds it, and each checkpoint repeats it."""

from nsqd.core.records import RecordKind
from nsqd.storage.log.copying import LogSource
from nsqd.storage.log.followers import Followers
from nsqd.storage.log.reader import LogRecords
from tests.nsqd.storage.log.test_damage import open_node
from tests.nsqd.storage.log.test_epochs import publish
from tests.nsqd.storage.sim_disk import SimDisk

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
