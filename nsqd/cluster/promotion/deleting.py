"""Apply deletions at a partitioned node to its log, which this node has promoted.

Deletions in a log that is not open yet wait until it has joined this node's broker, and are done before any of its messages
are delivered. They become ordinary records of the log. When these are durable, the sender gets its confirmation.

See docs/contributing/design/cluster-protocol.md#deletions.
"""

from __future__ import annotations

from dataclasses import dataclass

from nsqd.cluster.membership.cluster import Cluster
from nsqd.cluster.membership.deletions import unpack_deleted
from nsqd.cluster.membership.leader_frames import is_kept, pack_kept
from nsqd.cluster.promotion.promoted_log import ATTACHING, CLOSED, LOST, SERVING, PromotedLog
from nsqd.cluster.promotion.promotions import Promotions
from nsqd.cluster.wire.frames import FrameKind
from nsqd.cluster.wire.link import Link
from nsqd.cluster.wire.part import Part
from nsqd.core.broker import Broker
from nsqd.core.message.deletion import LogDeletions
from nsqd.core.shard_deletions import delete_from_promoted
from nsqd.storage.log.opening import OpenLog
from shared.log import log

MOST_NAMED = 10  # deletions that one line of the log names


@dataclass(slots=True)
class _Notice:
    """Deletions by another node in a log that this one leads."""

    record: LogDeletions
    node: int  # number of that node
    link: Link | None  # over which it is answered; None: it is this node itself
    opened: OpenLog | None = None  # the log in which it was done; None: it waits
    before: int = 0  # position after which it was recorded
    position: int = -1  # that has to be durable; -1: the records are not written yet


class Deleting(Part):
    """The deletions that this node receives, and those that it sends. All methods are for the reactor's thread."""

    takes = (FrameKind.DELETED,)

    def __init__(self, cluster: Cluster, promotions: Promotions, home: Broker) -> None:
        """`home`: the broker of this node's own log."""
        self._cluster, self._promotions, self._home = cluster, promotions, home
        self._notices: dict[tuple[bytes, int], _Notice] = {}  # by log id and number of the sender

    def receive(self, link: Link, kind: FrameKind, content: bytes, now: int) -> None:
        number = link.node.number
        if is_kept(content):
            self._cluster.deletions.answered(content, self._cluster.leaders.leader(content), number)
            return
        log_id, record = unpack_deleted(content)
        if self._led(log_id) is not None:
            self._accept(log_id, _Notice(record, number, link))

    def _led(self, log_id: bytes) -> PromotedLog | None:
        led = self._promotions.logs.get(log_id)
        return led if led is not None and led.state not in (LOST, CLOSED) else None

    def _accept(self, log_id: bytes, notice: _Notice) -> None:
        self._notices[log_id, notice.node] = notice
        led = self._led(log_id)
        if led is not None and led.state in (ATTACHING, SERVING):
            self._delete(led, notice)

    def attached(self, broker: Broker) -> None:
        """Apply the deletions that came before the log was open, before any of its messages are delivered."""
        led = next(one for one in self._promotions.logs.values() if one.broker is broker)
        for (log_id, _), notice in self._notices.items():
            if log_id == led.log_id:
                self._delete(led, notice)

    def _delete(self, led: PromotedLog, notice: _Notice) -> None:
        opened, broker = led.log, led.broker
        if opened is None or broker is None or broker not in self._home.logs:
            return
        if not notice.record.holds_for(opened.writer.all_epochs()):
            return  # this copy has diverged from that one elsewhere: what both mean by a number may differ
        notice.opened, notice.before, notice.position = opened, opened.writer.written.position, -1
        done = delete_from_promoted(self._home, broker, notice.record.deletions)
        if done:
            more = f", and {len(done) - MOST_NAMED} more" if len(done) > MOST_NAMED else ""
            log.warning(
                "CLUSTER: applied to the promoted log %s the deletions of node %d, which was partitioned: %s%s",
                led.log_id.hex(), notice.node, ", ".join(done[:MOST_NAMED]), more,
            )  # fmt: skip

    # by the clock

    def tick(self, now: int) -> None:
        """Send deletions to other leaders, and confirm durable ones. Call it several times a second; `now` in monotonic ns."""
        cluster = self._cluster
        cluster.deletions.tick(cluster.leaders, cluster.links, now)
        for log_id, record in cluster.deletions.known.items():
            own = cluster.own.number
            if self._led(log_id) is not None and (log_id, own) not in self._notices:
                self._accept(log_id, _Notice(record, own, None))
        for (log_id, number), notice in list(self._notices.items()):
            if self._led(log_id) is None:
                del self._notices[log_id, number]
            elif notice.opened is not None:
                self._answer(log_id, notice, notice.opened)

    def _answer(self, log_id: bytes, notice: _Notice, opened: OpenLog) -> None:
        writer = opened.writer
        if notice.position < 0 and (writer.written.position > notice.before or not writer.group):
            notice.position = writer.written.position
        if 0 <= notice.position <= writer.durable.position and notice.link is not None:
            link, notice.link = notice.link, None
            if self._cluster.links.get(notice.node) is link:
                link.send_first(pack_kept(FrameKind.DELETED, log_id))
