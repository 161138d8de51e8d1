"""The record of a topic in a checkpoint: the topic's state, and where its messages stand on disk. The format is msgpack.

    [state, extents, first, kept, offset]
    state     as nsqd/core/topic_state.py and the readers beside it dump it
    extent    [first, count, delayed, size, pieces, oldest, newest, attributed, logged_first, logged_last]
    pieces    (segment, edition, from, to), see files.py
    first     finished messages from here on are retained; nil: none are
    kept      extents that no reader references and of which something is retained
    offset    to be added to each due time that is not 0, which gives the log's time; 0 means at once

`oldest` and `newest`, when messages of an extent were published, are ns since the epoch; `logged_first` and `logged_last` are
the same in the log's time.

Formats 1 to 5 had one array, and no kinds of readers:

    [number, name, paused, end, distributed, delayed, channels, extents, config, first, kept, cursors, offset]
    channel   [number, name, paused, start, cursor, holes, returned, buried, far]

In it, `far` had the pages of messages that waited for long, and `returned` all other waiting messages, packed end to end. A
tube was a channel of the name ":work" with its distributed offset for the cursor and, in `buried`, (ordinal, priority, ttr,
delay, due) of messages that had been put and were no jobs yet. Before format 5 the last two fields of an extent were missing,
before format 4 `attributed`, before format 3 `cursors`. In format 1, `far`, `oldest`, `newest`, and the last five fields of a
topic were missing as well, and waiting messages were not packed: `delayed` held (ordinal, due) from the distributed offset on,
and `returned` held (ordinal, attempts, due), with everything that was delayed before the distributed offset.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgpack

from nsqd.core.reader import ReaderKind as ReaderKind
from nsqd.core.timing.deferred import pack
from nsqd.core.topic_state import TopicState
from nsqd.storage.sequence import Sequence
from nsqd.storage.stored_extent import EXTENT_BYTES, StoredExtent

WORK = ":work"  # the name that distinguished a tube from a channel before format 6
_DELAYED, _READERS, _PAGES = 5, 6, 7  # places in the array of a topic, and in that of a channel behind its kind
_FIELDS, _FIELDS_OF_5, _FIELDS_OF_2, _FIELDS_OF_1 = 5, 13, 12, 8


def encode_topic(state: TopicState, sequence: Sequence | None, offset: int) -> bytes:
    """Return the record's content. `sequence`: None if the topic has no messages.

    `offset`: from the state's clock to the log's time, in ns.
    """
    extents = [_extent(stored) for stored in sequence.live()] if sequence else []
    kept = [_extent(stored) for stored in sequence.all_retained()] if sequence else []
    packed: bytes = msgpack.packb([state.dump(), extents, sequence.first if sequence else None, kept, offset])
    return packed


class MissingChunk(Exception):
    """A WAITING record that a topic's state names was damaged."""


def decode_topic(
    content: bytes, known: Mapping[int, TopicState], waiting: Mapping[int, Mapping[int, bytes]]
) -> tuple[TopicState, Sequence]:
    """Return the topic's state, in the log's time, and its messages.

    `known`: earlier states of topics, by number; `waiting`: the content of the checkpoint's WAITING records, by number of the
    topic and of the record. Raises MissingChunk if one is missing and the topic is known: without it, what is known is better.
    Raises ValueError if the content is of no known format; a record with a
    correct CRC was written by this program.
    """
    fields = msgpack.unpackb(content, strict_map_key=False)
    if isinstance(fields, list) and len(fields) in (_FIELDS_OF_5, _FIELDS_OF_2, _FIELDS_OF_1):
        fields = _upgraded(fields)
    if not isinstance(fields, list) or len(fields) != _FIELDS:
        raise ValueError("no topic's state")
    array, extents, first, kept, offset = fields
    number, _, _, end, distributed, *_ = array
    _resolve(array, waiting.get(number, {}), number in known)
    sequence = sequence_of(extents, distributed, end)
    sequence.first, sequence.retained = first, [retained_extent(extent) for extent in kept]
    state = TopicState.load(array, offset, sequence.kinds, known.get(number))
    for reader in state.readers.values():
        for start, stop in reader.referenced_spans(distributed, sequence.kinds):
            for stored, begin, until in sequence.present_spans(start, stop):
                stored.add_references(begin, until)
        for stored in sequence.extents:
            flags = reader.flags(stored.first, stored.end)
            if flags:
                stored.add_flagged_references(flags)
    sequence.count_released()
    sequence.sweep()  # an emptied channel may not have released all of its messages before the checkpoint
    return state, sequence


def _resolve(array: list[Any], chunks: Mapping[int, bytes], is_known: bool) -> None:
    """Replace the numbers of WAITING records in a topic's array by their contents."""
    if isinstance(array[_DELAYED], bytes):  # before format 8 of the log
        array[_DELAYED] = [array[_DELAYED]]
    lists = [array[_DELAYED], *(reader[_PAGES] for reader in array[_READERS] if reader[0] == ReaderKind.CHANNEL)]
    for pages in lists:
        if is_known and any(isinstance(page, int) and page not in chunks for page in pages):
            raise MissingChunk
        pages[:] = [chunks.get(page, b"") if isinstance(page, int) else page for page in pages]


def _upgraded(fields: list[Any]) -> list[Any]:
    """Convert the fields of formats 1 to 5 to the current format."""
    if len(fields) == _FIELDS_OF_1:
        lane = b"".join([pack(ordinal, due, 0) for ordinal, due in fields[5]])
        for channel in fields[6]:
            channel[6] = b"".join([pack(ordinal, due, attempts) for ordinal, attempts, due in channel[6]])
            channel.append([])
        fields = [*fields[:5], lane, *fields[6:], [None, None, None], None, [], [], 0]
    elif len(fields) == _FIELDS_OF_2:
        fields.insert(-1, [])
    *topic, channels, extents, config, first, kept, cursors, offset = fields
    return [
        [*topic, [_upgraded_reader(channel) for channel in channels], config, cursors],
        extents,
        first,
        kept,
        offset,
    ]


def _upgraded_reader(channel: list[Any]) -> list[Any]:
    number, name, paused, start, cursor, holes, returned, buried, far = channel
    if name == WORK:
        return [ReaderKind.WORK_QUEUE, number, name, start, cursor, holes, [(*options, True) for options in buried]]
    return [ReaderKind.CHANNEL, number, name, paused, start, cursor, holes, [returned, *far], buried]


def _extent(stored: StoredExtent) -> list[Any]:
    published, logged = (stored.oldest, stored.newest), (stored.logged_first, stored.logged_last)
    return [
        stored.first,
        stored.count,
        stored.delayed,
        stored.size,
        stored.locations,
        *published,
        stored.attributed,
        *logged,
    ]


def sequence_of(extents: list[list[Any]], distributed: int, end: int) -> Sequence:
    """Return a topic's extents, on disk only and referenced by no reader yet.

    `distributed`: ordinal before which messages were given to channels; `end`: ordinal after the last message.
    """
    sequence = Sequence()
    sequence.distributed, sequence.end = distributed, end
    for extent in extents:
        stored = _stored_extent(extent)
        stored.refcounts = bytearray(stored.count)
        sequence.add(stored)
    return sequence


def _stored_extent(extent: list[Any]) -> StoredExtent:
    first, count, delayed, size, locations, *more = extent
    stored = StoredExtent(first, delayed)
    stored.extent = None
    stored.count, stored.size = count, size
    stored.oldest, stored.newest = more[:2] or (0, 0)
    stored.attributed = bool(more[2:] and more[2])
    # before format 5 the wall time stands in: the log's time is near it
    stored.logged_first, stored.logged_last = more[3:] or more[:2] or (0, 0)
    stored.locations = [(segment, edition, start, end) for segment, edition, start, end in locations]
    # the extent grows no more: the segment of its first messages may be removed before others are finished
    stored.bulk = EXTENT_BYTES
    return stored


def retained_extent(extent: list[Any]) -> StoredExtent:
    """Return an extent of `kept`, which no reader references."""
    stored = _stored_extent(extent)
    stored.retain_only()
    return stored
