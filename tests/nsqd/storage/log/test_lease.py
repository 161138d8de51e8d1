"""Message ids over stops and crashes: a clean stop gives back what it had leased, and no id is issued twice."""

from random import Random

import pytest

from nsqd.core.message import ids
from nsqd.storage.log.files import segment_name
from nsqd.storage.log.records import HEADER_SIZE
from shared.topic_config import Durability
from tests.effort import IS_CAMPAIGN
from tests.nsqd.storage.sim_disk import SimDisk
from tests.nsqd.storage.sim_node import SimNode


def issued(node: SimNode) -> int:
    return node.broker.ids.next


def stopped(node: SimNode) -> SimDisk:
    node.log.close()
    return node.disk.kill()


def test_after_a_clean_stop_ids_go_on_at_the_next_one() -> None:
    disk, expected = SimDisk(), 1
    for count in (3, 0, 5000, 1):
        node = SimNode(disk)
        assert issued(node) == expected
        if count:
            node.publish(count)
        expected += count
        disk = stopped(node)


def test_what_was_given_back_is_leased_again_before_it_is_used() -> None:
    node = SimNode()
    node.publish(3)
    node = SimNode(stopped(node))
    node.publish(10)
    again = SimNode(node.disk.crash(Random(2)))
    assert issued(again) == 4 + ids.LEASE


def test_a_stop_that_is_torn_anywhere_gives_nothing_back_that_was_issued() -> None:
    node = SimNode()
    node.publish(3)
    written, name = node.log.writer.written.position, segment_name(node.log.writer.base, 0)
    before = HEADER_SIZE + written - node.log.writer.base
    disk = stopped(node)
    size = len(disk.content(name))
    assert size > before
    for end in range(before, size + 1):
        torn = disk.kill()
        torn.put(name, disk.content(name)[:end])
        assert issued(SimNode(torn)) >= 4


@pytest.mark.parametrize("durability", list(Durability))
def test_a_wrong_record_behind_a_clean_stop_brings_no_id_back(durability: Durability) -> None:
    """Whatever bit is flipped of the life after it, in which ids were issued."""
    node = SimNode(SimDisk(), durability)
    node.publish(3)
    node = SimNode(stopped(node), durability)
    node.publish(10)
    node.publish(10)
    node.syncer.now()
    node.publish()
    name, used = segment_name(node.log.writer.base, 0), issued(node)
    disk = node.disk.kill()
    for at in range(HEADER_SIZE, len(disk.content(name)), 3 if IS_CAMPAIGN else 23):
        wrong = disk.kill()
        wrong.flip(name, at, 1 << at % 8)
        assert issued(SimNode(wrong, durability)) >= used, f"byte {at}"


def test_a_stop_is_not_believed_if_the_life_behind_it_has_lost_its_records() -> None:
    """The segment of that life is cut or zeroed anywhere, so that nothing in what is left of it is wrong."""
    node = SimNode(SimDisk(), Durability.OS)
    node.publish()
    node = SimNode(stopped(node), Durability.OS)
    for _ in range(6):
        node.publish(3)
    used, disk = issued(node), node.disk.kill()
    name = disk.segments()[-1]
    whole = disk.content(name)
    for at in range(0, len(whole), 1 if IS_CAMPAIGN else 13):
        for rest in (b"", bytes(len(whole) - at)):
            left = disk.kill()
            left.put(name, whole[:at] + rest)
            assert issued(SimNode(left, Durability.OS)) >= used, (at, rest[:1])
