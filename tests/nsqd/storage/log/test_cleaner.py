"""Cleaning that fails: it leaves nothing behind, and is tried again unless there is no sense in it."""

import errno
from collections.abc import Callable
from functools import partial

from nsqd.core.message.attributes import Attributes
from nsqd.storage.log.files import segment_name
from shared.topic_config import Durability
from tests.cases import each
from tests.nsqd.core.node import SECOND
from tests.nsqd.storage.sim_disk import SimDisk
from tests.nsqd.storage.sim_node import SimNode


def new_node(disk: SimDisk, segment_size: int = 4096) -> SimNode:
    return SimNode(disk, Durability.OS, segment_size=segment_size, tail_records=40)


def work_until(node: SimNode, done: Callable[[], bool], topic: str = "t", size: int = 100, keep: int = 20) -> None:
    """Messages come and are finished, all but each `keep`th."""
    consumer, inbox = node.subscribe(topic, timeout=600 * SECOND)
    number = 0
    while not done():
        assert number < 5000, "it was awaited in vain"
        node.publish(1, topic, b"%d" % number * (size // 4))
        for message in inbox.take():
            number += 1
            if number % keep:
                consumer.finish(message.id)
        for _ in range(3):
            node.syncer.step()


def is_chosen(node: SimNode) -> bool:
    return node.cleaner.waits is not None


def is_cleaned(node: SimNode) -> bool:
    node.cleaner.step()
    return node.cleaner.cleaned > 0


def has_rest(disk: SimDisk) -> bool:
    return any(name.endswith(".tmp") for name in disk.names())


@each("operation, code", [("append", errno.ENOSPC), ("create", errno.EMFILE), ("open", errno.EMFILE)])
def test_cleaning_for_which_there_is_no_space_is_tried_again(operation: str, code: int) -> None:
    node = new_node(SimDisk())
    work_until(node, partial(is_chosen, node))
    node.disk.fail(operation, 1, code)
    node.cleaner.step()
    node.turn()
    assert (node.cleaner.busy, node.cleaner.cleaned, has_rest(node.disk)) == (False, 0, False)
    work_until(node, partial(is_cleaned, node))


def test_a_damaged_segment_is_not_cleaned_and_not_tried_again() -> None:
    node = new_node(SimDisk())
    work_until(node, partial(is_chosen, node))
    job = node.cleaner.waits
    _, _, start, _ = job.parts[0].locations[0]
    node.disk.flip(segment_name(job.base, 0), start + 20)
    node.cleaner.step()
    node.turn()
    assert job.base in node.cleaner.refused
    assert not has_rest(node.disk)


def test_a_segment_with_large_attributes_does_not_grow_by_being_cleaned() -> None:
    node = new_node(SimDisk(), 64 * 1024)
    headers = Attributes(tuple((f"h{number}", "v" * 100) for number in range(20)))
    consumer, inbox = node.subscribe(timeout=600 * SECOND)
    topic = node.broker.topics["t"]
    node.turn(lambda: topic.intake.publish_with([b"x"] * 900, headers) or None)
    for _ in range(5):
        node.turn()
    given = inbox.take()
    assert len(given) == 900
    node.turn(lambda: consumer.finish(b"".join(one.id for number, one in enumerate(given) if number % 3)) or None)
    before = len(node.disk.content(segment_name(0, 0)))

    def first_is_cleaned() -> bool:
        is_first = is_chosen(node) and node.cleaner.waits.base == 0
        node.cleaner.step()
        return is_first

    work_until(node, first_is_cleaned, "o", 1000, keep=1 << 30)
    node.turn()
    assert len(node.disk.content(segment_name(0, 1))) < min(before, 64 * 1024)
    plans = node.log.history().plans_of(topic.number, list(range(0, 900, 3)))
    assert {batch.attributes for plan in plans for batch in plan.read()[0]} == {headers}
