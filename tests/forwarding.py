"""What tests of nsq_to_nsq and nsq_to_http share: the running tool, ours or the original, and what is in a topic."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

import httpx

from penstock.client import Consumer
from tests import tools
from tests.daemons import START_TIMEOUT, Daemon, post
from tests.forkserver import LAUNCH
from tests.originals import original as original

SOON = (
    "-consumer-opt=default_requeue_delay,50ms",
    "-consumer-opt=lookupd_poll_interval,300ms",
    "-consumer-opt=backoff_multiplier,20ms",
    "-consumer-opt=max_backoff_duration,500ms",
)


class Tool(tools.Tool):
    """A running tool. Leaving the block sends SIGTERM and asserts exit code 0 and no traceback."""

    def __init__(self, *command: str) -> None:
        super().__init__(command if "/" in command[0] else (*LAUNCH, *command))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: object) -> None:
        try:
            if error is None and self.process.poll() is None:
                assert self.stop() == 0, self.err
        finally:
            super().__exit__(kind, error, at)

    @property
    def lines(self) -> list[str]:
        """Return the lines of standard error so far."""
        return [*self.err]

    def cpu_s(self) -> float:
        """CPU time that the process has taken, in seconds."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


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
