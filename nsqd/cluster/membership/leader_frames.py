"""The frame about the leaders of logs. All numbers are big-endian.

    LEADERS   for each log its id, the greatest epoch that the sender knows, and the relation of the sender to the log (Hold).
              All logs at first, then changes

See docs/design/cluster.md#elections.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from struct import Struct
from typing import NamedTuple, TypeVar

from nsqd.cluster.wire.frames import FrameKind, PeerError, encode
from nsqd.cluster.wire.node_identity import LOG_ID_SIZE, MOST_NUMBER
from nsqd.core.message.epoch import NO_EPOCH, Epoch
from nsqd.core.message.epoch import unpack as unpack_epoch

MOST_LOGS = 10_000  # in one frame, and that a node remembers
_LEADERSHIP = Struct(">16s14sB")

E = TypeVar("E", bound=IntEnum)


class Hold(IntEnum):
    """The relation of the sender of LEADERS to a log."""

    KNOWS = 0  # it only forwards what it has received
    LEADS = 1  # it leads the log by this epoch, in this run
    STEPPED_DOWN = 2  # it led the log by this epoch, and has stepped down: another node may promote the log at once


class Leadership(NamedTuple):
    """The greatest epoch of a log that the sender knows."""

    log_id: bytes
    epoch: Epoch
    hold: Hold = Hold.KNOWS


class Extent(NamedTuple):
    """How far a replica goes. Of two replicas of one log, the greater one has what the log needs."""

    epoch: Epoch = NO_EPOCH  # the last one that it has bytes of
    end: int = 0  # position


NO_REPLICA = Extent()


def pack_leaders(records: Iterable[Leadership]) -> bytes:
    """Return the frame about up to MOST_LOGS logs."""
    return encode(
        FrameKind.LEADERS, b"".join(_LEADERSHIP.pack(one.log_id, one.epoch.pack(), one.hold) for one in records)
    )


def unpack_leaders(content: bytes) -> list[Leadership]:
    """Return the leaders that the peer knows. Raises PeerError."""
    if len(content) % _LEADERSHIP.size or len(content) > MOST_LOGS * _LEADERSHIP.size:
        raise PeerError("LEADERS is not a list of logs")
    return [
        Leadership(log_id, checked_epoch(epoch), checked_member(Hold, hold))
        for log_id, epoch, hold in _LEADERSHIP.iter_unpack(content)
    ]


def pack_kept(kind: FrameKind, log_id: bytes) -> bytes:
    """Return the frame CLOSED or DELETED that confirms that the sender has the record about a log durably."""
    return encode(kind, log_id)


def is_kept(content: bytes) -> bool:
    """Return True if CLOSED or DELETED confirms that the sender has the record about a log, whose id it is, durably."""
    return len(content) == LOG_ID_SIZE


def checked_epoch(data: bytes) -> Epoch:
    """Return the epoch in a frame. Raises PeerError."""
    epoch = unpack_epoch(data)
    if epoch.node > MOST_NUMBER:
        raise PeerError("an epoch is of no node")
    return epoch


def checked_member(kind: type[E], value: int) -> E:
    """Return the member of an enumeration that a frame names. Raises PeerError."""
    try:
        return kind(value)
    except ValueError:
        raise PeerError(f"the {kind.__name__.lower()} {value} is not known") from None
