"""Convert responses of /topic/read from msgpack to Arrow columns. Runs on executors: pyarrow and msgpack only.

A response is a sequence of arrays [first offset, count, frames(, attributes)]. Frames follow each other without a gap, each as
int32 size | int32 | int64 timestamp (ns) | uint16 | 16 bytes id | body, big-endian; the size does not count itself.
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
_TYPES = {
    "string": pa.string(), "bigint": pa.int64(), "int": pa.int32(), "binary": pa.binary(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}  # fmt: skip
PLAIN = pa.schema([(name, _TYPES[kind]) for name, kind in (column.split() for column in SCHEMA.split(", "))])
_WITH_HEADERS = PLAIN.append(pa.field("headers", pa.map_(pa.string(), pa.string())))


def batches(content: bytes, topic: str, node: str, log: str, with_headers: bool) -> Iterator[pa.RecordBatch]:
    """Yield a batch for each run of messages that were published with the same attributes."""
    unpacker = msgpack.Unpacker(max_buffer_size=max(1, len(content)), max_bin_len=max(1, len(content)))
    unpacker.feed(content)
    for first, count, frames, *rest in unpacker:
        yield _batch(first, count, frames, rest[0] if rest else {}, (topic, node, log), with_headers)


def _batch(
    first: int, count: int, frames: bytes, attributes: dict[str, Any], source: tuple[str, str, str], with_headers: bool
) -> pa.RecordBatch:
    stamps, ids, bodies = _columns(frames, count)
    columns = [
        *(pa.repeat(pa.scalar(name, pa.string()), count) for name in source),
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
    columns.append(pa.array([headers] * count, _WITH_HEADERS.field("headers").type))
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
