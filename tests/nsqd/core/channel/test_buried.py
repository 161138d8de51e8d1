"""Dead letters: what failed too often is buried with its reason, kept, and kicked or finished by its id."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nsqd.core.channel import buried as buried_messages
from nsqd.core.channel.actions import finish_buried, kick
from nsqd.core.channel.buried import Buried, DeadLetter, unpack_letters
from nsqd.core.channel.channel import Channel
from nsqd.core.channel.inflight import NOT_IN_FLIGHT
from nsqd.core.limits import Limits
from tests.cases import each
from tests.effort import tries
from tests.nsqd.core.node import SECOND, Node, bodies, ids

LIMITS = Limits(max_attempts={"": 3, "t": 2, "u": 0}, requeue_on_disconnect=True)
TIMEOUT = 60 * SECOND
HOUR = 3600 * SECOND
CHUNK = 3  # messages


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


@each("topic, most", [("t", 2), ("other", 3), ("u", 0)])
@each("delay", [0, SECOND])
def test_a_message_is_buried_when_the_last_delivery_is_handed_back_and_its_delay_is_not_waited_for(
    topic: str, most: int, delay: int
) -> None:
    """0 is any number, and beats the default."""
    node = Node(LIMITS)
    consumer, inbox = node.subscribe(topic, "c", 1)
    node.publish(topic, b"x", b"y")
    consumer.requeue(inbox.take()[0].id, HOUR, node.now)  # x waits
    node.turn()
    for attempt in range(1, (most or 20) + 1):
        (delivery,) = inbox.take()
        assert delivery.attempts == attempt
        consumer.requeue(delivery.id, delay, node.now)
        assert counts(consumer.channel) == (0, 0, 1, 1) if attempt == most else len(consumer.channel.buried) == 0
        node.advance(2 * delay)
    if most:
        assert inbox.take() == []
        assert reasons(consumer.channel) == [(1, most, "requeued")]
        assert consumer.channel.requeue_count == consumer.requeue_count == most + 1
    assert node.held() == 2  # it is not finished
    node.broker.check()


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


def test_unknown_and_doubled_ids_are_passed_over(node: Node) -> None:
    message_id = bury(node, 1)
    consumer, _ = node.subscribe("t", "c")
    channel = consumer.channel
    assert consumer.finish(message_id) == [(message_id, NOT_IN_FLIGHT)]
    assert consumer.requeue(message_id, 0, node.now) == NOT_IN_FLIGHT
    assert consumer.touch(message_id, TIMEOUT, TIMEOUT, node.now) == NOT_IN_FLIGHT
    unknown = [b"0123456789abcdef", b"", b"short"]
    assert kick(channel, unknown) == finish_buried(channel, unknown) == 0
    assert kick(channel, [*unknown, message_id, message_id]) == 1
    assert (kick(channel, [message_id]), finish_buried(channel, [message_id])) == (0, 0)
    assert counts(channel) == (1, 0, 0, 0)
    message_id = bury(node, 1, "v")
    assert finish_buried(node.channel("v", "c"), [message_id, message_id]) == 1
    assert node.held() == 1  # the kicked one


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buried_messages, "CHUNK_LETTERS", CHUNK)


@pytest.mark.usefixtures("small_chunks")
@settings(max_examples=tries(200), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from(["add", "pop", "batch"]), st.integers(0, 20)), max_size=60))
def test_chunks_hold_the_buried_messages_in_their_order(steps: list[tuple[str, int]]) -> None:
    buried, expected = Buried(), dict[bytes, DeadLetter]()
    for stamp, (step, number) in enumerate(steps):
        name = b"%016d" % number
        if step == "add" and name not in buried:
            expected[name] = DeadLetter(number, 3, "timed out", stamp, 2)
            buried.add(name, expected[name])
        elif step == "pop":
            letter = expected.pop(name, None)
            assert buried.pop_letters([name, b"none"]) == ([] if letter is None else [letter])
        elif step == "batch":
            taken = buried.pop_batch(number % 3)
            assert len(taken) <= number % 3
            assert taken or not expected or not number % 3
            for letter in taken:
                del expected[b"%016d" % letter.ordinal]
        buried.check()
        assert [one for chunk in buried.packed() for one in unpack_letters(chunk)] == list(expected.items())
        after = list(expected)[list(expected).index(name) + 1 :] if name in expected else list(expected)
        assert buried.after(name, 5) == [(one, expected[one]) for one in after[:5]]
        assert buried.has_ordinal(number) == (name in expected)


@pytest.mark.usefixtures("small_chunks")
def test_a_chunk_is_packed_once_until_one_of_its_messages_leaves() -> None:
    buried, names = Buried(), [b"%016d" % number for number in range(4 * CHUNK)]
    for number, name in enumerate(names):
        buried.add(name, DeadLetter(number, 3, "requeued", 0))
    before = list(buried.frozen_chunks())
    assert len(before) == 3, "the last one may grow"
    chunks = buried.frozen_chunks()
    assert next(chunks) is before[0]
    buried.pop_letters([names[CHUNK], *names[2 * CHUNK : 3 * CHUNK]])
    left = list(chunks)
    assert [[one for one, _ in unpack_letters(chunk)] for chunk in left] == [names[CHUNK + 1 : 2 * CHUNK]]
    assert [chunk is other for chunk, other in zip([before[0], *left], buried.packed(), strict=False)] == [True, True]


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
