"""What a log must not do twice: begin a segment at one place, or write checkpoint after checkpoint while nothing happens."""

import errno

from nsqd.core.retention.policy import Durability
from nsqd.storage.log.spare import Spare
from tests.nsqd.core.node import MS
from tests.nsqd.storage.sim_disk import SimDisk
from tests.nsqd.storage.sim_node import Clock, SimNode
from tests.nsqd.storage.small_log import WALL, new_disk, new_writer, read, write


class LateSpare(Spare):
    """A spare file is ready when the test says so."""

    is_ready = False

    @property
    def ready(self) -> bool:
        return self.is_ready


def test_a_segment_that_was_begun_before_a_write_failed_is_not_begun_again() -> None:
    disk = new_disk()
    writer = new_writer(disk, segment_size=200, spare=LateSpare)
    write(writer, b"x" * 300)
    writer.begun.clear()
    disk.fail("append", 2, errno.ENOSPC)  # the first one writes the header
    write(writer, b"kept")
    assert writer.failure
    writer._spare.is_ready = True
    writer.write()
    assert (writer.failure, len(writer.begun)) == ("", 1)
    writer.close()
    assert read(disk)[1][-1] == b"kept"


def test_a_census_that_has_counted_a_part_of_a_checkpoint_is_no_reason_for_another_one() -> None:
    clock = Clock(10**9, WALL)
    node = SimNode(SimDisk(), Durability.OS, clock, segment_size=2000, tail_bytes=1000)
    checkpoints = node.log.checkpoints

    def turn() -> None:
        clock.advance(250 * MS)
        node.turn()

    node.publish(200)
    while not checkpoints._ended:
        turn()
    written = checkpoints.written
    node.log.tidying.finished, checkpoints._quiet = 10**6, True  # what a census has found meanwhile
    while checkpoints._ended:
        node.syncer.step()
        turn()
    for _ in range(10):
        turn()
    assert checkpoints.written == written
