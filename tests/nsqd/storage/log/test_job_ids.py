"""Ids of jobs: whole in the log, whatever the node's number was when they were put; clients see their numbers."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from random import Random

import pytest

from nsqd.core import records
from nsqd.core.limits import Limits
from nsqd.core.message.ids import SEQUENCE, IdSource
from nsqd.core.records import RecordKind
from nsqd.core.retention.policy import Durability
from nsqd.core.sequence.put_batch import JobOptions
from nsqd.core.work_queue.actions import behind
from nsqd.core.work_queue.job import ROW, SHORT_SIZE, Job, JobState, grown, of_node, unpack
from nsqd.core.work_queue.tube import Tube
from nsqd.core.work_queue.waiters import Reading
from nsqd.core.work_queue.worker import Worker
from nsqd.storage.log.epochs import NO_EPOCH
from nsqd.storage.log.reader import LogRecords, Record
from nsqd.storage.log.reading import replayed, widened
from nsqd.storage.log.records import EPOCHS, HEADER_SIZE, PREFIX_SIZE, WHOLE_IDS, decode_header, encode
from tests.nsqd.storage import sim_node
from tests.nsqd.storage.sim_disk import SimDisk
from tests.nsqd.storage.sim_node import Clock, SimNode

TERMS = JobOptions(5, 60, 0, 0, True)


class Nobody:
    """The sink of a worker's connection to which nothing may come."""

    def reserved(self, tube: str, job: Job, body: bytes) -> None:
        raise AssertionError

    def read_completed(self) -> None:
        raise AssertionError


def node_on(disk: SimDisk, has_whole_ids: bool = False) -> SimNode:
    clock = Clock(1000 * 10**9, 1_800_000_000 * 10**9)
    return SimNode(disk, Durability.ALWAYS, clock, Random(1), Limits(whole_job_ids=has_whole_ids))


def worker(node: SimNode) -> Worker:
    one = Worker(Nobody())
    node.broker.tubes.join(one)
    return one


def put(node: SimNode, count: int = 1) -> list[int]:
    """Put jobs into `default`, a turn each; what clients are told."""
    client, told = worker(node), list[int]()
    for number in range(count):
        node.turn(lambda body=b"%d" % number: told.append(node.broker.tubes.put(client, [body], TERMS)))
    return told


def told(node: SimNode) -> dict[int, int]:
    """Of each job of `default`, by the number by which clients know it: its node's number."""
    tubes = node.broker.tubes
    tubes.check()
    return {tubes.client_id(job): job.id >> 48 for job in tubes.made("default").jobs}


def next_of(node: SimNode, client: Worker) -> tuple[Tube, Job, bytes]:
    """The next job for the worker. Its body may have to be read."""
    while True:
        try:
            found = node.broker.tubes.waiters.next_for(client, node.clock.now)
        except Reading:
            node.turn()
            assert node.cache.step()
            node.turn()
        else:
            assert found is not None
            return found


@pytest.mark.parametrize("is_stopped", [False, True])
def test_jobs_keep_their_numbers_when_the_node_gets_another_number(
    monkeypatch: pytest.MonkeyPatch, is_stopped: bool
) -> None:
    disk, numbers = SimDisk(Random(1)), list[int]()
    for number in (7, 1023, 0):
        monkeypatch.setattr(sim_node, "NODE", number)
        node = node_on(disk)
        numbers += put(node, 3)
        found = node.broker.tubes.find(numbers[-1])
        assert found is not None
        node.turn(partial(found[0].kick, found[1]))  # it has a JOB record, too
        if is_stopped:
            node.log.close()
        disk = node.disk.kill()
    node = node_on(disk)
    assert list(told(node)) == numbers == sorted(numbers)
    assert list(told(node).values()) == [7, 7, 7, 1023, 1023, 1023, 0, 0, 0]
    client = worker(node)
    for place, number in enumerate(numbers):  # whoever was put first is reserved first
        tube, job, body = next_of(node, client)
        assert (node.broker.tubes.client_id(job), body) == (number, b"%d" % (place % 3))
        tube.finish(job)


def test_jobs_of_two_nodes_with_the_same_sequence_stand_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimDisk(Random(1))
    for number in (7, 9):
        monkeypatch.setattr(sim_node, "NODE", number)
        monkeypatch.setattr(sim_node, "IdSource", lambda node, first, lease: IdSource(node, 1, lease))
        node = node_on(disk, has_whole_ids=True)
        put(node, 2)
        disk = node.disk.kill()
    node = node_on(disk, has_whole_ids=True)
    assert told(node) == {7 << 48 | 1: 7, 7 << 48 | 2: 7, 9 << 48 | 1: 9, 9 << 48 | 2: 9}
    tubes, tube = node.broker.tubes, node.broker.tubes.made("default")
    following = [[job.id for job in tube.jobs.in_state(JobState.READY, behind(tube, one))] for one in told(node)]
    assert following == [list(told(node))[place:] for place in range(1, 5)]  # what list-jobs answers
    assert tubes.find(1) is None
    found = tubes.find(9 << 48 | 1)
    assert found is not None
    found[0].finish(found[1])
    assert list(told(node)) == [7 << 48 | 1, 7 << 48 | 2, 9 << 48 | 2]


SHORT = {RecordKind.JOB: RecordKind.SHORT_JOB, RecordKind.JOBS: RecordKind.SHORT_JOBS}
UNKNOWN = 200  # no kind of a record has this number


def shortened(record: Record, has_nodes: bool) -> tuple[int, bytes]:
    """The record as an older format had it: rows of jobs without ttl and what follows it, and perhaps no node numbers."""
    kind, content = record.kind, record.content
    if kind not in SHORT:
        return kind, content
    head = records.CHANNEL_OF.size if kind == RecordKind.JOB else records.JOBS.size
    before = records.ORDINAL.size if kind == RecordKind.JOB else 0
    parts = [content[:head]]
    for at in range(head, len(content), before + ROW.size):
        row = content[at + before : at + before + ROW.size]
        parts += (
            content[at : at + before],
            row[:6],
            row[6:8] if has_nodes else bytes(2),
            row[8 : SHORT_SIZE - 1],
            row[-1:],
        )
    return SHORT[RecordKind(kind)], b"".join(parts)


def narrow(disk: SimDisk, version: int = WHOLE_IDS - 1) -> SimDisk:
    """The same log as an older format had it: up to format 6, segments tell the node's number, and rows of jobs do not.

    What is shorter now is made up for at the end of a segment, since positions count all bytes.
    """
    older = SimDisk(Random(2))
    for name in disk.names():
        data = disk.content(name)
        if not name.endswith(".log"):
            older.put(name, data)
            continue
        header = decode_header(data)
        header = replace(header, version=version, epoch=header.epoch if version >= EPOCHS else NO_EPOCH)
        copied = [header.encode()]
        at = end = HEADER_SIZE
        for record in LogRecords(disk).records() if len(data) > HEADER_SIZE else ():
            if record.segment == header.base:
                encoded = encode(header.seed, at, *shortened(record, version >= WHOLE_IDS))
                copied += encoded
                at += sum(map(len, encoded))
                end = record.end
        if end - at > PREFIX_SIZE:  # else it is the last segment, behind which nothing stands
            copied += encode(header.seed, at, UNKNOWN, bytes(end - at - PREFIX_SIZE - 1))
        older.put(name, b"".join(copied))
    return older


@pytest.mark.parametrize("version", [WHOLE_IDS - 1, WHOLE_IDS, EPOCHS])
def test_rows_of_older_formats_are_read(version: int) -> None:
    node = node_on(SimDisk(Random(1)))
    numbers = put(node, 70)
    tube = node.broker.tubes.made("default")
    assert node.log.upkeep is not None
    node.log.upkeep.checkpoints._begin()  # JOBS pages
    for _ in range(20):
        node.turn()
        node.syncer.step()
    job = tube.jobs.get(5)
    assert job is not None
    node.turn(lambda: tube.bury(job, 9))  # and a JOB record
    expected = told(node)
    disk = node.disk.kill()
    older = narrow(disk, version)
    rows = [record for record in LogRecords(older).records() if record.kind in SHORT.values()]
    assert {record.kind for record in rows} == set(SHORT.values())
    last = [unpack(0, grown(record.content[-SHORT_SIZE:], SHORT_SIZE)).id for record in rows]
    assert all((one > SEQUENCE) == (version >= WHOLE_IDS) for one in last if one)
    replay, _ = replayed(LogRecords(older))
    assert replay.complete
    again = node_on(older)
    assert told(again) == expected
    assert list(expected.values()) == [7] * len(numbers)


def test_rows_behind_a_header_that_was_damaged_keep_their_ids() -> None:
    node = node_on(SimDisk(Random(1)))
    put(node, 3)
    tube = node.broker.tubes.made("default")
    job = tube.jobs.get(1)
    assert job is not None
    node.turn(lambda: tube.bury(job, 9))  # a JOB record
    expected = told(node)
    for disk in (node.disk.kill(), narrow(node.disk.kill())):
        (name,) = (name for name in disk.names() if name.endswith(".log"))
        disk.put(name, bytes(40) + disk.content(name)[40:])
        assert told(node_on(disk)) == expected


def test_a_row_without_a_job_stays_empty() -> None:
    packed = Job(3, 1, 5, 0, 60, 77).pack()
    row = packed[: SHORT_SIZE - 1] + packed[-1:]
    assert of_node(of_node(row, 5), 6) == of_node(row, 5)  # it has one
    both = of_node(row + bytes(SHORT_SIZE), 5)
    assert grown(both, SHORT_SIZE) == Job(3, 5 << 48 | 1, 5, 0, 60, 77).pack() + bytes(ROW.size)
    other = Record(RecordKind.FINISH, records.CHANNEL_OF.pack(1, 2) + row, 0, 0, 0)
    assert widened(other, 5) is other
