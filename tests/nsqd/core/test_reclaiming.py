"""Emptied and deleted at once for everybody, and freed bit by bit: channels, topics and tubes with much in them."""

import pytest

from nsqd.core.channel.channel import Channel
from nsqd.core.sequence.put_batch import JobOptions
from tests.nsqd.core.node import SECOND, Node, bodies

MANY = 30_000  # messages: more than one turn releases
FAR, NEAR = 3600 * SECOND, 30 * SECOND


def publish_many(node: Node, count: int = MANY) -> None:
    for first in range(0, count, 5000):
        node.publish("t", *(b"%d" % number for number in range(first, first + 5000)))


def work_off(node: Node) -> int:
    """Run turns until nothing is left to free. Returns how many it took."""
    turns = 0
    while not node.broker.agenda.reclaimer.is_idle:
        node.broker.begin(node.now, 1)
        node.broker.serve()
        node.broker.commit()
        turns += 1
    return turns


def test_an_emptied_channel_is_empty_at_once_and_freed_later() -> None:
    node = Node()
    channel = node.channel("t", "c")
    publish_many(node)

    channel.empty()

    assert (channel.depth, channel.counts().ready, channel.start) == (0, 0, MANY)
    assert node.held() > MANY // 2
    assert work_off(node) >= 2
    assert node.held() == 0
    node.broker.check()


def test_another_channel_still_gets_what_one_gave_up() -> None:
    node = Node()
    emptied, other = node.channel("t", "emptied"), node.channel("t", "other")
    publish_many(node)

    emptied.empty()
    _, inbox = node.subscribe("t", "other", ready=MANY)
    node.turn()

    assert work_off(node) == 0
    assert bodies(inbox.take()) == [b"%d" % number for number in range(MANY)]
    assert other.in_flight_count == node.held() == MANY


def test_what_comes_while_a_channel_is_being_freed_is_its_own() -> None:
    node = Node()
    channel = node.channel("t", "c")
    publish_many(node)

    channel.empty()
    node.broker.topics["t"].publish([b"new"], 3)
    node.broker.seal()
    assert channel.depth == 1
    work_off(node)

    _, inbox = node.subscribe("t", "c", ready=10)
    assert bodies(inbox.take()) == [b"new"]
    node.broker.check()


@pytest.mark.parametrize("delay", [NEAR, FAR])
def test_messages_that_wait_for_a_time_are_released_too(delay: int) -> None:
    node = Node()
    channel = node.channel("t", "c")
    publish_many(node, 10_000)
    consumer, inbox = node.subscribe("t", "c", ready=2500)
    while messages := inbox.take():
        for message in messages:
            consumer.requeue(message.id, delay, node.now)
        node.turn()
    assert channel.deferred_count == 10_000

    channel.empty()

    assert (channel.deferred_count, channel.next_due()) == (0, None)
    assert work_off(node) >= 2
    assert node.held() == 0
    node.advance(2 * delay)
    assert not inbox.take()


@pytest.mark.parametrize("delay", [NEAR, FAR])
def test_so_are_those_of_the_topics_delay_lane_but_not_for_others(delay: int) -> None:
    node = Node()
    emptied, other = node.channel("t", "emptied"), node.channel("t", "other")
    for number in range(2000):
        node.broker.topic("t").publish_deferred(b"%d" % number, node.now + delay)
    node.turn()

    emptied.empty()
    assert (emptied.deferred_count, other.deferred_count) == (0, 2000)
    work_off(node)
    _, nothing = node.subscribe("t", "emptied", ready=5000)
    _, inbox = node.subscribe("t", "other", ready=5000)
    node.advance(delay + SECOND)

    assert not nothing.take()
    assert sorted(bodies(inbox.take())) == sorted(b"%d" % number for number in range(2000))
    node.broker.check()


def test_a_deleted_topic_may_be_made_again_at_once() -> None:
    node = Node()
    node.channel("t", "c")
    publish_many(node)

    node.broker.delete_topic("t")
    node.channel("t", "c")
    node.publish("t", b"new")
    _, inbox = node.subscribe("t", "c", ready=10)

    assert bodies(inbox.take()) == [b"new"]
    work_off(node)
    assert node.held() == 1
    node.broker.check()


def put_many(node: Node, name: str, count: int) -> int:
    """Put jobs, and return the client id of the first."""
    tubes = node.broker.tubes
    tube = tubes.made(name)
    job_id = node.broker.topics[tube.topic_name].put([b"job"] * count, JobOptions(5, 60))
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


def test_a_deleted_channel_is_freed_although_its_topic_goes_meanwhile() -> None:
    node = Node()
    node.channel("t", "c")
    node.channel("t", "d")
    publish_many(node)

    node.broker.topics["t"].delete_channel("c")
    node.broker.delete_topic("t")

    assert isinstance(node.channel("t", "c"), Channel)
    work_off(node)
    assert node.held() == 0
    node.broker.check()
