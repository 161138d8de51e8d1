"""Channels, topics and tubes with much in them are emptied and deleted at once for clients, and freed bit by bit."""

import pytest

from nsqd.core.sequence.put_batch import JobOptions
from tests.nsqd.core.node import SECOND, Node, bodies

FAR, NEAR = 3600 * SECOND, 30 * SECOND


def work_off(node: Node) -> int:
    """Run turns until nothing is left to free. Returns how many it took."""
    turns = 0
    while not node.broker.agenda.reclaimer.is_idle:
        node.broker.begin(node.now, 1)
        node.broker.serve()
        node.broker.commit()
        turns += 1
    return turns


@pytest.mark.parametrize("delay", [NEAR, FAR])
def test_messages_that_wait_for_a_time_are_released_too_but_not_for_others(delay: int) -> None:
    node = Node()
    channel, other = node.channel("t", "c"), node.channel("t", "other")
    node.publish("t", *[b"x"] * 2500)
    consumer, inbox = node.subscribe("t", "c", ready=2500)
    for message in inbox.take():
        consumer.requeue(message.id, delay, node.now)
    node.turn()
    late = [b"late%d" % number for number in range(2000)]
    for body in late:
        node.broker.topic("t").intake.publish_with([body], due=node.now + delay)
    node.turn()
    assert (channel.deferred_count, other.deferred_count) == (4500, 2000)
    channel.empty()
    assert (channel.deferred_count, channel.next_due(), other.deferred_count) == (0, None, 2000)
    assert work_off(node) >= 2
    assert node.held() == 4500
    _, others = node.subscribe("t", "other", ready=5000, timeout=3 * delay)
    node.advance(2 * delay)
    assert not inbox.take()
    assert sorted(body for body in bodies(others.take()) if body.startswith(b"late")) == sorted(late)
    node.broker.check()


def put_many(node: Node, name: str, count: int) -> int:
    """Put jobs, and return the client id of the first."""
    tubes = node.broker.tubes
    tube = tubes.made(name)
    job_id = node.broker.topics[tube.topic_name].intake.put([b"job"] * count, JobOptions(5, 60))
    node.turn()
    return tubes.index.client_id(job_id)


def test_jobs_of_a_deleted_topic_are_found_no_more_while_they_are_freed() -> None:
    node = Node()
    first = put_many(node, "jobs", 10_000)
    tubes = node.broker.tubes
    assert tubes.find(first) is not None

    node.broker.delete_topic("jobs")

    assert not node.broker.agenda.reclaimer.is_idle
    assert [tubes.find(first + number) for number in (0, 5000, 9999)] == [None] * 3
    assert len(tubes.index) == 0
    node.broker.check()
    again = put_many(node, "jobs", 10)
    work_off(node)
    assert tubes.find(again) is not None
    assert len(tubes.index) == tubes.waiters.queues["jobs"].jobs.count == 10
    node.broker.check()
