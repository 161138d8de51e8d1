"""The frame by which a node that leaves asks another one to own its log. All numbers are big-endian.

    HANDOVER  the sender owned a log by an epoch, and gave it up: its id, and the epoch. The receiver is to claim the log

See docs/design/cluster.md#leaving.
"""

from __future__ import annotations

from struct import Struct

from nsqd.cluster.wire.frames import FrameKind, PeerError, encode
from nsqd.cluster.wire.node_identity import MOST_NUMBER
from nsqd.core.message.epoch import Epoch
from nsqd.core.message.epoch import unpack as unpack_epoch

_HANDOVER = Struct(">16s14s")


def pack_handover(log_id: bytes, epoch: Epoch) -> bytes:
    """Return the frame that asks the receiver to own a log which the sender owned by `epoch`."""
    return encode(FrameKind.HANDOVER, _HANDOVER.pack(log_id, epoch.pack()))


def unpack_handover(content: bytes) -> tuple[bytes, Epoch]:
    """Return the id of the log, and the epoch by which the sender owned it. Raises PeerError."""
    if len(content) != _HANDOVER.size:
        raise PeerError("HANDOVER is not whole")
    log_id, packed = _HANDOVER.unpack(content)
    epoch = unpack_epoch(packed)
    if epoch.node > MOST_NUMBER:
        raise PeerError("an epoch is of no node")
    return log_id, epoch
