"""A checkpoint's content: a topic with its channels and extents as one record, in msgpack.

    [number, name, paused, end, distributed, delayed, channels, extents]
    delayed   (ordinal, due) of what was published with a delay and is at or past the edge
    channel   [number, name, paused, start, cursor, holes, returned, buried]
    holes     (first, end) from the cursor on that the channel is done with
    returned  (ordinal, attempts, due): what it owes and the cursor will not come by
    buried    (message id, ordinal, attempts, reason, buried at)
    extent    [first, count, delayed, size, pieces]; pieces: (segment, generation, from, to)

Times are ns since the epoch; 0 is none. What a channel owes besides is everything plain from its cursor to the edge.
"""

from collections.abc import Callable, Iterator
from typing import Any

import msgpack

from nsqd.core.channel import Channel
from nsqd.core.topic import Topic
from nsqd.storage.memory import Held, Sequence

Wall = Callable[[int], int]  # monotonic ns -> ns since the epoch; 0 stays 0


def encode_topic(topic: Topic, sequence: Sequence | None, wall: Wall) -> bytes:
    """The record's content."""
    lane = [(message.ordinal, wall(due)) for due, message in topic.delay_lane.items()]
    overdue = [(message.ordinal, 0) for message in topic.overdue]
    state = [
        topic.number,
        topic.name,
        topic.paused,
        topic.end,
        topic.distributed,
        [entry for entry in lane if entry[0] >= topic.distributed] + overdue,
        [_channel(channel, lane, wall) for channel in topic.channels.values() if not channel.ephemeral],
        [_extent(held) for held in (sequence.live() if sequence else [])],
    ]
    packed: bytes = msgpack.packb(state)
    return packed


def _channel(channel: Channel, lane: list[tuple[int, int]], wall: Wall) -> list[Any]:
    edge = channel.topic.distributed
    returned = list(_returned(channel, wall))
    returned += [(ordinal, 0, due) for ordinal, due in lane if channel.start <= ordinal < edge]
    return [
        channel.number,
        channel.name,
        channel.paused,
        channel.start,
        channel.cursor,
        channel.holes(),
        returned,
        [(message_id, g.ordinal, g.attempts, g.reason, g.buried) for message_id, g in channel.buried.items()],
    ]


def _returned(channel: Channel, wall: Wall) -> Iterator[tuple[int, int, int]]:
    for run in channel.in_flight.values():
        if run.loose is None:
            yield from ((run.first + index, run.attempts, 0) for index in range(run.head, run.head + len(run)))
        else:
            yield from ((ordinal, run.attempts, 0) for ordinal in run.loose.values())
    yield from ((message.ordinal, message.attempts, 0) for _, message in channel.retry)
    yield from ((message.ordinal, message.attempts, wall(due)) for due, message in channel.deferred.items())


def _extent(held: Held) -> list[Any]:
    return [held.first, held.count, held.delayed, held.size, held.pieces]


def decode_topic(content: bytes) -> list[Any]:
    """What was encoded. Raises ValueError for anything else; a record with a right CRC was written by us."""
    state = msgpack.unpackb(content, strict_map_key=False)
    if not isinstance(state, list) or len(state) != 8:
        raise ValueError("no topic's state")
    return state


def sequence_of(extents: list[list[Any]], edge: int) -> Sequence:
    """A topic's extents, on disk only, owed by nobody yet; `edge`: messages before it were given to channels."""
    sequence = Sequence()
    sequence.edge = edge
    for first, count, delayed, size, pieces in extents:
        held = Held(first, delayed)
        held.extent = None
        held.count, held.size = count, size
        held.owed = bytearray(count)
        held.pieces = [(segment, generation, start, end) for segment, generation, start, end in pieces]
        sequence.add(held)
    return sequence
