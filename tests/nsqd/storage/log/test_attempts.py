"""A kill at any moment forgets no delivery: what is delivered is recorded in the group of its turn, before it is sent."""

import pytest

from nsqd.core.channel.actions import kick
from nsqd.core.channel.backlog import LOST_AT_ONCE
from nsqd.core.channel.failures import LOWERED
from nsqd.core.limits import Limits
from nsqd.core.sequence.put_batch import JobOptions
from nsqd.core.work_queue.job import JobState
from nsqd.core.work_queue.tube import Tube
from nsqd.core.work_queue.worker import Worker
from tests.nsqd.core.node import MS, SECOND, ids
from tests.nsqd.storage.log.test_replay import publish, start, subscribe
from tests.nsqd.storage.sim_disk import SimDisk
from tests.nsqd.storage.sim_node import SimNode

LIMITS = Limits(max_attempts={"": 3})
HOUR = 3600 * SECOND


@pytest.mark.parametrize("delay", [0, 10 * MS])
def test_a_kill_right_after_a_delivery_does_not_forget_it(delay: int) -> None:
    disk = SimDisk()
    node = start(disk)
    node.broker.topic("t").channel("a")
    publish(node, b"poison", delay=delay)
    node.advance(100 * MS)
    for attempt in range(1, 6):
        _, inbox = subscribe(node, "t", "a")
        (delivery,) = inbox.take()
        assert delivery.attempts == attempt
        disk = disk.kill()
        node = start(disk)


def test_what_is_delivered_in_the_turn_of_its_publish_is_recorded_in_the_group_of_its_publish() -> None:
    disk = SimDisk()
    node = start(disk)
    _, inbox = subscribe(node, "t", "a")
    topic = node.broker.topics["t"]
    node.turn(lambda: topic.publish([b"poison"], 6))
    assert [one.attempts for one in inbox.take()] == [1]
    _, inbox = subscribe(start(disk.kill()), "t", "a")
    assert [one.attempts for one in inbox.take()] == [2]


def test_a_kill_is_no_failure_of_what_was_in_flight() -> None:
    disk = SimDisk()
    node = start(disk, limits=LIMITS)
    node.broker.topic("t").channel("a")
    publish(node, b"innocent")
    for attempts in range(1, 9):
        _, inbox = subscribe(node, "t", "a")
        assert [one.attempts for one in inbox.take()] == [attempts]
        disk = disk.kill()
        node = start(disk, limits=LIMITS)
    assert len(node.broker.topics["t"].channels["a"].buried) == 0


@pytest.mark.parametrize("delay", [0, 10 * MS, HOUR])
def test_failures_outlast_kills(delay: int) -> None:
    disk = SimDisk()
    node = start(disk, limits=LIMITS)
    node.broker.topic("t").channel("a")
    publish(node, b"poison")
    for attempts in (1, 2, 3):
        consumer, inbox = subscribe(node, "t", "a")
        (one,) = inbox.take()
        assert one.attempts == attempts
        consumer.set_ready(0)
        assert consumer.requeue(one.id, delay, node.clock.now) == ""
        node.turn()
        disk = disk.kill()
        node = start(disk, limits=LIMITS)
        node.advance(delay + SECOND)
    channel = node.broker.topics["t"].channels["a"]
    graves = [(one.attempts, one.failures, one.reason) for _, one in channel.buried.after(None, 10)]
    assert graves == [(3, 3, "requeued")]
    assert channel.depth == channel.in_flight_count == 0
    node = start(disk.kill(), limits=LIMITS)
    channel = node.broker.topics["t"].channels["a"]
    assert len(channel.buried) == 1
    _, inbox = subscribe(node, "t", "a")
    assert kick(channel, [one for one, _ in channel.buried.after(None, 10)]) == 1
    node.advance(0)
    assert [one.attempts for one in inbox.take()] == [1]
    node.broker.check()


def test_after_a_start_with_a_lower_limit_many_are_buried_before_what_is_good_is_delivered() -> None:
    disk, limits, count = SimDisk(), Limits(max_attempts={"": 1}), 3 * LOST_AT_ONCE + 1
    node = start(disk)
    node.broker.topic("t").channel("a")
    publish(node, *[b"poison"] * count, b"good")
    consumer, inbox = subscribe(node, "t", "a", ready=count)
    for one in inbox.take():
        consumer.requeue(one.id, HOUR, node.clock.now)
    node.turn()
    node = start(disk.kill(), limits=limits)
    node.advance(2 * HOUR)
    channel = node.broker.topics["t"].channels["a"]
    consumer, inbox = subscribe(node, "t", "a", ready=1)
    (good,) = inbox.take()
    assert (good.body, consumer.finish(ids([good]))) == (b"good", [])
    node.advance(SECOND)
    assert (len(channel.buried), {one.reason for one in channel.buried.values()}) == (count, {LOWERED})
    node.broker.check()


class Hand:
    """The sink of a worker's connection, which keeps what it was given."""

    def reserved(self, tube: str, job: object, body: bytes) -> None:
        """Do nothing: this worker never waits for a job."""

    def read_completed(self) -> None:
        """Do nothing: all messages are in memory here."""


def test_a_kill_is_no_failure_of_a_job_either_and_failures_outlast_it() -> None:
    disk = SimDisk()
    node = start(disk, limits=LIMITS)
    put_by = Worker(Hand())
    node.broker.tubes.join(put_by)
    node.broker.tubes.put(put_by, [b"poison"], JobOptions(0, 60, 0, 0, True))
    node.turn()
    for reserves in (1, 2, 3):
        worker = Worker(Hand())
        node.broker.tubes.join(worker)
        job = work(node).table.head()
        work(node).reserve(job, worker, node.clock.now)
        node.turn()
        assert (job.reserves, job.failures) == (reserves, 0)
        disk = disk.kill()
        node = start(disk, limits=LIMITS)
    for reserves in (4, 5, 6):
        worker = Worker(Hand())
        node.broker.tubes.join(worker)
        job = work(node).next_ready()
        work(node).reserve(job, worker, node.clock.now)
        node.broker.tubes.leave(worker)
        node.turn()
        disk = disk.kill()
        node = start(disk, limits=LIMITS)
        (job,) = work(node).jobs
        assert (job.reserves, job.failures) == (reserves, reserves - 3)
    assert (job.state, job.buries) == (JobState.BURIED, 1)
    node.broker.check()
    disk = disk.kill()
    node = start(disk, limits=LIMITS)
    (job,) = work(node).jobs
    assert (job.state, job.buries) == (JobState.BURIED, 1)
    work(node).kick(job)
    node.turn()
    node = start(disk.kill(), limits=LIMITS)
    assert [(job.state, job.failures) for job in work(node).jobs] == [(JobState.READY, 0)]
    node.broker.check()


def work(node: SimNode) -> Tube:
    tube = node.broker.tubes.tube("default")
    assert tube is not None
    return tube
