"""A kill at any moment forgets no delivery: it is recorded in the group of its turn, before it is sent."""

import pytest

from nsqd.core.channel.actions import kick
from nsqd.core.channel.backlog import LOST_AT_ONCE
from nsqd.core.channel.failures import LOWERED
from nsqd.core.limits import Limits
from nsqd.core.sequence.put_batch import JobOptions
from nsqd.core.work_queue.job import JobState
from nsqd.core.work_queue.tube import Tube
from tests.nsqd.core.node import MS, SECOND, ids
from tests.nsqd.storage.log.test_replay import publish, start, subscribe
from tests.nsqd.storage.sim_disk import SimDisk
from tests.nsqd.storage.sim_node import SimNode

LIMITS = Limits(max_attempts={"": 3})
HOUR = 3600 * SECOND


def killed(node: SimNode, limits: Limits = LIMITS) -> SimNode:
    return start(node.disk.kill(), limits=limits)


@pytest.mark.parametrize("delay", [0, 10 * MS])
def test_a_kill_right_after_a_delivery_does_not_forget_it_and_is_no_failure(delay: int) -> None:
    node = start(SimDisk(), limits=LIMITS)
    node.broker.topic("t").channel("a")
    publish(node, b"innocent", delay=delay)
    node.advance(100 * MS)
    for attempts in range(1, 9):
        _, inbox = subscribe(node, "t", "a")
        assert [one.attempts for one in inbox.take()] == [attempts]
        node = killed(node)
    assert len(node.broker.topics["t"].channels["a"].buried) == 0


@pytest.mark.parametrize("delay", [0, 10 * MS, HOUR])
def test_failures_outlast_kills(delay: int) -> None:
    node = start(SimDisk(), limits=LIMITS)
    node.broker.topic("t").channel("a")
    publish(node, b"poison")
    for attempts in (1, 2, 3):
        consumer, inbox = subscribe(node, "t", "a")
        (one,) = inbox.take()
        consumer.set_ready(0)
        assert (one.attempts, consumer.requeue(one.id, delay, node.clock.now)) == (attempts, "")
        node.turn()
        node = killed(node)
        node.advance(delay + SECOND)
    channel = node.broker.topics["t"].channels["a"]
    graves = [(one.attempts, one.failures, one.reason) for _, one in channel.buried.after(None, 10)]
    assert (graves, channel.depth, channel.in_flight_count) == ([(3, 3, "requeued")], 0, 0)
    node = killed(node)
    channel = node.broker.topics["t"].channels["a"]
    assert len(channel.buried) == 1
    _, inbox = subscribe(node, "t", "a")
    assert kick(channel, [one for one, _ in channel.buried.after(None, 10)]) == 1
    node.advance(0)
    assert [one.attempts for one in inbox.take()] == [1]
    node.broker.check()


def test_after_a_start_with_a_lower_limit_many_are_buried_before_what_is_good_is_delivered() -> None:
    count, node = 3 * LOST_AT_ONCE + 1, start(SimDisk())
    node.broker.topic("t").channel("a")
    publish(node, *[b"poison"] * count, b"good")
    consumer, inbox = subscribe(node, "t", "a", ready=count)
    for one in inbox.take():
        consumer.requeue(one.id, HOUR, node.clock.now)
    node.turn()
    node = killed(node, Limits(max_attempts={"": 1}))
    node.advance(2 * HOUR)
    channel = node.broker.topics["t"].channels["a"]
    consumer, inbox = subscribe(node, "t", "a", ready=1)
    (good,) = inbox.take()
    assert (good.body, consumer.finish(ids([good]))) == (b"good", [])
    node.advance(SECOND)
    assert (len(channel.buried), {one.reason for one in channel.buried.values()}) == (count, {LOWERED})
    node.broker.check()


def work(node: SimNode) -> Tube:
    return node.broker.tubes.tube("default")


def test_a_kill_is_no_failure_of_a_job_either_and_failures_outlast_it() -> None:
    node = start(SimDisk(), limits=LIMITS)
    node.broker.tubes.put(node.worker(), [b"poison"], JobOptions(0, 60, 0, 0, True))
    node.turn()
    for reserves in range(1, 7):
        worker, job = node.worker(), work(node).next_ready()
        work(node).reserve(job, worker, node.clock.now)
        if reserves > 3:
            node.broker.tubes.leave(worker)
        node.turn()
        node = killed(node)
        (job,) = work(node).jobs
        assert (job.reserves, job.failures) == (reserves, max(0, reserves - 3))
    for _ in range(2):
        (job,) = work(node).jobs
        assert (job.state, job.buries) == (JobState.BURIED, 1)
        node.broker.check()
        node = killed(node)
    work(node).kick(*work(node).jobs)
    node.turn()
    node = killed(node)
    assert [(job.state, job.failures) for job in work(node).jobs] == [(JobState.READY, 0)]
    node.broker.check()
