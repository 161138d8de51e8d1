"""How a node joins its cluster: the port for other nodes, the copies of its log, and the logs that it takes over.

A node that is in no cluster does not import this module.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import trio

from nsqd.cluster.claims import Quorum
from nsqd.cluster.cluster import Cluster
from nsqd.core.broker import Broker
from nsqd.core.stripes import Attachment, Deletions
from nsqd.http.node import Info
from nsqd.identity import cluster_address, disque_address
from nsqd.listeners import Listeners
from nsqd.net.reactor import Reactor
from nsqd.opening import Opened, clocks, make_adopted_broker, open_adopted
from nsqd.options import NsqdOptions
from nsqd.protocols.disque.jobs import USUAL_COPIES
from nsqd.protocols.peer.node_identity import MOST_ZONE
from nsqd.replication.adoption import Adoptions, Parts
from nsqd.replication.copying import Copying, Threads
from nsqd.replication.deleting import Deleting
from nsqd.replication.directory import AdoptedDirectory
from nsqd.replication.joining import (
    begin_claims,
    begin_closing,
    begin_taking_in,
    begin_times,
    connect_claims,
    copy_adopted,
    end_copying,
    join,
    make_copying,
    use_configs,
)
from nsqd.replication.mending import Mending
from nsqd.replication.offers import HttpMirrors
from nsqd.replication.port import ClusterPort
from nsqd.replication.rejoin import is_owned_by_another
from nsqd.replication.standstill import Standstill
from nsqd.storage.directory import DirectoryError
from nsqd.storage.log.clocks import Anchor
from nsqd.storage.log.epochs import Epoch
from nsqd.storage.log.followers import Followers
from nsqd.storage.log.opening import OpenLog
from shared.listen import display
from shared.log import log
from shared.values import SECOND

AT_ONCE = 5  # channels of an adopted log that are attached between two looks at the clock
SLICE = 2_000_000  # ns of a turn for which channels are attached or detached: each consumer of a channel takes 5 us
MEND_WITHIN = 2.0  # s for other nodes to say whether they have bytes that are damaged here


def open_cluster_port(
    options: NsqdOptions,
    listeners: Listeners,
    info: Info,
    directory: Path,
    opened: Opened,
    reactor: Reactor,
    nursery: trio.Nursery,
) -> ClusterPort:
    """Join the cluster, and accept connections of its nodes. Raises DirectoryError."""
    assert listeners.cluster is not None
    cluster = _join(options, listeners, info, directory, opened)
    lease, refused = (lambda: opened.log.store.leased), opened.broker.refused
    port = ClusterPort(cluster, reactor, directory, lease, refused, listeners.cluster_tls)
    if options.debug_routes:
        port.allow_cuts()
    cluster.is_searching = bool(options.lookupd_tcp_address)
    threads = Threads(nursery, port.wake)
    port.copying = copying = make_copying(*_numbers(options), cluster, opened.log, directory, threads)
    cluster.add(copying)
    _take_over(options, port, copying, directory, opened, nursery)
    store = opened.log.store
    store.after_write = port.copied_group
    store.copies.patience = options.replicate_timeout
    use_configs(cluster, opened.broker, store.copies)
    port.listen(listeners.cluster.socket)
    opened.log.writer.files.mend = _mending(port, opened.log)
    number, name = opened.log.identity.node, options.cluster_name
    log.info("CLUSTER: listening on %s as node %d of %s", listeners.cluster.address, number, name)
    return port


def copies_to_wait_for(options: NsqdOptions, port: ClusterPort, has_disque: bool) -> int:
    """Return how many nodes must be able to have a copy before this node, which starts, keeps what it promises its clients.

    `has_disque`: clients of Disque ask for USUAL_COPIES.
    """
    assert port.copying is not None
    most = max(port.copying.origin.in_sync.stated.most, options.replicate, USUAL_COPIES if has_disque else 1)
    return min(most, len(port.cluster.membership.members), 1 + options.mirrors)


def _numbers(options: NsqdOptions) -> tuple[int, int, int]:
    return options.mirrors, options.rereplicate_after, options.replication_rate


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
        options.takeover_after,
        options.topology_zone.encode()[:MOST_ZONE].decode(errors="ignore"),
    )


def _take_over(
    options: NsqdOptions, port: ClusterPort, copying: Copying, directory: Path, opened: Opened, nursery: trio.Nursery
) -> None:
    """Claim the logs of lost nodes, and serve those that were taken over. Raises DirectoryError."""
    quorum, own = Quorum(options.takeover_quorum), opened.log
    claims = begin_claims(port, copying, own, quorum, options.takeover_after, options.unclean_after)
    times = begin_times(port, own, Threads(nursery, port.wake))
    adopting = Adopting(options, port, opened, Threads(nursery, port.wake))
    port.adoptions = adoptions = Adoptions(
        AdoptedDirectory(directory), copying.mirrors, adopting.threads, adopting.parts(times.noted)
    )
    try:
        adoptions.reopen()
    except OSError as error:
        raise DirectoryError(f"failed to find the adopted logs - {error}") from None
    adoptions.takeovers.possible_duplicates.update(opened.possible_duplicates)
    connect_claims(port, claims, adoptions)
    cluster, broker = port.cluster, opened.broker
    standstill = Standstill(cluster, broker, options.takeover_after)
    for part in (adoptions, Deleting(cluster, adoptions, broker), standstill, times):
        cluster.add(part)
    begin_closing(port, adoptions, own, directory, Threads(nursery, port.wake))
    begin_taking_in(port, adoptions, directory, Threads(nursery, port.wake), options.unclean_after)


class Adopting:
    """What the node does for the logs that it adopts."""

    def __init__(self, options: NsqdOptions, port: ClusterPort, opened: Opened, threads: Threads) -> None:
        self.threads = threads
        self._options, self._port, self._opened = options, port, opened
        self._attachments: dict[Broker, Attachment] = {}

    def parts(self, noted: Callable[[bytes], Anchor | None]) -> Parts:
        """Return it as nsqd.replication.adoption calls it. `noted` as there."""
        opened, cluster = self._opened, self._port.cluster
        return Parts(
            open=partial(open_adopted, self._options, opened.wake),
            make_broker=partial(make_adopted_broker, opened.broker),
            copy=self._copy,
            end_copying=partial(end_copying, self._port),
            clocks=clocks,
            cache=opened.log.cache,
            budget=self._options.mem_budget,
            node=self._options.node_id,
            announce=cluster.announce_owner,
            resume=cluster.resume_owner,
            give_up=cluster.give_up_log,
            attach=self._attach,
            detach=self._detach,
            watch=partial(Deletions, opened.broker),
            noted=noted,
            is_lost=self._is_lost,
            is_closed=cluster.ownership.closed.__contains__,
        )

    def _attach(self, broker: Broker, deletions: Deletions | None) -> Callable[[], bool]:
        self._attachments[broker] = attachment = Attachment(self._opened.broker, broker, deletions)
        for part in self._port.cluster.parts:
            part.attached(broker)
        return partial(for_a_slice, attachment.attach_some)

    def _detach(self, broker: Broker) -> Callable[[], bool]:
        for part in self._port.cluster.parts:
            part.detached(broker)
        return partial(for_a_slice, self._attachments.pop(broker).detach_some)

    def _is_lost(self, log_id: bytes, epochs: Sequence[Epoch], followers: Followers) -> bool:
        cluster, number = self._port.cluster, self._options.node_id
        addresses = {node.number: node.http for node in cluster.membership.members if node.number != number}
        others = HttpMirrors(addresses, self._options.rejoin_timeout / SECOND)
        return is_owned_by_another(others, log_id, epochs, number, followers, cluster.ownership.owner(log_id))

    def _copy(self, opened: OpenLog) -> None:
        copy_adopted(*_numbers(self._options), self._port, self.threads, opened)
        opened.writer.files.mend = _mending(self._port, opened)


def _mending(port: ClusterPort, opened: OpenLog) -> Mending:
    """Return what replaces damaged bytes of a log by those of mirrors that other nodes keep."""
    others = partial(HttpMirrors, timeout=MEND_WITHIN)
    return Mending(opened.disk, opened.identity.log_id, lambda: others(port.http_addresses()), time.monotonic_ns)


def for_a_slice(some: Callable[[int], bool], clock: Callable[[], int] = time.monotonic_ns) -> bool:
    """Call `some` with AT_ONCE until it returns False, but for no longer than a SLICE. Returns True if there is more to do."""
    until = clock() + SLICE
    while some(AT_ONCE):
        if clock() >= until:
            return True
    return False
