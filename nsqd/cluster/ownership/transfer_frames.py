"""The frame by which a node that leaves asks another one to lead its log. All numbers are big-endian.

    TRANSFER  the sender led a log by an epoch, and has stepped down: its id, and the epoch. The receiver is to lead the log

See docs/contributing/design/cluster-protocol.md#leaving.
"""

from __future__ import annotations

from struct import Struct

from nsqd.cluster.wire.frames import FrameKind, PeerError, encode
from nsqd.cluster.wire.node_identity import MOST_NUMBER
from nsqd.core.message.epoch import Epoch
from nsqd.core.message.epoch import unpack as unpack_epoch

_TRANSFER = Struct(">16s14s")


def pack_transfer(log_id: bytes, epoch: Epoch) -> bytes:
    """Return the frame that asks the receiver to lead a log which the sender led by `epoch`."""
    return encode(FrameKind.TRANSFER, _TRANSFER.pack(log_id, epoch.pack()))


def unpack_transfer(content: bytes) -> tuple[bytes, Epoch]:
    """Return the id of the log, and the epoch by which the sender led it. Raises PeerError."""
    if len(content) != _TRANSFER.size:
        raise PeerError("TRANSFER is not whole")
    log_id, packed = _TRANSFER.unpack(content)
    epoch = unpack_epoch(packed)
    if epoch.node > MOST_NUMBER:
        raise PeerError("an epoch is of no node")
    return log_id, epoch
