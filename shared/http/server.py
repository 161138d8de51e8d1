"""uvicorn in a thread of its own, guarded against slow, silent and oversized requests.

The thread holds no state of the daemon: handlers reach it through the bridge. `start` returns when the sockets accept.
"""

import asyncio
import socket
import threading
from collections.abc import Callable
from math import inf
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from shared.listen import OUT_OF_RESOURCES
from shared.log import log

HEADER_TIMEOUT = 10.0  # s from the first byte (or the connection) to the end of the header
KEEP_ALIVE = 75  # s an idle kept-alive connection is held
BODY_TIMEOUT = 30.0  # s between two pieces of a body
WHOLE_BODY_TIMEOUT = 120.0  # s for all of it: a few bytes now and then shall not hold a connection for ever
MAX_HEADER = 32 * 1024  # bytes before the header is complete; honest ones have a few hundred
MAX_CONNECTIONS = 10_000
BACKLOG = 4096  # connections the kernel keeps for us
ACCEPT_BATCH = 16  # accepted in a row; asyncio tries as often when there are no descriptors, so not thousands of times
QUIET = 10.0  # s between two lines about the same trouble


class _OneWrite:
    """A transport whose writes of one pass of the event loop leave in one system call.

    uvicorn writes a response's header and body apart: measured, the second send was an eighth of a request.
    """

    __slots__ = ("_loop", "_pending", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._pending: list[bytes] = []

    def write(self, data: bytes) -> None:
        if not self._pending:
            self._loop.call_soon(self._flush)
        self._pending.append(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        pending, self._pending = self._pending, []
        if pending:
            self._transport.write(pending[0] if len(pending) == 1 else b"".join(pending))

    def forget(self) -> None:
        """The connection is lost. asyncio's transport holds itself by a callback, and nsqd never collects old garbage."""
        if hasattr(self._transport, "_read_ready_cb"):
            self._transport._read_ready_cb = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class GuardedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with a deadline for each header and each piece of a body, and a bound on the header's size."""

    _until = inf  # when the connection is closed, by the loop's clock, unless what it waits for comes
    _timer: asyncio.TimerHandle | None = (
        None  # one for all deadlines, set anew when it fires: a timer a request is dear
    )
    _header_bytes = 0
    _in_header = True
    _body_until = inf  # when the body must be complete
    _first: bytes | None = b""  # what came before the first line was complete; None: it is

    def connection_made(self, transport: Any) -> None:
        super().connection_made(_OneWrite(transport, self.loop))  # type: ignore[arg-type]
        self._wait(HEADER_TIMEOUT)
        if len(self.connections) > MAX_CONNECTIONS:
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)
        self.cycle = None  # type: ignore[assignment]  # they hold each other
        self.transport.forget()  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        if self._first is not None:
            data = self._first + data
            if data.startswith(b" ") and b"\n" not in data and len(data) < MAX_HEADER:
                self._first = data  # an NSQ client at the wrong port: it reads the 400 after its first command
                return
            self._first = None
        if self._in_header:
            self._header_bytes += len(data)
        super().data_received(data)
        if self._in_header and self._header_bytes > MAX_HEADER:
            self.transport.close()

    def on_message_begin(self) -> None:
        self._in_header = True
        self._header_bytes = 0
        self._wait(HEADER_TIMEOUT)
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_header = False
        self._body_until = self.loop.time() + WHOLE_BODY_TIMEOUT
        self._wait(BODY_TIMEOUT)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._wait(min(BODY_TIMEOUT, self._body_until - self.loop.time()))
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._stop_waiting()
        super().on_message_complete()

    def _wait(self, seconds: float) -> None:
        self._until = self.loop.time() + seconds
        if self._timer is None or self._timer.when() > self._until:
            self._set_timer(self._until)

    def _stop_waiting(self) -> None:
        self._until = inf

    def _set_timer(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_at(when, self._due)

    def _due(self) -> None:
        self._timer = None
        if self._until <= self.loop.time():
            self.transport.close()
        elif self._until < inf:
            self._set_timer(self._until)


class _Complaints:
    """asyncio's exception handler. Out of descriptors, it is called for every try to accept: one line will do."""

    def __init__(self, stopping: Callable[[], bool]) -> None:
        self._stopping = stopping
        self._quiet_until = -inf

    def handle(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """See loop.set_exception_handler. The loop itself tries to accept again after a second."""
        error = context.get("exception")
        if isinstance(error, OSError) and error.errno in OUT_OF_RESOURCES:
            if loop.time() >= self._quiet_until:
                self._quiet_until = loop.time() + QUIET
                log.error("HTTP: cannot accept: %s; trying again", error.strerror)
        elif self._stopping():  # e.g. asyncio's timer to accept again finds the socket closed
            log.debug("HTTP: while stopping: %s", context["message"])
        else:
            log.error("HTTP: %s", context["message"], exc_info=error)


class HttpServer:
    """One ASGI application on sockets that are already bound."""

    def __init__(self, app: Any, sockets: list[socket.socket], on_bug: Callable[[BaseException], None]) -> None:
        """`on_bug` is called, in this thread, with whatever ends it but `stop`: the daemon shall not go on without HTTP."""
        config = uvicorn.Config(
            app,
            http=GuardedProtocol,
            loop="asyncio",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE,
            backlog=ACCEPT_BATCH,  # asyncio takes one number for both; `_serve` mends the other
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._sockets = sockets
        self._on_bug = on_bug
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)

    def start(self) -> None:
        """Start the thread; return when it accepts connections (some tens of milliseconds)."""
        self._thread.start()
        self._started.wait()

    def stop(self) -> None:
        """Stop accepting and let requests under way finish, for a second at the most."""
        self._server.should_exit = True
        self._thread.join(timeout=3.0)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as bug:  # SystemExit too: uvicorn raises it when it cannot start
            self._on_bug(bug)
        finally:
            self._started.set()

    async def _serve(self) -> None:
        startup = self._server.startup

        async def startup_then_tell(sockets: list[socket.socket] | None = None) -> None:
            await startup(sockets)
            for sock in self._sockets:
                sock.listen(BACKLOG)
            self._started.set()

        complaints = _Complaints(lambda: self._server.should_exit)
        asyncio.get_running_loop().set_exception_handler(complaints.handle)
        self._server.startup = startup_then_tell  # type: ignore[method-assign]
        await self._server.serve(self._sockets)
