"""Build the daemon's HTTP server: plain, in TLS, or both.

It is built in a thread, because most of a daemon's modules are imported here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from nsqd.http.node import Node
from nsqd.listeners import Listeners
from nsqd.option_values import REQUIRED
from nsqd.options import NsqdOptions
from shared.budget import Budget
from shared.log import log
from shared.trio_thread import TrioThread

if TYPE_CHECKING:
    from shared.http.server import HttpServer


def make_http_server(
    options: NsqdOptions, node: Node, doors: Listeners, trio_thread: TrioThread, budget: Budget
) -> HttpServer:
    """Return the server, not started. Where TLS is required, plain HTTP answers only that."""
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


async def start_http_server(server: HttpServer, doors: Listeners) -> None:
    """Start the server, and return when it listens."""
    await trio.to_thread.run_sync(server.start)
    if doors.http:
        log.info("HTTP: listening on %s", doors.http.address)
    if doors.https:
        log.info("HTTPS: listening on %s", doors.https.address)
