"""The nsqlookupd daemon: builds the registry and the servers around it, and runs until a signal arrives.

This is the only file that connects the parts. `lookupd/main.py` runs before it. One trio thread owns all state, and the HTTP
thread reaches that state through the bridge. TCP clients are served first: a thread meanwhile imports what only HTTP needs.
"""

from __future__ import annotations

import math
import os
import socket
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import trio

from lookupd.net import TcpServer, Timeouts
from lookupd.options import PROGRAM, LookupdOptions
from lookupd.registry import Registry
from lookupd.tls import Tls
from shared.http.bridge import Bridge
from shared.log import log
from shared.process.daemon import SIGNALS, broadcast_address
from shared.process.listen import Listener
from shared.process.service_manager import ServiceManager
from shared.process.trio_thread import TrioThread
from shared.startup import reload_with_certificates
from shared.text import go_json
from shared.tls.dates import CertificateDates
from shared.tls.options import NOT_REQUIRED, REQUIRED
from shared.values import SECOND
from shared.version import NSQ_VERSION

if TYPE_CHECKING:
    from shared.auth.keyring import Keyring
    from shared.http.server import HttpServer
    from shared.tls.certificates import Certificates


@dataclass(frozen=True, slots=True)
class Listeners:
    """The sockets at which nsqlookupd listens, and its certificates."""

    tcp: Listener
    http: Listener | None
    https: Listener | None  # never set without certificates


def serve(
    options: LookupdOptions,
    listeners: Listeners,
    certificates: Certificates | None = None,
    keyring: Keyring | None = None,
) -> None:
    """Serve nsqd and consumers until SIGINT or SIGTERM. `keyring`: the auth file; None: there is none."""
    trio.run(_run, options, listeners, certificates, keyring)


async def _run(
    options: LookupdOptions, listeners: Listeners, certificates: Certificates | None, keyring: Keyring | None
) -> None:
    """Serve until SIGINT or SIGTERM. An exception raised here is a bug, or a failure of the machine."""
    tcp, http, https = listeners.tcp, listeners.http, listeners.https
    dates = CertificateDates(options)
    dates.start()
    registry = Registry(options.inactive_producer_timeout, options.tombstone_lifetime, options.limits())
    timeouts = Timeouts(options.identify_timeout / SECOND, options.idle_timeout / SECOND or math.inf)
    tls = Tls(certificates, options.tls_required != NOT_REQUIRED) if certificates is not None else None
    answer = identity(options, listeners, socket.gethostname())
    server = TcpServer(registry, answer, time.time_ns, timeouts, keyring=keyring, tls=tls)
    with trio.open_signal_receiver(*SIGNALS) as signals:
        async with trio.open_nursery() as nursery:
            trio_thread = TrioThread()
            nursery.start_soon(trio_thread.raise_bugs)
            nursery.start_soon(server.serve, tcp)
            nursery.start_soon(server.watch_rights)
            log.info("TCP: listening on %s", tcp.address)
            http_server = None
            if http or https:
                http_server = await trio.to_thread.run_sync(
                    _start_http, options, listeners, certificates, registry, server, trio_thread, keyring, dates
                )
            if http:
                log.info("HTTP: listening on %s", http.address)
            if https:
                log.info("HTTPS: listening on %s", https.address)
            reload = partial(reload_with_certificates, options, PROGRAM, (certificates, ""), dates=dates)
            await ServiceManager(os.environ).serve(signals, reload)
            registry.close()  # long polls are answered
            if http_server:
                await trio.to_thread.run_sync(http_server.stop)  # in a thread: pending requests need the trio thread
                for listener in filter(None, (http, https)):
                    log.info("HTTP: closing %s", listener.address)
            nursery.cancel_scope.cancel()
    log.info("TCP: closing %s", tcp.address)


def _start_http(
    options: LookupdOptions,
    listeners: Listeners,
    certificates: Certificates | None,
    registry: Registry,
    server: TcpServer,
    trio_thread: TrioThread,
    keyring: Keyring | None,
    dates: CertificateDates,
) -> HttpServer:
    """Start the HTTP server. Runs in a thread, because most of the daemon's imports happen here."""
    from lookupd.http import Handlers
    from shared.http.api import Api
    from shared.http.hosts import Hosts
    from shared.http.route import handlers
    from shared.http.server import Https, HttpServer

    def serve_waiting() -> None:
        bridge.deliver(bridge.serve())

    bridge = Bridge(lambda: trio_thread.run_soon(serve_waiting))
    figures = server.connection_counts, server.obstacle, server.known_nodes
    https_port = listeners.https.port if listeners.https is not None else 0
    routes = Handlers(registry, bridge, time.time_ns, *figures, dates, options.metrics_auth, https_port).routes()
    hosts = Hosts([options.broadcast_address, *options.allowed_host])
    if keyring is not None:
        from shared.http.authorize import Authorizer, guarded

        routes = guarded(routes, Authorizer(keyring))
    api = Api(handlers(routes), hosts, trio_thread.report)
    https = Https(api, listeners.https, certificates, options.tls_required == REQUIRED)
    sockets = [listeners.http.socket] if listeners.http is not None else []
    http_server = HttpServer(api, sockets, trio_thread.report, https=https)
    http_server.start()
    return http_server


def identity(options: LookupdOptions, listeners: Listeners, hostname: str) -> bytes:
    """Return the JSON answer to IDENTIFY in Go's key order: where the HTTP API is, and the HTTPS API if there is one."""
    tcp, http, https = listeners.tcp, listeners.http, listeners.https
    answer = {
        "broadcast_address": broadcast_address(options.broadcast_address, [http, https, tcp], hostname),
        "hostname": hostname,
        "http_port": http.port if http else 0,
        "tcp_port": tcp.port,
        "version": NSQ_VERSION,
    }
    if https is not None:
        answer["https_port"] = https.port
    return go_json(answer).encode()
