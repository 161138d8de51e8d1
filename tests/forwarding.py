"""What tests of nsq_to_nsq and nsq_to_http share: flags, and what is in a topic."""

import time
from collections.abc import Sequence

import httpx

from penstock.client import Consumer
from tests.daemons import START_TIMEOUT, Daemon, post

SOON = (
    "-consumer-opt=default_requeue_delay,50ms",
    "-consumer-opt=lookupd_poll_interval,300ms",
    "-consumer-opt=backoff_multiplier,20ms",
    "-consumer-opt=max_backoff_duration,500ms",
)


def make_channel(node: Daemon, topic: str, channel: str) -> None:
    """Make a topic and a channel, so that what is published from now on waits for it."""
    post(node, "/topic/create", topic=topic)
    post(node, "/channel/create", topic=topic, channel=channel)


def state(node: Daemon, topic: str, channel: str) -> tuple[int, int, int]:
    """Return the numbers of messages of a channel that are queued, in flight, and deferred."""
    stats = httpx.get(f"http://{node.http}/stats?format=json&topic={topic}&channel={channel}").json()
    found = [one for each in stats["topics"] or [] for one in each["channels"] if one["channel_name"] == channel]
    return (found[0]["depth"], found[0]["in_flight_count"], found[0]["deferred_count"]) if found else (0, 0, 0)


def drained(node: Daemon, topic: str, channel: str) -> bool:
    """Whether every message of the channel is finished."""
    return state(node, topic, channel) == (0, 0, 0)


def consume(
    nodes: Sequence[Daemon], topic: str, count: int, channel: str = "check", timeout: float = START_TIMEOUT
) -> list[bytes]:
    """Finish messages of a topic until `count` different bodies were read. Return all bodies, duplicates included."""
    bodies: list[bytes] = []
    seen: set[bytes] = set()
    deadline = time.monotonic() + timeout
    with Consumer(topic, channel, [node.tcp for node in nodes], max_in_flight=1000) as consumer:
        while len(seen) < count:
            assert time.monotonic() < deadline, f"{len(seen)} of {count} bodies came: {sorted(seen)[:20]}"
            for message in consumer.poll(0.2):
                bodies.append(message.body)
                seen.add(message.body)
                message.finish()
    return bodies
