"""The figures of a topic or a channel over all logs that the node owns: the home one and its shards together."""

from __future__ import annotations

from typing import NamedTuple

from nsqd.core.channel.channel import Channel
from nsqd.core.measurement.outcomes import Outcome
from nsqd.core.observation import backlog_age
from nsqd.core.topic import Topic


class ChannelSums(NamedTuple):
    """The figures of one channel. All but `paused` are numbers of messages."""

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
        """Return how many messages are not finished, in any state."""
        return self.depth + self.in_flight + self.deferred + self.buried


def channel_sums(channel: Channel) -> ChannelSums:
    """Return the figures of a home channel with those of its shards."""
    own = _of_one(channel)
    if len(channel.shards) == 1:
        return own
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
    """Return how many messages no reader has been given yet."""
    return sum(shard.depth for shard in topic.shards)


def topic_backend_depth(topic: Topic) -> int:
    """Return how many of these are on disk only."""
    return sum(shard.backend_depth for shard in topic.shards)


def is_paused(topic: Topic) -> bool:
    """Return True if the topic is paused in any log."""
    return any(shard.paused is not None for shard in topic.shards)


def fetch_outcomes(channel: Channel) -> dict[str, Outcome]:
    """Return what happened in the channel since the last call, by producer, and begin anew; {} if it is not measured."""
    found: dict[str, Outcome] = {}
    for one in channel.shards:
        for producer, outcome in one.outcomes.fetch_counts().items() if one.outcomes is not None else ():
            if producer in found:
                found[producer].add(outcome)
            else:
                found[producer] = outcome
    return found


def oldest_of_topic(topic: Topic) -> int:
    """Return when the next message was published that is not distributed yet: see backlog_age."""
    times = (backlog_age.oldest_of_topic(one) for one in topic.shards)
    return min((time for time in times if time), default=0)


def oldest_of_channel(channel: Channel) -> int:
    """Return when the next message to be delivered was published, whichever log has the earliest: see backlog_age."""
    if len(channel.shards) == 1:
        return backlog_age.oldest_of_channel(channel)
    times = (backlog_age.oldest_of_channel(one) for one in channel.shards if one.depth)
    return min((time for time in times if time), default=0)
