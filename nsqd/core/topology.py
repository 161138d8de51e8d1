"""The topology as it is written down: topics, channels, pauses; made from a broker, and a broker made from it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nsqd.core.pauses import Key, Pause
from penstock.protocol.names import is_ephemeral, is_valid_name

if TYPE_CHECKING:
    from nsqd.core.broker import Broker


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
    pauses: tuple[tuple[Key, Pause], ...] = ()


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


def pauses_to_keep(broker: Broker) -> tuple[tuple[Key, Pause], ...]:
    """What is known of pauses, as it is to survive a restart: not of what is ephemeral."""
    return tuple(entry for entry in broker.registry.pauses.known.items() if not any(map(is_ephemeral, entry[0])))


def restore_pauses(broker: Broker, pauses: Iterable[tuple[Key, Pause]], now: int) -> int:
    """Know again what was known of the pauses there are, and end those that should have ended by `now` (s since the epoch).

    Returns how many are of nothing that is paused: they were written before it was resumed or deleted.
    """
    unknown = 0
    for key, pause in pauses:
        try:
            item = broker.paused_item(key)
        except KeyError:
            unknown += 1
            continue
        if 0 < pause.until <= now:
            broker.pause(item, False)
        else:
            broker.registry.pauses.keep(key, pause)
    return unknown


def unpaused(topic: TopicEntry) -> TopicEntry:
    """The same, with nothing of it paused."""
    return TopicEntry(topic.name, False, tuple(ChannelEntry(channel.name, False) for channel in topic.channels))


def changes(before: Iterable[TopicEntry], after: Iterable[TopicEntry]) -> list[str]:
    """What makes `after` of `before`, as NSQ's operators call it: "create topic t", "pause channel c of topic t"."""
    known, wanted = _states(before), _states(after)
    return [
        *(f"create {name}" for name in wanted if name not in known),
        *(f"delete {name}" for name in known if name not in wanted),
        *(f"pause {name}" for name, paused in wanted.items() if paused and not known.get(name)),
        *(f"unpause {name}" for name, paused in wanted.items() if not paused and known.get(name)),
    ]


def _states(topics: Iterable[TopicEntry]) -> dict[str, bool]:
    """Every topic and channel in words, and whether it is paused."""
    states = {}
    for topic in topics:
        states[f"topic {topic.name}"] = topic.paused
        states |= {f"channel {channel.name} of topic {topic.name}": channel.paused for channel in topic.channels}
    return states


def restore(broker: Broker, topics: Iterable[TopicEntry]) -> None:
    """Make what was written down, beyond the limits if need be. Nothing is delivered before all of it exists."""
    broker.registry.is_open = True
    for entry in topics:
        topic = broker.topic(entry.name)
        topic.pause(entry.paused)
        for channel in entry.channels:
            topic.channel(channel.name).pause(channel.paused)
    broker.registry.is_open = False
    broker.fetch_changes()  # nsqlookupd is told of everything when it is connected
