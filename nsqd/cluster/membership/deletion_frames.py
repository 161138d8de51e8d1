"""The frame of deletions in a log that another node had promoted meanwhile, in two forms. Numbers are big-endian.

    DELETED  to the leader of a log: its id; the last epoch and the end of the part that both had when the sender, which
             published into it, was partitioned; and for each deletion its kind, the numbers of topic and channel, and an
             ordinal
    DELETED  the leader of a log has the deletions durably: the log's id, and nothing else

See docs/contributing/design/cluster-protocol.md#deletions.
"""

from __future__ import annotations

from struct import Struct

from nsqd.cluster.membership.leader_frames import MOST_POSITION
from nsqd.cluster.wire.frames import FrameKind, PeerError, encode
from nsqd.cluster.wire.node_identity import LOG_ID_SIZE, MOST_NUMBER
from nsqd.core.message.deletion import MOST_DELETIONS, Deletion, DeletionKind, LogDeletions
from nsqd.core.message.epoch import unpack as unpack_epoch

_HEAD, _DELETION = Struct(">16s14sQ"), Struct(">BIIQ")


def pack_deleted(log_id: bytes, word: LogDeletions) -> bytes:
    """Return the frame that sends up to MOST_DELETIONS deletions to the leader of a log."""
    return encode(FrameKind.DELETED, pack_content(log_id, word))


def pack_content(log_id: bytes, word: LogDeletions) -> bytes:
    """Return the content of that frame, as cluster.json keeps it."""
    deletions = b"".join(_DELETION.pack(*one) for one in word.deletions[:MOST_DELETIONS])
    return _HEAD.pack(log_id, word.epoch.pack(), word.position) + deletions


def unpack_deleted(content: bytes) -> tuple[bytes, LogDeletions]:
    """Return the id of a log, and the deletions in it. Raises PeerError."""
    size = len(content) - _HEAD.size
    if not 0 < size <= MOST_DELETIONS * _DELETION.size or size % _DELETION.size:
        raise PeerError("DELETED is not whole")
    log_id, packed, position = _HEAD.unpack_from(content)
    epoch = unpack_epoch(packed)
    if epoch.node > MOST_NUMBER or position > MOST_POSITION:
        raise PeerError("DELETED names a point that no log has")
    try:
        found = [Deletion(DeletionKind(kind), *rest) for kind, *rest in _DELETION.iter_unpack(content[_HEAD.size :])]
    except ValueError:
        raise PeerError("DELETED names a kind of deletion that is not known") from None
    return log_id, LogDeletions(epoch, position, tuple(found))


def pack_deleted_kept(log_id: bytes) -> bytes:
    """Return the frame that confirms that the leader of a log has its deletions durably."""
    return encode(FrameKind.DELETED, log_id)


def is_kept(content: bytes) -> bool:
    """Return True if a frame confirms that the leader of a log has its deletions durably."""
    return len(content) == LOG_ID_SIZE
