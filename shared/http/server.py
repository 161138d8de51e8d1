"""uvicorn in a thread of its own, for plain HTTP and for HTTPS, with limits on clients.

The thread holds no state of the daemon: handlers reach that through the bridge. `start` returns when the sockets
accept.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import uvicorn

from shared.budget import SMALL_BUDGET, Budget
from shared.connection_limiter import ConnectionLimiter, ConnectionLimits
from shared.http.acceptor import Acceptor
from shared.http.guard import GuardedProtocol
from shared.log import log
from shared.tls import Certificates

KEEP_ALIVE = 75  # s that an idle kept-alive connection is held
MAX_CONNECTIONS = 10_000
# Headers of every answer, also of uvicorn's own: a browser must not guess what type the content has.
HEADERS = [("X-Content-Type-Options", "nosniff")]


@dataclass(frozen=True, slots=True)
class Https:
    """The application, sockets and certificates to serve over TLS."""

    app: Any  # an ASGI application
    sockets: list[socket.socket]  # bound
    certificates: Certificates


class HttpServer:
    """Serves ASGI applications on sockets that are already bound."""

    def __init__(
        self,
        app: Any,
        sockets: list[socket.socket],
        on_bug: Callable[[BaseException], None],
        *,
        https: Https | None = None,
        max_connections: int = MAX_CONNECTIONS,
        max_per_ip: int = 0,
        budget: Budget | None = None,
    ) -> None:
        """`app` is served in plain HTTP. The limits are for all sockets together; `max_per_ip` 0 is no limit.

        `budget` bounds the memory of bodies and answers; None means one of SMALL_BUDGET.

        `on_bug` is called, in the HTTP thread, with any exception that ends it: the daemon must not go on without HTTP.
        """
        self._limiter = ConnectionLimiter("HTTP", ConnectionLimits(max_connections, max_per_ip), Counter())
        self._server = _Server(self._limiter, app, sockets, https, budget or Budget(SMALL_BUDGET))
        self._on_bug = on_bug
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)

    def start(self) -> None:
        """Start the thread; return when it accepts connections (some tens of milliseconds)."""
        self._thread.start()
        self._server.listening.wait()

    def stop(self) -> None:
        """Stop accepting, and let pending requests finish, for a second at most."""
        self._server.should_exit = True
        self._thread.join(timeout=3.0)

    @property
    def limiter(self) -> ConnectionLimiter:
        """Return the limits that connections must be counted against before they may be adopted."""
        return self._limiter

    def adopt(self, sock: socket.socket, ip: str, data: bytes, head_due: int) -> None:
        """Serve a plain connection that another thread has admitted, beginning with `data`. Any thread may call this.

        The header that `data` begins with must be complete by `head_due` (monotonic ns), if that is sooner than usual.
        """
        try:
            self._server.loop.call_soon_threadsafe(self._server.adopt, sock, ip, data, head_due / 1e9)
        except RuntimeError:  # the loop is closed: the daemon ends
            sock.close()
            self._limiter.count_off(ip)

    @property
    def refused(self) -> Counter[str]:
        """Connections not served, by reason: max_connections, max_connections_per_ip, tls_handshake. Any thread may ask."""
        return Counter(dict(self._limiter.refused))  # dict() is atomic: the HTTP thread may add a reason meanwhile

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as bug:  # also SystemExit, which uvicorn raises when it cannot start
            self._on_bug(bug)
        finally:
            self._server.listening.set()

    async def _serve(self) -> None:
        asyncio.get_running_loop().set_exception_handler(self._complain)
        await self._server.serve()

    def _complain(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log an exception of the event loop. See loop.set_exception_handler."""
        if self._server.should_exit:  # such as a connection that was not taken over yet
            log.debug("HTTP: while stopping: %s", context["message"])
        else:
            log.error("HTTP: %s", context["message"], exc_info=context.get("exception"))


class _Server(uvicorn.Server):
    """uvicorn's server, except that Acceptor accepts the connections."""

    def __init__(
        self, limiter: ConnectionLimiter, app: Any, sockets: list[socket.socket], https: Https | None, budget: Budget
    ) -> None:
        super().__init__(_config(app))
        self._budget = budget
        self.listening = threading.Event()
        self._limiter = limiter
        self._plain = sockets
        self._https = https
        self._acceptors: list[Acceptor] = []
        self._adopting: set[asyncio.Task[None]] = set()  # connections that asyncio has not taken over yet
        self.loop: asyncio.AbstractEventLoop  # set before `listening` is

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to accept connections. Raises OSError."""
        self.servers = []  # asyncio's servers: none are used
        self.loop = asyncio.get_running_loop()
        for sock in self._plain:
            self._acceptors.append(Acceptor(sock, self._protocols(self.config), self._limiter, None))
        if self._https is not None:
            config, tls = _config(self._https.app), self._https.certificates.following_context()
            config.load()
            for sock in self._https.sockets:
                self._acceptors.append(Acceptor(sock, self._protocols(config), self._limiter, tls))
        self.started = True
        self.listening.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting, then let pending requests finish."""
        for acceptor in self._acceptors:
            acceptor.close()
        await super().shutdown()

    def adopt(self, sock: socket.socket, ip: str, data: bytes, header_due: float) -> None:
        """Serve a plain connection that was admitted already, beginning with `data`. `header_due`: s by the loop's clock."""
        protocol = GuardedProtocol(self.config, self.server_state, self._budget)
        protocol.on_left = partial(self._limiter.count_off, ip)
        protocol.handed_over, protocol.header_due = data, header_due
        task = self.loop.create_task(self._join(protocol, sock))
        self._adopting.add(task)
        task.add_done_callback(self._adopting.discard)

    async def _join(self, protocol: GuardedProtocol, sock: socket.socket) -> None:
        await self.loop.connect_accepted_socket(lambda: protocol, sock)

    def _protocols(self, config: uvicorn.Config) -> Callable[[], GuardedProtocol]:
        return lambda: GuardedProtocol(config, self.server_state, self._budget)


def _config(app: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=GuardedProtocol,
        loop="asyncio",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        headers=HEADERS,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=1,
    )
