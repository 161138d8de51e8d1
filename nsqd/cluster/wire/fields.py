"""Fields of the frames whose content is msgpack."""

from __future__ import annotations

from struct import Struct
from typing import Any

import msgpack

from nsqd.cluster.wire.frames import FrameKind, PeerError

MOST_BYTES = 1 << 20  # of a field: no frame has more
MOST_FIELDS = 2048  # of a list: there are 1,024 node numbers
MOST_POSITION = (1 << 63) - 1  # in a log


def unpack_message(content: bytes, most: int = MOST_FIELDS, longest: int = MOST_BYTES, most_keys: int = 0) -> Any:
    """Return the value of a frame's content in msgpack. Raises PeerError.

    No list in it has more than `most` fields, no map more than `most_keys`, and no bytes in it are longer than `longest`.
    """
    try:
        return msgpack.unpackb(content, max_map_len=most_keys, max_array_len=most, max_bin_len=longest)
    except (ValueError, msgpack.UnpackException, RecursionError):
        raise PeerError("the content of a frame is not msgpack") from None


def unpack_fields(content: bytes, count: int, most: int = MOST_FIELDS, longest: int = MOST_BYTES) -> list[Any]:
    """Return the `count` fields of a frame's content, bounded as in unpack_message. Raises PeerError."""
    return checked_list(unpack_message(content, most, longest), count)


def unpack_struct(kind: FrameKind, struct: Struct, content: bytes) -> tuple[Any, ...]:
    """Return the fields of a frame's content, which is a struct and nothing else. Raises PeerError."""
    if len(content) != struct.size:
        raise PeerError(f"{kind.name} is not whole")
    return struct.unpack(content)


def is_int(value: object, most: int, least: int = 0) -> bool:
    """Return True if a field is an integer from `least` to `most`."""
    return type(value) is int and least <= value <= most


def checked_list(value: Any, count: int | None = None) -> list[Any]:
    """Return a field that must be a list, of `count` fields if that is given. Raises PeerError."""
    if not isinstance(value, list) or count not in (None, len(value)):
        raise PeerError("a list in a frame is none, or is too short or too long")
    return value


def checked_int(value: Any, most: int, least: int = 0) -> int:
    """Return a field that must be an integer from `least` to `most`. Raises PeerError."""
    if not is_int(value, most, least):
        raise PeerError("a number in a frame is not one")
    return int(value)


def checked_position(value: Any) -> int:
    """Return a field that must be a position in a log. Raises PeerError."""
    return checked_int(value, MOST_POSITION)
