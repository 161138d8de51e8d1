"""Tidying knows each segment that the writer has begun: what it does not know is in no backup, and never goes."""

from random import Random

from nsqd.core.retention.policy import Durability
from tests.nsqd.core.node import SECOND
from tests.nsqd.storage.sim_disk import SimDisk
from tests.nsqd.storage.sim_node import Clock, SimNode


def test_two_segments_that_begin_in_one_turn_are_both_known_and_copied() -> None:
    clock = Clock(1000 * SECOND, 1_800_000_000 * SECOND)
    node = SimNode(SimDisk(Random(1)), Durability.ALWAYS, clock, Random(1), segment_size=3000, tail_bytes=1 << 40)
    topic = node.broker.topic("t")
    topic.channel("c")
    for _ in range(4):
        node.turn(lambda: topic.publish([b"x" * 300], 300))
        node.syncer.step()
        node.syncer.step()
    assert node.log.upkeep is not None
    node.log.upkeep.checkpoints._begin()  # a segment of its own, while the one made ahead is not ready
    node.spare.step()  # now it is, and the next group begins it
    node.turn(lambda: topic.publish([b"x" * 300], 300))
    names = [name for name in node.disk.names() if name.endswith(".log")]
    assert [int(name.split(".")[0]) for name in names] == node.log.tidying.segments
    _, parts = node.log.backup().begin()
    assert [part.name for part in parts if part.name.endswith(".log")] == names
