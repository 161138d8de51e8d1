"""Join the cluster at the start of the node: who it is in this run, and what it knows of the others."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

from nsqd.cluster.claims import Claims, Quorum
from nsqd.cluster.closed import ClosedLogs
from nsqd.cluster.cluster import Cluster
from nsqd.cluster.leaving import Handovers, Leaving
from nsqd.core.broker import Broker
from nsqd.core.message.epoch import Epoch
from nsqd.core.message.id_ranges import MOST_RANGES, IdRange
from nsqd.core.observation.drain_status import count_in_flight
from nsqd.protocols.peer.claims import Stage
from nsqd.protocols.peer.handshake import Credentials
from nsqd.protocols.peer.node_identity import NodeIdentity
from nsqd.replication.adoption import Adoptions
from nsqd.replication.arbiter import Arbiter
from nsqd.replication.claiming import CountsTeller, CountsTellers, KeptMirrors
from nsqd.replication.closing import Closing
from nsqd.replication.copying import Copying
from nsqd.replication.directory import MirrorDirectory, RemnantDirectory
from nsqd.replication.facts import next_incarnation, read_facts, write_facts
from nsqd.replication.follower import Work
from nsqd.replication.log_times import LogTimes
from nsqd.replication.mirrors import Mirrors
from nsqd.replication.origin import Origin
from nsqd.replication.parted import PartedDirectory
from nsqd.replication.port import ClusterPort
from nsqd.replication.remnants import Remnants
from nsqd.storage.directory import DirectoryError
from nsqd.storage.log.copies import Copies
from nsqd.storage.log.copying import LogSource
from nsqd.storage.log.identity import LogIdentity
from nsqd.storage.log.opening import OpenLog
from shared.log import log

_FULL = (errno.ENOSPC, errno.EDQUOT)  # a node starts on a full disk, too


def join(
    directory: Path,
    identity: LogIdentity,
    ids: tuple[IdRange, ...],
    name: str,
    secret: bytes,
    addresses: tuple[str, str, str],
    peers: Iterable[str],
    suspect_after: int,
    zone: str = "",
) -> Cluster:
    """Begin a new run of the node, durably, and return its view of the cluster `name`. Raises DirectoryError.

    `ids`: the message ids that the log holds or may issue; `addresses`: where other nodes, clients of HTTP, and clients of
    Disque reach this one; `peers`: cluster addresses of other nodes; `suspect_after` is in ns; `zone`: where the node is, "":
    not known.
    """
    if len(ids) > MOST_RANGES:
        raise DirectoryError(
            f"the log has messages with ids of more than {MOST_RANGES} node numbers: drain the node first"
        )
    facts = read_facts(directory)
    wall = time.time_ns()
    incarnation = next_incarnation(facts, wall)
    address, http, disque = addresses
    places = address, http, zone
    own = NodeIdentity(identity.node, incarnation, identity.log_id, identity.epoch.pack(), *places, ids, disque)
    try:
        write_facts(directory, replace(facts, incarnation=incarnation))
    except OSError as error:
        # With an incarnation that is the time, a later run is above it, too, without the file.
        if error.errno not in _FULL or incarnation > wall // 1_000_000_000:
            raise DirectoryError(f"failed to write what is known of the cluster - {error}") from None
        log.error("CLUSTER: cannot write what is known of the nodes: %s; trying again", error)
    credentials = Credentials(name, secret, own)
    return Cluster(
        credentials, peers, suspect_after, os.urandom, facts, time.monotonic_ns(), lambda: time.time_ns() // 1_000_000
    )


def use_configs(cluster: Cluster, broker: Broker, copies: Copies) -> None:
    """Have the node's topics as the cluster has them, and no copy of a message possible, not even here, until it is told."""

    def count(_: object = None) -> None:
        broker.set_copies(copies.available if cluster.configs.is_complete else 0)

    def complete() -> None:
        log.info("CLUSTER: the configurations of topics are known: this node takes messages")
        count()

    copies.on_available, cluster.configs.on_complete = count, complete
    if not cluster.configs.is_complete:
        log.info("CLUSTER: this node takes no messages until it has the configurations of topics from another one")
    broker.directory.on_created.append(cluster.configs.use_for)
    cluster.configs.attached(broker)
    count()


def make_copying(
    mirrors: int, patience: int, rate: int, cluster: Cluster, opened: OpenLog, directory: Path, work: Work
) -> Copying:
    """Return both sides of copying: `mirrors` other nodes get this node's log, and it keeps mirrors in the data directory.

    `patience`: ns after which a dead follower is replaced; `rate`: bytes a second that are read for followers that are far
    behind, 0: no limit. Raises DirectoryError.
    """
    source = LogSource(opened.disk, opened.writer, opened.syncer, opened.tidying)
    origin = Origin(cluster, source, opened.store.copies, work, mirrors, patience, rate)
    source.tap(origin)
    try:
        kept = Mirrors(MirrorDirectory(directory), work, time.monotonic_ns)
    except OSError as error:
        raise DirectoryError(f"failed to read the mirrors - {error}") from None
    kept.open_all()
    return Copying(origin, kept)


def copy_adopted(mirrors: int, patience: int, rate: int, port: ClusterPort, work: Work, opened: OpenLog) -> None:
    """Begin to copy a log that this node has taken over to its followers. For the numbers see `make_copying`."""
    copying = port.copying
    assert copying is not None
    source = LogSource(opened.disk, opened.writer, opened.syncer, opened.tidying)
    copies, log_id = opened.store.copies, opened.identity.log_id
    origin = Origin(port.cluster, source, copies, work, mirrors, patience, rate, log_id)
    source.tap(origin)
    opened.store.after_write = partial(port.copied_group, origin=origin)
    copying.add(origin)
    port.ends.pop(log_id, None)
    assert port.claims is not None
    writer, epoch = opened.writer, opened.identity.epoch
    port.tellers[log_id] = CountsTeller(port.claims, origin, log_id, epoch, lambda: writer.written.position)
    if port.times is not None:
        port.times.own[log_id] = opened.clock.now


def end_copying(port: ClusterPort, log_id: bytes) -> None:
    """Copy a log that this node had taken over no more."""
    assert port.copying is not None
    port.ends[log_id] = port.copying.origins[log_id].extent()
    port.copying.remove(log_id)
    del port.tellers[log_id]
    if port.times is not None:
        port.times.own.pop(log_id, None)


def begin_claims(
    port: ClusterPort, copying: Copying, opened: OpenLog, quorum: Quorum, takeover_after: int, unclean_after: int
) -> Claims:
    """Let the node claim the logs of nodes that are lost, and vote on claims of others. Times in ns."""
    cluster, identity = port.cluster, opened.identity
    mirrors = KeptMirrors(copying.mirrors, time.monotonic_ns)
    claims = Claims(cluster, mirrors, quorum, takeover_after, unclean_after, os.urandom, time.monotonic_ns())
    claims.keep = port.keep
    claims.voter.own_extent, claims.voter.asked = port.own_extent, port.leaving.asked
    claims.voter.on_whole = port.leaving.has_all
    writer = opened.writer
    own = CountsTeller(claims, copying.origin, identity.log_id, identity.epoch, lambda: writer.written.position)
    port.claims = claims
    port.tellers[identity.log_id] = own
    for part in (Handovers(cluster, claims), CountsTellers(cluster, copying.origin, port.tellers), claims):
        cluster.add(part)
    copying.mirrors.may_write = cluster.may_write_mirror
    return claims


def begin_times(port: ClusterPort, opened: OpenLog, work: Work) -> LogTimes:
    """Let followers know the times of logs."""
    assert port.copying is not None
    times = port.times = LogTimes(port.cluster, port.copying, opened.clock.clocks, work)
    times.own[opened.identity.log_id] = opened.clock.now
    return times


def begin_closing(port: ClusterPort, adoptions: Adoptions, opened: OpenLog, directory: Path, work: Work) -> None:
    """Let logs be closed that owe nothing, and what is left of closed ones be removed from the data directory."""
    assert port.copying is not None
    closed, writer = ClosedLogs(port.cluster), opened.writer
    port.cluster.add(closed)
    closed.keep = port.keep
    remnants = RemnantDirectory(directory)
    port.cluster.add(
        Closing(port.cluster, closed, adoptions, port.copying, remnants, work, lambda: writer.written.position)
    )


def begin_taking_in(port: ClusterPort, adoptions: Adoptions, directory: Path, work: Work, unclean_after: int) -> None:
    """Let copies be taken in that hold what the owners of their logs lack. `unclean_after` is in ns."""
    assert port.copying is not None
    cluster, copying = port.cluster, port.copying
    arbiter = Arbiter(cluster, copying.origins, port.keep, time.monotonic_ns)
    parted = PartedDirectory(directory, cluster.own.number, port.interrupt)
    cluster.add(Remnants(cluster, copying, adoptions, arbiter, parted, work, time.monotonic_ns, unclean_after))


def prepare_leaving(
    port: ClusterPort, broker: Broker, own: OpenLog, hold: Callable[[], None], end: Callable[[], None]
) -> None:
    """Let the node, whose own log is `own`, leave its cluster.

    `hold`: no publishes are taken from now on; `end`: the process is to end.
    """
    assert port.copying is not None
    cluster, copying = port.cluster, port.copying

    def begin() -> None:
        hold()
        broker.agenda.leave()
        # who takes a log over is not to make a mirror of it here
        copying.mirrors.may_write = lambda number, log_id: (
            log_id not in copying.origins and cluster.may_write_mirror(number, log_id)
        )
        log.info("CLUSTER: this node leaves the cluster: it takes no messages, delivers none, and hands its logs over")

    def ended(is_left: bool) -> None:
        if is_left:
            log.info(
                "CLUSTER: this node has left the cluster, and ends; its data directory is a copy of what others own"
            )
        else:
            _tell_why_not(port.leaving)
        if port.leaving.left_behind:
            behind = ", ".join(log_id.hex() for log_id in port.leaving.left_behind)
            log.warning(
                "CLUSTER: a copy ends with this node, and no node owns the log, because its owner is lost: %s", behind
            )
        end()

    port.in_flight = partial(count_in_flight, broker)

    def hand_over(log_id: bytes) -> None:
        adopted = port.adoptions.logs.get(log_id) if port.adoptions is not None else None
        opened = own if log_id == cluster.own.log_id else adopted.log if adopted is not None else None
        if opened is not None:
            opened.store.is_handed_over = True

    port.leaving.on_begin, port.leaving.on_end, port.leaving.on_hand_over = begin, ended, hand_over
    port.leaving.adopting = partial(_unannounced, port)


def _tell_why_not(leaving: Leaving) -> None:
    for log_id in leaving.lacking:
        log.error(
            "CLUSTER: this node ends, and has not left: the node that owns the log %s now may lack messages that are here",
            log_id.hex(),
        )
    if leaving.owned:
        log.error("CLUSTER: this node ends as the owner of its log: no other node has taken it over in time")


def _unannounced(port: ClusterPort) -> list[bytes]:
    """Return the logs that this node is taking over, of which it has told nobody yet."""
    logs = port.adoptions.logs.values() if port.adoptions is not None else ()
    return [one.log_id for one in logs if one.number and not one.is_announced]


def connect_claims(port: ClusterPort, claims: Claims, adoptions: Adoptions) -> None:
    """Let logs that were claimed with success be adopted, and those be given up that others own."""

    def fenced(log_id: bytes, epoch: Epoch) -> None:
        if log_id == port.cluster.own.log_id:
            if not port.cluster.is_leaving:  # otherwise it was handed over, and no other log is begun
                port.on_fenced(log_id, epoch)
        elif epoch.node == port.cluster.own.number:
            adoptions.begin_again(log_id, epoch.number + 1)
        else:
            adoptions.lose(log_id)
            port.cluster.drop_log(log_id)

    def won(log_id: bytes, number: int) -> None:
        adoptions.adopt(log_id, number, claims.attempt is not None and claims.attempt.stage is Stage.CLEAN)

    port.leaving.unclaimed = claims.unclaimed
    claims.on_won = won
    claims.on_called_off = adoptions.call_off
    claims.on_fenced = fenced
    adoptions.parts.failed = claims.given_up
