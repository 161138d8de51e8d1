"""How a node joins its cluster: the port for other nodes, the replicas of its log, and the logs that it promotes.

A node that is in no cluster does not import this module.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import trio

from nsqd.cluster.departure import Departure
from nsqd.cluster.joined import Joined, Stop
from nsqd.cluster.joining import CopyGate, join, make_copying
from nsqd.cluster.membership.cluster import Cluster
from nsqd.cluster.membership.facts_file import FactsFile
from nsqd.cluster.ownership.candidate import Witnesses
from nsqd.cluster.ownership.cases import Cases, Quorum
from nsqd.cluster.ownership.closed_logs import ClosedLogs
from nsqd.cluster.ownership.elections import Elections
from nsqd.cluster.ownership.leaving import Leaving, Transfers
from nsqd.cluster.ownership.paused import PausedDeliveries
from nsqd.cluster.ownership.replica_states import InSyncReports, KeptReplicas
from nsqd.cluster.port import ClusterPort
from nsqd.cluster.promotion.closing import Closing
from nsqd.cluster.promotion.deleting import Deleting
from nsqd.cluster.promotion.diverged.arbiter import Arbiter
from nsqd.cluster.promotion.diverged.directory import DivergedDirectory
from nsqd.cluster.promotion.diverged.salvage import Salvage
from nsqd.cluster.promotion.promoted_log import PromotionHost
from nsqd.cluster.promotion.promotions import Promotions
from nsqd.cluster.replication.answers import Answers
from nsqd.cluster.replication.asking import NodeReplicas
from nsqd.cluster.replication.copying import Copying, Threads
from nsqd.cluster.replication.directory import OldLogDirectory, PromotedDirectory
from nsqd.cluster.replication.leader import LeaderSide
from nsqd.cluster.replication.log_times import LogTimes
from nsqd.cluster.replication.rejoin import is_led_by_another, repair_promoted
from nsqd.cluster.replication.repair import LogRepair
from nsqd.cluster.wire.node_identity import MOST_ZONE
from nsqd.cluster.wire.part import Part
from nsqd.cluster.wire.visit import Visits
from nsqd.core.broker import Broker
from nsqd.core.shards import Attachment, Deletions
from nsqd.http.node import Info
from nsqd.net.reactor import Reactor
from nsqd.options import NsqdOptions
from nsqd.protocols.disque.jobs import USUAL_COPIES
from nsqd.start.identity import as_visitor, cluster_address, disque_address
from nsqd.start.listeners import Listeners
from nsqd.start.opening import Opened, clocks, make_promoted_broker, open_promoted
from nsqd.storage.directory import DirectoryError
from nsqd.storage.log.clocks import Anchor
from nsqd.storage.log.copying import LogSource
from nsqd.storage.log.epochs import Epoch
from nsqd.storage.log.followers import Followers
from nsqd.storage.log.opening import OpenLog
from shared.log import log
from shared.process.listen import display
from shared.values import SECOND

AT_ONCE = 5  # channels of a promoted log that are attached between two checks of the clock
SLICE = 2_000_000  # ns of a turn for which channels are attached or detached: each consumer of a channel takes 5 us
REPAIR_WITHIN = 2.0  # s for other nodes to report whether they have bytes that are corrupt here


def join_cluster(
    options: NsqdOptions,
    listeners: Listeners,
    info: Info,
    directory: Path,
    opened: Opened,
    reactor: Reactor,
    nursery: trio.Nursery,
    daemon: DaemonPart,
) -> Joined:
    """Join the cluster, and accept connections of its nodes. Raises DirectoryError."""
    assert listeners.cluster is not None
    own, broker, now = opened.log, opened.broker, time.monotonic_ns
    cluster = _join(options, listeners, info, directory, opened)
    cluster.dials.is_searching = bool(options.lookupd_tcp_address)
    lease = lambda: own.store.leased  # noqa: E731
    port = ClusterPort(cluster, reactor, directory, lease, broker.refused, daemon.refused, listeners.cluster_tls)
    threads, facts, stop = Threads(nursery, port.wake), FactsFile(cluster, directory, port.wake), Stop()
    copying = make_copying(cluster, directory, threads)
    quorum, after = Quorum(options.failover_quorum), (options.failover_after, options.unclean_after)
    cases = Cases(cluster, KeptReplicas(copying, now), facts.keep, quorum, *after, now())
    elections = Elections(cases, daemon.witnesses, os.urandom)
    leading = Leading(options, port, copying, opened, threads, as_visitor(options, listeners))
    leading.begin(own)
    paused = PausedDeliveries(cluster, broker, options.failover_after)
    cluster.add(paused, copying, Transfers(cluster, elections), InSyncReports(cluster, elections, copying), elections)
    times = LogTimes(cluster, copying, own.clock.clocks, threads)
    promotions = Promotions(
        PromotedDirectory(directory),
        copying.replicas,
        threads,
        leading.host(times.noted, elections.candidate.promotion_failed),
    )
    try:
        promotions.reopen()
    except OSError as error:
        raise DirectoryError(f"failed to find the promoted logs - {error}") from None
    cluster.add(promotions)
    promotions.failovers.possible_duplicates.update(opened.possible_duplicates)
    closed = ClosedLogs(cluster, facts.keep)
    old, writer = OldLogDirectory(directory), own.writer
    arbiter = Arbiter(cluster, copying.leader_sides, facts.keep, now)
    diverged = DivergedDirectory(directory, cluster.own.number, stop.interrupt)
    salvage = Salvage(cluster, copying, promotions, arbiter, diverged, threads, now, options.unclean_after)
    end = lambda: writer.written.position  # noqa: E731
    closing = Closing(cluster, closed, promotions, copying, old, threads, end, salvage.is_agreed)
    departure = Departure(broker, own, copying, promotions, salvage, daemon.hold, daemon.end)
    leaving = Leaving(cluster, facts.keep, elections, departure)
    cluster.add(
        Deleting(cluster, promotions, broker), times, closed, closing, salvage, leaving, daemon,
    )  # fmt: skip
    own.store.copies.patience = options.replicate_timeout
    cluster.add(CopyGate(cluster, broker, own.store.copies))
    port.listen(listeners.cluster.socket)
    log.info(
        "CLUSTER: listening on %s as node %d of %s",
        listeners.cluster.address, own.identity.node, options.cluster_name,
    )  # fmt: skip
    joined = Joined(port, facts, copying, elections, promotions, leaving, stop)
    cluster.add(Answers(copying.replicas, joined.offered, lambda number: cluster.leases.get(number, 0), threads))
    return joined


class DaemonPart(Part):
    """The daemon's calls for the cluster."""

    def __init__(
        self,
        witnesses: Witnesses,
        fenced: Callable[[bytes, Epoch], None],
        refused: Callable[[str], None],
        hold: Callable[[], object],
        end: Callable[[], None],
    ) -> None:
        """`fenced`: see Part; `refused`, `hold` and `end`: see ClusterPort and Departure."""
        self.witnesses, self.refused, self.hold, self.end = witnesses, refused, hold, end
        self._fenced = fenced

    def fenced(self, log_id: bytes, epoch: Epoch) -> None:
        self._fenced(log_id, epoch)


def copies_to_wait_for(options: NsqdOptions, joined: Joined, has_disque: bool) -> int:
    """Return the number of nodes that must be able to have a copy before this node, which starts, can take publishes.

    `has_disque`: clients of Disque ask for USUAL_COPIES.
    """
    most = max(joined.copying.leader_side.in_sync.stated.most, options.replicate, USUAL_COPIES if has_disque else 1)
    return min(most, len(joined.cluster.membership.members))


def _join(options: NsqdOptions, listeners: Listeners, info: Info, directory: Path, opened: Opened) -> Cluster:
    own = cluster_address(listeners, info)
    http = display(info.broadcast_address, info.http_port) if info.http_port > 0 else ""
    try:
        ids = opened.log.held_ids(opened.broker.ids.next)
    except OSError as error:
        raise DirectoryError(f"failed to read message ids in the log - {error}") from None
    return join(
        directory,
        opened.log.identity,
        ids,
        options.cluster_name,
        listeners.secret,
        (own, http, disque_address(listeners, info)),
        options.cluster_peer,
        options.failover_after,
        options.topology_zone.encode()[:MOST_ZONE].decode(errors="ignore"),
    )


class Leading:
    """How the node leads logs: the one into which it publishes, and those that it promotes."""

    def __init__(
        self,
        options: NsqdOptions,
        port: ClusterPort,
        copying: Copying,
        opened: Opened,
        threads: Threads,
        visits: Visits,
    ) -> None:
        self._options, self._port, self._copying = options, port, copying
        self._opened, self._threads, self._visits = opened, threads, visits
        self._attachments: dict[Broker, Attachment] = {}

    def host(self, noted: Callable[[bytes], Anchor | None], failed: Callable[[bytes, str], None]) -> PromotionHost:
        """Return the calls for nsqd.cluster.promotion.promotions. `noted` and `failed` as there."""
        opened, cluster, copying = self._opened, self._port.cluster, self._copying
        return PromotionHost(
            open=partial(open_promoted, self._options, opened.wake),
            make_broker=partial(make_promoted_broker, opened),
            copy=self.begin,
            end_copying=copying.remove,
            clocks=clocks,
            cache=opened.log.cache,
            budget=self._options.mem_budget,
            node=self._options.node_id,
            announce=cluster.announce_leader,
            resume=cluster.resume_leader,
            step_down=cluster.step_down,
            attach=self._attach,
            detach=self._detach,
            watch=partial(Deletions, opened.broker),
            noted=noted,
            failed=failed,
            is_lost=self._is_lost,
            repair=lambda disk, reading: repair_promoted(disk, reading, self._others()),
            is_closed=cluster.leaders.closed.__contains__,
        )

    def _attach(self, broker: Broker, deletions: Deletions | None) -> Callable[[], bool]:
        self._attachments[broker] = attachment = Attachment(self._opened.broker, broker, deletions)
        for part in self._port.cluster.parts:
            part.attached(broker)
        return partial(for_a_slice, attachment.attach_batch)

    def _detach(self, broker: Broker) -> Callable[[], bool]:
        for part in self._port.cluster.parts:
            part.detached(broker)
        return partial(for_a_slice, self._attachments.pop(broker).detach_batch)

    def _is_lost(self, log_id: bytes, epochs: Sequence[Epoch], followers: Followers) -> bool:
        number, known = self._options.node_id, self._port.cluster.leaders.leader(log_id)
        return is_led_by_another(self._others(), log_id, epochs, number, followers, known)

    def _others(self) -> NodeReplicas:
        """Return the replicas of the other members."""
        cluster, number = self._port.cluster, self._options.node_id
        addresses = {node.number: node.address for node in cluster.membership.members if node.number != number}
        return NodeReplicas(self._visits, addresses, self._options.rejoin_timeout / SECOND)

    def _repair(self, opened: OpenLog) -> LogRepair:
        """Return the repair of a log's corrupt bytes from the replicas of connected nodes."""
        port, writer = self._port, opened.writer

        def find() -> NodeReplicas:
            return NodeReplicas(self._visits, port.addresses(), REPAIR_WITHIN)

        def may_be_more(offered: int) -> bool:
            return offered < len(writer.followers.numbers) or port.cluster.is_any_member_away

        return LogRepair(opened.disk, opened.identity.log_id, find, time.monotonic_ns, writer.epochs.at, may_be_more)

    def begin(self, opened: OpenLog) -> None:
        """Begin to copy a log to its followers, and to repair it from their replicas."""
        source = LogSource(opened.disk, opened.writer, opened.syncer, opened.tidying)
        options, copies = self._options, opened.store.copies
        agenda = self._opened.broker.agenda
        copies.is_paused = lambda: agenda.stood_still_at > 0
        limits = options.replicas, options.rereplicate_after, options.replication_rate
        leader_side = LeaderSide(self._port.cluster, source, copies, self._threads, *limits)
        source.tap(leader_side.sender)
        opened.store.after_write = partial(self._port.send_group, leader_side)
        self._copying.add(leader_side)
        opened.writer.files.repair = self._repair(opened)


def for_a_slice(attach: Callable[[int], bool], clock: Callable[[], int] = time.monotonic_ns) -> bool:
    """Call `attach` with AT_ONCE until it returns False, for a SLICE at most. Returns True if there is more to do."""
    until = clock() + SLICE
    while attach(AT_ONCE):
        if clock() >= until:
            return True
    return False
