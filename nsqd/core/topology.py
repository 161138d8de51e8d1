"""The topology as it is written down: topics, channels, pause; made from a broker, and a broker made from it."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from nsqd.core.broker import Broker
from penstock.protocol.names import is_valid_name

UNLIMITED = 1 << 62


@dataclass(frozen=True, slots=True)
class ChannelEntry:
    """A channel as it is written down."""

    name: str
    paused: bool


@dataclass(frozen=True, slots=True)
class TopicEntry:
    """A topic as it is written down."""

    name: str
    paused: bool
    channels: tuple[ChannelEntry, ...]


@dataclass(frozen=True, slots=True)
class Picture:
    """The topology at one time."""

    number: int  # pictures taken later have higher ones
    topics: list[TopicEntry]


def snapshot(broker: Broker) -> list[TopicEntry]:
    """Topics and channels as they are to survive a restart: not what is ephemeral, or a tube with an odd name."""
    return [
        TopicEntry(
            topic.name,
            topic.paused,
            tuple(
                ChannelEntry(channel.name, channel.paused)
                for channel in topic.channels.values()
                if not channel.ephemeral
            ),
        )
        for topic in broker.topics.values()
        if not topic.ephemeral and is_valid_name(topic.name)
    ]


def unpaused(topic: TopicEntry) -> TopicEntry:
    """The same, with nothing of it paused."""
    return TopicEntry(topic.name, False, tuple(ChannelEntry(channel.name, False) for channel in topic.channels))


def restore(broker: Broker, topics: Iterable[TopicEntry]) -> None:
    """Make what was written down, beyond the limits if need be. Nothing is delivered before all of it exists."""
    limits = broker.limits
    broker.limits = replace(limits, max_topics=UNLIMITED, max_channels=UNLIMITED)
    for entry in topics:
        topic = broker.topic(entry.name)
        topic.pause(entry.paused)
        for channel in entry.channels:
            topic.channel(channel.name).pause(channel.paused)
    broker.limits = limits
    broker.fetch_changes()  # nsqlookupd is told of everything when it is connected
