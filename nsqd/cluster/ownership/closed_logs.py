"""Closed logs: without unfinished and retained messages, and without publishes. A closed log is never promoted again.

The leader announces that it has closed a log. Every node keeps that record durably, forwards it, and confirms it. When enough
nodes have it, the leader removes the log; the others remove their replicas as soon as they have it themselves. So a node that
returns with a copy learns of it from any of them. Records are merged by union; of two about one log, the greater epoch wins.
A record is void if the log has a later leader than the one that has closed it.

See docs/contributing/design/cluster-protocol.md#closed-logs.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from nsqd.cluster.membership.cluster import Cluster
from nsqd.cluster.membership.facts import Keep
from nsqd.cluster.membership.leader_frames import Closed, is_kept, pack_closed, pack_kept, unpack_closed
from nsqd.cluster.membership.leaders import MOST_CLOSED
from nsqd.cluster.wire.frames import FrameKind
from nsqd.cluster.wire.link import Link
from nsqd.cluster.wire.part import Part
from nsqd.core.message.epoch import Epoch

LEAST_COPIES = 2  # of the record of a closed log, as long as there is another member
AGAIN = 10_000_000_000  # ns after which a record is written, or sent, again


@dataclass(slots=True)
class _Own:
    """A log that this node closes."""

    copies: int  # how many nodes must have the record before the log is removed, this one included
    had_by: set[int] = field(default_factory=set)  # numbers of the other nodes that have it


class ClosedLogs(Part):
    """The closed logs, as one node knows them."""

    takes = (FrameKind.CLOSED,)

    def __init__(self, cluster: Cluster, keep: Keep) -> None:
        """Begin with the closed logs that an earlier run of this node has kept in cluster.json."""
        self._keep = keep
        self._cluster = cluster
        self._leaders = cluster.leaders
        self._durable = set(cluster.leaders.closed)  # ids of the logs whose record this node has durably
        self._own: dict[bytes, _Own] = {}
        # by log id: the epoch of a record that is not accepted yet, and the numbers of the nodes that report it
        self._reported: dict[bytes, tuple[Epoch, set[int]]] = {}
        self._again_due = 0

    def is_closed(self, log_id: bytes) -> bool:
        """Return True if a log is closed, and this node has that durably."""
        return log_id in self._durable and log_id in self._leaders.closed

    def close(self, record: Closed, copies: int) -> None:
        """Close a log that this node leads. `copies`: how many nodes must have the record before the log is removed."""
        self._own[record.log_id] = _Own(copies)
        self._merge(record, None)
        for link in self._cluster.links.values():  # those that have it confirm it again
            link.send_first(pack_closed(record))

    def receive(self, link: Link, kind: FrameKind, content: bytes, now: int) -> None:
        if is_kept(content):
            self._note_kept(link, content)
            return
        record = unpack_closed(content)
        if not self._believes(link, record):
            return
        self._merge(record, link)
        if self.is_closed(record.log_id):
            link.send_first(pack_kept(FrameKind.CLOSED, record.log_id))

    def _believes(self, link: Link, record: Closed) -> bool:
        """Return True if a log is closed as far as this node knows: copies go then.

        The node that has closed it says so itself. If that is another member and has not said so, two other nodes have to.
        This node may have closed it, and have lost its disk since: then another node reports that, and this one passes it on.
        """
        leaders, membership = self._leaders, self._cluster.membership
        number, log_id, closer = link.node.number, record.log_id, record.epoch.node
        known = leaders.closed.get(log_id)
        if known is not None and known.epoch >= record.epoch:
            return True
        if not self._cluster.disputes.believes(number, log_id, record.epoch):
            return False
        if leaders.holds(log_id) and record.epoch == leaders.leader(log_id):
            return False
        if closer in (number, self._cluster.own.number) or closer not in membership.proved_members():
            return True
        epoch, tellers = self._reported.get(log_id, (record.epoch, set()))
        tellers = {*tellers, number} if epoch == record.epoch else {number}
        if log_id in self._reported or len(self._reported) < MOST_CLOSED:
            self._reported[log_id] = record.epoch, tellers
        return len(tellers) >= LEAST_COPIES

    def _merge(self, record: Closed, source: Link | None) -> None:
        """Merge the record of a closed log, and forward it if it is new."""
        log_id = record.log_id
        self._reported.pop(log_id, None)
        if self._leaders.learn(log_id, record.epoch):
            self._cluster.led(log_id, record.epoch)  # a node that has lost the log learns it from this, too
        if self._leaders.close(record):
            self._durable.discard(log_id)  # an earlier record of it may have been void
            for link in self._cluster.links.values():
                if link is not source and source is not None:
                    link.send_first(pack_closed(record))
        if log_id not in self._durable and log_id in self._leaders.closed:
            self._keep(lambda is_written: self._kept(log_id) if is_written else None)

    def _kept(self, log_id: bytes) -> None:
        if log_id in self._durable or log_id not in self._leaders.closed:
            return
        self._durable.add(log_id)
        self._durable &= self._leaders.closed.keys()
        for link in self._cluster.links.values():
            link.send_first(pack_kept(FrameKind.CLOSED, log_id))
        for part in self._cluster.parts:
            part.log_closed(log_id)
        self._count(log_id)

    def _note_kept(self, link: Link, log_id: bytes) -> None:
        own = self._own.get(log_id)
        if own is not None and link.peer is not None:
            own.had_by.add(link.peer.number)
            self._count(log_id)

    def _count(self, log_id: bytes) -> None:
        """Release a log that this node has closed, if enough nodes have the record."""
        own = self._own.get(log_id)
        if own is None or not self.is_closed(log_id):
            return
        members = {node.number for node in self._cluster.membership.members}
        needed = min(max(own.copies, LEAST_COPIES), len(members))
        if 1 + len(own.had_by & members) >= needed:
            del self._own[log_id]
            for part in self._cluster.parts:
                part.log_removable(log_id)

    def tick(self, now: int) -> None:
        if now < self._again_due:
            return
        self._again_due = now + AGAIN
        for log_id in [one for one in self._leaders.closed if one not in self._durable]:
            self._keep(lambda is_written, log_id=log_id: self._kept(log_id) if is_written else None)  # type: ignore[misc]
        for log_id in list(self._own):
            if log_id in self._leaders.closed:
                self._count(log_id)  # a member may have been forgotten
            else:
                del self._own[log_id]  # another node leads the log
