"""uvicorn in a thread of its own, for plain HTTP and for HTTPS, with limits on clients.

The thread holds no state of the daemon: handlers reach that through the bridge. `start` returns when the sockets
accept.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from starlette.types import ASGIApp

from shared.budget import SMALL_BUDGET, Budget
from shared.connection_limiter import ConnectionLimiter, ConnectionLimits
from shared.http.acceptor import Acceptor, watched
from shared.http.api import tls_required
from shared.http.guard import HEADERS, GuardedProtocol, guarded
from shared.log import log
from shared.process.listen import Listener
from shared.process.partial_import import Placeholder, without
from shared.tls.certificates import Certificates

with without("uvicorn.main", stand_in=Placeholder("uvicorn.main")):  # its command line, with click and multiprocessing
    from uvicorn.config import Config
    from uvicorn.server import Server

IDLE = 3600  # s that uvicorn holds a connection between two requests: the guard closes it before
MOST_CONNECTIONS = 10_000
TICK = 1.0  # s between two dates of answers


@dataclass(frozen=True, slots=True)
class Https:
    """The application to serve over TLS, and whether plain HTTP refuses all requests."""

    app: ASGIApp
    listener: Listener | None
    certificates: Certificates | None
    is_required: bool = False


class _Uvicorn(Server):
    """uvicorn whose loop wakes up once a second, for the date of its answers, and not ten times."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._stopping = asyncio.Event()

    async def main_loop(self) -> None:
        """Wait for `end`. uvicorn calls this when it serves."""
        while not await self.on_tick(0):  # 0: renew the date
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), TICK)

    def end(self) -> None:
        """End the loop, in which this is called."""
        self.should_exit = True
        self._stopping.set()


class HttpServer:
    """Serves ASGI applications on sockets that are already bound: acceptors, and uvicorn, which runs the applications."""

    def __init__(
        self,
        app: ASGIApp,
        sockets: list[socket.socket],
        on_bug: Callable[[BaseException], None],
        *,
        https: Https | None = None,
        limiter: ConnectionLimiter | None = None,
        budget: Budget | None = None,
    ) -> None:
        """`app` is served in plain HTTP unless TLS is required. `limiter` counts all connections; None means MOST_CONNECTIONS.

        `budget` bounds the memory of bodies and answers; None means one of SMALL_BUDGET. `on_bug` is called, in the HTTP
        thread, with any exception that ends it: the daemon must not continue without HTTP.
        """
        if https is not None and https.is_required:
            app = tls_required(https.listener.port if https.listener is not None else 0)
        self._limiter = limiter or ConnectionLimiter("HTTP", ConnectionLimits(MOST_CONNECTIONS, 0), Counter())
        self._budget = budget or Budget(SMALL_BUDGET)
        self._plain, self._https, self._on_bug = sockets, https, on_bug
        self._config = _config(app)
        self._uvicorn = _Uvicorn(self._config)
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)
        self._is_listening = threading.Event()  # set, too, when the thread ends
        self._is_stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None  # None: it does not run yet
        self._acceptors: list[Acceptor] = []
        self._joining: set[asyncio.Task[Any]] = set()  # connections that asyncio has not taken over yet

    def start(self) -> None:
        """Start the thread; return when it accepts connections (some tens of milliseconds)."""
        self._thread.start()
        self._is_listening.wait()

    def serve_within(self, loop: asyncio.AbstractEventLoop) -> None:
        """Serve the connections of `adopt` in a loop that runs already: without a thread, and without accepting any."""
        self._loop = loop
        self._config.load()
        self._uvicorn.server_state.default_headers = self._config.encoded_headers  # uvicorn's own loop adds the date

    def stop(self) -> None:
        """Stop accepting, and let pending requests finish, for a second at most."""
        self.call_soon(self._stop)
        self._thread.join(timeout=3.0)

    def call_soon(self, call: Callable[[], None]) -> bool:
        """Run `call` in the event loop. Any thread may ask. Return False if the loop has ended, or never began."""
        if self._loop is None:
            return False
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:
            return False
        return True

    def adopt(self, sock: socket.socket, ip: str, data: bytes, head_due: int) -> None:
        """Serve a plain connection that the limiter has admitted, beginning with `data`. Any thread may call this.

        The header that `data` begins with must be complete by `head_due` (monotonic ns), if that is sooner than usual.
        """
        if not self.call_soon(partial(self._adopt, sock, ip, data, head_due / 1e9)):
            sock.close()
            self._limiter.count_off(ip)

    # In the HTTP thread

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as bug:  # also SystemExit, which uvicorn raises when it cannot start
            self._on_bug(bug)
        finally:
            self._is_listening.set()

    async def _serve(self) -> None:
        """Accept connections and serve them, until `stop` is called. Raises OSError if a socket cannot listen."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._log_exception)
        self.serve_within(loop)
        for sock in self._plain:
            self._acceptors.append(Acceptor(sock, self._maker(self._config), self._limiter, None))
        https = self._https
        if https is not None and https.listener is not None and https.certificates is not None:
            config = _config(https.app)
            config.load()
            tls = https.certificates.following_context()
            self._acceptors.append(Acceptor(https.listener.socket, self._maker(config), self._limiter, tls))
        loop.call_soon(self._is_listening.set)  # as soon as uvicorn runs
        await self._uvicorn.serve(sockets=[])  # it accepts nothing itself

    def _log_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log an exception of the event loop. See loop.set_exception_handler."""
        if self._is_stopping:  # such as a connection that was not taken over yet
            log.debug("HTTP: while stopping: %s", context["message"])
        else:
            log.error("HTTP: %s", context["message"], exc_info=context.get("exception"))

    def _stop(self) -> None:
        self._is_stopping = True
        for acceptor in self._acceptors:
            acceptor.close()
        self._uvicorn.end()

    def _adopt(self, sock: socket.socket, ip: str, data: bytes, header_due: float) -> None:
        protocol = self._maker(self._config)()
        protocol.on_left = watched(self._limiter, protocol, sock, ip)
        protocol.handed_over, protocol.header_due = data, header_due
        loop = asyncio.get_running_loop()
        task = loop.create_task(loop.connect_accepted_socket(lambda: protocol, sock))
        self._joining.add(task)
        task.add_done_callback(self._joining.discard)

    def _maker(self, config: Config) -> Callable[[], GuardedProtocol]:
        """Return a function that makes the guard of a connection, and uvicorn's protocol behind it."""
        make: Any = config.http_protocol_class
        behind = partial(make, config=config, server_state=self._uvicorn.server_state)
        return lambda: GuardedProtocol(lambda state: behind(app_state=state), self._budget)


def _config(app: ASGIApp) -> Config:
    return Config(
        guarded(app), http="httptools", loop="asyncio", ws="none", lifespan="off", log_config=None, access_log=False,
        server_header=False, headers=HEADERS, proxy_headers=False, timeout_keep_alive=IDLE, timeout_graceful_shutdown=1,
    )  # fmt: skip
