"""Three real nodes that share channels: a consumer at one of them gets what is published on the others."""

from __future__ import annotations

from contextlib import ExitStack

import httpx
import pytest

from penstock.client import Consumer
from tests.daemons import Daemon, eventually, post
from tests.processes.test_cluster import node as node  # the fixture
from tests.processes.test_takeover import NodeMaker, cluster_of

pytestmark = pytest.mark.process

FLAGS = {"takeover_quorum": "none", "share_channels": "true"}


def channel(daemon: Daemon) -> dict[str, int]:
    (topic,) = httpx.get(f"http://{daemon.http}/stats?format=json&topic=t").json()["topics"]
    (found,) = topic["channels"]
    return {name: found[name] for name in ("depth", "in_flight_count", "requeue_count")}


def publish(nodes: list[Daemon], word: str, count: int) -> set[bytes]:
    messages = [f"{word} {place} {number}".encode() for place in range(len(nodes)) for number in range(count)]
    for place, daemon in enumerate(nodes):
        post(daemon, "/mpub", b"\n".join(messages[place * count : (place + 1) * count]), topic="t")
    return set(messages)


def finished(consumer: Consumer, count: int) -> set[bytes]:
    """The bodies of the next messages."""
    found: set[bytes] = set()
    while len(found) < count:
        message = next(consumer)
        found.add(message.body)
        message.finish()
    consumer.flush()
    return found


def test_a_consumer_gets_what_is_published_on_every_node_and_a_kill_loses_nothing(node: NodeMaker) -> None:
    with ExitStack() as stack:
        nodes = cluster_of(stack, node, 3, **FLAGS)
        for daemon in nodes:
            post(daemon, "/topic/create", topic="t")
            post(daemon, "/channel/create", topic="t", channel="c")
        with Consumer("t", "c", [nodes[2].tcp], max_in_flight=100) as consumer:
            wanted = publish(nodes, "first", 50)
            assert finished(consumer, len(wanted)) == wanted
            for daemon in nodes:
                eventually(lambda daemon=daemon: not any(channel(daemon).values()))
            wanted = publish(nodes[:2], "held", 10)
            held = [next(consumer) for _ in wanted]
            assert {message.body for message in held} == wanted
            assert sum(channel(daemon)["in_flight_count"] for daemon in nodes) == len(wanted)
            figures = httpx.get(f"http://{nodes[2].http}/cluster").json()["lending"]
            assert figures["messages_borrowed"] == 120
            nodes[2].kill()
        for daemon in nodes[:2]:
            eventually(lambda daemon=daemon: channel(daemon)["depth"] == 10)
        with Consumer("t", "c", [nodes[0].tcp], max_in_flight=100) as consumer:
            assert finished(consumer, len(wanted)) == wanted
