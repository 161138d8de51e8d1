"""What a checkpoint says of a topic: read as it was written, also by versions before."""

from random import Random
from typing import Any

import msgpack
import pytest

from nsqd.core.deferred import Deferred, Message, unpack
from nsqd.core.keeping import Durability, TopicConfig
from nsqd.storage.log.state import decode_config, decode_topic, encode_topic, sequence_of
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
    consumer = topic.channel("a").subscribe(inbox, 60 * SECOND, 0)
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
    ((_, name, paused, start, cursor, holes, returned, buried),) = state[6]
    assert (name, paused, start, cursor, holes, buried) == ("a", False, 0, 6, [], [])
    assert sorted(returned) == [
        (0, 1, wall + 30 * SECOND), (1, 1, wall + HOUR), (2, 1, 0), (3, 1, 0), (4, 1, 0), (5, 1, 0), (10, 0, wall + HOUR),
    ]  # fmt: skip
    assert decode_config(state[8]) == topic.config
    assert sum(held.count for held in sequence_of(state[7], 11, 12).held) == 12


def test_a_topic_of_format_1_is_read_as_it_was() -> None:
    channel = [2, "a", False, 0, 3, [(5, 6)], [(1, 2, 77)], []]
    old: list[Any] = [1, "t", False, 9, 9, [], [channel], [[0, 9, False, 500, [[0, 0, 64, 500]]]]]
    state = decode_topic(msgpack.packb(old))
    assert state[6][0][6] == [[1, 2, 77]]
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
    assert sorted(unpack(waiting.packed())) == expected
    waiting.approach(HOUR, 10_000)
    gone = {message.ordinal for message in waiting.pop_due(HOUR, 10_000)}
    assert sorted(unpack(waiting.packed())) == [entry for entry in expected if entry[0] not in gone]
