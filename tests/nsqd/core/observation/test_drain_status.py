"""A node that drains: refusals, deliveries, and the count of what is left."""

import pytest

from nsqd.core.limits import Limits
from nsqd.core.message.attributes import Attributes
from nsqd.core.observation.drain_status import DrainStatus, count_finishable, count_in_flight, drain_statuses
from nsqd.core.scheduling.recurrence import At
from nsqd.core.scheduling.table import Missed, Schedule
from nsqd.core.sequence.put_batch import JobOptions
from tests.nsqd.core.node import SECOND, Node, ids
from tests.nsqd.protocols.beanstalk.wire import Wire as Worker


def left(node: Node, *excluded: str) -> DrainStatus:
    found = DrainStatus()
    for one in drain_statuses(node.broker, *excluded):
        found = found.plus(one)
    node.broker.check()
    return found


@pytest.fixture
def node() -> Node:
    node = Node(Limits(max_attempts={"": 1}))
    node.channel("t", "c")
    return node


def test_what_is_left_becomes_less_until_there_is_nothing_but_what_is_buried(node: Node) -> None:
    node.publish("t", b"a", b"b")
    node.publish("alone", b"x", b"y", b"z")  # no channel
    node.publish_deferred("t", b"later", 5 * SECOND)
    node.broker.drain(True)
    assert left(node) == DrainStatus(depth=5, deferred=1)
    consumer, inbox = node.subscribe("t", "c", ready=1)
    assert left(node) == DrainStatus(depth=4, in_flight=1, deferred=1)
    consumer.requeue(inbox.take()[0].id, 0, node.now)  # once is enough: it is buried
    node.turn()
    assert left(node) == DrainStatus(depth=3, in_flight=1, deferred=1, buried=1)
    consumer.finish(ids(inbox.take()))
    node.channel("alone", "late")  # its messages are the channel's now, and no more than they were
    assert left(node) == DrainStatus(depth=3, deferred=1, buried=1)
    other, others = node.subscribe("alone", "late", ready=9)
    other.finish(ids(others.take()))
    assert not left(node).is_drained
    node.advance(6 * SECOND)
    consumer.finish(ids(inbox.take()))
    assert left(node) == DrainStatus(buried=1)
    assert left(node).is_drained


def test_follow_ups_are_left_until_they_are_published(node: Node) -> None:
    topic = node.broker.topic("t")
    topic.publish_with([b""], Attributes((("batch", "b"),)))
    topic.publish_with([b"1", b"2"], Attributes((("after", "b"),)))
    node.turn()
    assert left(node) == DrainStatus(depth=1, deferred=2, batches=1)
    node.broker.context.batches.close("empty", 0)
    assert left(node).batches == 2
    for _ in range(2):  # a round ends before it begins
        node.broker.context.batches.find_done(0, 100)
    assert left(node).batches == 1


def test_schedules_are_left_until_they_are_removed(node: Node) -> None:
    schedule = Schedule("t", "n", At(9), Missed.SKIP, b"x", (), 5)
    node.broker.context.schedules.put(schedule)
    assert left(node) == DrainStatus(schedules=1)
    assert not left(node).is_drained
    node.broker.context.schedules.remove(schedule.key)
    assert left(node).is_drained


def test_jobs_are_left_while_they_are_ready_reserved_or_delayed(node: Node) -> None:
    worker = Worker(node)
    worker.ask(b"use jobs\r\nwatch jobs\r\n")
    node.broker.tubes.put(worker.peer.worker, [b"1", b"2", b"3"], JobOptions())
    node.turn()
    node.broker.drain(True)
    assert left(node) == DrainStatus(jobs=3)
    number = int(worker.ask(b"reserve\r\n").split()[1])
    assert left(node) == DrainStatus(jobs=3)
    worker.ask(b"release %d 0 60\r\n" % number)  # its one reserve is over: it is buried
    assert left(node) == DrainStatus(jobs=2, buried=1)
    for _ in range(2):
        worker.ask(b"delete %d\r\n" % int(worker.ask(b"reserve\r\n").split()[1]))
    assert left(node) == DrainStatus(buried=1)
    assert left(node).is_drained


def test_messages_of_a_consumer_that_has_left_are_in_flight_and_cannot_be_finished(node: Node) -> None:
    consumer, _ = node.subscribe("t", "c", ready=9)
    node.publish("t", b"1", b"2")
    worker = Worker(node)
    worker.ask(b"put 0 0 60 1\r\nx\r\n")
    worker.ask(b"reserve\r\n")
    assert (count_in_flight(node.broker), count_finishable(node.broker)) == (3, 3)
    consumer.leave(node.broker)
    assert (count_in_flight(node.broker), count_finishable(node.broker)) == (3, 1)
