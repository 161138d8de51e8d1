"""Each second a message to the statistics topic (-statistics-topic) for every topic and channel that did something.

    {"at": S, "node": N, "topic": "t", "published": 7, "bytes": 91, "depth": 0}
    {"at": S, "node": N, "topic": "t", "channel": "c", "finished": 5, "requeued": 1, "timed_out": 0, "buried": 2, "depth": 3,
     "in_flight": 1, "latency": {"sum": NS, "max": NS, "buckets": {"NS": COUNT, ...}}}

`at`: the second that is over, since the epoch. Counts are of that second; depth, in_flight and buried are what there was at its
end. A latency is from publish to FIN; its buckets are 3 % wide, named by their middle, and add up over channels, seconds and
nodes. The statistics topic itself and what is ephemeral are left out.
"""

import json
import time
from collections.abc import Callable
from typing import Any

import trio

from nsqd.core.broker import Broker, TooMany
from nsqd.core.channel import Channel
from nsqd.core.keeping import TopicConfig
from nsqd.core.topic import Topic
from shared.log import log
from shared.values import SECOND

PORTION = 0.001  # s of looking at topics in a row: then a turn may come in between
RETENTION = 24 * 3600 * SECOND  # ns, of a statistics topic that was not there, and whose node retains nothing


class Deliveries:
    """The task, in the trio thread, between turns."""

    def __init__(self, broker: Broker, topic: str, node: int, wake: Callable[[], None]) -> None:
        self._broker = broker
        self._name = topic
        self._node = node
        self._wake = wake
        self._before: dict[int, tuple[int, ...]] = {}  # counters by the number of the topic or channel
        self._failed = False

    async def run(self) -> None:
        """For ever; cancel to stop."""
        while True:
            await trio.sleep(1 - time.time() % 1)
            self._publish(await self.collect(int(time.time()) - 1))

    async def collect(self, at: int) -> list[bytes]:
        """The messages of the second `at`."""
        messages: list[bytes] = []
        counters: dict[int, tuple[int, ...]] = {}
        rest = trio.current_time() + PORTION
        for topic in list(self._broker.topics.values()):
            if topic.deleted or topic.ephemeral or topic.name == self._name:
                continue
            for told in self._told(topic, counters):
                messages.append(json.dumps({"at": at, "node": self._node, **told}, separators=(",", ":")).encode())
            if trio.current_time() > rest:
                await trio.lowlevel.checkpoint()
                rest = trio.current_time() + PORTION
        self._before = counters
        return messages

    def _told(self, topic: Topic, counters: dict[int, tuple[int, ...]]) -> list[dict[str, Any]]:
        """Of a topic and its channels, if they did something."""
        found = []
        published, size = self._since(counters, topic.number, (topic.message_count, topic.message_bytes))
        if published:
            found.append({"topic": topic.name, "published": published, "bytes": size, "depth": topic.depth})
        for channel in topic.channels.values():
            told = None if channel.ephemeral else self._channel(channel, counters)
            if told is not None:
                found.append(told)
        return found

    def _channel(self, channel: Channel, counters: dict[int, tuple[int, ...]]) -> dict[str, Any] | None:
        requeued, timed_out = self._since(counters, channel.number, (channel.requeue_count, channel.timeout_count))
        latencies = channel.latency.take() if channel.latency is not None else None
        if latencies is None or not (latencies.count or requeued or timed_out):
            return None
        return {
            "topic": channel.topic.name,
            "channel": channel.name,
            "finished": latencies.count,
            "requeued": requeued,
            "timed_out": timed_out,
            "buried": len(channel.buried),
            "depth": channel.depth,
            "in_flight": channel.in_flight_count,
            "latency": {"sum": latencies.sum, "max": latencies.max, "buckets": latencies.buckets()},
        }

    def _since(self, counters: dict[int, tuple[int, ...]], number: int, now: tuple[int, ...]) -> list[int]:
        """What was added in the last second."""
        counters[number] = now
        before = self._before.get(number, (0,) * len(now))
        return [new - old for new, old in zip(now, before, strict=True)]

    def _publish(self, messages: list[bytes]) -> None:
        broker = self._broker
        if not messages or broker.refusal:
            return
        try:
            is_new = self._name not in broker.topics
            topic = broker.topic(self._name)
        except TooMany as full:
            if not self._failed:
                log.error("STATISTICS: %s cannot be made: %s", self._name, full)
            self._failed = True
            return
        if is_new and not broker.limits.keeping.retains:
            topic.configure(TopicConfig(retention=RETENTION))
        topic.publish(messages, sum(map(len, messages)))
        self._wake()
