"""Set up the protocols' front ends: the limits of connections, and the peers that each listener makes.

Not every node has authorization servers or clients of beanstalkd, so modules that only they need are imported for them alone.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import trio

from nsqd.net.admission import Admission
from nsqd.net.reactor import Reactor
from nsqd.options import NsqdOptions
from nsqd.protocols.conversation import Conversation
from nsqd.protocols.nsq.context import Context
from nsqd.protocols.nsq.peer import Peer
from nsqd.start.listeners import Listeners
from nsqd.start.opening import Opened, load_metadata, open_directory
from nsqd.storage.directory import DataDirectory, DirectoryError
from shared.budget import Budget
from shared.connection_limiter import ConnectionLimits
from shared.log import log
from shared.values import SECOND

if TYPE_CHECKING:
    import ssl
    from pathlib import Path

    from nsqd.auth.servers import AuthServers
    from nsqd.cluster.replication.rejoin import Failover, Rejoin
    from nsqd.start.beanstalk import FrontEnd
    from nsqd.start.disque import FrontEnd as DisqueFrontEnd
    from nsqd.start.shared_port import SharedPort
    from nsqd.storage.log.epochs import Epoch
    from shared.process.listen import Listener


def make_admission(options: NsqdOptions, listeners: Listeners, refused: Counter[str], budget: Budget) -> Admission:
    """Return the limits, TLS and budget that connections meet before they reach the broker."""
    admission = Admission(
        ConnectionLimits(options.max_connections, options.max_connections_per_ip), refused=refused, budget=budget
    )
    if listeners.certificates:
        admission.wrap = listeners.certificates.wrap
    return admission


def make_auth_servers(options: NsqdOptions, tls: ssl.SSLContext | None) -> AuthServers | None:
    """Return the authorization servers; None if there are none, in which case `tls` is None, too."""
    if tls is None:
        return None
    from nsqd.auth.servers import AuthServers

    return AuthServers(
        options.auth_http_address,
        options.auth_http_request_method,
        options.http_client_connect_timeout / 1e9,
        options.http_client_request_timeout / 1e9,
        tls,
        random.Random().randrange,
    )


def listen_to_nsq(
    reactor: Reactor, listeners: Listeners, context: Context, auth_servers: AuthServers | None, nursery: trio.Nursery
) -> None:
    """Accept clients of NSQ, and have `auth_servers` asked about them if there are any."""
    if auth_servers:
        from nsqd.auth.queries import asking

        context.ask = asking(auth_servers, nursery)
    for listener in listeners.tcp:
        reactor.listen(listener.socket, partial(Peer, context), proof_timeout=context.settings.identify_timeout)
        log.info("TCP: listening on %s", listener.address)


def open_shared_port(
    options: NsqdOptions, reactor: Reactor, listeners: Listeners, context: Context
) -> SharedPort | None:
    """Accept producers at the port that several nodes share, or return None if there is none."""
    if listeners.tcp_shared is None:
        return None
    from nsqd.start.shared_port import SharedPort

    producers = replace(context, settings=replace(context.settings, publish_only=True))
    port = SharedPort(options.tcp_shared_address, listeners.tcp_shared, reactor, partial(Peer, producers))
    port.open()
    return port


def open_in_cluster(
    options: NsqdOptions,
    directory: DataDirectory,
    listeners: Listeners,
    leaders: Mapping[bytes, Epoch] | None = None,
    is_last_try: bool = False,
) -> Opened:
    """Read the log and build the broker. In a cluster, fetch the end of the log from other nodes that have more of it.

    If another node has promoted the log, another one is begun. `leaders`: known epochs of logs, in addition to those in
    cluster.json, by log id; `is_last_try` as in Rejoin. Raises DirectoryError, LeaderSilentError.
    """
    _resume_succession(directory.path)
    if not options.cluster_address:
        _warn_unserved(directory.path)
        return open_directory(options, directory)
    from nsqd.cluster.early import EarlyPort
    from nsqd.cluster.membership.cluster_json import read_facts
    from nsqd.cluster.replication.asking import NodeReplicas
    from nsqd.cluster.replication.directory import PromotedDirectory
    from nsqd.cluster.replication.rejoin import Rejoin
    from nsqd.cluster.wire.node_identity import Standing
    from nsqd.start.identity import as_visitor

    assert listeners.cluster is not None
    PromotedDirectory(directory.path).put_back_unfinished()
    facts = read_facts(directory.path)
    members = [member.node for member in facts.members if member.standing is Standing.MEMBER]
    addresses = {node.number: node.address for node in members if node.number != options.node_id}
    lease = dict(facts.leases).get(options.node_id, 0)
    visits = as_visitor(options, listeners)
    others = NodeReplicas(visits, addresses, options.rejoin_timeout / SECOND)
    known = {**dict(facts.leaders), **(leaders or {})}
    rejoin = Rejoin(others, options.node_id, lease, time.time_ns, known, is_last_try)

    begin = partial(_begin, options, directory, rejoin, lease)
    if not addresses:
        return begin()
    try:
        with EarlyPort(listeners.cluster.socket, visits, directory.path):
            return begin()
    except OSError as error:
        raise DirectoryError(f"failed to read the replicas - {error}") from None


def _begin(options: NsqdOptions, directory: DataDirectory, rejoin: Rejoin, lease: int) -> Opened:
    """Read the log as far as other nodes have it, or begin another one if one of them has promoted it."""
    from nsqd.cluster.replication.rejoin import FailedOverError

    opening = partial(
        open_directory,
        options,
        directory,
        extend=rejoin,
        least_id=lambda: rejoin.least_id,
        least_epoch=lambda: rejoin.least_epoch,
    )
    try:
        return opening()
    except FailedOverError as error:
        twice = _succeed(directory, error.failover, lease)
        opened = opening()
        opened.possible_duplicates.update(twice)
        return opened


def _warn_unserved(path: Path) -> None:
    """Log which promoted logs of an earlier run are not served, because the node is in no cluster."""
    if (path / "promoted").is_dir():
        from nsqd.cluster.replication.directory import PromotedDirectory

        found = PromotedDirectory(path).found()
        if found:
            log.warning(
                "CLUSTER: %d logs of other nodes, in %s, are not served: this node has promoted them, and has no"
                " -cluster-address now. Start it with the cluster's options again to deliver their messages",
                len(found), path / "promoted",
            )  # fmt: skip


def _resume_succession(path: Path) -> None:
    """Finish what a crash has interrupted when another node had taken over the log. Raises DirectoryError."""
    if not (path / "log.partial").exists():  # it is rarely needed, and takes time to import
        return
    from nsqd.cluster.promotion.succession import resume_succession

    try:
        resume_succession(path)
    except OSError as error:
        raise DirectoryError(f"failed to put {path / 'log.partial'} in place - {error}") from None


def _succeed(directory: DataDirectory, failover: Failover, lease: int) -> Counter[str]:
    """Begin another log, because another node has promoted the one of the directory. Raises DirectoryError.

    Returns how many messages may be delivered twice because of that, by reason.
    """
    from nsqd.cluster.promotion.duplicates import of_return
    from nsqd.cluster.promotion.succession import succeed_failover
    from nsqd.core.message.ids import ClockError, first_of_new_log
    from nsqd.storage.log.segments import LogError

    try:
        least_id = first_of_new_log(time.time_ns(), 0)
        made = succeed_failover(directory.path, failover, least_id, max(lease, load_metadata(directory).ids))
    except (ClockError, LogError, OSError) as error:
        raise DirectoryError(
            f"node {failover.epoch.node} has promoted the log in {directory.path}, and another one cannot be made - {error}"
        ) from None
    return of_return(made, bool(failover.address))


def listen_to_beanstalk(reactor: Reactor, listeners: Listeners, front_end: FrontEnd, proof_timeout: int) -> None:
    """Accept clients of beanstalkd on the ports that are open for them. `proof_timeout`: see Endpoint."""
    ports = listeners.beanstalk, listeners.beanstalk_tls
    _listen_to_jobs(reactor, *ports, front_end, "BEANSTALK", proof_timeout)


def listen_to_disque(reactor: Reactor, listeners: Listeners, front_end: DisqueFrontEnd, proof_timeout: int) -> None:
    """Accept clients of Disque on the ports that are open for them. `proof_timeout`: see Endpoint."""
    _listen_to_jobs(reactor, listeners.disque, listeners.disque_tls, front_end, "DISQUE", proof_timeout)


def _listen_to_jobs(
    reactor: Reactor,
    plain: Listener | None,
    tls: Listener | None,
    front_end: FrontEnd | DisqueFrontEnd,
    name: str,
    proof_timeout: int,
) -> None:
    ports = (plain, front_end.make_peer, name), (tls, front_end.make_tls_peer, f"{name} TLS")
    for listener, make_peer, words in ports:
        if listener is not None:
            reactor.listen(listener.socket, make_peer, proof_timeout=proof_timeout)
            log.info("%s: listening on %s", words, listener.address)


def all_peers(reactor: Reactor) -> list[Conversation]:
    """Return the peers of all connections, whatever protocol they speak."""
    return [connection.peer for connection in reactor.connections.values()]


def nsq_peers(reactor: Reactor) -> list[Peer]:
    """Return the peers that speak the NSQ protocol."""
    return [peer for peer in all_peers(reactor) if isinstance(peer, Peer)]
