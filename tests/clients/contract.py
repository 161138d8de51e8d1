"""What NSQ's clients must be able to do with our daemons, unchanged: one suite, run by each client's own test file.

A client is a program of a few lines around the library, with two commands:

    publish TOPIC NSQD BODIES [DELAY_MS]   PUB the one body, DPUB it if there is a delay, MPUB several (a JSON list)
    consume OPTIONS                        read until `count` messages are finished, then print every delivery as JSON

`OPTIONS` is JSON: topic, channel, count, and nsqd or lookupd (lists of addresses). The message timeout is 3 s. What
a consumer does with a message stands in the message: `requeue...` is handed back and `stall...` left alone at its first
attempt, `touch...` is touched every 0.25 s and finished after 4.25 s, all else is finished. Who is touched so often outlives
the timeout though the machine stops for seconds at a time.
"""

import functools
import json
import operator
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import httpx

from tests.daemons import Daemon, eventually, publish

CLIENT_TIMEOUT = 240  # s; the longest test takes 5, and waits for a second process
MSG_TIMEOUT = 3  # s; clients ask for it that can, the nodes have it for the others


@dataclass(frozen=True)
class Delivery:
    """A message as the consumer's handler got it."""

    body: str
    attempts: int
    at: float = field(default=0, compare=False)  # s, as time.monotonic() has it on this machine


@dataclass(frozen=True)
class Cluster:
    """A nsqlookupd and the nodes registered with it."""

    lookupd: Daemon
    nodes: list[Daemon]

    def producers(self, topic: str) -> int:
        """How many nodes have the topic, as nsqlookupd knows."""
        answer = httpx.get(f"http://{self.lookupd.http}/lookup?topic={topic}")
        return len(answer.json()["producers"]) if answer.status_code == 200 else 0


class ClientContract:
    """Inherited by the test class of each client, which says how to run it."""

    name: ClassVar[str]  # used for topics, so that clients do not meet
    command: ClassVar[Sequence[str]]

    def run(self, *arguments: str) -> str:
        """Run the client to its end; what it printed."""
        ended = subprocess.run([*self.command, *arguments], capture_output=True, text=True, timeout=CLIENT_TIMEOUT)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def publish(self, node: Daemon, topic: str, *bodies: str, delay_ms: int = 0) -> None:
        """Publish and wait for the OK."""
        self.run("publish", topic, node.tcp, json.dumps(bodies), *([str(delay_ms)] if delay_ms else []))

    def consume(self, topic: str, count: int, **where: list[str]) -> list[Delivery]:
        """Every delivery until `count` messages were finished."""
        options = {"topic": topic, "channel": "channel", "count": count, **where}
        return [Delivery(**delivery) for delivery in json.loads(self.run("consume", json.dumps(options)))]

    # the suite

    def test_publish_and_consume(self, cluster: Cluster) -> None:
        node, topic = cluster.nodes[0], f"{self.name}-plain"
        self.publish(node, topic, "one")
        self.publish(node, topic, "two", "three", "zwölf")
        deliveries = self.consume(topic, 4, nsqd=[node.tcp])
        assert deliveries == [Delivery(body, 1) for body in ("one", "two", "three", "zwölf")]
        eventually(lambda: counts(node, topic) == {"message_count": 4})

    def test_requeue(self, cluster: Cluster) -> None:
        node, topic = cluster.nodes[0], f"{self.name}-requeue"
        publish(node, topic, "requeue me")
        assert self.consume(topic, 1, nsqd=[node.tcp]) == [Delivery("requeue me", 1), Delivery("requeue me", 2)]
        eventually(lambda: counts(node, topic) == {"message_count": 1, "requeue_count": 1})

    def test_time_out_touch_and_deferral(self, cluster: Cluster) -> None:
        node, topic = cluster.nodes[1], f"{self.name}-times"
        publish(node, topic, "stall", "touch me")
        published = time.monotonic()
        self.publish(node, topic, "later", delay_ms=1000)
        began = time.monotonic()
        deliveries = self.consume(topic, 3, nsqd=[node.tcp])
        assert deliveries[:2] == [Delivery("stall", 1), Delivery("touch me", 1)]
        later, again = sorted(deliveries[2:], key=lambda delivery: delivery.body)
        assert (later, again) == (Delivery("later", 1), Delivery("stall", 2))
        assert later.at - published >= 1.0
        assert again.at - began >= MSG_TIMEOUT
        eventually(lambda: counts(node, topic) == {"message_count": 3, "timeout_count": 1})

    def test_several_nodes_found_through_nsqlookupd(self, cluster: Cluster) -> None:
        topic = f"{self.name}-found"
        bodies = [[f"{name}{number}" for number in range(5)] for name in "abc"]
        for node, some in zip(cluster.nodes, bodies, strict=True):
            publish(node, topic, *some)
        eventually(lambda: cluster.producers(topic) == 3)
        deliveries = self.consume(topic, 15, lookupd=[cluster.lookupd.http])
        assert sorted(delivery.body for delivery in deliveries) == sorted(functools.reduce(operator.iadd, bodies, []))
        assert {delivery.attempts for delivery in deliveries} == {1}


def counts(node: Daemon, topic: str) -> dict[str, Any]:
    """What /stats counts for the topic's channel and is not 0: all is finished when no depth is among them."""
    stats = httpx.get(f"http://{node.http}/stats?format=json&topic={topic}&include_clients=false").json()
    (channel,) = stats["topics"][0]["channels"]
    return {key: value for key, value in channel.items() if key.endswith(("_count", "depth")) and value}
