"""Log cleanup knows each segment that the writer has begun: any other is in no backup, and never removed."""

from tests.nsqd.core.node import SECOND
from tests.nsqd.storage.sim_node import SimNode


def test_two_segments_that_begin_in_one_turn_are_both_known_and_copied() -> None:
    node = SimNode(segment_size=3000)
    node.broker.topic("t").channel("c")
    for _ in range(4):
        node.publish(body=b"x" * 300)
        node.syncer.step()
        node.syncer.step()
    node.log.checkpoints._begin()  # a segment of its own, while the one made ahead is not ready
    node.spare.step()  # now it is, and the next group begins it
    node.publish(body=b"x" * 300)
    names = node.disk.segments()
    assert [int(name.split(".")[0]) for name in names] == node.log.tidying.segments
    _, parts = node.log.backup().begin()
    assert [part.name for part in parts if part.name.endswith(".log")] == names


def finished() -> SimNode:
    """Return a node whose log has several segments, all of whose messages are finished."""
    node = SimNode(segment_size=2000)
    for _ in range(30):  # without readers
        node.publish(body=b"x" * 300)
    node.turn(node.broker.topics["t"].empty)
    return node


def clean_up(node: SimNode) -> list[int]:
    """Write two checkpoints, and do what they allow. Returns the bases of the segments that are left."""
    checkpoints = node.log.checkpoints
    for _ in range(2):
        written = checkpoints.written
        checkpoints._begin()
        while checkpoints.written == written or checkpoints._ended or node.log.tidying.busy:
            node.turn()
            node.syncer.step()
            node.cleaner.step()
            node.advance(SECOND)
    return list(node.log.tidying.segments)


def test_a_held_segment_stays_and_the_others_are_removed() -> None:
    node = finished()
    before = list(node.log.tidying.segments)
    node.log.tidying.hold_for("node 1", 1000 * SECOND, before[2], before[2])
    node.log.tidying.hold_for("node 2", 1000 * SECOND, before[4], before[5])
    assert [base for base in clean_up(node) if base in before[:-1]] == [before[2], before[4], before[5]]
    node.log.tidying.hold_for("node 2", 0)
    node.log.tidying.hold_for("node 1", 0)
    node.advance(SECOND)
    assert not set(clean_up(node)) & set(before[:-1])


def test_a_full_disk_ends_every_hold() -> None:
    node = finished()
    before = list(node.log.tidying.segments)
    node.log.tidying.hold_for("node 1", 1000 * SECOND)
    node.syncer.space.full = "the disk is full"
    assert not set(clean_up(node)) & set(before[:-1])
    assert not node.log.tidying.is_held_by("node 1")


def test_a_rewritten_segment_that_is_held_by_now_stays_as_it_was_and_nothing_waits() -> None:
    node = SimNode(segment_size=2000)
    for number in range(30):  # a fifth of each segment is live
        node.publish(1, "drop" if number % 5 else "keep", b"x" * 300)
    node.turn(node.broker.topics["drop"].empty)
    tidying, cleaner = node.log.tidying, node.cleaner
    checkpoints = node.log.checkpoints
    for _ in range(2):
        checkpoints._begin()
        for _ in range(20):
            node.turn()
            node.syncer.step()
            node.advance(SECOND)
    assert cleaner.busy
    base, names = cleaner.base, node.disk.names()
    tidying.hold_for("node 1", 1000 * SECOND, base, base)
    cleaner.step()
    for _ in range(5):
        node.turn()
        node.syncer.step()
    assert cleaner.base != base
    assert tidying.file_name(base) in node.disk.names()
    assert set(node.disk.names()) <= set(names)
