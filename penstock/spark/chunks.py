"""Convert rows to bodies of /mpub?binary=true: a count, then each message's length and bytes, big-endian.

Arrow builds them a column at a time. The content of a chunk depends on nothing but the rows and their order.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby, repeat
from struct import Struct
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_COUNT = Struct(">I")
_NOTHING = pa.scalar(b"", pa.binary())
Label = tuple[tuple[tuple[str, str], ...], str]  # headers, and a key: "" for none


@dataclass(slots=True)
class Chunk:
    """Messages of one topic with the same label, which are published together."""

    topic: str
    label: Label = ((), "")
    count: int = 0
    size: int = 0  # bytes of the parts
    parts: list[Any] = field(default_factory=list)  # of the payload, after the count

    def payload(self) -> bytes:
        """Return the body of the request."""
        return b"".join([_COUNT.pack(self.count), *self.parts])


class Chunker:
    """Collects rows into chunks of at most `most` messages and `most_bytes` bytes; a larger message is a chunk by itself."""

    def __init__(self, topic: str, most: int, most_bytes: int) -> None:
        self._topic = topic  # the topic of all rows; "": each row names its own
        self._most = most
        self._most_bytes = most_bytes
        self._open: dict[str, Chunk] = {}

    def add(self, batch: pa.RecordBatch) -> Iterator[Chunk]:
        """Add a batch, and yield the chunks that are full. Raises ValueError for a row without a topic or a body."""
        if self._topic:
            yield from self._add(self._topic, batch)
            return
        topics = batch.column("topic")
        for topic in pc.unique(topics).to_pylist():
            if not topic:
                raise ValueError("a row has no topic")
            yield from self._add(topic, batch.filter(pc.equal(topics, topic)))

    def _add(self, topic: str, rows: pa.RecordBatch) -> Iterator[Chunk]:
        for label, first, end in _runs(rows):
            yield from self._take(topic, label, rows.column("body").slice(first, end - first))

    def rest(self) -> Iterator[Chunk]:
        """Yield the chunks that are not full, at the end."""
        yield from (chunk for chunk in self._open.values() if chunk.count)
        self._open.clear()

    def _take(self, topic: str, label: Label, bodies: Any) -> Iterator[Chunk]:
        content, ends = _framed(bodies)
        at, rows = 0, len(bodies)
        chunk = self._open.get(topic)
        if chunk is None or chunk.label != label:
            if chunk is not None and chunk.count:
                yield chunk
            chunk = self._open[topic] = Chunk(topic, label)
        while at < rows:
            fits = bisect_right(ends, ends[at] + self._most_bytes - chunk.size) - 1
            until = min(rows, fits, at + self._most - chunk.count)
            if until <= at and not chunk.count:
                until = at + 1  # the message is larger than a chunk
            if until > at:
                chunk.parts.append(content[ends[at] : ends[until]])
                chunk.count += until - at
                chunk.size += ends[until] - ends[at]
                at = until
            if at < rows:
                yield chunk
                chunk = self._open[topic] = Chunk(topic, label)


def _runs(rows: pa.RecordBatch) -> Iterator[tuple[Label, int, int]]:
    """Yield each run of rows with the same headers and key as (label, first, end)."""
    names, count = rows.schema.names, len(rows)
    if "headers" not in names and "key" not in names:
        yield ((), ""), 0, count
        return
    headers = rows.column("headers").to_pylist() if "headers" in names else repeat(None, count)
    keys = rows.column("key").to_pylist() if "key" in names else repeat(None, count)
    first = 0
    for label, run in groupby((tuple(one or ()), key or "") for one, key in zip(headers, keys, strict=True)):
        end = first + sum(1 for _ in run)
        yield label, first, end
        first = end


def _framed(bodies: Any) -> tuple[memoryview, array[int]]:
    """Return all bodies, each after its length, end to end, and the offsets at which they begin and the last one ends."""
    bodies = bodies.cast(pa.binary())
    lengths = pc.binary_length(bodies)
    if bodies.null_count or (len(bodies) and not pc.min(lengths).as_py()):
        kind = "null" if bodies.null_count else "empty"
        raise ValueError(f"a row's body is {kind}: nsqd accepts no empty message")
    heads = _ints(lengths.buffers()[1], lengths.offset, len(lengths))
    if sys.byteorder == "little":
        heads.byteswap()
    prefixes = pa.Array.from_buffers(pa.binary(_COUNT.size), len(heads), [None, pa.py_buffer(heads)])
    framed = pc.binary_join_element_wise(prefixes.cast(pa.binary()), bodies, _NOTHING)
    _, offsets, content = framed.buffers()
    return memoryview(content), _ints(offsets, framed.offset, len(framed) + 1)


def _ints(buffer: pa.Buffer, first: int, count: int) -> array[int]:
    found = array("i")
    found.frombytes(memoryview(buffer)[first * found.itemsize : (first + count) * found.itemsize])
    return found
