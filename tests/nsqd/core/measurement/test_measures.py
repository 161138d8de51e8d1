"""End-to-end latencies of a channel: each message's moment of publishing follows it through everything."""

from nsqd.core.limits import Limits
from tests.cases import each
from tests.nsqd.core.client import Client
from tests.nsqd.core.node import MS, SECOND, Delivery, Inbox, Node, ids

PERCENTILES = (1.0, 0.5)
LIMITS = Limits(latency_percentiles=PERCENTILES)


def subscribe(node: Node, timeout: int = 2 * SECOND) -> tuple[Client, Inbox]:
    return node.subscribe("t", "c", 100, timeout)


def publish_each_second(node: Node, count: int) -> None:
    """Message i is published at second i."""
    for number in range(count):
        if number:
            node.advance(SECOND)
        node.publish("t", b"%d" % number)


def one_run(node: Node, count: int) -> tuple[Client, list[Delivery]]:
    """A consumer that is given that many messages at once, of which each was published a second after the one before."""
    consumer, inbox = node.subscribe("t", "c", 0)
    publish_each_second(node, count)
    consumer.set_ready(10)
    node.turn()
    return consumer, inbox.take()


def finished(node: Node, consumer: Client, *deliveries: Delivery) -> list[int]:
    """FIN of these; the seconds that each took as the channel has recorded them, ascending."""
    node.turn()
    assert consumer.finish(ids(list(deliveries))) == []
    return recorded(node)


def recorded(node: Node) -> list[int]:
    """Whole seconds of all that was recorded: exact enough while there are few."""
    latency = node.channel("t", "c").latency
    counts = [0, *node.broker.context.latencies.cumulative([second * SECOND + 100 * MS for second in range(20)])]
    assert latency.result(node.now)["count"] == counts[-1]
    return [second for second in range(20) for _ in range(counts[second + 1] - counts[second])]


def take(inbox: Inbox) -> dict[bytes, Delivery]:
    return {delivery.body: delivery for delivery in inbox.take()}


@each("order", [(3, 0, 1, 2), (1, 3, 2, 0), (2, 1, 0, 3), (0, 3, 2, 1)])
def test_a_run_that_falls_apart(order: tuple[int, ...]) -> None:
    node = Node(LIMITS)
    consumer, got = one_run(node, 4)
    expected: list[int] = []
    for index in order:
        expected.append(3 - index)
        assert finished(node, consumer, got[index]) == sorted(expected)


@each("how", ["requeued", "deferred", "timed out", "touched"])
def test_what_comes_back_or_is_touched_counts_from_its_publish(how: str) -> None:
    node = Node(LIMITS)
    consumer, inbox = subscribe(node)
    publish_each_second(node, 2)
    node.publish_deferred("t", b"late", SECOND)
    got = take(inbox)
    for delivery in got.values():
        if how == "touched":
            assert consumer.touch(delivery.id, 60 * SECOND, 100 * SECOND, node.now) == ""
        elif how != "timed out":
            consumer.requeue(delivery.id, SECOND if how == "deferred" else 0, node.now)
    node.advance(2 * SECOND + 50 * MS)
    got |= take(inbox)
    assert {delivery.attempts for delivery in got.values()} == ({1} if how == "touched" else {1, 2})
    assert finished(node, consumer, got[b"1"]) == [2]
    assert finished(node, consumer, got[b"0"], got[b"late"]) == [2, 2, 3]


def test_only_what_was_finished_counts(node: Node) -> None:
    inbox = Inbox()
    sampled = Client(node.channel("t", "c"), inbox, SECOND, 9)
    sampled.set_ready(2500)
    node.publish("t", *[b"x"] * 1000)
    assert recorded(node) == []
    assert node.channel("t", "c").depth == 0
    got = inbox.take()
    assert 0 < len(got) < 300
    node.channel("t", "c").empty()
    assert recorded(node) == []


def test_runs_that_are_over_keep_no_stamps(node: Node) -> None:
    consumer, inbox = node.subscribe("t", "c", 2500)
    for _ in range(10):
        node.publish("t", *[b"x"] * 200)
    got = inbox.take()
    assert consumer.finish(ids(got[:-1])) == []  # the last one holds the list of first deliveries
    fresh = consumer.channel.in_flight._fresh
    assert len(fresh) == 10
    assert sum(len(run.stamps) for run in fresh) == 200 * 8
