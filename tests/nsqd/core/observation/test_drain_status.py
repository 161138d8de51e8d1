"""A node that drains: refusals, deliveries, and the count of what is left."""

import pytest

from nsqd.core.broker import DRAINING
from nsqd.core.limits import Limits
from nsqd.core.observation.drain_status import DrainStatus, count_finishable, count_in_flight, drain_statuses
from nsqd.core.sequence.put_batch import JobOptions
from tests.cases import each
from tests.nsqd.core.node import SECOND, Node, ids
from tests.nsqd.protocols.beanstalk.wire import Wire as Worker
from tests.nsqd.protocols.nsq.wire import ERROR, Wire, body, mpub

X = body(b"x")


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


@each("command, name", [(b"PUB t\n" + X, "PUB"), (mpub(b"t", b"1", b"2"), "MPUB"), (b"DPUB t 5\n" + X, "DPUB")])
def test_publishing_is_refused_and_taken_again_unless_the_node_leaves_its_cluster(command: bytes, name: str) -> None:
    node, under_way = Node(), len(command) - 3 * (name == "MPUB")
    node.channel("t", "c")
    wire, refused = (
        Wire(node).send(command[:under_way] * (name == "MPUB")),
        [(ERROR, f"E_{name}_FAILED {name} failed DRAINING".encode())],
    )
    assert node.broker.drain(True)
    assert wire.send(command[under_way:] if name == "MPUB" else command).frames() == refused
    assert left(node).is_drained
    assert node.broker.drain(False)
    assert Wire(node).send(command).replies() == [b"OK"]
    assert node.broker.drain(True)
    node.broker.agenda.is_held = True
    assert not node.broker.drain(False)
    assert Wire(node).send(command).frames() == refused


def test_it_is_idempotent_and_holds_over_turns(node: Node) -> None:
    assert not node.broker.drain(False)
    assert node.broker.drain(True)
    since = node.broker.draining_since
    assert since == node.broker.wall
    node.advance(SECOND)
    assert not node.broker.drain(True)
    assert (node.broker.draining_since, node.broker.refusal) == (since, DRAINING)
    assert node.broker.drain(False)
    assert (node.broker.draining_since, node.broker.refusal) == (0, "")


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


def test_some_topics_are_left_out(node: Node) -> None:
    node.broker.topic("_stats").publish([b"a", b"b"], 2)
    node.broker.drain(True)
    node.turn()  # messages of an earlier turn count from the next one on
    assert left(node, "_stats", "") == left(node, "audit", "_stats") == DrainStatus()
    assert left(node, "_stat", "") == left(node) == DrainStatus(depth=2)


def test_the_look_goes_on_over_turns_in_which_topics_and_channels_go(node: Node) -> None:
    for name in "abc":
        node.channel(name, "one")
        node.channel(name, "two")
        node.publish(name, b"x")
    look = drain_statuses(node.broker, "")
    seen = [next(look) for _ in range(3)]  # of t, its channel, and a
    node.broker.delete_topic("c")
    node.broker.topics["a"].delete_channel("two")
    assert sum(one.depth for one in [*seen, *look]) == 3  # a's one, b's two


def test_messages_of_a_consumer_that_has_left_are_in_flight_and_cannot_be_finished(node: Node) -> None:
    consumer, _ = node.subscribe("t", "c", ready=9)
    node.publish("t", b"1", b"2")
    worker = Worker(node)
    worker.ask(b"put 0 0 60 1\r\nx\r\n")
    worker.ask(b"reserve\r\n")
    assert (count_in_flight(node.broker), count_finishable(node.broker)) == (3, 3)
    consumer.leave(node.broker)
    assert (count_in_flight(node.broker), count_finishable(node.broker)) == (3, 1)
