"""When a promoted log is closed, and what is then removed: its directory, its replicas, and its copy in diverged/.

A promoted log is closed when it has no unfinished and no retained messages, no schedules, no batches that are not done, and the
node that published into it publishes into another one, has left, or was forgotten. It is no longer served; its files are
removed when enough nodes have the record of that durably. The node that had published into it removes its copy in diverged/
once the followers of its new log have everything that this log held at the start, and the node that closed the old one knows
that: it asks others not to salvage the same tail.

See docs/contributing/design/cluster-protocol.md#closed-logs.
"""

from __future__ import annotations

from collections.abc import Callable

from nsqd.cluster.membership.cluster import Cluster
from nsqd.cluster.membership.leader_frames import make_closed
from nsqd.cluster.ownership.closed_logs import ClosedLogs
from nsqd.cluster.promotion.diverged.arbiter import is_copied
from nsqd.cluster.promotion.promoted_log import CLOSED, LOST, SERVING, PromotedLog
from nsqd.cluster.promotion.promotions import Promotions
from nsqd.cluster.replication.common_point import packed
from nsqd.cluster.replication.copying import Copying
from nsqd.cluster.replication.directory import OldLogDirectory
from nsqd.cluster.replication.follower import Work
from nsqd.cluster.replication.leader import LeaderSide
from nsqd.cluster.wire.node_identity import Standing
from nsqd.cluster.wire.part import Part
from nsqd.core.broker import Broker
from nsqd.core.observation.drain_status import drain_statuses
from nsqd.storage.log.epochs import unpack
from nsqd.storage.log.opening import OpenLog
from shared.log import log

CHECK_EVERY = 5_000_000_000  # ns between two checks of what may be closed or removed


class Closing(Part):
    """The closing of logs on one node. All methods are for the reactor's thread."""

    def __init__(
        self,
        cluster: Cluster,
        closed: ClosedLogs,
        promotions: Promotions,
        copying: Copying,
        old_logs: OldLogDirectory,
        work: Work,
        own_end: Callable[[], int],
        is_agreed: Callable[[bytes], bool],
    ) -> None:
        """`own_end`: returns the end position of this node's own log; `is_agreed`: see Salvage.is_agreed."""
        self._cluster, self._closed, self._promotions = cluster, closed, promotions
        self._copying, self._old_logs, self._work = copying, old_logs, work
        self._check_due = 0
        self._is_agreed = is_agreed
        self._is_busy = False  # old logs are being removed
        self._start = own_end()  # the end of the own log at the start of this run
        for log_id, led in promotions.logs.items():
            if led.state == CLOSED:  # the last run has closed it, or learned that it is closed, and has not removed it
                self._continue_closing(log_id)

    def _continue_closing(self, log_id: bytes) -> None:
        record = self._cluster.leaders.closed[log_id]
        if record.epoch.node == self._cluster.own.number:
            self._closed.close(record, self._copying.leader_side.in_sync.stated.most)
        else:
            self._promotions.lose(log_id)

    def tick(self, now: int) -> None:
        """Close what may be closed, and remove what is not needed. A node that leaves only removes replicas."""
        if now < self._check_due:
            return
        self._check_due = now + CHECK_EVERY
        for log_id in [one for one in self._copying.replicas.kept if self._closed.is_closed(one)]:
            self._discard(log_id)  # it was begun before this node knew, or in use
        if self._cluster.is_leaving:
            return
        for led in list(self._promotions.logs.values()):
            self._check(led)
        self._check_old_logs()

    def _check(self, led: PromotedLog) -> None:
        log_id = led.log_id
        if led.state != SERVING or led.log is None or led.broker is None:
            if led.state not in (LOST, CLOSED) and self._closed.is_closed(log_id):
                self.log_closed(log_id)
            if led.state == CLOSED and self._is_void(log_id):
                self._promotions.lose(log_id)
            return
        leader_side = self._copying.leader_sides.get(log_id)
        if leader_side is not None and not self._is_published(led) and has_no_unfinished(led.log, led.broker):
            self._close(log_id, led.node, leader_side)

    def _is_published(self, led: PromotedLog) -> bool:
        """Return True if the node that published into a log may return with what it has published since."""
        membership = self._cluster.membership
        record = membership.records.get(led.node)
        if record is None:
            return led.log_id not in membership.forgotten
        return record.standing is Standing.MEMBER and record.node.log_id == led.log_id

    def _close(self, log_id: bytes, node: int, leader_side: LeaderSide) -> None:
        source, copies = leader_side.source, max(leader_side.in_sync.stated.most, leader_side.copies.asked[1])
        epochs = [(unpack(epoch), start) for epoch, start in source.epochs()]
        record = make_closed(log_id, source.end, epochs)
        log.info("CLUSTER: closed the log %s of node %d: it has no unfinished messages", log_id.hex(), node)
        self._promotions.end(log_id)
        self._cluster.drop_log(log_id)
        self._closed.close(record, copies)

    def _is_void(self, log_id: bytes) -> bool:
        """Return True if another node leads a log that this one has closed, by a later epoch."""
        leader = self._cluster.leaders.leader(log_id)
        is_closed = log_id in self._cluster.leaders.closed
        return not is_closed and leader is not None and leader.node != self._cluster.own.number

    def log_closed(self, log_id: bytes) -> None:
        """Remove the replica that this node has of the log, and end with the log."""
        self._discard(log_id)
        led = self._promotions.logs.get(log_id)
        if led is not None and led.state != CLOSED:  # another node has closed what this one had lost without knowing
            self._promotions.lose(log_id)
            self._promotions.host.failed(log_id, "the log is closed")  # if it was just being promoted
            self._cluster.drop_log(log_id)

    def _discard(self, log_id: bytes) -> None:
        self._copying.replicas.discard(log_id, packed(self._cluster.leaders.closed[log_id].epochs))

    # old logs

    def _check_old_logs(self) -> None:
        """Remove the diverged copies of closed logs, if the followers have this node's own log as it was at the start."""
        if not self._is_busy and is_copied(self._copying.leader_side, self._start, self._cluster):
            self._is_busy = True
            self._work.run(self._remove_old_logs, self._removed_old_logs)

    def _remove_old_logs(self) -> list[bytes]:
        """Remove the diverged copies of closed logs, and return the ids of these logs. Any thread."""
        found = self._old_logs.found()
        over = [log_id for log_id in found if self._closed.is_closed(log_id) and self._is_agreed(log_id)]
        for log_id in over:
            self._old_logs.remove(log_id)
        return over

    def _removed_old_logs(self, result: list[bytes] | OSError) -> None:
        self._is_busy = False
        if isinstance(result, OSError):
            log.error("CLUSTER: cannot remove diverged copies of closed logs: %s; trying again", result)
            return
        for log_id in result:
            log.info("CLUSTER: removed the diverged copy of the closed log %s", log_id.hex())


def has_no_unfinished(opened: OpenLog, broker: Broker) -> bool:
    """Return True if a log has no unfinished messages, including buried ones, and no retained ones, schedules or batches.

    A batch is left until it is done, and its follow-ups are published. A log with damage is kept, because a replica may have
    messages intact that are lost here.
    """
    if opened.start_results.damage.size or opened.cache.failures or not opened.store.is_whole:
        return False
    if any(any(one) for one in drain_statuses(broker, "")):
        return False
    store = opened.store
    sequences = filter(None, map(store.find_sequence, store.logged()))
    return not any(sequence.live() or sequence.all_retained() for sequence in sequences)
