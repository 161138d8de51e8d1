"""Ids of jobs: whole in the log, whatever the node's number was when they were put; clients see their numbers."""

from functools import partial

import pytest

from nsqd.core.limits import Limits
from nsqd.core.message.ids import IdSource
from nsqd.core.sequence.put_batch import JobOptions
from nsqd.core.work_queue.actions import behind
from nsqd.core.work_queue.job import Job, JobState
from nsqd.core.work_queue.tube import Tube
from nsqd.core.work_queue.waiters import Reading
from nsqd.core.work_queue.worker import Worker
from tests.nsqd.storage import sim_node
from tests.nsqd.storage.sim_disk import SimDisk
from tests.nsqd.storage.sim_node import SimNode

TERMS = JobOptions(5, 60, 0, 0, True)


def node_on(disk: SimDisk, has_whole_ids: bool = False) -> SimNode:
    return SimNode(disk, limits=Limits(whole_job_ids=has_whole_ids))


def put(node: SimNode, count: int = 1) -> list[int]:
    """Put jobs into `default`, a turn each. Returns the numbers for clients."""
    client, numbers = node.worker(), list[int]()
    for number in range(count):
        node.turn(lambda body=b"%d" % number: numbers.append(node.broker.tubes.put(client, [body], TERMS)))
    return numbers


def job_nodes(node: SimNode) -> dict[int, int]:
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
            return found


@pytest.mark.parametrize("is_stopped", [False, True])
def test_jobs_keep_their_numbers_when_the_node_gets_another_number(
    monkeypatch: pytest.MonkeyPatch, is_stopped: bool
) -> None:
    disk, numbers = SimDisk(), list[int]()
    for number in (7, 1023, 0):
        monkeypatch.setattr(sim_node, "NODE", number)
        node = node_on(disk)
        numbers += put(node, 3)
        found = node.broker.tubes.find(numbers[-1])
        node.turn(partial(found[0].kick, found[1]))  # it has a JOB record, too
        if is_stopped:
            node.log.close()
        disk = node.disk.kill()
    node = node_on(disk)
    assert list(job_nodes(node)) == numbers == sorted(numbers)
    assert list(job_nodes(node).values()) == [7, 7, 7, 1023, 1023, 1023, 0, 0, 0]
    client = node.worker()
    for place, number in enumerate(numbers):  # in the order in which they were put
        tube, job, body = next_of(node, client)
        assert (node.broker.tubes.client_id(job), body) == (number, b"%d" % (place % 3))
        tube.finish(job)


def test_jobs_of_two_nodes_with_the_same_sequence_stand_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimDisk()
    for number in (7, 9):
        monkeypatch.setattr(sim_node, "NODE", number)
        monkeypatch.setattr(sim_node, "IdSource", lambda node, first, lease: IdSource(node, 1, lease))
        node = node_on(disk, has_whole_ids=True)
        put(node, 2)
        disk = node.disk.kill()
    node = node_on(disk, has_whole_ids=True)
    assert job_nodes(node) == {7 << 48 | 1: 7, 7 << 48 | 2: 7, 9 << 48 | 1: 9, 9 << 48 | 2: 9}
    tubes, tube = node.broker.tubes, node.broker.tubes.made("default")
    following = [[job.id for job in tube.jobs.in_state(JobState.READY, behind(tube, one))] for one in job_nodes(node)]
    assert following == [list(job_nodes(node))[place:] for place in range(1, 5)]  # what list-jobs answers
    assert tubes.find(1) is None
    found = tubes.find(9 << 48 | 1)
    found[0].finish(found[1])
    assert list(job_nodes(node)) == [7 << 48 | 1, 7 << 48 | 2, 9 << 48 | 2]
