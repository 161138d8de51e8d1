"""Publish a message to the statistics topic (-statistics-topic) every second for every topic and channel that did something.

    {"at": S, "node": N, "topic": "t", "published": 7, "bytes": 91, "depth": 0}
    {"at": S, "node": N, "topic": "t", "channel": "c", "producer": "p", "finished": 5, "attempts": 6, "requeued": 1,
     "timed_out": 0, "buried": 0, "depth": 3, "in_flight": 1, "latency": {"sum": NS, "max": NS, "buckets": {"NS": COUNT, ...}}}

`at` is the second that has ended, since the epoch. Counts are of that second; depth and in_flight are those of the channel at
its end. There is one message for each producer (of deduplicated messages; "" for all others). Attempts are the deliveries of
the messages that were finished. A latency is from publish to FIN; its buckets are 3 % wide, are named by their middle, and add
up over channels, seconds and nodes. The statistics topic itself and all ephemeral topics and channels are left out. While the
node drains nothing is published.

With -statistics-events, further messages report the events of each message, or to a share of them:

    {"at_ns": NS, "node": N, "event": "finished", "topic": "t", "channel": "c", "id": "...", "producer": "p", "attempts": 1,
     "latency_ns": NS}           event: finished, requeued, timed_out or buried; latency_ns: where it is finished
"""

import json
import time
from collections.abc import Callable
from typing import Any

import trio

from nsqd.core.broker import Broker
from nsqd.core.channel.channel import Channel
from nsqd.core.limits import NotTaken, TooFewCopies, TooMany
from nsqd.core.measurement.outcomes import Outcome, OutcomeEvent
from nsqd.core.observation.sums import channel_sums, fetch_outcomes, topic_depth
from nsqd.core.topic import Topic
from nsqd.tasks.time_slices import TimeSlice
from shared.log import log
from shared.topic_config import TopicConfig
from shared.values import SECOND

# ns; for a statistics topic that this task creates on a node that retains nothing by default
RETENTION = 24 * 3600 * SECOND


class Deliveries:
    """The task that publishes the statistics, in the trio thread, between turns."""

    def __init__(self, broker: Broker, topic: str, node: int, wake: Callable[[], None]) -> None:
        self._broker = broker
        self._name = topic
        self._node = node
        self._wake = wake
        # the counters (messages, bytes) at the last collection, by the number of the topic
        self._before: dict[int, tuple[int, int]] = {}
        self._dropped = 0  # events dropped so far, at the last warning
        self._failed = False

    async def run(self) -> None:
        """Publish once a second until cancelled."""
        while True:
            await trio.sleep(1 - time.time() % 1)
            self._publish(await self.collect(int(time.time()) - 1))

    async def collect(self, at: int) -> list[bytes]:
        """Return the messages for the second `at` (s since the epoch), encoded as JSON."""
        messages: list[bytes] = []
        counters: dict[int, tuple[int, int]] = {}
        time_slice = TimeSlice()
        for topic in list(self._broker.topics.values()):
            if topic.deleted or topic.ephemeral or topic.name == self._name:
                continue
            for statistics in self._statistics_of(topic, counters):
                messages.append(
                    json.dumps({"at": at, "node": self._node, **statistics}, separators=(",", ":")).encode()
                )
            await time_slice.yield_if_due()
        self._before = counters
        for event in self._broker.context.events.fetch():
            messages.append(json.dumps(self._event(event), separators=(",", ":")).encode())
            await time_slice.yield_if_due()
        return messages

    def _statistics_of(self, topic: Topic, counters: dict[int, tuple[int, int]]) -> list[dict[str, Any]]:
        """Return the activity of a topic and its channels, one dict for each that had any; note its counters in `counters`."""
        found = []
        now = counters[topic.number] = topic.intake.message_count, topic.intake.message_bytes
        before = self._before.get(topic.number, (0, 0))
        if now != before:
            published, size = now[0] - before[0], now[1] - before[1]
            found.append({"topic": topic.name, "published": published, "bytes": size, "depth": topic_depth(topic)})
        for channel in topic.channels.values():
            for producer, outcome in fetch_outcomes(channel).items():
                if not channel.ephemeral:
                    found.append(_channel(channel, producer, outcome))
        return found

    def _event(self, event: OutcomeEvent) -> dict[str, Any]:
        fields = {
            "at_ns": event.at,
            "node": self._node,
            "event": event.what,
            "topic": event.topic,
            "channel": event.channel,
            "id": event.message_id.decode(),
            "producer": event.producer,
            "attempts": event.attempts,
        }
        return fields | ({"latency_ns": event.latency} if event.latency >= 0 else {})

    def _publish(self, messages: list[bytes]) -> None:
        broker, dropped = self._broker, self._broker.context.events.dropped
        if dropped > self._dropped:
            log.warning(
                "STATISTICS: dropped %d events: they came faster than they can be published", dropped - self._dropped
            )
            self._dropped = dropped
        if not messages:
            return
        try:
            is_new = self._name not in broker.topics
            topic = broker.admit(self._name)
        except (NotTaken, TooFewCopies):
            return
        except TooMany as full:
            if not self._failed:
                log.error("STATISTICS: cannot create the topic %s: %s", self._name, full)
            self._failed = True
            return
        if is_new and not broker.limits.policy.retains:
            topic.configure(TopicConfig(retention=RETENTION))
        topic.publish(messages, sum(map(len, messages)))
        self._wake()


def _channel(channel: Channel, producer: str, outcome: Outcome) -> dict[str, Any]:
    latencies, sums = outcome.latencies, channel_sums(channel)
    return {
        "topic": channel.topic_name,
        "channel": channel.name,
        "producer": producer,
        "finished": outcome.finished,
        "attempts": outcome.attempts,
        "requeued": outcome.requeued,
        "timed_out": outcome.timed_out,
        "buried": outcome.buried,
        "depth": sums.depth,
        "in_flight": sums.in_flight,
        "latency": {"sum": latencies.sum, "max": latencies.max, "buckets": latencies.buckets()},
    }
