"""A disk that fails: only safe messages are acknowledged, and everything else continues."""

import errno
import logging
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from nsqd.storage.log.segments import LogError
from nsqd.storage.log.space import CHECK_AFTER, RESERVE, Space
from shared.topic_config import Durability
from tests.cases import each
from tests.nsqd.core.node import SECOND
from tests.nsqd.storage.sim_disk import SimDisk
from tests.nsqd.storage.sim_node import SimNode
from tests.nsqd.storage.survey import survey


def new_node(disk: SimDisk, durability: Durability = Durability.ALWAYS, segment_size: int = 4096) -> SimNode:
    return SimNode(disk, durability, segment_size=segment_size)


class Producer:
    """Publishes to topic t, one message a turn, unless the node refuses; remembers what was acknowledged."""

    def __init__(self, node: SimNode) -> None:
        self.node = node
        self.acknowledged: list[bytes] = []
        self.refused: list[str] = []
        self.number = 0

    def publish(self, count: int = 1) -> None:
        for _ in range(count):
            self.node.turn(self._publish)
            self._sync()
        for _ in range(3):
            self.node.turn()
            self._sync()
        self.node.turn()

    def _sync(self) -> None:
        for _ in range(3):
            self.node.syncer.step()

    def _publish(self) -> Callable[[], None] | None:
        refusal = self.node.broker.refusal
        if refusal:
            self.refused.append(refusal)
            return None
        body = b"message %d" % self.number
        self.number += 1
        self.node.broker.topic("t").publish([body], len(body))
        return lambda: self.acknowledged.append(body)


def publishing(disk: SimDisk, **more: Any) -> tuple[SimNode, Producer]:
    node = new_node(disk, **more)
    return node, Producer(node)


def seen_after(disk: SimDisk) -> set[bytes]:
    """Return the bodies after a restart. If nothing was acknowledged, a power cut may have left no topic."""
    seen = survey(new_node(disk), {})
    if "t" not in seen:
        return set()
    return set(seen["t"].backlog) | {body for channel in seen["t"].channels.values() for body in channel.arrivals}


@each("operation, number", [*(("sync", n) for n in range(1, 8)), ("sync_directory", 1), ("sync_directory", 2)])
def test_after_any_failed_sync_nothing_is_acknowledged_any_more(operation: str, number: int) -> None:
    node, producer = publishing(SimDisk(Random(number)), segment_size=300)
    producer.publish(2)
    node.disk.fail(operation, number, errno.EIO)
    producer.publish(20)
    before = list(producer.acknowledged)
    assert len(before) < 22
    assert (node.log.writer.durable.broken, node.log.figures().failed_syncs) == (True, 1)
    assert "Input/output error" in node.log.writer.failure
    assert node.store.refusal == node.log.writer.failure == producer.refused[-1]
    node.disk.repair()
    node.syncer.timer()
    producer.publish(5)
    assert producer.acknowledged == before
    assert set(before) <= seen_after(node.disk.crash(Random(number)))


def test_with_no_space_publishes_are_refused_and_fins_still_taken_until_there_is_space_again() -> None:
    disk = SimDisk()
    disk.capacity = 1 << 40
    node, producer = publishing(disk)
    consumer, inbox = node.subscribe()
    producer.publish(4)
    disk.others = disk.capacity - RESERVE // 2 + 1  # the other half is held
    node.syncer.timer()
    producer.publish(2)
    assert (producer.refused, len(producer.acknowledged)) == (["no space left for the log"] * 2, 4)
    assert consumer.finish(inbox.take()[0].id) == []
    node.turn()
    node.syncer.timer()
    disk.others = 0
    node.syncer.timer()
    producer.publish(1)
    assert len(producer.acknowledged) == 5
    node.log.close()
    assert seen_after(disk.crash(Random(1))) == {b"message %d" % number for number in range(1, 5)}


def test_what_is_finished_on_a_full_disk_makes_space_by_itself() -> None:
    disk = SimDisk()
    disk.capacity = 40 * 1024 * 1024
    node = new_node(disk, Durability.OS, segment_size=64 * 1024 * 1024)
    node.eager, body = True, b"x" * 200_000
    consumer, inbox = node.subscribe()
    for _ in range(3):
        kept = 0
        while not node.broker.refusal:
            node.publish(body=body)
            kept += 1
            assert not node.log.writer.failure  # the reserve is not used up before the space is looked at
        assert kept > 20
        node.advance(0)
        for message in inbox.take():
            consumer.finish(message.id)
        for _ in range(8):
            node.advance(SECOND)
            node.syncer.timer()
            for _ in range(5):
                node.syncer.step()
        node.turn()
        assert node.broker.refusal == ""
        assert disk.free() > disk.total() // 10
    written, disk.others = node.checkpoints, disk.free()
    for _ in range(60):
        node.advance(SECOND)
        node.syncer.timer()
    assert node.checkpoints <= written + 2  # there is nothing that more of them could free


def test_a_write_for_which_there_is_no_space_is_acknowledged_when_there_is() -> None:
    disk = SimDisk()
    node, producer = publishing(disk)
    producer.publish(2)
    disk.capacity = sum(disk.size(name) for name in disk.names()) + 30
    producer.publish(3)
    assert len(producer.acknowledged) == 2
    assert "No space left" in producer.refused[0]
    assert len(producer.refused) == 2
    disk.capacity = None
    node.turn()
    node.syncer.timer()
    producer.publish(1)
    assert producer.acknowledged == [b"message %d" % number for number in range(4)]
    assert (node.store.refusal, seen_after(disk.crash(Random(1)))) == ("", set(producer.acknowledged))


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENOSPC, errno.EDQUOT])
def test_a_segment_that_cannot_be_made_holds_replies_back_and_damages_nothing(code: int) -> None:
    disk = SimDisk()
    node, producer = publishing(disk, segment_size=200)
    producer.publish(2)
    disk.fail("create", 1, code, times=3)
    producer.publish(8)
    assert producer.refused
    node.turn()
    node.syncer.timer()
    producer.publish(2)
    assert len(producer.acknowledged) == producer.number
    assert not node.log.writer.failure
    crashed = disk.crash(Random(1))
    assert seen_after(crashed.kill()) == set(producer.acknowledged)
    assert not new_node(crashed).log.start_results.damage.spots


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_segment_made_ahead_whose_header_cannot_be_written_is_begun_again(code: int) -> None:
    """Its file exists already, and a start assumes that the log continues in it."""
    disk = SimDisk()
    disk.capacity = 1 << 24  # so that space is held
    node, producer = publishing(disk)
    while not node.spare.ready:
        producer.publish()
        node.spare.step()
    disk.fail("append", 1, code)
    producer.publish(3)
    assert len(producer.acknowledged) == producer.number
    assert seen_after(disk.kill()) >= set(producer.acknowledged)


def test_every_failing_call_of_a_run_loses_nothing_that_was_acknowledged() -> None:
    for operation, code in (
        ("append", errno.EIO),
        ("append", errno.ENOSPC),
        ("sync", errno.EIO),
        ("create", errno.EMFILE),
    ):
        for number in range(1, 25, 2):
            disk = SimDisk(Random(number))
            _, producer = publishing(disk, segment_size=300)
            disk.fail(operation, number, code)
            producer.publish(15)
            assert set(producer.acknowledged) <= seen_after(disk.crash(Random(number)))


def test_a_log_that_cannot_be_read_is_not_opened() -> None:
    disk = SimDisk()
    Producer(new_node(disk)).publish(1)
    for operation in ("names", "open", "read", "sync", "sync_directory"):
        killed = disk.kill()
        killed.fail(operation, 1, errno.EMFILE if operation == "open" else errno.EIO)
        with pytest.raises(LogError, match="cannot read the log"):
            new_node(killed)
        assert (killed.names(), seen_after(killed)) == (disk.names(), {b"message 0"})


def test_a_disk_whose_free_space_is_unknown_is_checked_again_later() -> None:
    class Silent(SimDisk):
        def free(self) -> int:
            raise OSError(errno.EIO, "no answer")

    space = Space(Silent(Random(1)))
    space.check_free(1000)
    assert (space.check_at, space.full) == (1000 + CHECK_AFTER, "")


def test_the_line_about_a_full_disk_has_its_free_space_and_the_space_that_is_needed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = SimDisk()
    disk.capacity = 1 << 40
    disk.others = disk.capacity - (10 << 20)
    with caplog.at_level(logging.ERROR, "penstock"):
        Space(disk).check_free(0)
    needed = f"publishes are rejected until {RESERVE >> 20} MiB are free"
    assert caplog.messages == [f"LOG: 10 MiB are free on the disk: {needed}"]
