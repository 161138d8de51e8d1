"""The frames by which a node copies its log to another one, its follower. All numbers are big-endian.

    leader    FOLLOW    asks the peer to keep a replica of the leader's log; the peer sends HAVE. A number that ascends
    follower  HAVE      what the replica holds: [number, end, [[epoch, start], ...], [[base, edition], ...]], with the number of
                        the latest FOLLOW. It is sent again, unasked, when a replica that was stopped can be continued
    leader    RESUME    bytes follow from the replica's end on: [[epoch, start], ...], the epochs of the log
    leader    RESYNC      a full resync: the replica differs from a base on, or has a gap there: [base, [[epoch, start], ...]].
                        The bytes that follow are written apart
    leader    SEGMENT   a segment begins; its header of HEADER bytes
    leader    BYTES     bytes of a segment: its base, their offset in the file, and the bytes
    leader    SWITCH    the resync is complete, up to a position: it becomes the replica
    leader    KEEP      the segments that the leader has, once the replica is durable up to a position: [position, [base, ...]]
    leader    SYNC      a client waits until the bytes sent before are written (0) or durable (1): COPIED is to follow at once
    follower  COPIED    the positions up to which the replica is written, and durable
    follower  GAVE_UP   the replica cannot be continued at present, with the reason in UTF-8
    leader    DROP      the replica is no longer needed: [[epoch, start], ...], the epochs of the log
    both      LOG       the frames that follow in this direction are about the log with this id, of 16 bytes; before the
                        first LOG, they are about the log that the leader publishes into

A position counts the bytes of records of the log, as in docs/contributing/design/log.md. See
docs/contributing/design/cluster-protocol.md#replicas.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any

import msgpack

from nsqd.cluster.wire.fields import checked_list, checked_position, unpack_fields, unpack_struct
from nsqd.cluster.wire.frames import FrameKind, PeerError, encode
from nsqd.cluster.wire.node_identity import EPOCH_SIZE, LOG_ID_SIZE

HEADER = 64  # bytes of a segment's header
MOST_BYTES = 256 * 1024  # of a log in one frame: a heartbeat waits for no more than this
MOST_SEGMENTS = 65536  # of a log: 4 TiB
NO_SPACE = "too little space is free"  # a reason for GAVE_UP: another node is to keep the replica
NOT_LEADER = "another node leads this log"  # a reason for GAVE_UP
MOST_REASON = 500  # bytes
_PLACE = Struct(">QQ")  # base of a segment and offset in its file, or two positions
_BYTES_HEAD = Struct(">IBQQ")  # the head of a frame, and a place
_POSITION = Struct(">Q")
_NUMBER = Struct(">I")

Epochs = Sequence[tuple[bytes, int]]  # each epoch, packed, with the position at which it begins; ascending


@dataclass(frozen=True, slots=True)
class Have:
    """The content of a replica, as its follower reports it. Positions count bytes of records."""

    end: int  # position up to which its bytes are the log's
    epochs: Epochs
    segments: dict[int, int]  # base -> generation
    asked: int = 1  # number of the FOLLOW that it answers


def unpack_log_id(kind: FrameKind, content: bytes) -> bytes:
    """Return the id of a log, which is the content of LOG and ASK_OFFERS. Raises PeerError."""
    if len(content) != LOG_ID_SIZE:
        raise PeerError(f"{kind.name} has no log id")
    return content


def pack_follow(number: int) -> bytes:
    """Return the frame that asks for a replica; `number` counts up on one connection."""
    return encode(FrameKind.FOLLOW, _NUMBER.pack(number))


def unpack_follow(content: bytes) -> int:
    """Return the number of the FOLLOW. Raises PeerError."""
    return int(unpack_struct(FrameKind.FOLLOW, _NUMBER, content)[0])


def pack_have(have: Have) -> bytes:
    """Return the frame that says what a replica holds."""
    return encode(FrameKind.HAVE, msgpack.packb([have.asked, have.end, have.epochs, list(have.segments.items())]))


def unpack_have(content: bytes) -> Have:
    """Return the content of the peer's replica. Raises PeerError."""
    asked, end, epochs, segments = _fields(content, 4)
    generations = dict(map(_pair, checked_list(segments)))
    return Have(checked_position(end), checked_epochs(epochs), generations, checked_position(asked))


def pack_epochs(kind: FrameKind, epochs: Epochs) -> bytes:
    """Return the frame RESUME or DROP with the epochs of the log."""
    return encode(kind, msgpack.packb([epochs]))


def unpack_epochs(content: bytes) -> Epochs:
    """Return the epochs of the log in RESUME or DROP. Raises PeerError."""
    return checked_epochs(_fields(content, 1)[0])


def pack_resync(base: int, epochs: Epochs) -> bytes:
    """Return the frame that begins a full resync: the log's segments from `base` on follow."""
    return encode(FrameKind.RESYNC, msgpack.packb([base, epochs]))


def unpack_resync(content: bytes) -> tuple[int, Epochs]:
    """Return the base from which the resync begins, and the epochs of the log. Raises PeerError."""
    base, epochs = _fields(content, 2)
    return checked_position(base), checked_epochs(epochs)


def pack_bytes(base: int, at: int, buffers: list[bytes], size: int) -> list[bytes]:
    """Return the frames with the bytes of `buffers`, `size` in all, which stand from offset `at` of a segment's file on."""
    if size <= MOST_BYTES:  # nearly always: the bytes are copied once
        return [b"".join((_BYTES_HEAD.pack(1 + _PLACE.size + size, FrameKind.BYTES, base, at), *buffers))]
    data = b"".join(buffers)
    parts = [(start, data[start : start + MOST_BYTES]) for start in range(0, size, MOST_BYTES)]
    return [frame for start, part in parts for frame in pack_bytes(base, at + start, [part], len(part))]


def unpack_bytes(content: bytes) -> tuple[int, int, memoryview]:
    """Return the base of the segment, the offset in its file, and the bytes. Raises PeerError."""
    if len(content) <= _PLACE.size:
        raise PeerError("BYTES without bytes")
    base, at = _PLACE.unpack_from(content)
    return checked_position(base), checked_position(at), memoryview(content)[_PLACE.size :]


def pack_keep(position: int, bases: list[int]) -> bytes:
    """Return the frame that names the segments that the log has when it ends at `position`."""
    return encode(FrameKind.KEEP, msgpack.packb([position, bases]))


def unpack_keep(content: bytes) -> tuple[int, list[int]]:
    """Return the position and the bases of the segments that the log has. Raises PeerError."""
    position, bases = _fields(content, 2)
    return checked_position(position), [checked_position(base) for base in checked_list(bases)]


def pack_switch(position: int) -> bytes:
    """Return the frame that says that everything up to a position has been sent."""
    return encode(FrameKind.SWITCH, _POSITION.pack(position))


def unpack_switch(content: bytes) -> int:
    """Return the position up to which everything was sent. Raises PeerError."""
    return checked_position(unpack_struct(FrameKind.SWITCH, _POSITION, content)[0])


def pack_copied(written: int, durable: int) -> bytes:
    """Return the frame that says how far a replica is written and durable."""
    return encode(FrameKind.COPIED, _PLACE.pack(written, durable))


def unpack_copied(content: bytes) -> tuple[int, int]:
    """Return the written and the durable position of the peer's replica. Raises PeerError."""
    written, durable = unpack_struct(FrameKind.COPIED, _PLACE, content)
    return checked_position(written), checked_position(durable)


def pack_gave_up(reason: str) -> bytes:
    """Return the frame that says why a replica cannot be continued."""
    return encode(FrameKind.GAVE_UP, reason.encode()[:MOST_REASON])


def unpack_gave_up(content: bytes) -> str:
    """Return the reason why the peer cannot continue its replica."""
    return "".join(filter(str.isprintable, content[:MOST_REASON].decode(errors="replace")))


def _fields(content: bytes, count: int) -> list[Any]:
    return unpack_fields(content, count, MOST_SEGMENTS, EPOCH_SIZE)


def _pair(value: Any) -> tuple[int, int]:
    first, second = checked_list(value, 2)
    return checked_position(first), checked_position(second)


def checked_epochs(value: Any) -> Epochs:
    """Return a field that must be a list of packed epochs, each with a position. Raises PeerError."""
    epochs = []
    for pair in checked_list(value):
        epoch, start = checked_list(pair, 2)
        if type(epoch) is not bytes or len(epoch) != EPOCH_SIZE:
            raise PeerError("an epoch is not one")
        epochs.append((epoch, checked_position(start)))
    return epochs


def pack_sync(is_durable: bool) -> bytes:
    """Return the frame that says that a client waits until what was sent is written, or durable."""
    return encode(FrameKind.SYNC, bytes((is_durable,)))


def unpack_sync(content: bytes) -> bool:
    """Return whether a client waits until everything is durable, and not only until it is written. Raises PeerError."""
    if content not in (b"\0", b"\1"):
        raise PeerError("SYNC says neither written nor durable")
    return content == b"\1"
