"""Cleaning that fails: it leaves nothing behind, and is tried again unless there is no sense in it."""

import errno
from collections.abc import Callable
from functools import partial

from nsqd.core.message.attributes import Attributes
from nsqd.core.retention.policy import Durability
from nsqd.storage.log.files import segment_name
from tests.nsqd.core.client import Client
from tests.nsqd.core.node import SECOND, Inbox
from tests.nsqd.storage.sim_disk import SimDisk
from tests.nsqd.storage.sim_node import Clock, SimNode


def new_node(disk: SimDisk) -> SimNode:
    return SimNode(disk, Durability.OS, segment_size=4096, tail_records=40)


def work_until(node: SimNode, done: Callable[[], bool]) -> None:
    """Messages come and are finished, all but each 20th."""
    topic = node.broker.topic("t")
    inbox = Inbox()
    consumer = Client(topic.channel("a"), inbox, 600 * SECOND, 0)
    consumer.set_ready(1000)
    number = 0
    while not done():
        assert number < 5000, "it was awaited in vain"
        node.turn(partial(topic.publish, [b"%0100d" % number], 100))
        for message in inbox.take():
            number += 1
            if number % 20:
                consumer.finish(message.id)
        for _ in range(3):
            node.syncer.step()


def is_chosen(node: SimNode) -> bool:
    return node.cleaner.waits is not None


def is_cleaned(node: SimNode) -> bool:
    node.cleaner.step()
    return node.cleaner.cleaned > 0


def test_cleaning_for_which_there_is_no_space_is_tried_again() -> None:
    for operation, code in (("append", errno.ENOSPC), ("create", errno.EMFILE), ("open", errno.EMFILE)):
        disk = SimDisk()
        node = new_node(disk)
        work_until(node, partial(is_chosen, node))
        disk.fail(operation, 1, code)
        node.cleaner.step()
        node.turn()
        assert not node.cleaner.busy
        assert node.cleaner.cleaned == 0
        assert not [name for name in disk.names() if name.endswith(".tmp")]
        work_until(node, partial(is_cleaned, node))


def test_a_damaged_segment_is_not_cleaned_and_not_tried_again() -> None:
    disk = SimDisk()
    node = new_node(disk)
    work_until(node, partial(is_chosen, node))
    job = node.cleaner.waits
    name = f"{job.base:020d}.0.log"
    content = bytearray(disk.content(name))
    _, _, start, _ = job.parts[0].locations[0]
    content[start + 20] ^= 1
    disk.put(name, bytes(content))
    node.cleaner.step()
    node.turn()
    assert job.base in node.cleaner.refused
    assert not [name for name in disk.names() if name.endswith(".tmp")]


def test_a_segment_with_large_attributes_does_not_grow_by_being_cleaned() -> None:
    disk = SimDisk()
    clock = Clock()
    node = SimNode(disk, Durability.OS, clock, segment_size=64 * 1024, tail_records=40)
    headers = Attributes(tuple((f"h{number}", "v" * 100) for number in range(20)))
    topic, other, inbox = node.broker.topic("t"), node.broker.topic("o"), Inbox()
    consumer = Client(topic.channel("a"), inbox, 600 * SECOND, 0)
    consumer.set_ready(1000)

    def publish() -> None:
        assert not topic.publish_with([b"x"] * 900, headers)

    def finish() -> None:
        assert not consumer.finish(b"".join(one.id for number, one in enumerate(given) if number % 3))

    node.turn(publish)
    for _ in range(5):
        node.turn()
    given = inbox.take()
    assert len(given) == 900
    node.turn(finish)
    fill = Client(other.channel("a"), Inbox(), 600 * SECOND, 0)
    fill.set_ready(100)
    number = 0
    while not node.cleaner.cleaned:
        assert number < 2000, "it was awaited in vain"
        number += 1
        node.turn(partial(other.publish, [b"%01000d" % number], 1000))
        for message in fill.sink.take():
            fill.finish(message.id)
        for _ in range(3):
            node.syncer.step()
        if node.cleaner.waits is not None and node.cleaner.waits.base == 0:
            before = len(disk.content(segment_name(0, 0)))
            node.cleaner.step()
            node.turn()
            assert len(disk.content(segment_name(0, 1))) < min(before, 64 * 1024)
        else:
            node.cleaner.step()
    history = node.log.history()
    for batch in [one for plan in history.plans_of(topic.number, list(range(0, 900, 3))) for one in plan.read()[0]]:
        assert batch.attributes == headers
