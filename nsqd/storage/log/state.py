"""The record of a topic in a checkpoint: the topic's state, and the locations of its messages. The format is msgpack.

    [state, extents, first, kept, offset]
    state     as nsqd/core/topic_state.py and the states of readers dump it
    extent    [first, count, delayed, size, pieces, oldest, newest, attributed, logged_first, logged_last]
    pieces    (segment, edition, from, to), see files.py
    first     finished messages from here on are retained; nil: none are
    kept      extents that no reader references and of which something is retained
    offset    to be added to each due time that is not 0, which gives the log's time; 0 means at once

`oldest` and `newest`, when messages of an extent were published, are ns since the epoch; `logged_first` and `logged_last` are
the same in the log's time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgpack

from nsqd.core.reader import ReaderKind as ReaderKind
from nsqd.core.timing.deferred_pages import remaining
from nsqd.core.topic_state import TopicState
from nsqd.storage.sequence import Sequence
from nsqd.storage.stored_extent import EXTENT_BYTES, StoredExtent

_DELAYED, _READERS = 5, 6  # indexes in the array of a topic
_PAGES, _BURIED = 7, 8  # indexes in the array of a channel that begins with its kind


def encode_topic(state: TopicState, sequence: Sequence | None, offset: int) -> bytes:
    """Return the record's content. `sequence`: None without messages; `offset`: ns from the state's clock to the log's time."""
    extents = [_extent(stored) for stored in sequence.live()] if sequence else []
    kept = [_extent(stored) for stored in sequence.all_retained()] if sequence else []
    packed: bytes = msgpack.packb([state.dump(), extents, sequence.first if sequence else None, kept, offset])
    return packed


class MissingChunk(Exception):
    """A CHUNK record that a topic's state names was corrupt."""


def decode_topic(
    content: bytes, known: Mapping[int, TopicState], chunks: Mapping[int, Mapping[int, bytes]]
) -> tuple[TopicState, Sequence]:
    """Return the topic's state, in the log's time, and its messages.

    `known`: earlier states of topics, by number; `chunks`: the content of the checkpoint's CHUNK records, by number of the
    topic and of the record. Raises MissingChunk if one is missing and the topic is known: then the earlier state is better.
    """
    array, extents, first, kept, offset = msgpack.unpackb(content, strict_map_key=False)
    number, _, _, end, distributed, *_ = array
    _resolve(array, chunks.get(number, {}), number in known)
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
    """Replace the numbers of CHUNK records in a topic's array by their contents."""
    channels = [reader for reader in array[_READERS] if reader[0] == ReaderKind.CHANNEL]
    lists = [array[_DELAYED], *(one[place] for one in channels for place in (_PAGES, _BURIED))]
    for pages in lists:
        parts = [page if isinstance(page, list) else (page, b"") for page in pages]
        if is_known and any(isinstance(page, int) and page not in chunks for page, _ in parts):
            raise MissingChunk
        named = ((chunks.get(page, b"") if isinstance(page, int) else page, left) for page, left in parts)
        pages[:] = [page if left == b"" else remaining(page, left) for page, left in named if page]


def _extent(stored: StoredExtent) -> list[Any]:
    return [
        stored.first, stored.count, stored.delayed, stored.size, stored.locations, stored.oldest, stored.newest,
        stored.attributed, stored.logged_first, stored.logged_last,
    ]  # fmt: skip


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
    first, count, delayed, size, locations, oldest, newest, attributed, logged_first, logged_last = extent
    stored = StoredExtent(first, delayed)
    stored.count, stored.size = count, size
    stored.oldest, stored.newest, stored.attributed = oldest, newest, attributed
    stored.logged_first, stored.logged_last = logged_first, logged_last
    stored.locations = [(segment, edition, start, end) for segment, edition, start, end in locations]
    # the extent grows no more: the segment of its first messages may be removed before others are finished
    stored.bulk = EXTENT_BYTES
    return stored


def retained_extent(extent: list[Any]) -> StoredExtent:
    """Return an extent of `kept`, which no reader references."""
    stored = _stored_extent(extent)
    stored.retain_only()
    return stored
