"""Channels, topics and tubes that may need an operator, and nothing about the others: for alarms of tools that poll.

    GET /channels/attention[?depth=N][&age=SECONDS][&limit=1000]

    {"channels": [{"topic", "channel", "depth", "in_flight", "deferred", "buried", "requeued", "timed_out", "messages",
                   "clients", "lost_consumers", "orphaned", "oldest", "paused", "paused_at"}, ...],
     "topics": [{"topic", "depth", "messages", "oldest", "paused", "paused_at"}, ...],
     "tubes": [{"tube", "buried", "ready", "reserved", "delayed", "paused"}, ...],
     "certificates": [{"option", "ends"}, ...], "left_out": 0, "now": NS, "version": "..."}

* A channel is listed if messages are buried, were requeued or timed out since the start of the process, if it is paused, if
  consumers disconnected with messages in flight (`lost_consumers`, since the start), if messages are ready and no client is
  connected, if at least `depth` messages are ready, or if the message that is next to be delivered was published more than
  `age` s ago. `orphaned` messages are in flight, but their consumers have disconnected: they time out.
* A topic is listed if it is paused itself, or if it has messages and no channel.
* A tube is listed if jobs are buried, or if it or its queue is paused, whether a topic can have its name or not.
* All certificates of the node are listed: the option that names the file, and when it ends, in s since the epoch.

Without `depth` and `age`, or with 0, there is no rule of that kind. Of each of the three lists there are the first `limit`, at
most 10,000: those with the most buried messages first, then those that have messages and no client, then the deepest.
`left_out` counts the others. `oldest` is as in /topic/ages: ns since the epoch, 0: nothing is ready. `paused_at` is as
in /pauses: s since the epoch, 0: not known. `now` is the node's clock, ns since the epoch. 400 INVALID_ARG_DEPTH,
INVALID_ARG_AGE, INVALID_ARG_LIMIT.
"""

# The trio thread looks at a limited number of topics, channels and tubes in a row.

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import nsmallest
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from nsqd.core.broker import Broker
from nsqd.core.channel.channel import Channel
from nsqd.core.observation.sums import channel_sums, is_paused, oldest_of_channel, oldest_of_topic, topic_depth
from nsqd.core.topic import Topic
from nsqd.core.work_queue.job import JobState
from nsqd.core.work_queue.tube import Tube
from nsqd.http.node import Node
from shared.http.api import json_response
from shared.http.argument import bounded
from shared.http.route import STATS, Route
from shared.values import SECOND

BATCH = 500  # topics, channels and tubes in one turn: about a millisecond
LIMIT, MOST = 1000, 10_000  # of each list
MOST_DEPTH = 1 << 53
MOST_AGE = 10 * 365 * 24 * 3600  # s


class ChannelRow(NamedTuple):
    """The row of one channel in the answer."""

    topic: str
    channel: str
    depth: int
    in_flight: int
    deferred: int
    buried: int
    requeued: int
    timed_out: int
    messages: int
    clients: int
    lost_consumers: int
    orphaned: int
    oldest: int  # ns since the epoch
    paused: bool
    paused_at: int  # s since the epoch

    @property
    def rank(self) -> tuple[int, bool, int, str, str]:
        """Return a sort key: the worst first."""
        return -self.buried, bool(self.clients or not self.depth), -self.depth, self.topic, self.channel


class TopicRow(NamedTuple):
    """The row of one topic in the answer."""

    topic: str
    depth: int
    messages: int
    oldest: int  # ns since the epoch
    paused: bool
    paused_at: int  # s since the epoch

    @property
    def rank(self) -> tuple[int, str]:
        """Return a sort key: the worst first."""
        return -self.depth, self.topic


class TubeRow(NamedTuple):
    """The row of one tube in the answer."""

    tube: str
    buried: int
    ready: int
    reserved: int
    delayed: int
    paused: bool

    @property
    def rank(self) -> tuple[int, int, str]:
        """Return a sort key: the worst first."""
        return -self.buried, -self.ready, self.tube


Row = TypeVar("Row", ChannelRow, TopicRow, TubeRow)


class Attention:
    """The channels, topics and tubes found so far that may need an operator."""

    __slots__ = ("_depth", "_now", "_since", "channels", "topics", "tubes")

    def __init__(self, depth: int, since: int, now: int) -> None:
        """List what has `depth` messages ready (0: no such rule), or one published before `since` (ns since the epoch).

        `now`: monotonic ns.
        """
        self._depth, self._since, self._now = depth, since, now
        self.channels: list[ChannelRow] = []
        self.topics: list[TopicRow] = []
        self.tubes: list[TubeRow] = []

    def add_batch(self, left: Iterator[Topic | Tube]) -> bool:
        """Look at a batch of topics and tubes. Return False if there were no more. Runs in the trio thread."""
        room = BATCH
        for one in left:
            if isinstance(one, Tube):
                self._add_tube(one)
            elif one.legal and not one.deleted:
                room -= len(one.channels)
                self._add_topic(one)
            room -= 1
            if room <= 0:
                return True
        return False

    def _add_topic(self, topic: Topic) -> None:
        if topic.paused is not None or len(topic.shards) > 1 or not topic.channels:
            depth, paused = topic_depth(topic), is_paused(topic)
            if paused or (depth and not topic.channels):
                messages, oldest = topic.intake.message_count, oldest_of_topic(topic)
                self.topics.append(TopicRow(topic.name, depth, messages, oldest, paused, _paused_at(topic)))
        for channel in topic.channels.values():
            if len(channel.shards) > 1 or not _is_quiet(channel):
                self._add_channel(topic, channel)

    def _add_channel(self, topic: Topic, channel: Channel) -> None:
        sums = channel_sums(channel)
        depth = sums.depth
        lost = sum(one.lost_consumers for one in channel.shards)
        failed = sums.buried or sums.requeued or sums.timed_out or sums.paused or lost
        if not failed and not (depth and self._waits_too_long(channel, depth)):
            return
        row = ChannelRow(
            topic.name,
            channel.name,
            depth,
            sums.in_flight,
            sums.deferred,
            sums.buried,
            sums.requeued,
            sums.timed_out,
            sums.messages,
            len(channel.consumers),
            lost,
            sums.in_flight - sum(one.finishable_count for one in channel.shards),
            oldest_of_channel(channel) if depth else 0,
            sums.paused,
            _paused_at(channel),
        )
        self.channels.append(row)

    def _waits_too_long(self, channel: Channel, depth: int) -> bool:
        """Return whether messages wait for no client, or too many of them, or too long."""
        if not channel.consumers or 0 < self._depth <= depth:
            return True
        return self._since > 0 and 0 < oldest_of_channel(channel) < self._since

    def _add_tube(self, tube: Tube) -> None:
        everywhere = tube.shards
        buried = sum(one.table.counts[JobState.BURIED] for one in everywhere)
        paused = any(one.paused is not None or one.pause_until > self._now for one in everywhere)
        if tube.deleted or not (buried or paused):
            return
        ready, reserved, delayed = (
            sum(one.table.counts[state] for one in everywhere)
            for state in (JobState.READY, JobState.RESERVED, JobState.DELAYED)
        )
        self.tubes.append(TubeRow(tube.topic_name, buried, ready, reserved, delayed, paused))

    def as_answer(self, limit: int) -> dict[str, Any]:
        """Return the three lists, at most `limit` of each, and how many are left out."""
        everything = len(self.channels) + len(self.topics) + len(self.tubes)
        lists = {
            "channels": _worst(limit, self.channels, lambda row: row.rank),
            "topics": _worst(limit, self.topics, lambda row: row.rank),
            "tubes": _worst(limit, self.tubes, lambda row: row.rank),
        }
        return {**lists, "left_out": everything - sum(map(len, lists.values()))}


class AttentionRoute:
    """The route that lists what may need an operator."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def routes(self) -> list[Route]:
        return [
            Route("GET /channels/attention", self.attention, STATS,
                  (bounded("depth", MOST_DEPTH, 0), bounded("age", MOST_AGE, 0), bounded("limit", MOST, LIMIT)),
                  "List the channels, topics and tubes that may need an operator; `age` in s"),
        ]  # fmt: skip

    async def attention(self, request: Request, depth: int, age: int, limit: int) -> Response:
        """Answer which channels, topics and tubes may need an operator."""
        broker = self._node.broker

        def begin() -> tuple[int, Attention, Iterator[Topic | Tube]]:
            since = broker.wall - age * SECOND if age else 0
            return broker.wall, Attention(depth, since, broker.now), everything(broker)

        now, look, left = await self._node.bridge.observe(begin)
        while await self._node.bridge.observe(lambda: look.add_batch(left)):
            pass
        dates = self._node.dates.all if self._node.dates is not None else ()
        certificates = [{"option": one.option, "ends": one.ends} for one in dates]
        more = {"certificates": certificates, "now": now, "version": self._node.info.version}
        return json_response({**look.as_answer(limit), **more})


def everything(broker: Broker) -> Iterator[Topic | Tube]:
    """Return an iterator over the topics and the tubes that there are now. Runs in the trio thread."""
    return chain(list(broker.topics.values()), list(broker.tubes.waiters.queues.values()))


def _is_quiet(channel: Channel) -> bool:
    """Return whether a channel without shards has no reason to be listed, by what costs least: that is so of nearly all."""
    failed = channel.requeue_count or channel.timeout_count or channel.lost_consumers or channel.paused is not None
    return not failed and not channel.depth and not len(channel.buried)


def _paused_at(item: Topic | Channel) -> int:
    """Return when the pause of the topic, the channel or its first paused shard began, s since the epoch; 0: not known."""
    return next((one.paused.at for one in item.shards if one.paused is not None), 0)


def _worst(limit: int, rows: list[Row], rank: Callable[[Row], Any]) -> list[dict[str, Any]]:
    return [row._asdict() for row in nsmallest(limit, rows, key=rank)]
