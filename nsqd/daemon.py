"""nsqd: builds the node and runs it until a signal. The only wiring; `nsqd/main.py` comes before it.

One trio thread owns all state; the HTTP thread reaches it through the bridge. TCP clients are served first: what only HTTP,
authorization servers or statsd need is imported where it is used, and HTTP's part in a thread.
"""

from __future__ import annotations

import gc
import random
import socket
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

import trio

from nsqd.core.broker import Broker
from nsqd.core.observation.series import Series
from nsqd.core.registry import Change
from nsqd.discovery.lookupds import Lookupds
from nsqd.http.node import Info, Node
from nsqd.net.acceptor import ConnectionLimits
from nsqd.net.edge import Edge
from nsqd.net.promised import Served
from nsqd.net.reactor import Reactor
from nsqd.opening import Wake, clocks, imports, make_broker, read_log, sync_by_time
from nsqd.option_values import REQUIRED
from nsqd.options import PROGRAM, NsqdOptions
from nsqd.protocols.conversation import Conversation
from nsqd.protocols.nsq.context import Context
from nsqd.protocols.nsq.peer import Peer
from nsqd.resuming import end_pauses
from nsqd.storage.directory import Directory
from nsqd.storage.saver import Health, Saver
from nsqd.topology_log import tell_log
from nsqd.watching import note_series
from shared.budget import Budget
from shared.daemon import SIGNALS, broadcast_address, until_told_to_stop
from shared.http.bridge import Bridge
from shared.log import log
from shared.memory import Memory
from shared.startup import reload_log_level
from shared.tls import Certificates, TlsError
from shared.trio_thread import TrioThread
from shared.version import NSQ_VERSION

if TYPE_CHECKING:
    import ssl

    from nsqd.auth.servers import AuthServers
    from nsqd.beanstalk import FrontEnd
    from nsqd.doors import Doors
    from shared.http.server import HttpServer

CAPABILITIES = ["log"]  # as nsqlookupd passes them on: topics are read back by offset
SWITCH_INTERVAL = 0.0005  # s: the HTTP thread gives the interpreter back sooner than after Python's 5 ms
# Allocations between collections, young and middle; the oldest generation is never collected by itself. A million waiting
# messages make that a pause of half a second, and what could only be freed by it is taken apart by hand when it ends.
GC_THRESHOLDS = (2_000, 5, 1_000_000)


def serve(options: NsqdOptions, directory: Directory, doors: Doors) -> None:
    """Serve until SIGINT or SIGTERM. Raises DirectoryError, before anybody is served."""
    trio.run(_run, options, directory, doors)


def _meet_beanstalkds(doors: Doors, front_end: FrontEnd, reactor: Reactor) -> None:
    """Let beanstalkd's clients in."""
    for door, meet, name in (
        (doors.beanstalk, front_end.make_peer, "BEANSTALK"),
        (doors.beanstalk_tls, front_end.make_tls_peer, "BEANSTALK TLS"),
    ):
        if door is not None:
            reactor.listen(door.socket, meet)
            log.info("%s: listening on %s", name, door.address)


async def _run(options: NsqdOptions, directory: Directory, doors: Doors) -> None:
    """Serve until SIGINT or SIGTERM. Any exception out of here is a bug, or a machine that has ceased to work."""
    _tune_interpreter()
    health = Health()
    metadata = directory.load()
    wake = Wake()
    budget = Budget(options.buffer_budget)
    taking, binlogs = imports(directory)
    opened = read_log(options, directory, wake)
    broker = make_broker(options, metadata, opened, taking, binlogs)
    info = _info(options, doors)
    memory = Memory()
    auth_servers = _auth_servers(options, doors.auth_tls)
    with trio.open_signal_receiver(*SIGNALS) as signals:
        async with trio.open_nursery() as nursery:
            trio_thread = TrioThread()
            nursery.start_soon(trio_thread.raise_bugs)
            bridge = Bridge(lambda: reactor.wake())
            saver = Saver(broker, directory, health, nursery)
            if not metadata.is_ours:
                saver.topology_changed()  # so that the next start does not take it for somebody's change

            def serve_http() -> Served:
                calls = bridge.serve()
                return Served(lambda: bridge.deliver(calls), lambda: bridge.refuse(calls))

            def tell(changes: list[Change]) -> None:
                tell_log(changes)
                lookupds.tell(changes)
                if any(change.lasting for change in changes):
                    saver.topology_changed()

            edge = _edge(options, doors, broker)
            edge.budget = budget
            reactor = Reactor(broker, clocks, serve_http, tell, edge)
            wake.reactor = reactor
            timeouts = (options.http_client_connect_timeout / 1e9, options.http_client_request_timeout / 1e9)
            lookupds = Lookupds(broker, _identity(options, info), timeouts, reactor.wake, nursery)
            context = Context(broker, options.settings(), until_registered=lookupds.until_registered)
            if auth_servers:
                from nsqd.auth.asking import asking

                context.ask = asking(auth_servers, nursery)
            series = Series()
            nursery.start_soon(note_series, broker, series)
            nursery.start_soon(end_pauses, broker, reactor.wake)
            node = Node(
                options=options,
                info=info,
                bridge=bridge,
                broker=broker,
                peers=lambda: [peer for peer in _peers(reactor) if isinstance(peer, Peer)],
                set_lookupds=lookupds.set_addresses,
                lookupds=lookupds.addresses,
                until_registered=lambda topic, then: reactor.until_over(
                    partial(lookupds.until_registered, topic), then
                ),
                turns=lambda: reactor.turns,
                take_topology=saver.take,
                save_topology=saver.save,
                health=lambda: f"NOK - {broker.store.refusal}" if broker.store.refusal else health.text,
                memory=memory.figures,
                log=opened.figures,
                history=opened.history(),
                backup=opened.backup(),
                contents=opened.contents(),
                series=series,
                refused=lambda: broker.refused + http_server.refused,
                buffers=budget.figures,
            )
            reactor.listen(doors.tcp.socket, partial(Peer, context))
            log.info("TCP: listening on %s", doors.tcp.address)
            if doors.beanstalk or doors.beanstalk_tls:
                from nsqd.beanstalk import FrontEnd

                _meet_beanstalkds(
                    doors, FrontEnd(broker, options.max_job_size, lambda: _peers(reactor), opened.files), reactor
                )
            nursery.start_soon(reactor.run)
            nursery.start_soon(sync_by_time, options, opened, reactor.wake)
            lookupds.set_addresses(options.lookupd_tcp_address)
            if options.statsd_address:
                from nsqd.statsd.pusher import Pusher

                pusher = Pusher(options, info.broadcast_address, info.http_port, broker, memory.figures)
                nursery.start_soon(pusher.run)
            if options.statistics_topic:
                from nsqd.deliveries import Deliveries

                deliveries = Deliveries(broker, options.statistics_topic, options.node_number(), reactor.wake)
                nursery.start_soon(deliveries.run)
            http_server = await trio.to_thread.run_sync(_http_server, options, node, doors, trio_thread, budget)
            await _start_http(http_server, doors)
            await until_told_to_stop(signals, partial(_reload, options, doors.certificates))
            await trio.to_thread.run_sync(http_server.stop)  # in a thread: requests under way need this one
            nursery.cancel_scope.cancel()
        if auth_servers:
            await auth_servers.close()
        reactor.close_all()
        saver.save(saver.take())
        broker.commit()
        opened.close()
    log.info("NSQ: bye")


def _peers(reactor: Reactor) -> list[Conversation]:
    return [connection.peer for connection in reactor.connections.values()]


def _tune_interpreter() -> None:
    sys.setswitchinterval(SWITCH_INTERVAL)
    gc.freeze()  # what was imported is never garbage
    gc.set_threshold(*GC_THRESHOLDS)


def _reload(options: NsqdOptions, certificates: Certificates | None) -> None:
    """SIGHUP: the log level, and the files of TLS for connections to come."""
    if reload_log_level(options, PROGRAM) is None or certificates is None:
        return
    try:
        certificates.reload()
    except TlsError as error:
        log.error("SIGHUP: the certificates stay as they are: %s", error)
    else:
        log.info("SIGHUP: certificates are loaded again")


def _edge(options: NsqdOptions, doors: Doors, broker: Broker) -> Edge:
    """What stands between the network and the broker."""
    edge = Edge(ConnectionLimits(options.max_connections, options.max_connections_per_ip), refused=broker.refused)
    if doors.certificates:
        edge.wrap = doors.certificates.wrap
    return edge


def _auth_servers(options: NsqdOptions, tls: ssl.SSLContext | None) -> AuthServers | None:
    """None if nobody is asked: `tls` is None then, too."""
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


def _http_server(options: NsqdOptions, node: Node, doors: Doors, trio_thread: TrioThread, budget: Budget) -> HttpServer:
    """Where TLS is required, plain HTTP answers only that. In a thread: most of what a daemon imports is imported here."""
    from nsqd.http.routes import routes
    from shared.http.api import Api, Hosts, TlsRequired
    from shared.http.server import Https, HttpServer

    hosts = Hosts([node.info.broadcast_address, *options.allowed_host])
    api = Api(routes(node), hosts, trio_thread.report)
    https = None
    if doors.https and doors.certificates:
        https = Https(api, [doors.https.socket], doors.certificates)
    plain = TlsRequired(doors.https.port if doors.https else 0) if options.tls_required == REQUIRED else api
    return HttpServer(
        plain,
        [doors.http.socket] if doors.http else [],
        trio_thread.report,
        https=https,
        max_connections=options.max_connections,
        max_per_ip=options.max_connections_per_ip,
        budget=budget,
    )


async def _start_http(server: HttpServer, doors: Doors) -> None:
    await trio.to_thread.run_sync(server.start)
    if doors.http:
        log.info("HTTP: listening on %s", doors.http.address)
    if doors.https:
        log.info("HTTPS: listening on %s", doors.https.address)


def _info(options: NsqdOptions, doors: Doors) -> Info:
    hostname = socket.gethostname()
    return Info(
        version=NSQ_VERSION,
        broadcast_address=broadcast_address(options.broadcast_address, [doors.tcp, doors.http, doors.https], hostname),
        hostname=hostname,
        http_port=options.broadcast_http_port or (doors.http.port if doors.http else 0),
        tcp_port=options.broadcast_tcp_port or doors.tcp.port,
        start_time=int(time.time()),
    )


def _identity(options: NsqdOptions, info: Info) -> dict[str, object]:
    """What nsqlookupd is told of us."""
    identity: dict[str, object] = {
        "version": info.version,
        "tcp_port": info.tcp_port,
        "http_port": info.http_port,
        "hostname": info.hostname,
        "broadcast_address": info.broadcast_address,
        "node_id": options.node_number(),  # this and the next: the original ignores them
        "capabilities": CAPABILITIES,
    }
    if options.topology_region or options.topology_zone:  # the release of 1.3.0 does not know them
        identity |= {"topology_region": options.topology_region, "topology_zone": options.topology_zone}
    return identity
