"""What a checkpoint says of a topic: read as it was written, also by versions before."""

from array import array
from random import Random
from typing import Any

import msgpack
import pytest

from nsqd.core.retention.keeping import Durability, TopicConfig
from nsqd.core.timing.deferred import Deferred, Message, unpack
from nsqd.storage.log.far import Far
from nsqd.storage.log.state import decode_config, decode_topic, encode_topic, sequence_of, shifted
from tests.core.client import Client
from tests.core.node import MS, SECOND, Inbox
from tests.storage.sim_disk import SimDisk
from tests.storage.sim_node import Clock, SimNode

HOUR = 3600 * SECOND


def node() -> SimNode:
    return SimNode(SimDisk(Random(1)), Durability.ALWAYS, Clock(1000 * SECOND, 1_800_000_000 * SECOND), Random(1))


def test_a_topic_is_read_as_it_was_written() -> None:
    one = node()
    topic = one.broker.topic("t")
    topic.configure(TopicConfig(Durability.OS, HOUR, 5))
    inbox = Inbox()
    consumer = Client(topic.channel("a"), inbox, 60 * SECOND, 0)
    consumer.set_ready(4)
    one.turn(lambda: topic.publish([b"x"] * 10, 10), lambda: topic.publish_deferred(b"y", one.clock.now + HOUR))
    taken = inbox.take()
    consumer.requeue(taken[0].id, 30 * SECOND, one.clock.now)
    consumer.requeue(taken[1].id, HOUR, one.clock.now)
    one.turn(lambda: one.broker.pause(topic, True), lambda: topic.publish_deferred(b"z", one.clock.now + 10 * SECOND))
    sequence = one.store.known_sequence(topic.number)
    offset = one.clock.wall - one.clock.now
    state = decode_topic(encode_topic(topic, sequence, offset))
    wall = one.clock.wall
    assert state[:6] == [topic.number, "t", True, 12, 11, [(11, wall + 10 * SECOND)]]
    ((_, name, paused, start, cursor, holes, returned, buried, far),) = state[6]
    assert (name, paused, start, cursor, holes, buried) == ("a", False, 0, 6, [], [])
    expected = [(0, 1, wall + 30 * SECOND), (2, 1, 0), (3, 1, 0), (4, 1, 0), (5, 1, 0), (10, 0, wall + HOUR)]
    assert sorted(returned) == expected
    assert [list(page) for page in far] == [[1, wall + HOUR, 1]]
    assert decode_config(state[8]) == topic.config
    assert sum(held.count for held in sequence_of(state[7], 11, 12).held) == 12


def test_a_topic_of_format_1_is_read_as_it_was() -> None:
    channel = [2, "a", False, 0, 3, [(5, 6)], [(1, 2, 77)], []]
    old: list[Any] = [1, "t", False, 9, 9, [], [channel], [[0, 9, False, 500, [[0, 0, 64, 500]]]]]
    state = decode_topic(msgpack.packb(old))
    assert state[6][0][6:] == [[[1, 2, 77]], [], []]
    assert decode_config(state[8]) == TopicConfig()
    assert (state[9], state[10]) == (None, [])
    (held,) = sequence_of(state[7], 9, 9).held
    assert (held.first, held.end, held.newest, held.pieces) == (0, 9, 0, [(0, 0, 64, 500)])


@pytest.mark.parametrize("wrong", [b"\xc0", b"\x91\x01", msgpack.packb(list(range(9)))])
def test_what_is_no_topic_is_told(wrong: bytes) -> None:
    with pytest.raises(ValueError, match="no topic's state"):
        decode_topic(wrong)


def test_what_waits_is_packed_whole_near_and_far() -> None:
    random, waiting = Random(1), Deferred()
    expected = []
    for ordinal in range(1000):
        due, attempts = random.randrange(MS, 3 * HOUR), random.randrange(5)
        waiting.push(due, Message(ordinal, attempts), 0)
        expected.append((ordinal, due, attempts))
    near, far = waiting.packed()
    assert sorted(unpack(b"".join([near, *far]))) == expected
    assert sorted(unpack(near)) == [entry for entry in expected if entry[1] <= 60 * SECOND]


def test_far_ones_that_were_packed_come_at_their_moved_times() -> None:
    random, waiting, again = Random(2), Deferred(), Deferred()
    dues = [random.randrange(61 * SECOND, 3 * HOUR) for _ in range(1000)]
    for ordinal, due in enumerate(dues):
        waiting.push(due, Message(ordinal, 1), 0)
    by = -2 * HOUR + 12_345
    for page in waiting.packed()[1]:
        again.load(shifted(array("q", page), by).tobytes())
    again.check()
    assert len(again) == 1000
    came: dict[int, int] = {}
    now = -2 * HOUR
    while len(again):
        while again.approach(now, 100) == 100:
            pass
        came |= {message.ordinal: now for message in again.pop_due(now, 1000)}
        now += SECOND
    assert all(0 <= came[ordinal] - (due + by) < SECOND for ordinal, due in enumerate(dues))


def test_of_what_waits_far_any_part_can_be_taken() -> None:
    random = Random(3)
    for _ in range(50):
        ordinals = random.sample(range(20_000), 500)
        far = Far(
            [array("q", [n for ordinal in part for n in (ordinal, 5, 1)]) for part in (ordinals[:9], ordinals[9:])]
        )
        left = set(ordinals)
        for _ in range(30):
            first = random.randrange(20_000)
            end = first + random.choice((1, 10, 5000, 15_000))
            if random.random() < 0.5:
                assert far.take(first) == (first in left)
                left.discard(first)
            else:
                far.remove(first, end)
                left -= set(range(first, end))
        assert list(far.waiting()) == sorted(left)
        assert {ordinal for page in far.left() for ordinal in page[::3]} == left


def test_a_topic_of_format_2_has_no_cursors() -> None:
    one = node()
    topic = one.broker.topic("t")
    one.turn(lambda: topic.publish([b"x"], 1))
    encoded = encode_topic(topic, one.store.known_sequence(topic.number), 0)
    old = msgpack.unpackb(encoded)
    del old[-2]
    assert decode_topic(msgpack.packb(old)) == decode_topic(encoded)
    assert decode_topic(encoded)[-1] == []


@pytest.mark.parametrize(
    ("fields", "logged"), [(5, (0, 0)), (7, (70, 80)), (8, (70, 80)), (10, (700, 800))], ids=["1", "2", "4", "5"]
)
def test_an_extent_of_an_older_format_was_logged_when_it_was_published(fields: int, logged: tuple[int, int]) -> None:
    extent = [0, 9, False, 500, [[0, 0, 64, 500]], 70, 80, True, 700, 800]
    (held,) = sequence_of([extent[:fields]], 9, 9).held
    assert (held.logged_first, held.logged_last) == logged
    assert (held.oldest, held.newest, held.attributed) == ((70, 80) if fields > 5 else (0, 0)) + (fields > 7,)
