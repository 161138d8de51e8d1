"""When a checkpoint is written. Its content is tested in test_state.py."""

import pytest

from shared.topic_config import Durability
from tests.nsqd.core.node import SECOND
from tests.nsqd.storage.sim_disk import SimDisk
from tests.nsqd.storage.sim_node import Clock, SimNode

MOST = 50  # records or, in the other case, bytes after a checkpoint


@pytest.mark.parametrize(("records", "size"), [(MOST, 1 << 40), (1 << 30, MOST * 100)])
def test_one_follows_upon_so_many_records_or_bytes_though_no_time_passes(records: int, size: int) -> None:
    clock = Clock()
    tail = {"tail_records": records, "tail_bytes": size}
    node = SimNode(SimDisk(), Durability.OS, clock, segment_size=1 << 20, **tail)
    written = [0]
    for _ in range(10 * MOST):
        node.turn(lambda: node.broker.topic("t").publish([b"x" * 20], 20))
        node.syncer.step()
        written.append(node.log.checkpoints.written)
    assert written[10] == 0
    assert written[-1] >= 5


def test_a_start_from_a_checkpoint_knows_the_clocks_of_the_machine() -> None:
    clock = Clock()
    node = SimNode(SimDisk(), Durability.ALWAYS, clock, tail_records=3)
    node.publish(1)
    for _ in range(20):
        node.publish(1)
        node.syncer.step()
    assert node.log.checkpoints.written
    later = clock.after(4 * SECOND, SECOND, rebooted=False)
    later.wall += 3600 * SECOND  # it was set meanwhile
    again = SimNode(node.disk.kill(), Durability.ALWAYS, later)
    assert again.store.clock_offset + later.now == node.store.clock_offset + clock.now + 4 * SECOND
