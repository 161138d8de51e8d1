"""The parts of a channel or a tube: one in each log that the node owns, and how clients name them.

An *offset* of a message, as in /channel/messages, is its ordinal in the node's own log. For a message of a promoted log,
the log's place is in the bits from 48 on (nsqd/core/node_context.py), so an offset means one message. A page shows messages
of one log; `after` names the log of the next page.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar

from nsqd.core.broker import Broker
from nsqd.core.channel.channel import Channel
from nsqd.core.channel.listing import Steps
from nsqd.core.topic import Topic
from nsqd.core.work_queue.tube import Tube
from nsqd.http.arguments import existing_channel, existing_tube

PLACE_BITS = 48  # of an offset: the bits below are the ordinal
R = TypeVar("R", Channel, Tube)
M = TypeVar("M")


def parts_of_channel(broker: Broker, topic: str, channel: str) -> list[tuple[Topic, Channel]]:
    """Return the channel and its shards, each with its topic. Raises HttpError 404 if the channel does not exist."""
    found = existing_channel(broker, topic, channel)
    return _with_topics(broker.topics[topic], found.shards)


def parts_of_tube(broker: Broker, name: str) -> list[tuple[Topic, Tube]]:
    """Return the tube and its shards, each with its topic. Raises HttpError 404 if the tube does not exist.

    One that clients only use or watch has no parts.
    """
    tube = existing_tube(broker, name)
    return [] if tube is None else _with_topics(broker.topics[name], tube.shards)


def _with_topics(topic: Topic, readers: Iterable[R]) -> list[tuple[Topic, R]]:
    return [(one, reader) for reader in readers for one in topic.shards if one.readers.get(reader.number) is reader]


def offset_of(topic: Topic, ordinal: int) -> int:
    """Return the offset by which clients name a message."""
    return topic.context.position << PLACE_BITS | ordinal


def ordinals_in(topic: Topic, offsets: Iterable[int]) -> list[int]:
    """Return the ordinals of those messages that are in this topic's log."""
    return [offset & (1 << PLACE_BITS) - 1 for offset in offsets if offset >> PLACE_BITS == topic.context.position]


def page_of(
    parts: list[tuple[Topic, R]], after: str, list_in: Callable[[R, str], Steps[tuple[list[M], str]]]
) -> Steps[tuple[Topic, list[M], str]]:
    """Return the page after `after`: its topic, what it lists, and where the next one begins ("": nowhere).

    `list_in` lists a page of one part, from a place on, and returns where that part continues. Parts that have nothing to list
    are passed over. Raises ValueError if `after` is not a place.
    """
    index, place = at_page(parts, after)
    while True:
        listed, following = yield from list_in(parts[index][1], place)
        if listed or following or index + 1 == len(parts):
            return parts[index][0], listed, following_page(parts, index, following)
        index, place = index + 1, ""


def at_page(parts: list[tuple[Topic, R]], after: str) -> tuple[int, str]:
    """Return the index of the part that has the page after `after`, and the place there. Raises ValueError."""
    if not after.startswith("@"):
        return 0, after
    number, colon, place = after[1:].partition(":")
    places = [str(topic.context.position) for topic, _ in parts]
    if not colon:
        raise ValueError("no such place")
    return places.index(number), place


def following_page(parts: list[tuple[Topic, R]], index: int, place: str) -> str:
    """Return the beginning of the next page; "": there is none. `place`: where this part continues; "": it is at its end."""
    if not place:
        index += 1
    if index == len(parts):
        return ""
    return place if not index else f"@{parts[index][0].context.position}:{place}"
