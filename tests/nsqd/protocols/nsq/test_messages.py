"""Messages in and out of a whole node: what a consumer gets, and in which order."""

from __future__ import annotations

import re
import struct

import pytest

from tests.daemons import OK, Conversation, sized
from tests.local_node import SECOND, LocalNode


@pytest.fixture(scope="module")
def node() -> LocalNode:
    return LocalNode()


def publish(node: LocalNode, topic: bytes, *bodies: bytes) -> None:
    with Conversation(node, b"  V2" + b"".join(b"PUB %s\n" % topic + sized(body) for body in bodies)) as producer:
        assert [producer.frame() for _ in bodies] == [OK] * len(bodies)


def test_a_message_in_and_out(node: LocalNode) -> None:
    with Conversation(node, b"  V2SUB alpha channel\nRDY 1\n") as consumer:
        assert consumer.frame() == OK
        began = node.clock.wall
        publish(node, b"alpha", b"hello")
        published = node.clock.wall
        message = consumer.message()
        assert (message.attempts, message.body) == (1, b"hello")
        assert re.fullmatch(rb"[0-9a-f]{16}", message.id)
        assert began <= message.timestamp <= published
        for command, counts in ((b"NOP\n", (0, 1)), (b"FIN %s\n" % message.id, (0, 0))):
            consumer.send(command)
            node.advance(SECOND)
            (topic,) = node.client.get("/stats?format=json&topic=alpha").json()["topics"]
            (channel,) = topic["channels"]
            assert (channel["depth"], channel["in_flight_count"], topic["depth"]) == (*counts, 0)


def test_frames_come_back_in_the_order_of_the_commands(node: LocalNode) -> None:
    bodies = [struct.pack(">i", number) for number in range(3000)]
    with Conversation(node, b"  V2SUB order c\nRDY 2500\n") as consumer:
        assert consumer.frame() == OK
        began = node.clock.wall
        publish(node, b"order", *bodies)
        published = node.clock.wall
        ids = []
        for number, body in enumerate(bodies):
            message = consumer.message()
            assert (message.body, message.attempts) == (body, 1), number
            assert began <= message.timestamp <= published
            assert re.fullmatch(rb"[0-9a-f]{16}", message.id)
            ids.append(message.id)
            consumer.send(b"FIN %s\n" % message.id)
    assert ids == sorted(set(ids))
