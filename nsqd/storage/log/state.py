"""A checkpoint's content: a topic with its channels and extents as one record, in msgpack.

    [number, name, paused, end, distributed, delayed, channels, extents, config, first, kept, cursors, offset]
    delayed   waiting: what was published with a delay that is not over, or is over behind the edge
    channel   [number, name, paused, start, cursor, holes, returned, buried, far]
    holes     (first, end) from the cursor on that the channel is done with
    returned  waiting: what it owes and the cursor will not come by, but for what is delayed
    buried    (message id, ordinal, attempts, reason, buried at)
    far       waiting, in pieces: what was returned for long, from before the cursor
    extent    [first, count, delayed, size, pieces, oldest, newest, attributed, logged_first, logged_last]
    pieces    (segment, generation, from, to)
    config    [durability, retention, retention_bytes]; nil: as the node's
    first     finished messages from here on are retained; nil: none is
    kept      extents of which nothing is owed, and something is retained
    cursors   (name, offset, owner, hold, hold_bytes, updated)
    waiting   (ordinal, due, attempts) end to end, packed as in nsqd/core/timing/deferred.py: copied, not walked
    offset    to be added to a due that is not 0: then it is the log's time; 0 is at once

`buried at`, and `oldest` and `newest`, when messages of an extent were published, are ns since the epoch; `logged_first` and
`logged_last` are the same in the log's time. What a channel owes besides is everything plain from its cursor to the edge.

A tube is a channel of which `cursor` is the edge, and `buried` is (ordinal, priority, ttr, delay, due) of
what was put and is no job yet. Its jobs follow in JOBS records, a page each: what has no row and is before the edge is done
with. What is recorded of jobs between the topic's state and a page is in that page, too.

What it remembers of publishers (nsqd/core/sequence/seen.py) follows in SEEN records: behind the topic's number, in msgpack

    [keys, published at (the log's time), producers, numbers], the first two and the last two side by side

Before format 5 the last two of an extent were missing, before format 4 `attributed`, before format 3 `cursors`. In format 1 so
were `far`, `oldest`, `newest`, and the last five of a topic, and what waits was not packed: delayed held (ordinal, due)
from the edge on, returned (ordinal, attempts, due), with all that was delayed before the edge.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import Any, cast

import msgpack

from nsqd.core.channel.channel import Channel
from nsqd.core.reader import Kind as Kind_
from nsqd.core.retention.keeping import Durability, TopicConfig
from nsqd.core.timing.deferred import Deferred, pack, unpack
from nsqd.core.topic import Topic
from nsqd.core.work_queue.jobs import moved
from nsqd.core.work_queue.tube import WORK, Tube
from nsqd.storage.held import EXTENT_BYTES, Held
from nsqd.storage.log import records
from nsqd.storage.sequence import Sequence

_FIELDS, _FIELDS_OF_2, _FIELDS_OF_1 = 13, 12, 8
SEEN_AT_ONCE = 2000  # keys in a record: a fifth of a millisecond
SHIFTED_AT_ONCE = 65_536  # messages: their numbers are objects for a moment


def encode_topic(topic: Topic, sequence: Sequence | None, offset: int) -> bytes:
    """The record's content. `offset`: from the monotonic clock to the log's."""
    state = [
        topic.number,
        topic.name,
        topic.paused,
        topic.edge.end,
        topic.edge.distributed,
        b"".join(
            [*_all(topic.edge.lane.waiting), *(pack(message.ordinal, 0, 0) for message in topic.edge.lane.overdue)]
        ),
        [_channel(channel) for channel in topic.channels.values() if not channel.ephemeral]
        + [_tube(tube) for tube in _tubes(topic)],
        [_extent(held) for held in (sequence.live() if sequence else [])],
        _config(topic.config),
        sequence.first if sequence else None,
        [_extent(held) for held in (sequence.retained() if sequence else [])],
        [(name, c.offset, c.owner, c.hold, c.hold_bytes, c.updated) for name, c in topic.cursors.items()],
        offset,
    ]
    packed: bytes = msgpack.packb(state)
    return packed


def _tubes(topic: Topic) -> list[Tube]:
    return [cast(Tube, reader) for reader in topic.readers.values() if reader.kind is Kind_.WORK_QUEUE]


def encode_seen(topic: Topic, offset: int, now: int) -> Iterator[bytes]:
    """The contents of its SEEN records: what it remembers now, but for what is forgotten before it is asked for.

    `offset`: from the monotonic clock to the log's.
    """
    seen = topic.intake.seen
    seen.forget(now)
    keys, producers = list(seen.keys), list(seen.producers)
    for first in range(0, max(len(keys), len(producers)), SEEN_AT_ONCE):
        part = {key: seen.keys[key] + offset for key in keys[first : first + SEEN_AT_ONCE] if key in seen.keys}
        known = {
            name: seen.producers[name] for name in producers[first : first + SEEN_AT_ONCE] if name in seen.producers
        }
        columns = [list(part), list(part.values()), list(known), list(known.values())]
        yield records.SEEN.pack(topic.number) + msgpack.packb(columns)


def decode_seen(content: bytes) -> tuple[Iterable[tuple[str, int]], Iterable[tuple[str, int]]]:
    """The keys and when they were published, the producers and their last numbers."""
    keys, stamps, producers, numbers = msgpack.unpackb(memoryview(content)[records.SEEN.size :])
    return zip(keys, stamps, strict=True), zip(producers, numbers, strict=True)


def encode_jobs(topic: Topic, offset: int) -> Iterator[bytes]:
    """The contents of its tube's JOBS records: each page as it is when it is asked for. `offset`: as in encode_topic."""
    for tube in _tubes(topic):
        for number in tube.jobs.pages():
            rows = tube.jobs.page(number)
            if rows:
                yield records.JOBS.pack(topic.number, tube.number, number, offset) + rows


def decode_jobs(content: bytes) -> tuple[int, int, int, bytes]:
    """Topic, channel, number of the page, and its rows, due in the log's time."""
    topic, channel, number, offset = records.JOBS.unpack_from(content)
    return topic, channel, number, moved(content[records.JOBS.size :], offset)


def _tube(tube: Tube) -> list[Any]:
    """As a channel's; its jobs follow in JOBS records."""
    terms = [(ordinal, one.priority, one.ttr, one.delay, one.due) for ordinal, one in tube.terms.items() if one.was_put]
    return [tube.number, tube.name, False, tube.start, tube.edge, tube.holes(), b"", terms, []]


def _channel(channel: Channel) -> list[Any]:
    near, pages = channel.deferred.packed()
    far = [page for page in pages if max(memoryview(page).cast("Q")[::3]) < channel.cursor]
    others = [page for page in pages if max(memoryview(page).cast("Q")[::3]) >= channel.cursor]
    ready = [pack(ordinal, 0, attempts) for ordinal, attempts in _ready_again(channel)]
    return [
        channel.number,
        channel.name,
        channel.paused,
        channel.start,
        channel.cursor,
        channel.holes(),
        b"".join([near, *others, *ready]),
        [(message_id, g.ordinal, g.attempts, g.reason, g.buried) for message_id, g in channel.buried.items()],
        far,
    ]


def _all(waiting: Deferred) -> list[bytes]:
    near, far = waiting.packed()
    return [near, *far]


def _ready_again(channel: Channel) -> Iterator[tuple[int, int]]:
    """(ordinal, attempts) of what is in flight, and of what comes next."""
    for run in channel.in_flight.values():
        if run.loose is None:
            yield from ((run.first + index, run.attempts) for index in range(run.head, run.head + len(run)))
        else:
            yield from ((ordinal, run.attempts) for ordinal in run.loose.values())
    yield from ((message.ordinal, message.attempts) for _, message in channel.retry)


def _extent(held: Held) -> list[Any]:
    published, logged = (held.oldest, held.newest), (held.logged_first, held.logged_last)
    return [held.first, held.count, held.delayed, held.size, held.pieces, *published, held.attributed, *logged]


def _config(config: TopicConfig) -> list[Any]:
    durability = config.durability.value if config.durability else None
    return [durability, config.retention, config.retention_bytes]


def decode_config(state: list[Any]) -> TopicConfig:
    """What a topic said."""
    durability, retention, most = state
    return TopicConfig(Durability(durability) if durability else None, retention, most)


def decode_topic(content: bytes) -> list[Any]:
    """What was encoded, without the offset and with what waits as in format 1, but for `far`: arrays, in the log's time.

    Raises ValueError for anything else; a record with a right CRC was written by us.
    """
    state = msgpack.unpackb(content, strict_map_key=False)
    if isinstance(state, list) and len(state) == _FIELDS_OF_1:
        for channel in state[6]:
            channel.append([])
        return [*state, [None, None, None], None, [], []]
    if isinstance(state, list) and len(state) == _FIELDS_OF_2:
        state.insert(-1, [])
    if not isinstance(state, list) or len(state) != _FIELDS:
        raise ValueError("no topic's state")
    *state, offset = state
    edge = state[4]
    lane = [(ordinal, due + offset if due else 0) for ordinal, due, _ in unpack(state[5])]
    state[5] = [entry for entry in lane if entry[0] >= edge]
    for channel in state[6]:
        returned = [(ordinal, attempts, due + offset if due else 0) for ordinal, due, attempts in unpack(channel[6])]
        channel[6] = returned + [(ordinal, 0, due) for ordinal, due in lane if channel[3] <= ordinal < edge]
        channel[8] = [shifted(array("q", page), offset) for page in channel[8]]
        if channel[1] == WORK:
            channel[7] = [(*terms, due + offset if due else 0) for *terms, due in channel[7]]
    return state


def shifted(page: array[int], by: int) -> array[int]:
    """What waits, (ordinal, due, attempts) one behind the other, with every due moved."""
    for first in range(1, len(page), 3 * SHIFTED_AT_ONCE):
        part = slice(first, first + 3 * SHIFTED_AT_ONCE, 3)
        page[part] = array("q", [due + by for due in page[part]])
    return page


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
    first, count, delayed, size, pieces, *more = extent
    held = Held(first, delayed)
    held.extent = None
    held.count, held.size = count, size
    held.oldest, held.newest = more[:2] or (0, 0)
    held.attributed = bool(more[2:] and more[2])
    held.logged_first, held.logged_last = more[3:] or more[:2] or (0, 0)  # the log's time is near that since the epoch
    held.pieces = [(segment, generation, start, end) for segment, generation, start, end in pieces]
    held.bulk = EXTENT_BYTES  # it grows no more: the segment of its first messages may go before others are done with
    return held


def retained(extent: list[Any]) -> Held:
    """One of `kept`."""
    held = _held(extent)
    held.retain_only()
    return held
