"""Sums over all logs that the node leads, its own and promoted ones: the messages and counts of a topic or a channel."""

from collections.abc import Sequence
from operator import add
from typing import NamedTuple

from nsqd.core.channel.channel import Channel
from nsqd.core.measurement.outcomes import Outcome
from nsqd.core.observation import backlog_age
from nsqd.core.topic import Topic
from nsqd.core.work_queue.tube import Tube


class ChannelSums(NamedTuple):
    """One channel over all logs. All fields except `paused` are numbers of messages."""

    depth: int
    backend_depth: int
    in_flight: int
    deferred: int
    buried: int
    messages: int  # that came since the process started
    requeued: int
    timed_out: int
    dropped: int
    paused: bool  # here, or in any shard

    @property
    def unfinished(self) -> int:
        """Return the number of messages that are not finished, in any state."""
        return self.depth + self.in_flight + self.deferred + self.buried


def channel_sums(channel: Channel) -> ChannelSums:
    """Return the sums of a channel and its shards."""
    if len(channel.shards) == 1:
        return _of_one(channel)
    *sums, paused = map(sum, zip(*map(_of_one, channel.shards), strict=True))
    return ChannelSums._make([*sums, paused > 0])


def _of_one(channel: Channel) -> ChannelSums:
    return ChannelSums(
        channel.depth,
        channel.backend_depth,
        channel.in_flight_count,
        channel.deferred_count,
        len(channel.buried),
        channel.message_count,
        channel.requeue_count,
        channel.timeout_count,
        channel.dropped_count,
        channel.paused is not None,
    )


def deliveries_by_distance(channel: Channel) -> list[int]:
    """Return the numbers of deliveries to consumers in the zone, in the region, and elsewhere."""
    return [sum(counts) for counts in zip(*(one.dispatch.deliveries for one in channel.shards), strict=True)]


def topic_depth(topic: Topic) -> int:
    """Return the number of messages that no reader has been given yet."""
    return sum(shard.depth for shard in topic.shards)


def topic_backend_depth(topic: Topic) -> int:
    """Return the number of these that are on disk only."""
    return sum(shard.journal.cold(shard.offsets.distributed, shard.offsets.end) for shard in topic.shards)


def is_paused(topic: Topic) -> bool:
    """Return True if the topic is paused in any log."""
    return any(shard.paused is not None for shard in topic.shards)


def fetch_outcomes(channel: Channel) -> dict[str, Outcome]:
    """Return the outcomes in the channel since the last call, by producer, and forget them; {} if they are not measured."""
    found: dict[str, Outcome] = {}
    for one in channel.shards:
        for producer, outcome in one.outcomes.fetch_counts().items() if one.outcomes is not None else ():
            if producer in found:
                found[producer].add(outcome)
            else:
                found[producer] = outcome
    return found


def oldest_of_topic(topic: Topic) -> int:
    """Return the publish time of the next message that is not distributed yet: see backlog_age."""
    times = (backlog_age.oldest_of_topic(one) for one in topic.shards)
    return min((time for time in times if time), default=0)


def oldest_of_channel(channel: Channel) -> int:
    """Return the publish time of the next message to be delivered, the earliest of all logs: see backlog_age."""
    if len(channel.shards) == 1:
        return backlog_age.oldest_of_channel(channel)
    times = (backlog_age.oldest_of_channel(one) for one in channel.shards if one.depth)
    return min((time for time in times if time), default=0)


def oldest_of_tube(shards: Sequence[Tube]) -> tuple[int, int]:
    """Return when the oldest ready job and the oldest of all were put, by the earliest of all logs: see JobTable.oldest."""
    times = [one.table.oldest() for one in shards]
    ready = min((time for time, _ in times if time), default=0)
    return ready, min((time for _, time in times if time), default=0)


class Totals(NamedTuple):
    """The counts of a channel with shards since the process started.

    `attached`: how many messages, except for buried ones, came since the last call with new shards, less those that went.
    """

    counts: tuple[int, int, int, int]  # messages published and finished; deliveries requeued and timed out
    attached: int


class ShardCounts:
    """The counts of one channel that has shards, or had some. Promoting a log or giving it back counts as nothing.

    No message is published into a promoted log. What becomes of its messages counts from the moment when they are a shard of
    the channel (Channel.count_with), and stays counted when the shard has gone. Levels do change with the shards.
    """

    __slots__ = ("_ended", "_latest")

    def __init__(self) -> None:
        self._ended = [0, 0, 0]  # what shards that are gone had counted by the last call
        self._latest: dict[
            Channel, tuple[tuple[int, ...], int]
        ] = {}  # by shard: its counts, and how many messages it had

    def totals(self, channel: Channel) -> Totals:
        """Return the counts of the channel with its shards, and how many messages have come or gone with shards."""
        own, *shards = channel.shards
        latest = {shard: (_counts_of(shard), sum(shard.counts()[:3])) for shard in shards}
        attached = sum(held for shard, (_, held) in latest.items() if shard not in self._latest)
        for shard, (counts, held) in self._latest.items():
            if shard not in latest:
                self._ended = list(map(add, self._ended, counts))
                attached -= held
        self._latest = latest
        parts = _counts_of(own), self._ended, *(counts for counts, _ in latest.values())
        finished, requeued, timed_out = map(sum, zip(*parts, strict=True))
        return Totals((own.message_count, finished, requeued, timed_out), attached)

    def __repr__(self) -> str:
        return f"<ShardCounts of {len(self._latest)} shards>"


def _counts_of(channel: Channel) -> tuple[int, ...]:
    return channel.message_count - sum(channel.counts()), channel.requeue_count, channel.timeout_count
