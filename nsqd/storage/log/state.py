"""A checkpoint's content: a topic with its channels and extents as one record, in msgpack.

    [number, name, paused, end, distributed, delayed, channels, extents, config, first, kept]
    delayed   (ordinal, due) of what was published with a delay and is at or past the edge
    channel   [number, name, paused, start, cursor, holes, returned, buried]
    holes     (first, end) from the cursor on that the channel is done with
    returned  (ordinal, attempts, due): what it owes and the cursor will not come by
    buried    (message id, ordinal, attempts, reason, buried at)
    extent    [first, count, delayed, size, pieces, oldest, newest]; pieces: (segment, generation, from, to)
    config    [durability, retention, retention_bytes]; nil: as the node's
    first     finished messages from here on are retained; nil: none is
    kept      extents of which nothing is owed, and something is retained

Times are the log's, 0 is none; but `buried at`, and `oldest` and `newest`, when messages of an extent were published, are ns
since the epoch. What a channel owes besides is everything plain from its cursor to the edge. In format 1 the last two of an
extent and the last three of a topic were missing.
"""

from collections.abc import Callable, Iterator
from typing import Any

import msgpack

from nsqd.core.channel import Channel
from nsqd.core.keeping import Durability, TopicConfig
from nsqd.core.topic import Topic
from nsqd.storage.memory import EXTENT_BYTES, Held, Sequence

Until = Callable[[int], int]  # monotonic ns -> the log's time; 0 stays 0
_FIELDS, _FIELDS_OF_1 = 11, 8


def encode_topic(topic: Topic, sequence: Sequence | None, until: Until) -> bytes:
    """The record's content."""
    lane = [(message.ordinal, until(due)) for due, message in topic.delay_lane.items()]
    overdue = [(message.ordinal, 0) for message in topic.overdue]
    state = [
        topic.number,
        topic.name,
        topic.paused,
        topic.end,
        topic.distributed,
        [entry for entry in lane if entry[0] >= topic.distributed] + overdue,
        [_channel(channel, lane, until) for channel in topic.channels.values() if not channel.ephemeral],
        [_extent(held) for held in (sequence.live() if sequence else [])],
        _config(topic.config),
        sequence.first if sequence else None,
        [_extent(held) for held in (sequence.retained() if sequence else [])],
    ]
    packed: bytes = msgpack.packb(state)
    return packed


def _channel(channel: Channel, lane: list[tuple[int, int]], until: Until) -> list[Any]:
    edge = channel.topic.distributed
    returned = list(_returned(channel, until))
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


def _returned(channel: Channel, until: Until) -> Iterator[tuple[int, int, int]]:
    for run in channel.in_flight.values():
        if run.loose is None:
            yield from ((run.first + index, run.attempts, 0) for index in range(run.head, run.head + len(run)))
        else:
            yield from ((ordinal, run.attempts, 0) for ordinal in run.loose.values())
    yield from ((message.ordinal, message.attempts, 0) for _, message in channel.retry)
    yield from ((message.ordinal, message.attempts, until(due)) for due, message in channel.deferred.items())


def _extent(held: Held) -> list[Any]:
    return [held.first, held.count, held.delayed, held.size, held.pieces, held.oldest, held.newest]


def _config(config: TopicConfig) -> list[Any]:
    durability = config.durability.value if config.durability else None
    return [durability, config.retention, config.retention_bytes]


def decode_config(state: list[Any]) -> TopicConfig:
    """What a topic said."""
    durability, retention, most = state
    return TopicConfig(Durability(durability) if durability else None, retention, most)


def decode_topic(content: bytes) -> list[Any]:
    """What was encoded. Raises ValueError for anything else; a record with a right CRC was written by us."""
    state = msgpack.unpackb(content, strict_map_key=False)
    if isinstance(state, list) and len(state) == _FIELDS_OF_1:
        state += [[None, None, None], None, []]
    if not isinstance(state, list) or len(state) != _FIELDS:
        raise ValueError("no topic's state")
    return state


def sequence_of(extents: list[list[Any]], edge: int, end: int) -> Sequence:
    """A topic's extents, on disk only, owed by nobody yet. `edge`: channels were given what is before; `end`: of all."""
    sequence = Sequence()
    sequence.edge, sequence.end = edge, end
    for extent in extents:
        held = _held(extent)
        held.owed = bytearray(held.count)
        sequence.add(held)
    return sequence


def _held(extent: list[Any]) -> Held:
    first, count, delayed, size, pieces, *published = extent
    held = Held(first, delayed)
    held.extent = None
    held.count, held.size = count, size
    held.oldest, held.newest = published or (0, 0)
    held.pieces = [(segment, generation, start, end) for segment, generation, start, end in pieces]
    held.bulk = (
        EXTENT_BYTES  # it grows no more: where its messages stand may be gone when the first of them are done with
    )
    return held


def retained(extent: list[Any]) -> Held:
    """One of `kept`."""
    held = _held(extent)
    held.retain_only()
    return held
