"""Responses of /topic/read in msgpack as records: [first offset, count, frames(, attributes)] one after the other."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgpack

from penstock.sansio.errors import ReadError

MAX_ANSWER = 80 << 20  # bytes: those requested, and one message of the largest max-msg-size that a sane node has
_FRAME = struct.Struct(">iiqH16s")  # size of the rest, type, timestamp, attempts, id; then the body


@dataclass(frozen=True, slots=True)
class Record:
    """A message that was read back.

    Example::

        record = Record(offset=7, timestamp=1_795_000_000_000_000_000, id=b"0" * 16, body=b"one")
        print(record.offset, record.body)
    """

    offset: int  # its position in the topic, on this node
    timestamp: int  # ns since the epoch, set at publish
    id: bytes  # 16 bytes
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    key: str = ""  # by which the publisher could publish it again without a second message
    producer: str = ""  # the publisher's name, and
    sequence: int = 0  # its number for this message, for the same purpose


def records_of(answer: bytes) -> Iterator[Record]:
    """Yield the records of a whole answer. Raises ReadError if it has another form."""
    unpacker = msgpack.Unpacker(max_buffer_size=max(1, len(answer)), max_bin_len=max(1, len(answer)))
    unpacker.feed(answer)
    try:
        for first, count, frames, *rest in unpacker:
            attributes = rest[0] if rest else {}
            if not (isinstance(attributes, dict) and isinstance(frames, bytes) and isinstance(first, int)):
                raise TypeError("a part of another type")
            yield from _records(first, count, frames, attributes)
        if unpacker.tell() != len(answer):
            raise ValueError("it is cut")
    except (ValueError, OverflowError, TypeError, struct.error, msgpack.exceptions.UnpackException) as error:
        raise ReadError(f"the response is not that of /topic/read: {error}") from None


def _records(first: int, count: int, frames: bytes, attributes: dict[str, Any]) -> Iterator[Record]:
    headers, sequence = dict(attributes.get("headers") or {}), int(attributes.get("sequence", 0))
    key, producer = str(attributes.get("key", "")), str(attributes.get("producer", ""))
    at = 0
    for number in range(count):
        size, _, timestamp, _, message_id = _FRAME.unpack_from(frames, at)
        stop = at + 4 + size
        if not at + _FRAME.size <= stop <= len(frames):
            raise ValueError("a frame is cut")
        body = frames[at + _FRAME.size : stop]
        order = sequence + number if producer else 0
        yield Record(first + number, timestamp, message_id, body, headers, key, producer, order)
        at = stop
