"""The saved topology (topics, channels and pauses): how it is taken from a broker, and how a broker is restored from it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nsqd.core.limits import TooMany
from nsqd.core.timing.pause import NOT_KNOWN
from penstock.protocol.names import is_ephemeral, is_valid_name

if TYPE_CHECKING:
    from nsqd.core.broker import Broker


@dataclass(frozen=True, slots=True)
class ChannelEntry:
    """A channel in the saved topology."""

    name: str
    paused: bool


@dataclass(frozen=True, slots=True)
class TopicEntry:
    """A topic in the saved topology."""

    name: str
    paused: bool
    channels: tuple[ChannelEntry, ...]


@dataclass(frozen=True, slots=True)
class TopologySnapshot:
    """The topology at one moment, ready to be written."""

    number: int  # pictures taken later have higher ones
    topics: list[TopicEntry]


def snapshot(broker: Broker) -> list[TopicEntry]:
    """Return the topics and channels that survive a restart: no ephemeral ones, and no tubes whose names NSQ does not allow."""
    return [
        TopicEntry(
            topic.name,
            bool(topic.paused),
            tuple(
                ChannelEntry(channel.name, bool(channel.paused))
                for channel in topic.channels.values()
                if not channel.ephemeral
            ),
        )
        for topic in broker.topics.values()
        if not topic.ephemeral and is_valid_name(topic.name)
    ]


def unpaused(topic: TopicEntry) -> TopicEntry:
    """Return the same topic and channels, with none of them paused."""
    return TopicEntry(topic.name, False, tuple(ChannelEntry(channel.name, False) for channel in topic.channels))


def changes(before: Iterable[TopicEntry], after: Iterable[TopicEntry]) -> list[str]:
    """Return the steps from `before` to `after` in the words of NSQ's operators: "pause channel c of topic t"."""
    known, current = _states(before), _states(after)
    return [
        *(f"create {name}" for name in current if name not in known),
        *(f"delete {name}" for name in known if name not in current),
        *(f"pause {name}" for name, paused in current.items() if paused and not known.get(name)),
        *(f"unpause {name}" for name, paused in current.items() if not paused and known.get(name)),
    ]


def take_new(broker: Broker, topics: Iterable[TopicEntry]) -> str:
    """Make the topics and channels that are new, and pause what is paused in `topics`. Nothing is deleted or resumed.

    Returns which limit has kept out the others; "": none. Ephemeral names are passed over.
    """
    try:
        for entry in topics:
            if is_ephemeral(entry.name):
                continue
            topic = broker.topic(entry.name)
            if entry.paused and not topic.paused:
                topic.pause(NOT_KNOWN)
            for one in entry.channels:
                if is_ephemeral(one.name):
                    continue
                channel = topic.channel(one.name)
                if one.paused and not channel.paused:
                    channel.pause(NOT_KNOWN)
    except TooMany as full:
        return str(full)
    finally:
        broker.fetch_changes()  # nsqlookupd gets everything when it is connected
    return ""


def _states(topics: Iterable[TopicEntry]) -> dict[str, bool]:
    """Return, for the words that name each topic and channel, whether it is paused."""
    states = {}
    for topic in topics:
        states[f"topic {topic.name}"] = topic.paused
        states |= {f"channel {channel.name} of topic {topic.name}": channel.paused for channel in topic.channels}
    return states


def restore(broker: Broker, topics: Iterable[TopicEntry]) -> None:
    """Make the saved topics and channels, beyond the limits if need be. Nothing is delivered before all exist."""
    broker.registry.is_open = True
    for entry in topics:
        topic = broker.topic(entry.name)
        topic.pause(NOT_KNOWN if entry.paused else None)
        for channel in entry.channels:
            topic.channel(channel.name).pause(NOT_KNOWN if channel.paused else None)
    broker.registry.is_open = False
    broker.fetch_changes()  # nsqlookupd gets everything when it is connected
