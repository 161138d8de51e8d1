"""Deletions at this node in logs that it has lost. They are sent to the leader of such a log, until the log is closed.

The leader confirms them when it has recorded them durably in the log. They are sent again after AGAIN, over each new
connection, and when another node leads the log; recorded deletions have no effect there. Numbers in frames are big-endian.

    DELETED  to the leader of a log: its id; the last epoch and the end of the part that both had when the sender, which
             published into it, was partitioned; and for each deletion its kind, the numbers of topic and channel, and an
             ordinal
    DELETED  the leader of a log has the deletions durably: the log's id, and nothing else

See docs/contributing/design/cluster-protocol.md#deletions.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct

from nsqd.cluster.membership.leader_frames import checked_epoch
from nsqd.cluster.membership.leaders import Leaders
from nsqd.cluster.wire.fields import checked_position
from nsqd.cluster.wire.frames import FrameKind, PeerError, encode
from nsqd.cluster.wire.link import Link
from nsqd.core.message.deletion import MOST_DELETIONS, Deletion, DeletionKind, LogDeletions
from nsqd.core.message.epoch import Epoch

MOST_LOGS = 64  # of which deletions are kept; of more, those that were lost last
AGAIN = 10_000_000_000  # ns after which unconfirmed deletions are sent again
_HEAD, _DELETION = Struct(">16s14sQ"), Struct(">BIIQ")


class LostLogDeletions:
    """The deletions by log, as cluster.json keeps them, and which leaders have them."""

    def __init__(self, known: Iterable[tuple[bytes, LogDeletions]] = ()) -> None:
        """`known`: what earlier runs of this node have kept; it is durable."""
        self.known: dict[bytes, LogDeletions] = dict(known)  # by log id
        self._had_by: dict[bytes, Epoch] = {}  # by log id: the epoch of the leader that has confirmed them
        # by log id: the leader to which they were sent last, the link, and when they are sent again (monotonic ns)
        self._notices: dict[bytes, tuple[Epoch, Link, int]] = {}

    def answered(self, log_id: bytes, leader: Epoch | None, number: int) -> None:
        """Handle the confirmation of the node `number`. `leader`: the epoch by which the log is led."""
        if log_id in self.known and leader is not None and leader.node == number:
            self._had_by[log_id] = leader

    def tick(self, leaders: Leaders, links: dict[int, Link], now: int) -> None:
        """Send leaders the deletions that they lack, and forget those of closed logs.

        `links`: to the other nodes, by their numbers; `now`: monotonic ns.
        """
        for log_id, record in list(self.known.items()):
            if log_id in leaders.closed:
                del self.known[log_id]
                self._notices.pop(log_id, None)
                self._had_by.pop(log_id, None)
                continue
            leader = leaders.leader(log_id)
            link = links.get(leader.node) if leader is not None else None
            if leader is None or link is None or self._had_by.get(log_id) == leader:
                continue
            notice = self._notices.get(log_id)
            if notice is None or notice[0] != leader or notice[1] is not link or now >= notice[2]:
                self._notices[log_id] = leader, link, now + AGAIN
                link.send_first(pack_deleted(log_id, record))


def with_deletions(
    known: Iterable[tuple[bytes, LogDeletions]], log_id: bytes, record: LogDeletions | None
) -> tuple[tuple[bytes, LogDeletions], ...]:
    """Return the deletions to keep when a log is lost. `record`: the deletions in it, or None."""
    others = [one for one in known if one[0] != log_id]
    return tuple(others if record is None else [*others[-(MOST_LOGS - 1) :], (log_id, record)])


def pack_deleted(log_id: bytes, lost: LogDeletions) -> bytes:
    """Return the frame that sends up to MOST_DELETIONS deletions to the leader of a log."""
    return encode(FrameKind.DELETED, pack_content(log_id, lost))


def pack_content(log_id: bytes, lost: LogDeletions) -> bytes:
    """Return the content of that frame, as cluster.json keeps it."""
    deletions = b"".join(_DELETION.pack(*one) for one in lost.deletions[:MOST_DELETIONS])
    return _HEAD.pack(log_id, lost.epoch.pack(), lost.position) + deletions


def unpack_deleted(content: bytes) -> tuple[bytes, LogDeletions]:
    """Return the id of a log, and the deletions in it. Raises PeerError."""
    size = len(content) - _HEAD.size
    if not 0 < size <= MOST_DELETIONS * _DELETION.size or size % _DELETION.size:
        raise PeerError("DELETED is not whole")
    log_id, packed, position = _HEAD.unpack_from(content)
    epoch = checked_epoch(packed)
    try:
        found = [Deletion(DeletionKind(kind), *rest) for kind, *rest in _DELETION.iter_unpack(content[_HEAD.size :])]
    except ValueError:
        raise PeerError("DELETED names a kind of deletion that is not known") from None
    return log_id, LogDeletions(epoch, checked_position(position), tuple(found))
