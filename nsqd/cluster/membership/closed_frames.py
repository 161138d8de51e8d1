"""The frame about logs that are closed, in two forms. All numbers are big-endian.

    CLOSED  a log has no unfinished messages, and no node publishes into it: its id, its end, and its epochs, each with the
            position at which it begins
    CLOSED  the sender has durably that a log is closed: its id, and nothing else

See docs/design/cluster.md#closed-logs.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from nsqd.cluster.wire.fields import MOST_POSITION
from nsqd.cluster.wire.frames import FrameKind, PeerError, encode
from nsqd.cluster.wire.node_identity import LOG_ID_SIZE, MOST_NUMBER
from nsqd.core.message.epoch import SIZE, Epoch
from nsqd.core.message.epoch import unpack as unpack_epoch

MOST_EPOCHS = 512  # of one log, the latest ones
_HEAD, _EPOCH = Struct(">16sQ"), Struct(f">{SIZE}sQ")


class Closed(NamedTuple):
    """A closed log, as its leader reports it: it has no unfinished messages. With the end of the leader's copy."""

    log_id: bytes
    end: int  # position at which its leader's copy ends
    epochs: tuple[tuple[Epoch, int], ...]  # with the position at which each begins, ascending; 1 to MOST_EPOCHS

    @property
    def epoch(self) -> Epoch:
        """Return the greatest epoch: that of the leader that has closed the log."""
        return max(epoch for epoch, _ in self.epochs)


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
    return encode(FrameKind.CLOSED, _HEAD.pack(closed.log_id, closed.end) + epochs)


def unpack_closed(content: bytes) -> Closed:
    """Return the closed log. Raises PeerError."""
    size = len(content) - _HEAD.size
    if not 0 < size <= MOST_EPOCHS * _EPOCH.size or size % _EPOCH.size:
        raise PeerError("CLOSED is not whole")
    log_id, end = _HEAD.unpack_from(content)
    epochs = [(unpack_epoch(epoch), start) for epoch, start in _EPOCH.iter_unpack(content[_HEAD.size :])]
    try:
        return make_closed(log_id, end, epochs)
    except ValueError as error:
        raise PeerError(str(error)) from None
