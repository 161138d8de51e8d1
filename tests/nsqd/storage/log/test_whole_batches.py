"""An MPUB of up to 8,192 messages is one record: after any crash all of it is there, or nothing."""

from random import Random

from nsqd.protocols.nsq.batch import SLICE, MpubBatch
from shared.topic_config import Durability
from tests.effort import seeds
from tests.nsqd.storage.sim_disk import PowerCut, SimDisk
from tests.nsqd.storage.sim_node import Clock, SimNode


def test_a_batch_is_there_as_a_whole_or_not_at_all_after_a_power_cut() -> None:
    found = set()
    for seed in seeds(60):
        random, size = Random(seed), Random(seed).choice((2, 100, 1000, SLICE))
        disk = SimDisk(random, 512)
        node = SimNode(disk, random.choice(list(Durability)), Clock(), random, segment_size=1 << 30)
        topic = node.broker.topic("t")
        topic.channel("a")
        node.turn()
        disk.cut_write_in = random.randrange(4) if random.random() < 0.7 else None
        try:
            MpubBatch([b"%d" % number for number in range(size)]).publish(topic)
            node.turn()
        except PowerCut:
            pass
        node = SimNode(disk.crash(random), Durability.ALWAYS, Clock(), Random(1), segment_size=1 << 30)
        there = node.broker.topics.get("t")
        depth = there.channels["a"].depth if there is not None and "a" in there.channels else 0
        assert depth in (0, size), seed
        found.add(depth > 0)
    assert found == {True, False}
