"""Build the daemon's HTTP server: plain, in TLS, or both.

It is built in a thread, because most of a daemon's modules are imported here.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

import trio

from nsqd.http.node import Node
from nsqd.listeners import Listeners
from nsqd.net.reactor import Reactor
from nsqd.option_values import REQUIRED
from nsqd.options import NsqdOptions
from shared.budget import Budget
from shared.log import log
from shared.trio_thread import TrioThread

if TYPE_CHECKING:
    from shared.http.server import HttpServer


def make_http_server(
    options: NsqdOptions, node: Node, listeners: Listeners, trio_thread: TrioThread, budget: Budget
) -> HttpServer:
    """Return the server, not started. Where TLS is required, plain HTTP answers only that."""
    from nsqd.http.routes import routes
    from shared.http.api import Api, Hosts, TlsRequired
    from shared.http.server import Https, HttpServer

    hosts = Hosts([node.info.broadcast_address, *options.allowed_host])
    api = Api(routes(node), hosts, trio_thread.report)
    https = None
    if listeners.https and listeners.certificates:
        https = Https(api, [listeners.https.socket], listeners.certificates)
    is_required = options.tls_required == REQUIRED
    plain = TlsRequired(listeners.https.port if listeners.https else 0) if is_required else api
    return HttpServer(
        plain,
        [listeners.http.socket]
        if listeners.http and is_required
        else [],  # otherwise the reactor accepts, see listen_to_http
        trio_thread.report,
        https=https,
        max_connections=options.max_connections,
        max_per_ip=options.max_connections_per_ip,
        budget=budget,
    )


def listen_to_http(
    options: NsqdOptions, node: Node, listeners: Listeners, reactor: Reactor, server: HttpServer
) -> None:
    """Have the reactor accept plain HTTP, and hand to the server what it does not answer itself. The server has started."""
    if listeners.http is None or options.tls_required == REQUIRED:
        return
    from nsqd.protocols.http.head import Request
    from nsqd.protocols.http.peer import Context, HttpPeer
    from shared.http.acceptor import BACKLOG
    from shared.http.api import Hosts
    from shared.http.errors import HttpError
    from shared.http.exchange import log_answer

    hosts = Hosts([node.info.broadcast_address, *options.allowed_host])

    def is_own_host(host: bytes) -> bool:
        try:
            hosts.check({"headers": [(b"host", host)], "http_version": "1.1"})
        except HttpError:
            return False
        return True

    def answered(request: Request, ip: str, port: str, arrived: int) -> None:
        client = (ip, int(port)) if ip else None
        log_answer(200, request.method, request.target, client, time.monotonic_ns() - arrived)

    context = Context(
        node.broker,
        options.max_msg_size,
        options.max_body_size,
        is_own_host,
        lambda: node.health() == "OK",
        answered,
    )
    listeners.http.socket.setblocking(False)
    listeners.http.socket.listen(BACKLOG)
    reactor.listen(listeners.http.socket, partial(HttpPeer, context), server.limiter, server.adopt)


async def start_http_server(server: HttpServer, listeners: Listeners) -> None:
    """Start the server, and return when it listens."""
    await trio.to_thread.run_sync(server.start)
    if listeners.http:
        log.info("HTTP: listening on %s", listeners.http.address)
    if listeners.https:
        log.info("HTTPS: listening on %s", listeners.https.address)
