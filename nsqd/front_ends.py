"""Set up the protocols' front ends: the limits of connections, and the peers that each listener makes.

Not every node has authorization servers or clients of beanstalkd, so modules that only they need are imported for them alone.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import trio

from nsqd.core.broker import Broker
from nsqd.core.stripes import Attachment, Deletions
from nsqd.http.node import Info
from nsqd.identity import cluster_address
from nsqd.listeners import Listeners
from nsqd.net.admission import Admission
from nsqd.net.reactor import Reactor
from nsqd.opening import Opened, clocks, make_adopted_broker, open_adopted, open_directory
from nsqd.options import NsqdOptions
from nsqd.protocols.conversation import Conversation
from nsqd.protocols.nsq.context import Context
from nsqd.protocols.nsq.peer import Peer
from nsqd.storage.directory import DataDirectory, DirectoryError
from shared.budget import Budget
from shared.connection_limiter import ConnectionLimits
from shared.listen import display
from shared.log import log
from shared.values import SECOND

AT_ONCE = 5  # channels of an adopted log that are attached between two looks at the clock
SLICE = 2_000_000  # ns of a turn for which channels are attached or detached: each consumer of a channel takes 5 us
MEND_WITHIN = 2.0  # s for other nodes to say whether they have bytes that are damaged here

if TYPE_CHECKING:
    import ssl
    from pathlib import Path

    from nsqd.auth.servers import AuthServers
    from nsqd.beanstalk import FrontEnd
    from nsqd.protocols.peer.configs import VersionedConfig
    from nsqd.replication.adoption import Adoptions
    from nsqd.replication.follower import Work
    from nsqd.replication.mending import Mending
    from nsqd.replication.port import ClusterPort
    from nsqd.replication.rejoin import Taken
    from nsqd.shared_port import SharedPort
    from nsqd.storage.log.epochs import Epoch
    from nsqd.storage.log.followers import Followers
    from nsqd.storage.log.opening import OpenLog


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
    reactor.listen(listeners.tcp.socket, partial(Peer, context))
    log.info("TCP: listening on %s", listeners.tcp.address)


def open_shared_port(
    options: NsqdOptions, reactor: Reactor, listeners: Listeners, context: Context
) -> SharedPort | None:
    """Accept producers at the port that several nodes share, or return None if there is none."""
    if listeners.tcp_shared is None:
        return None
    from nsqd.shared_port import SharedPort

    producers = replace(context, settings=replace(context.settings, publish_only=True))
    port = SharedPort(options.tcp_shared_address, listeners.tcp_shared, reactor, partial(Peer, producers))
    port.open()
    return port


def open_in_cluster(
    options: NsqdOptions,
    directory: DataDirectory,
    listeners: Listeners,
    owners: Mapping[bytes, Epoch] | None = None,
    is_last_try: bool = False,
) -> Opened:
    """Read the log and build the broker. In a cluster, fetch the end of the log from other nodes that have more of it.

    If another node has adopted the log, another one is begun. `owners`: epochs of logs that are known, beside those in
    cluster.json, by log id; `is_last_try` as in Rejoin. Raises DirectoryError, OwnerSilentError.
    """
    _resume_succession(directory.path)
    if not options.cluster_address:
        _warn_unserved(directory.path)
        return open_directory(options, directory)
    from nsqd.cluster.membership import Standing
    from nsqd.replication.directory import AdoptedDirectory
    from nsqd.replication.early import EarlyMirrors
    from nsqd.replication.facts import read_facts
    from nsqd.replication.offers import HttpMirrors
    from nsqd.replication.rejoin import Rejoin, TakenOver

    AdoptedDirectory(directory.path).put_back_unfinished()
    facts = read_facts(directory.path)
    members = [member.node for member in facts.members if member.standing is Standing.MEMBER]
    addresses = {node.number: node.http for node in members if node.number != options.node_id}
    lease = dict(facts.leases).get(options.node_id, 0)
    others = HttpMirrors(addresses, options.rejoin_timeout / SECOND)
    known = {**dict(facts.owners), **(owners or {})}
    rejoin = Rejoin(others, options.node_id, lease, time.time_ns, known, is_last_try)

    def begin() -> Opened:
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
        except TakenOver as error:
            twice = _succeed(directory, error.taken, lease)
            opened = opening()
            opened.possible_duplicates.update(twice)
            return opened

    if listeners.http is None or not addresses:
        return begin()
    try:
        with EarlyMirrors(listeners.http.socket, directory.path):
            return begin()
    except OSError as error:
        raise DirectoryError(f"failed to read the mirrors - {error}") from None


def _warn_unserved(path: Path) -> None:
    """Say what a node that is in no cluster does not serve, if an earlier run has taken over logs."""
    if (path / "adopted").is_dir():
        from nsqd.replication.directory import AdoptedDirectory

        found = AdoptedDirectory(path).found()
        if found:
            log.warning(
                "CLUSTER: %d logs of other nodes, in %s, are not served: this node has taken them over, and has no"
                " -cluster-address now. Start it with the cluster's options again to deliver their messages",
                len(found), path / "adopted",
            )  # fmt: skip


def _resume_succession(path: Path) -> None:
    """Finish what a crash has interrupted when another node had taken over the log. Raises DirectoryError."""
    if not (path / "log.partial").exists():  # it is rarely needed, and takes time to import
        return
    from nsqd.replication.succession import resume_succession

    try:
        resume_succession(path)
    except OSError as error:
        raise DirectoryError(f"failed to put {path / 'log.partial'} in place - {error}") from None


def _succeed(directory: DataDirectory, taken: Taken, lease: int) -> Counter[str]:
    """Begin another log, because another node has taken over the one of the directory. Raises DirectoryError.

    Returns how many messages may come twice because of that, by reason.
    """
    from nsqd.core.message.ids import ClockError, first_of_new_log
    from nsqd.replication.duplicates import of_return
    from nsqd.replication.succession import succeed_taken
    from nsqd.storage.log.segments import LogError

    try:
        least_id = first_of_new_log(time.time_ns(), 0)
        made = succeed_taken(directory.path, taken, least_id, max(lease, directory.load().ids))
    except (ClockError, LogError, OSError) as error:
        raise DirectoryError(
            f"node {taken.epoch.node} has adopted the log in {directory.path}, and another one cannot be made - {error}"
        ) from None
    return of_return(made, bool(taken.address))


def open_cluster_port(
    options: NsqdOptions,
    listeners: Listeners,
    info: Info,
    directory: Path,
    opened: Opened,
    reactor: Reactor,
    nursery: trio.Nursery,
) -> ClusterPort | None:
    """Join the cluster and accept connections of its nodes, or return None if the node is in none. Raises DirectoryError."""
    if listeners.cluster is None:
        return None
    from nsqd.cluster.claims import Quorum
    from nsqd.protocols.peer.node_identity import MOST_ZONE
    from nsqd.replication.copying import Threads
    from nsqd.replication.joining import begin_claims, begin_closing, begin_times, connect_claims, join, make_copying
    from nsqd.replication.port import ClusterPort

    own = cluster_address(listeners, info)
    http = display(info.broadcast_address, info.http_port) if info.http_port > 0 else ""
    log_identity, name = opened.log.identity, options.cluster_name
    try:
        ids = opened.log.held_ids(opened.broker.ids.next)
    except OSError as error:
        raise DirectoryError(f"failed to read message ids in the log - {error}") from None
    cluster = join(
        directory,
        log_identity,
        ids,
        name,
        listeners.secret,
        (own, http),
        options.cluster_peer,
        options.takeover_after,
        options.topology_zone.encode()[:MOST_ZONE].decode(errors="ignore"),
    )
    lease, refused = (lambda: opened.log.store.leased), opened.broker.refused
    port = ClusterPort(cluster, reactor, directory, lease, refused, listeners.cluster_tls)
    if options.debug_routes:
        port.allow_cuts()
    port.copying = make_copying(
        options.mirrors,
        options.rereplicate_after,
        options.replication_rate,
        cluster,
        opened.log,
        directory,
        Threads(nursery, port.wake),
    )
    cluster.on_stream = port.copying.receive
    quorum = Quorum(options.takeover_quorum)
    claims = begin_claims(port, port.copying, opened.log, quorum, options.takeover_after, options.unclean_after)
    times = begin_times(port, opened.log, Threads(nursery, port.wake))
    port.adoptions = make_adoptions(options, port, directory, opened, Threads(nursery, port.wake))
    port.adoptions.parts.noted = times.noted
    port.adoptions.takeovers.possible_duplicates.update(opened.possible_duplicates)
    connect_claims(port, claims, port.adoptions)
    begin_closing(port, port.adoptions, opened.log, directory, Threads(nursery, port.wake))
    store = opened.log.store
    store.after_write = port.copied_group
    store.copies.patience, store.copies.on_available = options.replicate_timeout, opened.broker.set_copies
    port.listen(listeners.cluster.socket)
    opened.log.writer.files.mend = make_mending(port, opened.log)
    log.info("CLUSTER: listening on %s as node %d of %s", listeners.cluster.address, log_identity.node, name)
    return port


def make_mending(port: ClusterPort, log: OpenLog) -> Mending:
    """Return what replaces damaged bytes of a log by those of mirrors that other nodes keep."""
    from nsqd.replication.mending import Mending
    from nsqd.replication.offers import HttpMirrors

    others = partial(HttpMirrors, timeout=MEND_WITHIN)
    return Mending(log.disk, log.identity.log_id, lambda: others(port.http_addresses()), time.monotonic_ns)


def make_adoptions(options: NsqdOptions, port: ClusterPort, directory: Path, opened: Opened, work: Work) -> Adoptions:
    """Return the logs that this node has taken over, which are opened again in the background. Raises DirectoryError."""
    from nsqd.cluster.topic_configs import use
    from nsqd.replication.adoption import Adoptions, Parts
    from nsqd.replication.directory import AdoptedDirectory
    from nsqd.replication.joining import copy_adopted, end_copying
    from nsqd.replication.offers import HttpMirrors
    from nsqd.replication.rejoin import is_owned_by_another

    copying = port.copying
    assert copying is not None
    numbers = options.mirrors, options.rereplicate_after, options.replication_rate
    home, attachments = opened.broker, dict[Broker, Attachment]()

    def configured(word: VersionedConfig) -> None:
        for broker in attachments:
            use(word, broker)

    port.cluster.on_config = configured

    def attach(broker: Broker, deletions: Deletions | None) -> Callable[[], bool]:
        attachments[broker] = Attachment(home, broker, deletions)
        port.cluster.configs.use_in(broker)
        return partial(for_a_slice, attachments[broker].attach_some)

    def detach(broker: Broker) -> Callable[[], bool]:
        return partial(for_a_slice, attachments.pop(broker).detach_some)

    def is_lost(log_id: bytes, epochs: Sequence[Epoch], followers: Followers) -> bool:
        members = port.cluster.membership.members
        addresses = {node.number: node.http for node in members if node.number != options.node_id}
        others = HttpMirrors(addresses, options.rejoin_timeout / SECOND)
        known = port.cluster.ownership.owner(log_id)
        return is_owned_by_another(others, log_id, epochs, options.node_id, followers, known)

    def copy(log: OpenLog) -> None:
        copy_adopted(*numbers, port, work, log)
        log.writer.files.mend = make_mending(port, log)

    parts = Parts(
        open=partial(open_adopted, options, opened.wake),
        make_broker=partial(make_adopted_broker, home),
        copy=copy,
        end_copying=partial(end_copying, port),
        clocks=clocks,
        cache=opened.log.cache,
        budget=options.mem_budget,
        node=options.node_id,
        announce=port.cluster.announce_owner,
        resume=port.cluster.resume_owner,
        give_up=port.cluster.give_up_log,
        attach=attach,
        detach=detach,
        watch=partial(Deletions, home),
        is_lost=is_lost,
        is_closed=port.cluster.ownership.closed.__contains__,
    )
    adoptions = Adoptions(AdoptedDirectory(directory), copying.mirrors, work, parts)
    try:
        adoptions.reopen()
    except OSError as error:
        raise DirectoryError(f"failed to find the adopted logs - {error}") from None
    return adoptions


def for_a_slice(some: Callable[[int], bool], clock: Callable[[], int] = time.monotonic_ns) -> bool:
    """Call `some` with AT_ONCE until it returns False, but for no longer than a SLICE. Returns True if there is more to do."""
    until = clock() + SLICE
    while some(AT_ONCE):
        if clock() >= until:
            return True
    return False


def listen_to_beanstalk(reactor: Reactor, listeners: Listeners, front_end: FrontEnd) -> None:
    """Accept clients of beanstalkd on the ports that are open for them."""
    for listener, make_peer, name in (
        (listeners.beanstalk, front_end.make_peer, "BEANSTALK"),
        (listeners.beanstalk_tls, front_end.make_tls_peer, "BEANSTALK TLS"),
    ):
        if listener is not None:
            reactor.listen(listener.socket, make_peer)
            log.info("%s: listening on %s", name, listener.address)


def all_peers(reactor: Reactor) -> list[Conversation]:
    """Return the peers of all connections, whatever protocol they speak."""
    return [connection.peer for connection in reactor.connections.values()]


def nsq_peers(reactor: Reactor) -> list[Peer]:
    """Return the peers that speak the NSQ protocol."""
    return [peer for peer in all_peers(reactor) if isinstance(peer, Peer)]
