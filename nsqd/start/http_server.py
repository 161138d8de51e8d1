"""The daemon's HTTP: the reactor accepts plain HTTP and answers the usual requests, a server in a thread does the rest.

HTTPS is the server's alone, and so is plain HTTP where TLS is required, which answers only that. A third of what a daemon
imports is the server's. Therefore the reactor accepts first, and what only the server can answer waits until it is there.
"""

from __future__ import annotations

import logging
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import trio

from nsqd.core.sequence.mark import Mark
from nsqd.http.node import Node
from nsqd.net.endpoint import OutputBounds
from nsqd.net.reactor import Reactor
from nsqd.options import NsqdOptions
from nsqd.protocols.http.head import Request, Route
from nsqd.protocols.http.peer import Context, HttpPeer
from nsqd.start.listeners import Listeners
from shared.budget import Budget
from shared.connection_limiter import ConnectionLimiter, ConnectionLimits
from shared.http.answer_log import Client, leaves_out_answer, write_answer
from shared.http.errors import HttpError
from shared.http.hosts import Hosts
from shared.log import log
from shared.process.listen import BACKLOG
from shared.process.trio_thread import TrioThread
from shared.tls.options import REQUIRED

# As in the HTTP thread: bytes that wait for the network, and 128 answers in a turn. At most one more turn's answers are added.
HTTP_BOUNDS = OutputBounds(unsent=32 * 1024, sealed=1)
MOST_WAITING = 1000  # lines of the log that wait for their responses: clients that reconnect would make ever more

if TYPE_CHECKING:
    import socket

    from shared.http import route
    from shared.http.server import HttpServer


class HttpFrontEnd:
    """What serves the node's HTTP, in both threads. It belongs to the trio thread."""

    def __init__(
        self, options: NsqdOptions, node: Node, listeners: Listeners, trio_thread: TrioThread, budget: Budget
    ) -> None:
        """Prepare to serve: `accept` accepts plain HTTP, `start` starts the server."""
        self._options, self._node, self._listeners = options, node, listeners
        self._trio_thread, self._budget = trio_thread, budget
        self._hosts = Hosts([node.info.broadcast_address, *options.allowed_host])
        limits = ConnectionLimits(options.max_connections, options.max_connections_per_ip)
        self._limiter = ConnectionLimiter("HTTP", limits, Counter())
        # Where TLS is required, the server itself accepts plain HTTP.
        self._reactor_accepts = listeners.http is not None and options.tls_required != REQUIRED
        self._context = Context(
            node.broker,
            options.max_msg_size,
            options.max_body_size,
            read_binary=lambda body: None,
            is_own_host=self._is_own_host,
            is_healthy=lambda: node.health() == "OK",
            stats=lambda *_: None,
            answered=lambda *_: None,
            publishers=node.publishers,
            proofs=listeners.keyring,
            accounts=node.accounts,
        )
        self._server: HttpServer | None = None  # None: it is not there yet
        # what `adopt` of the server will be called with
        self._waiting: list[tuple[socket.socket, str, bytes, int]] = []

    def accept(self, reactor: Reactor) -> None:
        """Have the reactor accept plain HTTP. What it does not answer itself waits for the server."""
        listener = self._listeners.http
        if listener is not None and self._reactor_accepts:
            self._context.answered = AnswerLog(reactor).note
            listener.socket.setblocking(False)
            listener.socket.listen(BACKLOG)
            make_peer = partial(HttpPeer, self._context)
            reactor.listen(listener.socket, make_peer, self._limiter, self._hand_over, HTTP_BOUNDS)
            log.info("HTTP: listening on %s", listener.address)

    async def start(self) -> None:
        """Start the server, and return when it serves."""
        self.leave_rest_to(await trio.to_thread.run_sync(self._started))
        listeners = self._listeners
        if listeners.http is not None and not self._reactor_accepts:
            log.info("HTTP: listening on %s", listeners.http.address)
        if listeners.https:
            log.info("HTTPS: listening on %s", listeners.https.address)

    def _started(self) -> HttpServer:
        """Return the server, started. Runs in a thread, because the modules of the server are imported here."""
        server = self.build()
        server.start()
        return server

    def leave_rest_to(self, server: HttpServer) -> None:
        """From now on, have `server` answer what the reactor does not, beginning with what has waited for it."""
        self._server = server
        for connection in self._waiting:
            server.adopt(*connection)
        self._waiting.clear()

    def build(self) -> HttpServer:
        """Build the server, which is yet to be started."""
        from nsqd.http.publish import binary_bodies
        from nsqd.http.routes import routes
        from nsqd.http.stats import Stats
        from shared.http.api import Api
        from shared.http.route import handlers
        from shared.http.server import Https, HttpServer

        def read_binary(body: bytes) -> list[bytes] | None:
            try:
                return binary_bodies(body, options.max_msg_size, options.max_body_size)
            except HttpError:  # the HTTP thread answers it
                return None

        options, node, listeners = self._options, self._node, self._listeners
        api = Api(handlers(self._watched(routes(node))), self._hosts, self._trio_thread.report)
        https = Https(api, listeners.https, listeners.certificates, options.tls_required == REQUIRED)
        sockets = [listeners.http.socket] if listeners.http is not None and not self._reactor_accepts else []
        report = self._trio_thread.report
        server = HttpServer(api, sockets, report, https=https, limiter=self._limiter, budget=self._budget)
        self._context.read_binary, self._context.stats = read_binary, Stats(node).answer_in_turn
        return server

    def _watched(self, found: list[route.Route]) -> list[route.Route]:
        """Return the routes, guarded by the auth file and recorded in the audit, as far as there is either."""
        if self._listeners.keyring is not None:
            from shared.http.authorize import Authorizer, guarded

            found = guarded(found, Authorizer(self._listeners.keyring))
        if self._node.audit is not None:
            from nsqd.http.audited import audited

            found = audited(found, self._node.audit.note)
        return found

    async def stop(self, reactor: Reactor) -> None:
        """Answer the requests in progress, and accept no others."""
        if self._listeners.http is not None:
            reactor.stop_listening(self._listeners.http.socket)
        if self._server is not None:
            # in a thread, because requests in progress need this one
            await trio.to_thread.run_sync(self._server.stop)

    @property
    def refused(self) -> Counter[str]:
        """Return the refused connections by reason: max_connections, max_connections_per_ip, displaced, tls_handshake."""
        return Counter(dict(self._limiter.refused))  # dict() is atomic: the HTTP thread may add a reason meanwhile

    def _hand_over(self, sock: socket.socket, ip: str, data: bytes, head_due: int) -> None:
        """Leave a connection to the server. See HttpServer.adopt."""
        if self._server is None:
            self._waiting.append((sock, ip, data, head_due))
        else:
            self._server.adopt(sock, ip, data, head_due)

    def _is_own_host(self, host: bytes) -> bool:
        try:
            self._hosts.check({"headers": [(b"host", host)], "http_version": "1.1"})
        except HttpError:
            return False
        return True


class AnswerLog:
    """Logs what the reactor answers, when the response leaves. One that a broken log prevents has no line.

    While MOST_WAITING responses wait for a sync or for copies, others have no line either.
    """

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self._waiting = 0  # lines that are written when their responses leave

    def note(self, request: Request, ip: str, port: str, arrived: int, marks: tuple[Mark, ...]) -> None:
        """Log a request once its response has waited for `marks`; see nsqd.protocols.http.peer.Context."""
        level = logging.INFO if request.route is Route.STATS else logging.DEBUG  # the others are publishes and probes
        if not leaves_out_answer(level) and self._waiting < MOST_WAITING:
            self._waiting += 1
            # a closure would cost every request a tenth of a microsecond
            end = partial(self._end, level, request, (ip, int(port)) if ip else None, arrived)
            self._reactor.when_sent(marks, partial(end, 200), partial(end, 0), partial(end, 503))

    def _end(self, level: int, request: Request, client: Client, arrived: int, status: int) -> None:
        """Write the line of a response with that status; 0: none was sent."""
        self._waiting -= 1
        if status:
            write_answer(level, status, request.method, request.target, client, self._reactor.clock()[0] - arrived)
