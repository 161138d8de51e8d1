"""When a checkpoint is written. Its content is tested in test_state.py."""

import pytest

from shared.topic_config import Durability
from tests.nsqd.core.node import MS, SECOND
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


def test_the_records_of_a_checkpoint_do_not_ask_for_the_next_one() -> None:
    clock = Clock()
    node = SimNode(SimDisk(), Durability.OS, clock, segment_size=1 << 20, tail_records=MOST)
    for number in range(2 * MOST):  # as many records in a checkpoint
        node.turn(lambda n=number: node.broker.topic(f"t{n}").publish([b"x"], 1))
        node.syncer.step()
    for _ in range(10):
        node.turn()
        node.syncer.step()
    written = node.log.checkpoints.written
    assert written > 0
    for _ in range(50):
        node.advance(SECOND)
        node.syncer.step()
    assert node.log.checkpoints.written <= written + 1  # one more may be due to what was published


def test_a_scan_that_has_counted_a_part_of_a_checkpoint_is_no_reason_for_another_one() -> None:
    clock = Clock()
    node = SimNode(SimDisk(), Durability.OS, clock, segment_size=2000, tail_bytes=1000)
    checkpoints = node.log.checkpoints

    def turn() -> None:
        clock.advance(250 * MS)
        node.turn()

    node.publish(200)
    while not checkpoints._ended:
        turn()
    written = checkpoints.written
    node.log.tidying.finished, checkpoints._quiet = 10**6, True  # as if a scan had found this meanwhile
    while checkpoints._ended:
        node.syncer.step()
        turn()
    for _ in range(10):
        turn()
    assert checkpoints.written == written
