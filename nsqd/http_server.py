"""The daemon's HTTP: the reactor accepts plain HTTP and answers the usual requests, a server in a thread does the rest.

HTTPS is the server's alone, and so is plain HTTP where TLS is required, which answers only that. HttpFrontEnd is built in a
thread, because most of a daemon's modules are imported here.
"""

from __future__ import annotations

import logging
import socket
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import trio

from nsqd.http.node import Node
from nsqd.listeners import Listeners
from nsqd.net.endpoint import OutputBounds
from nsqd.net.reactor import Reactor
from nsqd.options import NsqdOptions
from shared.budget import Budget
from shared.log import log
from shared.tls_options import REQUIRED
from shared.trio_thread import TrioThread

# As in the HTTP thread: bytes that wait for the network, and 128 answers in a turn. At most one more turn's answers are added.
HTTP_BOUNDS = OutputBounds(unsent=32 * 1024, sealed=1)

if TYPE_CHECKING:
    from nsqd.protocols.http.head import Request
    from shared.http.api import Routes


class HttpFrontEnd:
    """What serves the node's HTTP, in both threads."""

    def __init__(
        self, options: NsqdOptions, node: Node, listeners: Listeners, trio_thread: TrioThread, budget: Budget
    ) -> None:
        """Build the server; `start` starts it."""
        from nsqd.http.routes import routes
        from shared.http.api import Api, Hosts
        from shared.http.server import HttpServer, secured

        self._options, self._node, self._listeners = options, node, listeners
        self._hosts = Hosts([node.info.broadcast_address, *options.allowed_host])
        found = routes(node)
        if listeners.keyring is not None or node.audit is not None:
            found = self._watched(found)
        api = Api(found, self._hosts, trio_thread.report)
        plain, https = secured(api, listeners.https, listeners.certificates, options.tls_required == REQUIRED)
        # Where TLS is required, the server itself accepts plain HTTP.
        self._reactor_accepts = listeners.http is not None and options.tls_required != REQUIRED
        sockets = [listeners.http.socket] if listeners.http is not None and not self._reactor_accepts else []
        self._server = HttpServer(
            plain,
            sockets,
            trio_thread.report,
            https=https,
            max_connections=options.max_connections,
            max_per_ip=options.max_connections_per_ip,
            budget=budget,
        )

    def _watched(self, found: Routes) -> Routes:
        """Return the routes, guarded by the auth file and recorded in the audit, as far as there is either."""
        from nsqd.http.rights import needs

        needed = needs(self._options.metrics_auth)
        if self._listeners.keyring is not None:
            from shared.http.authorize import Authorizer, guarded

            found = guarded(found, needed, Authorizer(self._listeners.keyring))
        if self._node.audit is not None:
            from nsqd.http.audited import audited

            found = audited(found, needed, self._node.audit.note)
        return found

    async def start(self, reactor: Reactor) -> None:
        """Start the server, have the reactor accept plain HTTP, and return when both listen."""
        await trio.to_thread.run_sync(self._server.start)
        listeners = self._listeners
        if listeners.http is not None:
            if self._reactor_accepts:
                self._listen(reactor, listeners.http.socket)
            log.info("HTTP: listening on %s", listeners.http.address)
        if listeners.https:
            log.info("HTTPS: listening on %s", listeners.https.address)

    async def stop(self, reactor: Reactor) -> None:
        """Answer the requests in progress, and accept no others."""
        if self._listeners.http is not None:
            reactor.stop_listening(self._listeners.http.socket)
        # in a thread, because requests in progress need this one
        await trio.to_thread.run_sync(self._server.stop)

    @property
    def refused(self) -> Counter[str]:
        """Return how many connections were refused, by reason."""
        return self._server.refused

    def _listen(self, reactor: Reactor, sock: socket.socket) -> None:
        """Have the reactor accept at the socket, and hand to the server what it does not answer itself."""
        from nsqd.http.stats import Stats
        from nsqd.protocols.http.peer import Context, HttpPeer
        from shared.http.acceptor import BACKLOG
        from shared.http.exchange import leaves_out_answer, write_answer

        def answered(request: Request, ip: str, port: str, arrived: int) -> None:
            level = logging.INFO if request.topic else logging.DEBUG  # without one it is a probe
            if not leaves_out_answer(level):
                client = (ip, int(port)) if ip else None
                write_answer(level, 200, request.method, request.target, client, time.monotonic_ns() - arrived)

        options, node, server = self._options, self._node, self._server
        context = Context(
            node.broker,
            options.max_msg_size,
            options.max_body_size,
            self._read_binary,
            self._is_own_host,
            lambda: node.health() == "OK",
            Stats(node).answer_in_turn,
            answered,
            self._listeners.keyring,
            node.accounts,
        )
        sock.setblocking(False)
        sock.listen(BACKLOG)
        reactor.listen(sock, partial(HttpPeer, context), server.limiter, server.adopt, HTTP_BOUNDS)

    def _read_binary(self, body: bytes) -> list[bytes] | None:
        from nsqd.http.publish import binary_bodies
        from shared.http.errors import HttpError

        try:
            return binary_bodies(body, self._options.max_msg_size, self._options.max_body_size)
        except HttpError:  # the HTTP thread answers it
            return None

    def _is_own_host(self, host: bytes) -> bool:
        from shared.http.errors import HttpError

        try:
            self._hosts.check({"headers": [(b"host", host)], "http_version": "1.1"})
        except HttpError:
            return False
        return True
