"""The logs that a node of a simulated cluster has taken over: their directories, and how each is opened, copied and driven."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from nsqd.cluster.promotion.promoted_log import PromotionHost
from nsqd.cluster.promotion.promotions import Promotions
from nsqd.cluster.replication.leader import LeaderSide
from nsqd.cluster.replication.rejoin import repair_promoted
from nsqd.cluster.replication.replica_to_log import name_replica_files
from nsqd.core.broker import Broker
from nsqd.core.message.epoch import Epoch
from nsqd.core.message.ids import NoIds
from nsqd.core.shards import Attachment, Deletions, promoted_broker
from nsqd.storage.log.copying import LogSource
from nsqd.storage.log.disk import Disk
from nsqd.storage.log.followers import Followers
from nsqd.storage.log.opening import Extend, LogOptions, OpenLog, Promoted, open_log
from nsqd.storage.log.reading import LogReading
from shared.topic_config import Durability
from tests.nsqd.cluster.replication.archive import Archive
from tests.nsqd.storage.sim_disk import SimDisk
from tests.nsqd.storage.sim_node import SYNC_EVERY
from tests.simulation.repairing import SimRepair

if TYPE_CHECKING:
    from tests.simulation.cluster_node import ClusterNode
    from tests.simulation.machine import Machine

AT_ONCE = 3  # topics or channels that are attached in one turn


class SimPromoted:
    """The directories of the logs that a machine has taken over. In place of PromotedDirectory."""

    def __init__(self, machine: Machine) -> None:
        self._machine, self._disks = machine, machine.disks

    def found(self) -> list[bytes]:
        return sorted(self._disks.promoted)

    def move_replica(self, log_id: bytes) -> Disk:
        disks = self._disks
        disk = disks.replicas[log_id]
        disk.act("take")
        disks.promoted[log_id] = disks.replicas.pop(log_id)
        disk.act("taken")
        return disk

    def put_back(self, log_id: bytes) -> int | None:
        disk = self._disks.promoted[log_id]
        manifest = name_replica_files(disk)
        if manifest is None:
            return None
        disk.act("put back")
        self._disks.replicas[log_id] = self._disks.promoted.pop(log_id)
        return manifest.node

    def open(self, log_id: bytes) -> Disk:
        return self._disks.promoted[log_id]

    def keep_diverged(self, log_id: bytes) -> str:
        self._machine.run.books.counts["promoted logs kept as diverged"] += 1
        self._disks.keep_diverged(log_id, self._disks.promoted.pop(log_id), False)
        return "aside"

    def remove(self, log_id: bytes) -> None:
        if self._disks.promoted.pop(log_id, None) is not None:
            self._machine.run.note(f"{self._machine.name} removes {log_id.hex()[:6]}, which is closed")
            self._machine.run.books.counts["closed logs"] += 1


class SimOldLogs:
    """The logs that a machine's node had before. In place of OldLogDirectory."""

    def __init__(self, machine: Machine) -> None:
        self._machine, self._disks = machine, machine.disks

    def found(self) -> list[bytes]:
        return sorted({one.log_id for one in self._disks.old_logs})

    def remove(self, log_id: bytes) -> None:
        self._machine.judge_letting_go(log_id)
        self._machine.run.books.counts["old logs removed"] += 1
        self._disks.old_logs = [one for one in self._disks.old_logs if one.log_id != log_id]


class OpenedLog:
    def __init__(self, opened: OpenLog, disk: SimDisk, archive: Archive, random: Random) -> None:
        self.log, self.disk, self.archive = opened, disk, archive
        self.end = opened.writer.written.position  # where the log ended
        self.log_id = opened.identity.log_id
        self.leader_side: LeaderSide | None = None
        self.syncer, self.cache = opened.syncer, opened.cache
        self.cleaner, self.spare = opened.tidying._cleaner, opened.writer._spare
        self.syncer.random = random

    def step(self, random: Random) -> None:
        if random.random() < 0.7:
            self.syncer.step()
        step_threads(self, random)


def step_threads(log: OpenedLog | ClusterNode, random: Random) -> None:
    """Let the threads of a log, except for its syncer, do a system call each, or not."""
    if random.random() < 0.7:
        log.cache.step()
    if random.random() < 0.3:
        job = log.cleaner.waits
        log.cleaner.step()
        if job is not None and not job.failure:
            log.archive.cleaned(log.disk, job.header)
    if random.random() < 0.3:
        log.spare.step()


class PromotedLogs:
    """The logs that a node has taken over, wired as nsqd/start/clustering.py does it."""

    def __init__(self, node: ClusterNode, machine: Machine) -> None:
        self._node, self._machine = node, machine
        self.logs: dict[bytes, OpenedLog] = {}  # those that are copied to followers
        self._opening: dict[bytes, OpenedLog] = {}
        self._attachments: dict[Broker, Attachment] = {}
        host = PromotionHost(
            open=self._open, make_broker=self._make_broker, copy=self._copy, end_copying=self._end_copying,
            clocks=lambda: (node.clock.now, node.clock.wall), cache=node.log.cache, budget=node.sizes.budget,
            node=node.number, announce=self._announce, resume=node.cluster.resume_leader, step_down=node.cluster.step_down,
            attach=self._attach, detach=self._detach, watch=lambda: Deletions(node.broker), is_lost=self._is_lost,
            repair=lambda disk, reading: repair_promoted(disk, reading, machine.find_replicas()),
            failed=node.elections.candidate.promotion_failed, is_closed=node.cluster.leaders.closed.__contains__,
            noted=lambda log_id: None,
        )  # fmt: skip
        self.promotions = Promotions(SimPromoted(machine), node.replicas, node.work, host)
        self.promotions.reopen()

    def _open(self, disk: Disk, promoted: Promoted, extend: Extend | None) -> OpenLog:
        node = self._node
        options = LogOptions(node.number, Durability.INTERVAL, SYNC_EVERY, node.sizes.budget)
        parts = node.sizes.simulated(node.clock, node.random)
        opened = open_log(disk, options, node._wake, parts, extend, promoted)
        archive = self._machine.run.archive_of(opened.identity.log_id, self._machine)
        # a log that was made of a diverged copy has none
        self._machine.run.archives[opened.identity.log_id, self._machine.name] = archive
        self._opening[opened.identity.log_id] = OpenedLog(opened, disk, archive, node.random)
        return opened

    def _make_broker(self, opened: OpenLog) -> Broker:
        home, clock = self._node.broker, self._node.clock
        home.begin(clock.now, clock.wall)
        return promoted_broker(home, opened.store, NoIds(opened.identity.node, opened.start_results.lease))

    def _copy(self, opened: OpenLog) -> None:
        node, log_id = self._node, opened.identity.log_id
        one = self._opening.pop(log_id)
        one.archive.opened(one)
        source = LogSource(opened.disk, opened.writer, opened.syncer, opened.tidying)
        sizes, copies = node.sizes, opened.store.copies
        copies.is_paused = lambda: node.broker.agenda.stood_still_at > 0
        one.leader_side = leader_side = LeaderSide(
            node.cluster, source, copies, node.work, sizes.replicas, sizes.replace_after, sizes.rate
        )
        one.archive.after = leader_side.sender
        source.tap(one.archive)
        opened.store.after_write = partial(node.copied_group, leader_side)
        node.copying.add(leader_side)
        opened.writer.files.repair = SimRepair(self._machine, opened)
        self.logs[log_id] = one

    def _end_copying(self, log_id: bytes) -> None:
        self._node.copying.remove(log_id)
        del self.logs[log_id]

    def _announce(self, log_id: bytes, epoch: Epoch) -> None:
        one = self.logs.get(log_id) or self._opening.get(log_id)
        if one is not None:
            on_disk = LogReading(one.disk.crash(Random(1)))  # what survives a power cut at this moment
            assert epoch in [one for one, _ in on_disk.replay.epochs], "an epoch is announced that is not durable"
            self._machine.run.failed_over(log_id, epoch, self._machine)
        self._node.cluster.announce_leader(log_id, epoch)

    def _attach(self, broker: Broker, deletions: Deletions | None) -> Callable[[], bool]:
        self._attachments[broker] = Attachment(self._node.broker, broker, deletions)
        if self._node.jobs_part is not None:
            self._node.jobs_part.attach(broker)
        for part in self._node.cluster.parts:
            part.attached(broker)
        return partial(self._attachments[broker].attach_batch, AT_ONCE)

    def _detach(self, broker: Broker) -> Callable[[], bool]:
        for part in self._node.cluster.parts:
            part.detached(broker)
        return partial(self._attachments.pop(broker).detach_batch, AT_ONCE)

    def _is_lost(self, log_id: bytes, epochs: Sequence[Epoch], followers: Followers) -> bool:
        known = self._node.cluster.leaders.leader(log_id)
        return self._machine.is_failed_over(log_id, epochs, followers, known)

    def step(self, random: Random) -> None:
        for one in list(self.logs.values()):
            one.step(random)
