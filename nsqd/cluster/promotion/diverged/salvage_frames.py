"""The frame about diverged copies, in two forms. All numbers are big-endian.

    SALVAGE  a request: how much may the sender salvage of its diverged copy? A serial number, the id of the log,
             the copy's end, the position from which on the sender has salvaged it already, whether the log made of that is
             copied, and the copy's epochs, each with the position at which it begins
    SALVAGE  the reply of the log's leader: the serial number of the request, the id of the log, a decision, and a position

See docs/contributing/design/cluster-protocol.md#diverged-copies.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from nsqd.cluster.membership.leader_frames import checked_epoch, checked_member
from nsqd.cluster.wire.fields import checked_position
from nsqd.cluster.wire.frames import FrameKind, PeerError, encode
from nsqd.core.message.epoch import SIZE, Epoch

MOST_EPOCHS = 20_000  # of one copy: a frame has space for twice as many
_REQUEST, _REPLY = 0, 1  # the first byte
_NOT_SALVAGED = (1 << 64) - 1
_REQUEST_HEAD, _EPOCH = Struct(">BI16sQQ?"), Struct(f">{SIZE}sQ")
_REPLY_FRAME = Struct(">BI16sBQ")


class Decision(IntEnum):
    """The leader's decision about a diverged copy of its log."""

    WAIT = 0  # keep it, and ask again
    SALVAGE = 1  # salvage it from the position on, and ask again
    LET_GO = 2  # remove it: no node needs it


class SalvageRequest(NamedTuple):
    """A request about a diverged copy."""

    serial: int  # counts up in each node; the reply repeats it
    log_id: bytes
    end: int  # position at which the copy ends
    epochs: tuple[tuple[Epoch, int], ...]  # with the position at which each begins, ascending
    salvaged_from: int | None = None  # the copy was salvaged from this position on; None: it was not
    is_copied: bool = False  # the log made of that has as many copies as the log's publishes asked for, or is closed


class SalvageReply(NamedTuple):
    """The reply of the leader of the log."""

    serial: int
    log_id: bytes
    decision: Decision
    start: int = 0  # of SALVAGE: position up to which others have the copy's bytes


def pack_request(request: SalvageRequest) -> bytes:
    """Return the frame of a request."""
    taken = _NOT_SALVAGED if request.salvaged_from is None else request.salvaged_from
    head = _REQUEST_HEAD.pack(_REQUEST, request.serial, request.log_id, request.end, taken, request.is_copied)
    epochs = [_EPOCH.pack(epoch.pack(), start) for epoch, start in request.epochs[-MOST_EPOCHS:]]
    return encode(FrameKind.SALVAGE, b"".join((head, *epochs)))


def pack_reply(answer: SalvageReply) -> bytes:
    """Return the frame of a reply."""
    return encode(FrameKind.SALVAGE, _REPLY_FRAME.pack(_REPLY, *answer))


def unpack(content: bytes) -> SalvageRequest | SalvageReply:
    """Return a peer's request or reply. Raises PeerError."""
    if content[:1] == bytes((_REPLY,)) and len(content) == _REPLY_FRAME.size:
        _, serial, log_id, decision, start = _REPLY_FRAME.unpack(content)
        return SalvageReply(serial, log_id, checked_member(Decision, decision), checked_position(start))
    size = len(content) - _REQUEST_HEAD.size
    if content[:1] != bytes((_REQUEST,)) or not 0 <= size <= MOST_EPOCHS * _EPOCH.size or size % _EPOCH.size:
        raise PeerError("SALVAGE is not whole")
    _, serial, log_id, end, taken, is_copied = _REQUEST_HEAD.unpack_from(content)
    epochs = tuple((checked_epoch(epoch), start) for epoch, start in _EPOCH.iter_unpack(content[_REQUEST_HEAD.size :]))
    starts = [start for _, start in epochs]
    if starts != sorted(starts):
        raise PeerError("the epochs of a copy are not those of a log")
    salvaged_from = None if taken == _NOT_SALVAGED else checked_position(taken)
    return SalvageRequest(serial, log_id, checked_position(end), epochs, salvaged_from, is_copied)
