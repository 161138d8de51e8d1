"""Where a sync runs, and when the durable mark is stated: corruption past the stated mark would look like a torn tail."""

import errno
from itertools import count
from random import Random

import pytest

from nsqd.core.sequence.put_batch import JobOptions
from nsqd.core.work_queue.job import JobState
from nsqd.storage.log.identity import LogIdentity
from nsqd.storage.log.reader import LogRecords
from nsqd.storage.log.records import HEADER_SIZE
from nsqd.storage.log.space import Space
from nsqd.storage.log.spare import Spare
from nsqd.storage.log.syncer import LONE, MOST_TICKS_BEHIND, QUICK, Syncer
from nsqd.storage.log.writer import Writer
from shared.topic_config import Durability
from tests.nsqd.core.node import SECOND
from tests.nsqd.storage.sim_disk import SimDisk
from tests.nsqd.storage.sim_node import SimNode, SteppedSyncer
from tests.nsqd.storage.small_log import EPOCH, all_records, frozen_clock, new_writer, write


def new_node(disk: SimDisk, durability: Durability) -> SimNode:
    return SimNode(disk, durability, segment_size=1000)


def publish(node: SimNode, count: int = 1) -> None:
    for _ in range(count):
        node.publish(body=b"message 1")


def tick(node: SimNode) -> None:
    node.advance(SECOND)
    node.syncer.timer()
    work(node)


def work(node: SimNode) -> None:
    """The thread syncs what it was given, and its results are applied."""
    for _ in range(3):
        while node.syncer.job is not None:
            node.syncer.step()
        node.turn()


def looked_at(disk: SimDisk) -> tuple[int, int]:
    """Return the highest mark that the log states, and the end of its last record that belongs to no mark."""
    reader = LogRecords(disk.kill())
    all_records(reader)
    assert not reader.torn
    return reader.stated, reader.content_end


@pytest.mark.parametrize("durability", list(Durability))
def test_within_two_ticks_an_idle_log_states_that_all_of_it_is_durable_and_rests(durability: Durability) -> None:
    disk = SimDisk()
    node = new_node(disk, durability)
    publish(node, 5)
    work(node)
    end = node.log.writer.written.position
    assert looked_at(disk)[0] < end
    tick(node)
    tick(node)
    for seed in range(5):
        assert looked_at(disk.crash(Random(seed)))[0] == end
    tick(node)
    written, operations = node.log.writer.written.position, dict(disk.operations)
    for _ in range(5):
        tick(node)
    changed = {name for name, count in disk.operations.items() if count != operations[name]} - {"reserve"}
    assert (node.log.writer.written.position, changed) == (written, set()), "it is not left alone"


@pytest.mark.parametrize("durability", list(Durability))
def test_a_clean_stop_states_that_all_is_durable_however_little_it_is(durability: Durability) -> None:
    node = new_node(SimDisk(), durability)
    publish(node)
    published = node.log.writer.written.position
    node.log.close()
    end = node.log.writer.content_end  # after the records of a stop
    assert end > published
    for seed in range(5):
        assert looked_at(node.disk.crash(Random(seed)))[0] == end


def test_what_a_killed_process_left_is_stated_too() -> None:
    disk = SimDisk()
    publish(new_node(disk, Durability.OS), 3)
    writer = opened(disk)
    assert writer.unstated
    assert writer.write_mark()
    assert not writer.unstated
    assert not opened(disk).unstated


def opened(disk: SimDisk) -> Writer:
    reader = LogRecords(disk)
    assert all_records(reader)
    identity, space, spare = reader.files.identity, Space(disk), Spare(disk, 4096)
    clock, marks = frozen_clock(), (reader.stated, reader.content_end)
    own = LogIdentity(identity.node, identity.log_id, EPOCH._replace(number=max(reader.files.epochs).number + 1))
    return Writer(disk, own, reader.end, clock, space, spare, 4096, *marks)


def test_a_mark_for_which_there_is_no_space_is_written_when_there_is_and_takes_nothing_of_the_reserve() -> None:
    disk = SimDisk()
    disk.capacity, node = 1 << 30, new_node(disk, Durability.ALWAYS)
    publish(node)
    work(node)
    node.syncer.timer()
    end, held = node.log.writer.written.position, disk.held
    assert held
    disk.fail("append", 1, errno.ENOSPC)
    node.syncer.timer()
    assert (node.log.writer.written.position, node.log.writer.failure, disk.held) == (end, "", held)
    node.syncer.timer()
    work(node)
    assert looked_at(disk)[0] == end


def test_a_backup_ends_with_the_mark() -> None:
    disk = SimDisk()
    node = new_node(disk, Durability.OS)
    publish(node, 5)
    copy = SimDisk()
    _, parts = node.log.backup().begin()
    for part in parts:
        copy.put(part.name, part.read(0, part.size))
    stated, content_end = looked_at(copy)
    assert stated >= content_end > HEADER_SIZE
    assert LogRecords(copy).files.stored == LogRecords(disk.kill()).files.stored is not None


def test_a_trickle_that_is_never_idle_is_made_durable_in_the_mode_os_too() -> None:
    node = new_node(SimDisk(), Durability.OS)
    syncs = node.disk.operations["sync"]
    for _ in range(100):
        publish(node)
        tick(node)
    assert node.disk.operations["sync"] - syncs <= 3 * 100 // MOST_TICKS_BEHIND, "and for each new segment"
    written, durable = node.log.writer.written.position, node.log.writer.durable.position
    assert written - durable <= (MOST_TICKS_BEHIND + 2) * written // 100
    assert looked_at(node.disk)[0] > written // 2


class TimedSyncer(SteppedSyncer):
    """Chooses by how long syncs take, as Syncer does."""

    def _sync(self, limit: float = 0.0) -> None:
        Syncer._sync(self, limit)


def new_syncer(disk: SimDisk) -> TimedSyncer:
    return TimedSyncer(new_writer(disk), Space(disk), Durability.ALWAYS, 0, lambda: None)


@pytest.mark.parametrize(
    ("takes", "is_lone", "leaves_turn"),
    [(QUICK / 2, False, False), (QUICK * 2, True, False), (QUICK * 2, False, True), (LONE * 2, True, True)],
)
def test_a_sync_leaves_the_turn_when_others_wait_for_it_too_long(
    monkeypatch: pytest.MonkeyPatch, takes: float, is_lone: bool, leaves_turn: bool
) -> None:
    monkeypatch.setattr("nsqd.storage.log.syncer.time.perf_counter", count(0.0, takes).__next__)
    syncer = new_syncer(SimDisk())
    for _ in range(100):
        write(syncer._writer, b"one")
        syncer.written(True, 0, is_lone)
        if syncer.job is not None:
            break
    assert (syncer.job is not None) == leaves_turn


def test_a_turn_has_more_time_for_its_sync_if_nothing_was_delivered(monkeypatch: pytest.MonkeyPatch) -> None:
    node, limits = SimNode(), list[float]()
    tubes, worker = node.broker.tubes, node.worker()

    def put() -> None:
        tubes.put(worker, [b"job"], JobOptions())

    def finish() -> None:
        tube.finish_row(0, found.id, found.priority, JobState.RESERVED)
        tube.journal.promise()

    node.turn(put)
    tube = tubes.made("default")
    found = tube.next_ready()
    assert found is not None
    monkeypatch.setattr(node.syncer, "_sync", limits.append)
    node.turn(put)
    node.turn(put, lambda: tube.reserve(found, worker, node.clock.now))
    node.turn(finish)
    assert limits == [LONE, QUICK, LONE]
