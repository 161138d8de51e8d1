"""Converts answers of /topic/read from msgpack to Arrow columns. Runs on executors: pyarrow and msgpack only.

An answer is a sequence of arrays [first offset, count, frames(, attributes)]. Frames stand end to end, each as
int32 size | int32 | int64 timestamp (ns) | uint16 | 16 bytes id | body, big-endian; the size counts the bytes behind it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from struct import Struct
from typing import Any

import msgpack
import pyarrow as pa

HEADER = 34  # bytes of a frame before the body
SCHEMA = (
    "topic string, node string, log string, offset bigint, id string, timestamp timestamp, producer string, attempts int,"
    " body binary"
)
HEADERS = ", headers map<string, string>"  # appended to SCHEMA if the user wants headers
_HEAD = Struct(">i4xq2x16s")
_SIZE = Struct(">i")
_FIELDS = [
    pa.field("topic", pa.string()),
    pa.field("node", pa.string()),
    pa.field("log", pa.string()),
    pa.field("offset", pa.int64()),
    pa.field("id", pa.string()),
    pa.field("timestamp", pa.timestamp("us", tz="UTC")),
    pa.field("producer", pa.string()),
    pa.field("attempts", pa.int32()),
    pa.field("body", pa.binary()),
]
_HEADERS_FIELD = pa.field("headers", pa.map_(pa.string(), pa.string()))
PLAIN, _WITH_HEADERS = pa.schema(_FIELDS), pa.schema([*_FIELDS, _HEADERS_FIELD])


def batches(content: bytes, topic: str, node: str, log: str, with_headers: bool) -> Iterator[pa.RecordBatch]:
    """Yield a batch for each run of messages that were published with the same attributes."""
    unpacker = msgpack.Unpacker(max_buffer_size=max(1, len(content)), max_bin_len=max(1, len(content)))
    unpacker.feed(content)
    for first, count, frames, *rest in unpacker:
        yield _batch(first, count, frames, rest[0] if rest else {}, topic, node, log, with_headers)


def _batch(
    first: int,
    count: int,
    frames: bytes,
    attributes: dict[str, Any],
    topic: str,
    node: str,
    log: str,
    with_headers: bool,
) -> pa.RecordBatch:
    stamps, ids, bodies = _columns(frames, count)
    columns = [
        pa.repeat(pa.scalar(topic, pa.string()), count),
        pa.repeat(pa.scalar(node, pa.string()), count),
        pa.repeat(pa.scalar(log, pa.string()), count),
        pa.array(range(first, first + count), pa.int64()),
        pa.array(ids, pa.binary()).cast(pa.string()),
        pa.array(stamps, pa.timestamp("ns", tz="UTC")).cast(pa.timestamp("us", tz="UTC"), safe=False),
        pa.repeat(pa.scalar(attributes.get("producer"), pa.string()), count),
        pa.repeat(pa.scalar(None, pa.int32()), count),
        pa.array(bodies, pa.binary()),
    ]
    if not with_headers:
        return pa.RecordBatch.from_arrays(columns, schema=PLAIN)
    headers = list(attributes.get("headers", {}).items())
    columns.append(pa.array([headers] * count, _HEADERS_FIELD.type))
    return pa.RecordBatch.from_arrays(columns, schema=_WITH_HEADERS)


def _columns(frames: bytes, count: int) -> tuple[Any, Any, Any]:
    """Return the timestamps (ns), ids and bodies of the frames."""
    size = _SIZE.size + _SIZE.unpack_from(frames)[0] if count else 0
    if count and size * count == len(frames) and _all_alike(frames, size):  # takes a third of the time
        first, second, third = zip(*_alike(size - HEADER).iter_unpack(frames), strict=True)
        return first, second, third
    stamps, ids, bodies, at = [], [], [], 0
    for _ in range(count):
        length, stamp, name = _HEAD.unpack_from(frames, at)
        end = at + _SIZE.size + length
        stamps.append(stamp)
        ids.append(name)
        bodies.append(frames[at + HEADER : end])
        at = end
    return stamps, ids, bodies


def _all_alike(frames: bytes, size: int) -> bool:
    """Return True if a frame of `size` bytes begins at every multiple of `size`."""
    wanted = frames[: _SIZE.size]
    view = memoryview(frames)
    return all(
        bytes(view[place::size]) == wanted[place : place + 1] * (len(frames) // size) for place in range(_SIZE.size)
    )


@lru_cache(maxsize=256)
def _alike(body: int) -> Struct:
    return Struct(f">8xq2x16s{body}s")
