"""nsqd: reads its options, builds the node, runs until a signal. The only wiring.

One trio thread owns all state; the HTTP thread reaches it through the bridge. Exit codes: 0 after SIGINT or SIGTERM,
1 when the node cannot start or a bug shows, 2 for wrong options.
"""

from __future__ import annotations

import contextlib
import gc
import os
import random
import socket
import sys
import time
from collections.abc import Callable

import trio

from nsqd.core.broker import Broker
from nsqd.core.ids import IdSource
from nsqd.core.topology import restore
from nsqd.discovery.lookupds import Lookupds
from nsqd.http.node import Info, Node
from nsqd.http.routes import routes
from nsqd.net.reactor import Reactor
from nsqd.options import NsqdOptions
from nsqd.storage.directory import Directory, DirectoryError
from nsqd.storage.memory import MemoryStore
from nsqd.storage.saver import Health, Saver
from shared.daemon import (
    SIGNALS,
    Exit,
    TrioThread,
    broadcast_address,
    listening,
    listening_if_given,
    raise_file_limit,
    read_options,
    until_told_to_stop,
)
from shared.http.api import Api, Hosts
from shared.http.bridge import Bridge
from shared.http.server import HttpServer
from shared.listen import Listener, ListenError
from shared.log import configure, log
from shared.version import NSQ_VERSION, version_line

PROGRAM = "nsqd"
SWITCH_INTERVAL = 0.0005  # s: the HTTP thread gives the interpreter back sooner than after Python's 5 ms
# Allocations between collections, young and middle; the oldest generation is never collected by itself. A million waiting
# messages make that a pause of half a second, and what could only be freed by it is taken apart by hand when it ends.
GC_THRESHOLDS = (2_000, 5, 1_000_000)


def main() -> int:
    """The process's exit code."""
    try:
        options = read_options(NsqdOptions, PROGRAM, sys.argv[1:], os.environ)
    except Exit as exit:
        return exit.code
    if options.version:
        print(version_line(PROGRAM))
        return 0
    configure(options.log_prefix, options.log_level)
    log.info(version_line(PROGRAM))
    log.info("ID: %d", options.node_number())
    raise_file_limit()
    try:
        with (
            contextlib.closing(Directory(options.data_path)) as directory,
            listening(options.tcp_address) as tcp,
            listening_if_given(options.http_address) as http,
        ):
            trio.run(_run, options, directory, tcp, http)
    except (ListenError, DirectoryError) as error:
        log.critical("%s", error)
        return 1
    return 0


async def _run(options: NsqdOptions, directory: Directory, tcp: Listener, http: Listener | None) -> None:
    """Serve until SIGINT or SIGTERM. Any exception out of here is a bug, or a machine that has ceased to work."""
    sys.setswitchinterval(SWITCH_INTERVAL)
    gc.freeze()  # what was imported is never garbage
    gc.set_threshold(*GC_THRESHOLDS)
    health = Health()
    broker = _make_broker(options, directory, health)
    info = _info(options, tcp, http)
    with trio.open_signal_receiver(*SIGNALS) as signals:
        async with trio.open_nursery() as nursery:
            trio_thread = TrioThread()
            nursery.start_soon(trio_thread.raise_bugs)
            bridge = Bridge(lambda: reactor.wake())
            saver = Saver(broker, directory, health, nursery)
            health.on_trouble = saver.topology_changed  # it writes until it has worked

            def serve_http() -> Callable[[], None]:
                served = bridge.serve()
                return lambda: bridge.deliver(served)

            def after_turn() -> None:
                changes = broker.fetch_changes()
                if changes:
                    lookupds.tell(changes)
                    if any(change.lasting for change in changes):
                        saver.topology_changed()

            reactor = Reactor(broker, options.settings(), _clock, serve_http, after_turn)
            timeouts = (options.http_client_connect_timeout / 1e9, options.http_client_request_timeout / 1e9)
            lookupds = Lookupds(broker, _identity(options, info), timeouts, reactor.wake, nursery)
            node = Node(
                options=options,
                info=info,
                bridge=bridge,
                broker=broker,
                peers=lambda: [connection.peer for connection in reactor.connections.values()],
                set_lookupds=lookupds.set_addresses,
                lookupds=lookupds.addresses,
                turns=lambda: reactor.turns,
                take_topology=saver.take,
                save_topology=saver.save,
                health=lambda: health.text,
            )
            reactor.listen(tcp.socket)
            log.info("TCP: listening on %s", tcp.address)
            nursery.start_soon(reactor.run)
            lookupds.set_addresses(options.lookupd_tcp_address)
            http_server = _start_http(options, node, http, trio_thread) if http else None
            await until_told_to_stop(signals)
            if http_server:
                await trio.to_thread.run_sync(http_server.stop)  # in a thread: requests under way need this one
            nursery.cancel_scope.cancel()
        reactor.close_all()
        saver.save(saver.take())
        _warn_of_loss(broker)
    log.info("NSQ: bye")


def _make_broker(options: NsqdOptions, directory: Directory, health: Health) -> Broker:
    """The core, with what the directory remembers. Raises DirectoryError."""
    metadata = directory.load()
    store = MemoryStore(lambda ceiling: health.tried(directory.write_ids, ceiling) or health.troubled())
    ids = IdSource(options.node_number(), metadata.ids, store.lease)
    if health.failure:
        raise DirectoryError(f"failed to persist metadata - {health.failure}")
    broker = Broker(options.limits(), store, ids, random.Random().randrange)
    restore(broker, metadata.topics)
    return broker


def _warn_of_loss(broker: Broker) -> None:
    """Until the commit log comes, a stop loses what was not finished. It shall at least be said."""
    topics = [topic for topic in broker.topics.values() if not topic.ephemeral]
    channels = [channel for topic in topics for channel in topic.channels.values() if not channel.ephemeral]
    left = sum(topic.depth for topic in topics)
    left += sum(channel.depth + channel.in_flight_count + channel.deferred_count for channel in channels)
    if left:
        log.warning("%d messages were not finished, and are lost: this version keeps messages in memory only", left)


def _start_http(options: NsqdOptions, node: Node, listener: Listener, trio_thread: TrioThread) -> HttpServer:
    hosts = Hosts([node.info.broadcast_address, *options.allowed_host])
    server = HttpServer(Api(routes(node), hosts, trio_thread.report), [listener.socket], trio_thread.report)
    server.start()
    log.info("HTTP: listening on %s", listener.address)
    return server


def _info(options: NsqdOptions, tcp: Listener, http: Listener | None) -> Info:
    hostname = socket.gethostname()
    return Info(
        version=NSQ_VERSION,
        broadcast_address=broadcast_address(options.broadcast_address, [tcp, http], hostname),
        hostname=hostname,
        http_port=options.broadcast_http_port or (http.port if http else 0),
        tcp_port=options.broadcast_tcp_port or tcp.port,
        start_time=int(time.time()),
    )


def _identity(options: NsqdOptions, info: Info) -> dict[str, object]:
    """What nsqlookupd is told of us."""
    return {
        "version": info.version,
        "tcp_port": info.tcp_port,
        "http_port": info.http_port,
        "hostname": info.hostname,
        "broadcast_address": info.broadcast_address,
    }


def _clock() -> tuple[int, int]:
    return time.monotonic_ns(), time.time_ns()
