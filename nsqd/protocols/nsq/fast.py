"""Recognize the shapes that make up nearly all traffic, as wholes.

Each function has an exact slow path in peer.py. A function here returns the command or None; it never decides that more
input is needed or that something is malformed, and a property test holds both paths equal.
"""

from struct import Struct

from nsqd.core.message.frame import parts_of
from nsqd.protocols.nsq.commands import INT32

FIN_SIZE = 21  # "FIN " + 16 bytes + "\n"
_FIN_COLUMNS = ((0, b"F"), (1, b"I"), (2, b"N"), (3, b" "), (20, b"\n"))
_MOST_FINS = 512  # checked together: a short row must not cost a pass over the whole buffer
_FIN = b"FIN "
_NEWLINE, _RETURN = 10, 13
_FIN_LETTERS = b"FIN \n"


def fins(data: bytes, start: int) -> bytes | None:
    """Return the ids of the consecutive FINs at `start`, which begins with "F", end to end; None if they are not plain."""
    count = min((len(data) - start) // FIN_SIZE, _MOST_FINS)
    if count <= 1:  # from a consumer that works on one message at a time
        ids = data[start + 4 : start + 20]
        plain = count and data[start + 20] == _NEWLINE and data.startswith(_FIN, start) and ids.isalnum()
        return ids if plain else None
    chunk = data if start == 0 and len(data) == count * FIN_SIZE else data[start : start + count * FIN_SIZE]
    for column, letter in _FIN_COLUMNS:
        found = chunk[column::FIN_SIZE]
        count = min(count, len(found) - len(found.lstrip(letter)))
    ids = chunk[: count * FIN_SIZE].translate(None, _FIN_LETTERS)
    if len(ids) != count * 16 or _RETURN in ids or not count:
        return None  # an id that holds such a letter takes the slow path
    return ids


def pub(data: bytes, start: int, limit: int) -> tuple[bytes, bytes, int] | None:
    """Return topic, body and the next position of a complete `PUB <topic>` at `start`, or None."""
    newline = data.find(b"\n", start, start + 80)
    if newline < 0 or len(data) < newline + 5:
        return None
    size = INT32.unpack_from(data, newline + 1)[0]
    end = newline + 5 + size
    if not 0 < size <= limit or len(data) < end:
        return None
    return data[start + 4 : newline], data[newline + 5 : end], end


def mpub(data: bytes, start: int, max_msg_size: int, max_body_size: int) -> tuple[bytes, list[bytes], int, int] | None:
    """Return topic, bodies, bytes of bodies and the next position of a complete MPUB whose messages have one size, or None."""
    newline = data.find(b"\n", start, start + 80)
    if newline < 0 or len(data) < newline + 13:
        return None
    outer = INT32.unpack_from(data, newline + 1)[0]
    end = newline + 5 + outer
    if not 0 < outer <= max_body_size or len(data) < end:
        return None
    bodies = equal_bodies(data, newline + 5, end, max_msg_size)
    if bodies is None:
        return None
    return data[start + 5 : newline], bodies, len(bodies) * len(bodies[0]), end


def equal_bodies(data: bytes, start: int, end: int, max_msg_size: int) -> list[bytes] | None:
    """Return the bodies if a count and that many messages of one size fill start..end exactly; None otherwise."""
    if end - start < 9:
        return None
    count, size = _MPUB_HEAD.unpack_from(data, start)
    first, stride = start + 4, size + 4
    if not (0 < size <= max_msg_size and count > 0 and first + count * stride == end):
        return None
    for column in range(4):  # all lengths must equal the first one
        if data[first + column : end : stride].count(data[first + column]) != count:
            return None
    return parts_of(data, first, count, size, 4)


_MPUB_HEAD = Struct(">ii")
