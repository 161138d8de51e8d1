"""Join the cluster at the start of the node: its identity in this run, and what it knows of the others."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from nsqd.cluster.membership.cluster import Cluster
from nsqd.cluster.membership.cluster_json import next_incarnation, read_facts, write_facts
from nsqd.cluster.replication.copying import Copying
from nsqd.cluster.replication.directory import ReplicaDirectory
from nsqd.cluster.replication.follower import Work
from nsqd.cluster.replication.replicas import Replicas
from nsqd.cluster.wire.handshake import Credentials
from nsqd.cluster.wire.node_identity import NodeIdentity
from nsqd.cluster.wire.part import Part
from nsqd.core.broker import Broker
from nsqd.core.message.id_ranges import MOST_RANGES, IdRange
from nsqd.storage.directory import DirectoryError
from nsqd.storage.log.copies import Copies
from nsqd.storage.log.identity import LogIdentity
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
            raise DirectoryError(f"failed to write cluster.json - {error}") from None
        log.error("CLUSTER: cannot write cluster.json: %s; trying again", error)
    credentials = Credentials(name, secret, own)
    return Cluster(
        credentials, peers, suspect_after, os.urandom, facts, time.monotonic_ns(), lambda: time.time_ns() // 1_000_000
    )


class CopyGate(Part):
    """Sets how many copies of a message are possible: none, not even here, until the topics' configurations are known."""

    def __init__(self, cluster: Cluster, broker: Broker, copies: Copies) -> None:
        self._configs, self._broker, self._copies = cluster.configs, broker, copies
        copies.on_available = self._count
        if not self._configs.is_complete:
            log.info("CLUSTER: this node takes no messages until it has the configurations of topics from another one")
        broker.directory.on_created.append(self._configs.use_for)
        self._configs.attached(broker)
        self._count()

    def _count(self, _: object = None) -> None:
        self._broker.set_copies(self._copies.available if self._configs.is_complete else 0)

    def configured(self) -> None:
        log.info("CLUSTER: the configurations of topics are known: this node takes messages")
        self._count()


def make_copying(cluster: Cluster, directory: Path, work: Work) -> Copying:
    """Return the copying of logs, with the replicas in the data directory. Raises DirectoryError."""
    try:
        kept = Replicas(ReplicaDirectory(directory), work, time.monotonic_ns, cluster.may_write_replica)
    except OSError as error:
        raise DirectoryError(f"failed to read the replicas - {error}") from None
    kept.open_all()
    return Copying(cluster.own.log_id, kept)
