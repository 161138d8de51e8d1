"""Join the cluster at the start of the node: who it is in this run, and what it knows of the others."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

from nsqd.cluster.cluster import Cluster
from nsqd.core.message.id_ranges import MOST_RANGES, IdRange
from nsqd.protocols.peer.handshake import Credentials
from nsqd.protocols.peer.node_identity import NodeIdentity
from nsqd.replication.copying import Copying
from nsqd.replication.directory import MirrorDirectory
from nsqd.replication.facts import next_incarnation, read_facts, write_facts
from nsqd.replication.follower import Work
from nsqd.replication.mirrors import Mirrors
from nsqd.replication.origin import Origin
from nsqd.replication.port import ClusterPort
from nsqd.storage.directory import DirectoryError
from nsqd.storage.log.copying import LogSource
from nsqd.storage.log.identity import LogIdentity
from nsqd.storage.log.opening import OpenLog
from nsqd.storage.log.records import VERSION
from shared.log import log

_FULL = (errno.ENOSPC, errno.EDQUOT)  # a node starts on a full disk, too


def join(
    directory: Path,
    identity: LogIdentity,
    ids: tuple[IdRange, ...],
    name: str,
    secret: bytes,
    addresses: tuple[str, str],
    peers: Iterable[str],
    suspect_after: int,
    zone: str = "",
) -> Cluster:
    """Begin a new run of the node, durably, and return its view of the cluster `name`. Raises DirectoryError.

    `ids`: the message ids that the log holds or may issue; `addresses`: where other nodes, and clients of HTTP, reach this one;
    `peers`: cluster addresses of other nodes; `suspect_after` is in ns; `zone`: where the node is, "": not known.
    """
    if len(ids) > MOST_RANGES:
        raise DirectoryError(
            f"the log has messages with ids of more than {MOST_RANGES} node numbers: drain the node first"
        )
    facts = read_facts(directory)
    wall = time.time_ns()
    incarnation = next_incarnation(facts, wall)
    epoch = identity.epoch.pack()
    own = NodeIdentity(identity.node, incarnation, identity.log_id, epoch, VERSION, *addresses, zone, ids)
    try:
        write_facts(directory, replace(facts, incarnation=incarnation))
    except OSError as error:
        # With an incarnation that is the time, a later run is above it, too, without the file.
        if error.errno not in _FULL or incarnation > wall // 1_000_000_000:
            raise DirectoryError(f"failed to write what is known of the cluster - {error}") from None
        log.error("CLUSTER: cannot write what is known of the nodes: %s; trying again", error)
    credentials = Credentials(name, secret, own)
    return Cluster(credentials, peers, suspect_after, os.urandom, facts.members, facts.leases, time.monotonic_ns())


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
