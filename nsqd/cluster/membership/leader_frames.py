"""The frames about the leaders of logs, and about closed logs. All numbers are big-endian.

    LEADERS   for each log its id, the greatest epoch that the sender knows, and the relation of the sender to the log (Hold).
              All logs at first, then changes
    CLOSED    a log has no unfinished messages, and no node publishes into it: its id, its end, and its epochs, each with the
              position at which it begins
    CLOSED    the sender has durably that a log is closed: its id, and nothing else

See docs/contributing/design/cluster-protocol.md#elections and docs/contributing/design/cluster-protocol.md#closed-logs.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from struct import Struct
from typing import NamedTuple, TypeVar

from nsqd.cluster.wire.fields import MOST_POSITION
from nsqd.cluster.wire.frames import FrameKind, PeerError, encode
from nsqd.cluster.wire.node_identity import LOG_ID_SIZE, MOST_NUMBER
from nsqd.core.message.epoch import NO_EPOCH, SIZE, Epoch
from nsqd.core.message.epoch import unpack as unpack_epoch

MOST_LOGS = 10_000  # in one frame, and that a node remembers
_LEADERSHIP = Struct(">16s14sB")
MOST_EPOCHS = 512  # of one log, the latest ones
_CLOSED, _EPOCH = Struct(">16sQ"), Struct(f">{SIZE}sQ")

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


class LogExtent(NamedTuple):
    """How far a replica goes. Of two replicas of one log, the greater one has what the log needs."""

    epoch: Epoch = NO_EPOCH  # the last one that it has bytes of
    end: int = 0  # position


NO_REPLICA = LogExtent()


class Closed(NamedTuple):
    """A closed log, as its leader reports it: it has no unfinished messages. With the end of the leader's copy."""

    log_id: bytes
    end: int  # position at which its leader's copy ends
    epochs: tuple[tuple[Epoch, int], ...]  # with the position at which each begins, ascending; 1 to MOST_EPOCHS

    @property
    def epoch(self) -> Epoch:
        """Return the greatest epoch: that of the leader that has closed the log."""
        return max(epoch for epoch, _ in self.epochs)


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


def make_closed(log_id: bytes, end: int, epochs: list[tuple[Epoch, int]]) -> Closed:
    """Return the record of a closed log with these epochs, the latest of which are kept. Raises ValueError."""
    closed = Closed(log_id, end, tuple(epochs[-MOST_EPOCHS:]))
    starts = [start for _, start in closed.epochs]
    if len(log_id) != LOG_ID_SIZE or not starts or any(epoch.node > MOST_NUMBER for epoch, _ in closed.epochs):
        raise ValueError("the epochs of a closed log are not those of a log")
    if starts != sorted(starts) or not 0 <= starts[0] <= starts[-1] <= end <= MOST_POSITION:
        raise ValueError("the epochs of a closed log do not follow each other")
    return closed


def pack_closed(closed: Closed) -> bytes:
    """Return the frame that reports a closed log."""
    epochs = b"".join(_EPOCH.pack(epoch.pack(), start) for epoch, start in closed.epochs)
    return encode(FrameKind.CLOSED, _CLOSED.pack(closed.log_id, closed.end) + epochs)


def unpack_closed(content: bytes) -> Closed:
    """Return the closed log. Raises PeerError."""
    size = len(content) - _CLOSED.size
    if not 0 < size <= MOST_EPOCHS * _EPOCH.size or size % _EPOCH.size:
        raise PeerError("CLOSED is not whole")
    log_id, end = _CLOSED.unpack_from(content)
    epochs = [(unpack_epoch(epoch), start) for epoch, start in _EPOCH.iter_unpack(content[_CLOSED.size :])]
    try:
        return make_closed(log_id, end, epochs)
    except ValueError as error:
        raise PeerError(str(error)) from None


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
