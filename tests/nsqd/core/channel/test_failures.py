"""The failures of deliveries: of messages that a consumer worked on, not of the others in its window."""

from hypothesis import given
from hypothesis import strategies as st

from nsqd.core.channel.channel import Channel
from nsqd.core.limits import Limits
from nsqd.core.reader import ReaderSettings
from tests.cases import each
from tests.nsqd.core.node import MS, SECOND, Node, ids
from tests.nsqd.core.promoted import promote

TIMEOUT = 60 * SECOND
TEN = [b"%d" % number for number in range(10)]


def a_node(limit: int = 3, requeue_on_disconnect: bool = True) -> Node:
    return Node(Limits(max_attempts={"": limit}, requeue_on_disconnect=requeue_on_disconnect))


def buried(channel: Channel) -> list[tuple[int, int, int, str]]:
    """(ordinal, attempts, failures, reason) of all that are buried, in the order of burying."""
    return [(one.ordinal, one.attempts, one.failures, one.reason) for one in channel.buried.values()]


def failures(channel: Channel) -> dict[int, int]:
    """The failures of all that wait in the retry queue and have any, by ordinal."""
    return {one.ordinal: one.failures for _, one in channel.backlog.retry if one.failures}


@each("requeue_on_disconnect", [True, False])
def test_a_process_that_dies_at_the_first_of_ten_buries_that_one(requeue_on_disconnect: bool) -> None:
    node = a_node(3, requeue_on_disconnect)
    for attempt in range(1, 4):
        consumer, inbox = node.subscribe("t", "c", 10, TIMEOUT)
        if attempt == 1:
            node.publish("t", *TEN)
        got = inbox.take()
        assert [(one.body, one.attempts) for one in got] == [(body, attempt) for body in TEN]
        consumer.leave(node.broker)
        node.advance(TIMEOUT + SECOND)
    assert buried(consumer.channel) == [(0, 3, 3, "connection lost")]
    assert failures(consumer.channel) == {}
    consumer, inbox = node.subscribe("t", "c", 10)
    got = inbox.take()
    assert [(one.body, one.attempts) for one in got] == [(body, 4) for body in TEN[1:]]
    for one in reversed(got[:3]):  # requeued messages have always failed
        consumer.requeue(one.id, 0, node.now)
    assert failures(consumer.channel) == {1: 1, 2: 1, 3: 1}
    node.broker.check()


def test_a_consumer_that_answers_again_or_touches_is_not_stuck() -> None:
    node = a_node(1)
    consumer, inbox = node.subscribe("t", "c", 4, TIMEOUT)
    node.publish("t", *TEN[:4])
    got = inbox.take()
    node.advance(TIMEOUT + SECOND)
    assert buried(consumer.channel) == [(0, 1, 1, "timed out")]
    assert consumer.finish(got[0].id) != []  # it is late, but the consumer is alive
    node.advance(TIMEOUT + SECOND)
    assert buried(consumer.channel)[1:] == [(1, 2, 1, "timed out")]
    node.advance(TIMEOUT + SECOND)
    assert len(consumer.channel.buried) == 2
    node = a_node(1)
    consumer, inbox = node.subscribe("t", "c", 5, TIMEOUT)
    node.publish("t", *TEN[:5])
    got = inbox.take()
    for _ in range(8):
        node.advance(TIMEOUT // 2)
        assert consumer.touch(got[0].id, TIMEOUT, 600 * SECOND, node.now) == ""
    assert buried(consumer.channel) == []
    assert consumer.channel.timeout_count >= 4
    consumer.leave(node.broker)
    assert buried(consumer.channel) == [(0, 1, 1, "connection lost")]


@each("is_lost", [False, True])
def test_a_window_over_shards_is_one_window(is_lost: bool) -> None:
    node = a_node(1)
    node.channel("t", "c")
    log = promote(node, 9, "t", "c", b"x", b"y")
    channel, shard = node.channel("t", "c"), log.broker.topics["t"].channels["c"]
    shard.configure(ReaderSettings(max_attempts=1))
    consumer, inbox = node.subscribe("t", "c", 10, TIMEOUT)
    node.advance(MS)
    node.publish("t", b"0", b"1")
    got = {one.body: one.id for one in inbox.take()}
    assert sorted(got) == [b"0", b"1", b"x", b"y"]
    if is_lost:
        consumer.leave(node.broker)
        assert (buried(shard), buried(channel)) == ([(0, 1, 1, "connection lost")], [])
    else:
        node.advance(TIMEOUT + SECOND)
        assert (buried(shard), buried(channel)) == ([(0, 1, 1, "timed out")], [])
        inbox.take()
        consumer.finish(got[b"1"])
        consumer.leave(node.broker)
        assert len(buried(shard)) + len(buried(channel)) <= 3  # nothing that lay behind
    node.broker.check()


@given(st.lists(st.tuples(st.sampled_from("ftr"), st.integers(0, 11)), max_size=12), st.integers(1, 12), st.booleans())
def test_the_rule_for_any_answers_before_the_end(answers: list[tuple[str, int]], first: int, is_lost: bool) -> None:
    """A simple model: a delivery failed if it was touched, is the oldest, or is older than one that was answered."""
    node = a_node(9)
    consumer, inbox = node.subscribe("t", "c", 12, TIMEOUT)
    node.publish("t", *(b"%d" % number for number in range(first)))
    node.publish("t", *(b"%d" % number for number in range(first, 12)))
    got = inbox.take()
    held, expected = list(range(12)), {}
    touched, latest = set[int](), -1
    for kind, number in answers:
        if number not in held:
            continue
        if kind == "f":
            assert consumer.finish(got[number].id) == []
            held.remove(number)
        elif kind == "r":
            assert consumer.requeue(got[number].id, 600 * SECOND, node.now) == ""
            held.remove(number)
        else:
            consumer.touch(got[number].id, TIMEOUT, TIMEOUT, node.now)
            touched.add(number)
        latest = max(latest, number)
    expected = {number: 1 for number in held if number in touched or number < latest or number == held[0]}
    if is_lost:
        consumer.leave(node.broker)
    else:
        consumer.set_ready(0)
        node.advance(TIMEOUT + SECOND)
    assert failures(consumer.channel) == expected
    assert len(consumer.channel.backlog.retry) == len(held)
    assert ids(inbox.take()) == b""
    node.broker.check()
