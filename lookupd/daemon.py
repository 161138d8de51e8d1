"""nsqlookupd: reads its options, builds the registry and the servers around it, runs until a signal. The only wiring.

One trio thread owns all state; the HTTP thread reaches it through the bridge. Exit codes: 0 after SIGINT or SIGTERM,
1 when an address cannot be bound or a bug shows, 2 for wrong options.
"""

from __future__ import annotations

import math
import socket
import time
from functools import partial

import trio

from lookupd.http import Handlers
from lookupd.net import TcpServer, Timeouts
from lookupd.options import LookupdOptions
from lookupd.registry import Registry
from shared.daemon import (
    SIGNALS,
    TrioThread,
    broadcast_address,
    listening,
    listening_if_given,
    raise_file_limit,
    until_told_to_stop,
)
from shared.http.api import Api, Hosts
from shared.http.bridge import Bridge
from shared.http.server import HttpServer
from shared.listen import Listener, ListenError
from shared.log import log
from shared.startup import Exit, begin, reload_log_level
from shared.text import go_json
from shared.values import SECOND
from shared.version import NSQ_VERSION

PROGRAM = "nsqlookupd"


def main() -> int:
    """The process's exit code."""
    try:
        options = begin(LookupdOptions, PROGRAM)
    except Exit as ended:
        return ended.code
    raise_file_limit()
    try:
        with listening(options.tcp_address) as tcp, listening_if_given(options.http_address) as http:
            trio.run(_run, options, tcp, http)
    except ListenError as error:
        log.critical("%s", error)
        return 1
    return 0


async def _run(options: LookupdOptions, tcp: Listener, http: Listener | None) -> None:
    """Serve until SIGINT or SIGTERM. Any exception out of here is a bug, or a machine that has ceased to work."""
    registry = Registry(options.inactive_producer_timeout, options.tombstone_lifetime, options.limits())
    timeouts = Timeouts(options.identify_timeout / SECOND, options.idle_timeout / SECOND or math.inf)
    server = TcpServer(registry, identity(options, tcp, http, socket.gethostname()), time.time_ns, timeouts)
    with trio.open_signal_receiver(*SIGNALS) as signals:
        async with trio.open_nursery() as nursery:
            trio_thread = TrioThread()
            nursery.start_soon(trio_thread.raise_bugs)
            nursery.start_soon(server.serve, tcp)
            log.info("TCP: listening on %s", tcp.address)
            http_server = _start_http(options, http, registry, server, trio_thread) if http else None
            await until_told_to_stop(signals, partial(reload_log_level, options, PROGRAM))
            if http_server:
                await trio.to_thread.run_sync(http_server.stop)  # in a thread: requests under way need this one
                log.info("HTTP: closing %s", http.address if http else "")
            nursery.cancel_scope.cancel()
    log.info("TCP: closing %s", tcp.address)


def _start_http(
    options: LookupdOptions, listener: Listener, registry: Registry, server: TcpServer, trio_thread: TrioThread
) -> HttpServer:
    def serve_waiting() -> None:
        bridge.deliver(bridge.serve())

    bridge = Bridge(lambda: trio_thread.run_soon(serve_waiting))
    handlers = Handlers(registry, bridge, time.time_ns, server.figures, server.obstacle)
    hosts = Hosts([options.broadcast_address, *options.allowed_host])
    api = Api(handlers.routes(), hosts, trio_thread.report)
    http_server = HttpServer(api, [listener.socket], trio_thread.report)
    http_server.start()
    log.info("HTTP: listening on %s", listener.address)
    return http_server


def identity(options: LookupdOptions, tcp: Listener, http: Listener | None, hostname: str) -> bytes:
    """The answer to IDENTIFY: where nsqd finds this nsqlookupd's HTTP API. Keys in Go's order."""
    answer = {
        "broadcast_address": broadcast_address(options.broadcast_address, [http, tcp], hostname),
        "hostname": hostname,
        "http_port": http.port if http else 0,
        "tcp_port": tcp.port,
        "version": NSQ_VERSION,
    }
    return go_json(answer).encode()
