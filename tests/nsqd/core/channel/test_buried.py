"""Dead letters: what failed too often is buried with its reason, kept, and kicked or finished by its id."""

import pytest

from nsqd.core.channel.actions import ChosenMessage, finish_buried, kick, requeue
from nsqd.core.channel.buried import Buried, DeadLetter
from nsqd.core.channel.channel import Channel
from nsqd.core.limits import Limits
from nsqd.core.retention.policy import TopicConfig
from tests.cases import each
from tests.nsqd.core.node import SECOND, Node, bodies, ids

LIMITS = Limits(max_attempts={"": 3, "t": 2, "u": 0}, requeue_on_disconnect=True)
TIMEOUT = 60 * SECOND
HOUR = 3600 * SECOND


def reasons(channel: Channel) -> list[tuple[int, int, str]]:
    """(ordinal, attempts, reason) of all that are buried, in the order of burying."""
    return [(grave.ordinal, grave.attempts, grave.reason) for _, grave in channel.buried.after(None, 1000)]


def counts(channel: Channel) -> tuple[int, int, int, int]:
    return channel.depth, channel.in_flight_count, channel.deferred_count, len(channel.buried)


def bury(node: Node, count: int, topic: str = "t", channel: str = "c") -> bytes:
    """Publish messages and hand each back as often as it takes. Returns their ids."""
    consumer, inbox = node.subscribe(topic, channel, 100)
    node.publish(topic, *(b"%d" % i for i in range(count)))
    message_ids = b""
    while got := inbox.take():
        message_ids = ids(got)
        for delivery in got:
            assert consumer.requeue(delivery.id, 0, node.now) == ""
        node.turn()
    consumer.leave(node.broker)
    assert len(consumer.channel.buried) == count
    return message_ids


def split(message_ids: bytes) -> list[bytes]:
    return [message_ids[i : i + 16] for i in range(0, len(message_ids), 16)]


# why and when


def test_a_topics_own_limit_has_precedence_at_once_until_it_is_the_nodes_again(node: Node) -> None:
    consumer, inbox = node.subscribe("t", "c", 1)
    topic = node.broker.topics["t"]

    def deliveries() -> int:
        before = len(consumer.channel.buried)
        node.publish("t", b"x")
        for count in range(1, 9):
            (delivery,) = inbox.take()
            consumer.requeue(delivery.id, 0, node.now)
            node.turn()
            if len(consumer.channel.buried) > before:
                return count
        raise AssertionError("it is not buried")

    assert deliveries() == 2
    topic.configure(TopicConfig(max_attempts=1))
    assert deliveries() == 1
    assert topic.channel("later").max_attempts == 1
    topic.configure(TopicConfig(max_attempts=5))
    assert deliveries() == 5
    topic.configure(TopicConfig())
    assert deliveries() == 2
    assert topic.channel("later").max_attempts == 2


@pytest.mark.parametrize(("topic", "deliveries"), [("t", 2), ("other", 3)])
def test_a_message_is_buried_when_the_last_delivery_was_handed_back(node: Node, topic: str, deliveries: int) -> None:
    consumer, inbox = node.subscribe(topic, "c", 1)
    node.publish(topic, b"x")
    for attempt in range(1, deliveries + 1):
        (delivery,) = inbox.take()
        assert delivery.attempts == attempt
        consumer.requeue(delivery.id, 0, node.now)
        node.turn()
    assert inbox.take() == []
    assert reasons(consumer.channel) == [(0, deliveries, "requeued")]
    assert counts(consumer.channel) == (0, 0, 0, 1)
    assert consumer.channel.requeue_count == consumer.requeue_count == deliveries
    assert node.held() == 1  # it is still owed


def test_zero_is_any_number_and_beats_the_default(node: Node) -> None:
    consumer, inbox = node.subscribe("u", "c", 1)
    node.publish("u", b"x")
    for attempt in range(1, 20):
        (delivery,) = inbox.take()
        assert delivery.attempts == attempt
        consumer.requeue(delivery.id, 0, node.now)
        node.turn()
    assert len(consumer.channel.buried) == 0


def test_nothing_is_buried_by_default() -> None:
    assert [Limits().attempts(topic) for topic in ("t", "")] == [0, 0]


def test_a_finished_last_delivery_is_not_buried(node: Node) -> None:
    consumer, inbox = node.subscribe("t", "c", 1)
    node.publish("t", b"x")
    consumer.requeue(inbox.take()[0].id, 0, node.now)
    node.turn()
    assert consumer.finish(ids(inbox.take())) == []
    assert counts(consumer.channel) == (0, 0, 0, 0)
    assert node.held() == 0


def test_a_delay_at_the_limit_is_not_waited_for(node: Node) -> None:
    consumer, inbox = node.subscribe("t", "c", 1)
    node.publish("t", b"x")
    consumer.requeue(inbox.take()[0].id, SECOND, node.now)
    assert counts(consumer.channel) == (0, 0, 1, 0)
    node.advance(2 * SECOND)
    consumer.requeue(inbox.take()[0].id, SECOND, node.now)
    assert counts(consumer.channel) == (0, 0, 0, 1)
    node.advance(2 * SECOND)
    assert inbox.take() == []


def test_time_outs_bury_a_run_in_order_and_one_that_has_fallen_apart(node: Node) -> None:
    consumer, inbox = node.subscribe("t", "c", 1, TIMEOUT)
    node.publish("t", *(b"%d" % i for i in range(5)))
    for _ in range(10):
        node.advance(TIMEOUT + SECOND)
    assert [delivery.attempts for delivery in inbox.take()] == [1] * 5 + [2] * 5
    assert sorted(reasons(consumer.channel)) == [(i, 2, "timed out") for i in range(5)]
    assert consumer.channel.timeout_count == 10
    assert counts(consumer.channel) == (0, 0, 0, 5)
    assert consumer.in_flight == 0


@each("finished", [(), (0,), (2,), (4,), (0, 1), (3, 0), (1, 2, 3)])
def test_a_first_delivery_that_is_the_last(finished: tuple[int, ...]) -> None:
    """The whole run, or what is left of it after FINs in order and out of order."""
    node = Node(Limits(max_attempts={"": 1}))
    consumer, inbox = node.subscribe("t", "c", 10, TIMEOUT)
    node.publish("t", *(b"%d" % i for i in range(5)))
    got = inbox.take()
    for index in finished:
        assert consumer.finish(got[index].id) == []
    node.advance(TIMEOUT + SECOND)
    left = [i for i in range(5) if i not in finished]
    failed = [i for i in left if i < max(finished, default=0)] or left[:1]
    assert reasons(consumer.channel) == [(i, 1, "timed out") for i in failed]
    assert split(b"".join(consumer.channel.buried.oldest(9))) == [got[i].id for i in failed]
    assert node.held() == len(left)
    assert bodies(inbox.take()) == [got[i].body for i in left if i not in failed]
    node.broker.check()


def test_more_than_the_scan_does_in_one_go() -> None:
    node = Node(Limits(max_attempts={"": 1}))
    consumer, inbox = node.subscribe("t", "c", 2500, TIMEOUT)
    node.publish("t", *[b"x"] * 2500)
    message_ids = split(ids(inbox.take()))
    assert consumer.requeue(message_ids.pop(), HOUR, node.now) == ""  # all before it have reached the consumer
    node.advance(TIMEOUT + 10 * SECOND)
    buried = sorted(consumer.channel.buried.oldest(9999))
    assert buried[:-1] == message_ids
    assert counts(consumer.channel) == (0, 0, 0, 2500)
    assert node.held() == 2500
    assert finish_buried(consumer.channel, buried) == 2500
    assert node.held() == 0
    node.broker.check()


@pytest.mark.parametrize("limit", [1, 2])
def test_a_disconnect_buries(limit: int) -> None:
    node = Node(Limits(max_attempts={"": limit}, requeue_on_disconnect=True))
    for _ in range(limit):
        consumer, inbox = node.subscribe("t", "c", 10)
        if not consumer.channel.offsets.end:
            node.publish("t", b"0", b"1", b"2")
        consumer.finish(inbox.take()[1].id if consumer.channel.depth + consumer.in_flight == 3 else b"")
        consumer.leave(node.broker)
        node.broker.check()
    channel = node.channel("t", "c")
    assert reasons(channel) == [(0, limit, "connection lost")]
    assert counts(channel) == (1, 0, 0, 1)
    assert channel.requeue_count == 2 * limit


def test_a_buried_message_is_not_in_flight_for_anybody(node: Node) -> None:
    message_id = bury(node, 1)
    consumer, inbox = node.subscribe("t", "c", 10)
    assert consumer.finish(message_id) == [(message_id, "ID not in flight")]
    assert consumer.requeue(message_id, 0, node.now) == "ID not in flight"
    assert consumer.touch(message_id, TIMEOUT, TIMEOUT, node.now) == "ID not in flight"
    assert inbox.take() == []


# kick and finish


def test_a_kicked_message_begins_anew(node: Node) -> None:
    message_ids = split(bury(node, 3))
    channel = node.channel("t", "c")
    assert kick(channel, [message_ids[2], message_ids[0]]) == 2
    assert counts(channel) == (2, 0, 0, 1)
    consumer, inbox = node.subscribe("t", "c", 10)
    got = inbox.take()
    assert [(d.body, d.attempts, d.id) for d in got] == [(b"2", 1, message_ids[2]), (b"0", 1, message_ids[0])]
    consumer.requeue(got[0].id, 0, node.now)
    node.turn()
    assert [d.attempts for d in inbox.take()] == [2]
    assert consumer.finish(got[1].id + got[0].id) == []
    assert node.held() == 1


def test_what_an_operator_requeues_with_its_attempts_may_fail_as_often_again(node: Node) -> None:
    message_id = bury(node, 1)
    consumer, inbox = node.subscribe("t", "c", 1)
    assert requeue(node.broker.topics["t"], consumer.channel, [ChosenMessage(0, message_id)], 0, node.now) == 1
    node.turn()
    for attempts in (3, 4):
        assert [one.attempts for one in inbox.take()] == [attempts]
        consumer.requeue(message_id, 0, node.now)
        node.turn()
    assert reasons(consumer.channel) == [(0, 4, "requeued")]


def test_kick_wakes_a_consumer_that_waits(node: Node) -> None:
    message_id = bury(node, 1)
    _, inbox = node.subscribe("t", "c", 10)
    kick(node.channel("t", "c"), [message_id])
    node.turn()
    assert bodies(inbox.take()) == [b"0"]


def test_unknown_and_doubled_ids_are_passed_over(node: Node) -> None:
    message_id = bury(node, 1)
    channel = node.channel("t", "c")
    unknown = [b"0123456789abcdef", b"", b"short"]
    assert kick(channel, unknown) == finish_buried(channel, unknown) == 0
    assert kick(channel, [*unknown, message_id, message_id]) == 1
    assert (kick(channel, [message_id]), finish_buried(channel, [message_id])) == (0, 0)
    assert counts(channel) == (1, 0, 0, 0)
    message_id = split(bury(node, 1, "v"))[0]
    channel = node.channel("v", "c")
    assert finish_buried(channel, [message_id, message_id]) == 1
    assert node.held() == 1  # the kicked one


def test_what_is_finished_is_freed_when_the_last_channel_has_done_so(node: Node) -> None:
    node.channel("t", "d")
    message_ids = split(bury(node, 3))
    assert len(node.channel("t", "d").buried) == 0  # each channel on its own
    assert finish_buried(node.channel("t", "c"), message_ids) == 3
    assert node.held() == 3
    other, inbox = node.subscribe("t", "d", 10)
    assert other.finish(ids(inbox.take())) == []
    assert node.held() == 0


def test_two_channels_bury_the_same_message(node: Node) -> None:
    node.channel("t", "d")
    first = bury(node, 2)
    consumer, inbox = node.subscribe("t", "d", 10)
    for _ in range(2):
        for delivery in inbox.take():
            consumer.requeue(delivery.id, 0, node.now)
        node.turn()
    channels = [node.channel("t", name) for name in "cd"]
    assert [channel.buried.oldest(9) for channel in channels] == [split(first)] * 2
    assert kick(channels[0], split(first)) == 2
    assert [counts(channel) for channel in channels] == [(2, 0, 0, 0), (0, 0, 0, 2)]
    assert finish_buried(channels[1], split(first)) == 2
    assert node.held() == 2
    channels[0].empty()
    assert node.held() == 0


@pytest.mark.parametrize("end", ["empty", "delete channel", "delete topic"])
def test_empty_and_delete_take_the_buried_ones_too(node: Node, end: str) -> None:
    message_ids = split(bury(node, 3))
    channel = node.channel("t", "c")
    kick(channel, message_ids[:1])
    node.publish("t", b"ready")
    if end == "empty":
        channel.empty()
    elif end == "delete channel":
        node.channel("t", "other")  # its messages come after these
        node.broker.directory.delete_channel(node.broker.topics["t"], "c")
    else:
        node.broker.delete_topic("t")
    assert node.held() == 0
    assert counts(channel) == (0, 0, 0, 0)
    assert kick(channel, message_ids) == 0


def test_the_moment_of_burying_is_told(node: Node) -> None:
    bury(node, 1)
    ((_, grave),) = node.channel("t", "c").buried.after(None, 1)
    assert grave.buried == node.broker.wall


# paging


def test_pages_of_graves() -> None:
    buried = Buried()
    for number in range(5):
        buried.add(b"%016d" % number, DeadLetter(number, 3, "requeued", 0))

    def page(message_id: bytes | None, count: int) -> list[int]:
        return [grave.ordinal for _, grave in buried.after(message_id, count)]

    assert page(None, 2) == [0, 1]
    assert page(b"%016d" % 1, 2) == [2, 3]
    assert page(b"%016d" % 3, 9) == [4]
    assert page(b"%016d" % 4, 9) == []
    buried.pop_letters([b"%016d" % 1])
    assert page(b"%016d" % 1, 2) == [0, 2]  # it is gone: from the first
    assert page(None, 0) == []
    assert buried.oldest(2) == [b"%016d" % 0, b"%016d" % 2]
    assert list(buried.ordinals()) == [0, 2, 3, 4]
    buried.clear()
    assert (len(buried), page(None, 9), buried.oldest(9)) == (0, [], [])
