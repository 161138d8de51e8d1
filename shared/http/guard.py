"""uvicorn's HTTP protocol, guarded against slow, silent, oversized and ambiguous requests.

uvicorn does not document the class that this one extends, nor does asyncio document the transport attribute that
`forget` clears. So pyproject.toml bounds uvicorn's version, and tests/shared/http/test_internals.py fails when a name or a
call that this file relies on has changed.

See docs/design/security.md#requests-that-two-servers-read-differently.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import chain
from math import inf
from typing import Any

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from starlette.types import Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from shared.budget import Budget
from shared.http.exchange import Exchange

HEADER_TIMEOUT = 10.0  # s from the first byte (or the connection) to the end of the header
BODY_TIMEOUT = 30.0  # s between two pieces of a body
WHOLE_BODY_TIMEOUT = 120.0  # s for the whole body, so that a few bytes now and then cannot hold a connection forever
WRITE_TIMEOUT = 30.0  # s for the peer to take what waits in the transport, whatever it sends meanwhile
CLOSE_TIMEOUT = 10.0  # s for the peer to take LEAST_TAKEN of what it was still owed when we closed
LEAST_TAKEN = 8 * 1024  # bytes, or all that is left
MOST_WAITING = 32 * 1024  # bytes in the transport beyond which an answer's next piece is not written
MAX_HEADER = 32 * 1024  # bytes of a header, of a chunk's framing, or of trailers; honest ones have a few hundred
MAX_HEADERS = 100  # header lines; honest requests have ten
MAX_PIPELINED = 128  # requests that wait for the one before: each takes a kilobyte, and costs a client 30 bytes


class OneWrite:
    """A transport that sends all writes of one pass of the event loop in one system call.

    uvicorn writes a response's header and body separately: the second send took an eighth of a request's time.
    """

    __slots__ = ("_loop", "_pending", "_size", "_transport", "closed")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._pending: list[bytes] = []
        self._size = 0  # bytes in `_pending`
        self.closed = False  # True once `close` was called

    def write(self, data: bytes) -> None:
        if not self._pending:
            self._loop.call_soon(self._flush)
        self._pending.append(data)
        self._size += len(data)
        if self._size > MOST_WAITING:  # so that the writer learns that the network does not take it
            self._flush()

    def close(self) -> None:
        self.closed = True
        self._flush()
        if not self._transport.is_closing():
            close(self._transport, self._loop)

    def _flush(self) -> None:
        pending, self._pending, self._size = self._pending, [], 0
        if pending:
            self._transport.write(pending[0] if len(pending) == 1 else b"".join(pending))

    def forget(self) -> None:
        """Break the reference cycle of the transport, whose connection is lost."""
        forget(self._transport)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def close(transport: asyncio.WriteTransport, loop: asyncio.AbstractEventLoop) -> None:
    """Close after the peer has taken what it is owed, but abort if it takes less than LEAST_TAKEN in CLOSE_TIMEOUT."""
    transport.close()
    owed = transport.get_write_buffer_size()
    if owed:
        loop.call_later(CLOSE_TIMEOUT, _cut_off, transport, loop, owed)


def _cut_off(transport: asyncio.WriteTransport, loop: asyncio.AbstractEventLoop, owed: int) -> None:
    rest = transport.get_write_buffer_size()
    if rest > owed - LEAST_TAKEN and rest:
        transport.abort()
    elif rest:
        loop.call_later(CLOSE_TIMEOUT, _cut_off, transport, loop, rest)


def forget(transport: object) -> None:
    """Clear a lost transport: asyncio's refers to itself by a callback, and nsqd never collects old garbage.

    asyncio has no public way to do so. If the attribute has another name, lost connections wait for the collector.
    """
    if hasattr(transport, "_read_ready_cb"):
        transport._read_ready_cb = None


def _make_parser(protocol: HttpToolsProtocol) -> Any:
    """Make a parser as uvicorn does: data behind a request that closes the connection does not spoil its answer."""
    parser = HttpRequestParser(protocol)
    parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser


class GuardedProtocol(HttpToolsProtocol):
    """Deadlines for headers, bodies and answers, bounds on sizes, and 400 for requests that proxies read differently."""

    on_left: Callable[[], None] | None = None  # called when the connection has ended
    _until = inf  # when the connection is closed, by the loop's clock, unless what it waits for arrives
    _timer: asyncio.TimerHandle | None = None  # one for all deadlines, set again when it fires: one per request is slow
    _in_header = True
    _in_body = False  # a request was given to its handler, or queued for it, and its body has not ended
    _owed = 0  # answers owed: requests with a complete header, minus those answered
    _refusal = ""  # not "": a 400 with this text follows the answers that are owed, and nothing more is read
    _unread = 0  # bytes since the parser last began a request or passed on a piece of one
    _fresh = 0  # size of the last bytes received, if no request has ended in them
    _is_large = False  # the current header may exceed MAX_HEADER although `_unread` does not show it
    _body_until = inf  # when the body must be complete
    _first: bytes | None = b""  # bytes received before the first line was complete; None: it is complete
    handed_over = b""  # what another thread has read from the connection before this object got it
    header_due = inf  # until when the first header must be complete, by the loop's clock, if sooner than HEADER_TIMEOUT
    _stalled: asyncio.TimerHandle | None = None  # runs while an answer waits for the peer; fires after WRITE_TIMEOUT

    def __init__(self, config: Config, server_state: ServerState, budget: Budget) -> None:
        super().__init__(config, server_state, {})
        self._budget = budget
        self._application = self.app
        self.app = self._exchange  # refers to this object: see `forget`

    def connection_made(self, transport: Any) -> None:
        transport.set_write_buffer_limits(MOST_WAITING)
        super().connection_made(OneWrite(transport, self.loop))  # type: ignore[arg-type]
        self._wait(HEADER_TIMEOUT)
        if self.handed_over:
            data, self.handed_over = self.handed_over, b""
            self.data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        if self._timer is not None:
            self._timer.cancel()
        if self._stalled is not None:
            self._stalled.cancel()
        self._stop_idle_timer()  # uvicorn keeps it when the client resets, and it would keep this object alive
        super().connection_lost(exc)
        self.pipeline.clear()  # requests that will not be answered; they and this object refer to each other
        self.transport.forget()  # type: ignore[attr-defined]
        self.forget()
        if self.on_left is not None:
            self.on_left()

    def _stop_idle_timer(self) -> None:
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
            self.timeout_keep_alive_task = None

    def forget(self) -> None:
        """Break the reference cycles of this object. Call it directly if there never was a connection."""
        self.parser = self.cycle = self.app = None  # type: ignore[assignment]

    async def _exchange(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application with the request's share of the budget, and a limit on how slowly its answer may leave."""
        exchange = scope["exchange"] = Exchange(scope, send, self._budget, self.transport.abort)
        try:
            await self._application(scope, receive, exchange.send)
        finally:
            exchange.end()

    def data_received(self, data: bytes) -> None:
        if self.transport.closed or self._refusal:  # type: ignore[attr-defined]  # under TLS some arrives after close
            return
        if self._first is not None:
            data = self._first + data
            if data.startswith(b" ") and b"\n" not in data and len(data) < MAX_HEADER:
                self._first = data  # an NSQ client on the wrong port: it reads the 400 after its first command
                return
            self._first = None
        size = len(data)
        self._is_large = size > MAX_HEADER or (self._is_large and self._in_header)
        self._unread += size
        self._fresh = size
        self._stop_idle_timer()
        try:
            self._feed(data)
        except HttpParserError:
            self.send_400_response("Invalid HTTP request received.")
        if self._unread > MAX_HEADER:
            self.send_400_response("Header too large.")

    def _feed(self, data: bytes | memoryview) -> None:
        """Feed data to the parser. Raises HttpParserError."""
        while True:
            try:
                self.parser.feed_data(data)
                return
            except HttpParserUpgrade as upgrade:
                data = memoryview(data)[upgrade.args[0] :]
                self._decline_upgrade()

    def _decline_upgrade(self) -> None:
        """Parse the header again without its upgrade to another protocol, which Java's clients send with every first request.

        The parser has stopped at the header's end. Going on with it would lose the body, or take it for the next request.
        """
        line = b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
        kept = [b"%s: %s" % header for header in self.headers if header[0] != b"upgrade"]
        self.parser = _make_parser(self)
        self.parser.feed_data(b"\r\n".join([line, *kept, b"", b""]))

    def send_400_response(self, msg: str) -> None:
        """Answer 400 and close, after the answers to earlier requests."""
        if self.transport.closed:  # type: ignore[attr-defined]
            return
        if self._in_body and self.cycle.response_started:  # the text would become part of the answer under way
            self.transport.close()
        elif self._owed > self._in_body:
            if self._in_body:  # this request waits behind others, and must not be handled
                self.pipeline.popleft()
                self._owed -= 1
            self._stop_waiting()
            self._refusal = msg
        else:
            super().send_400_response(msg)

    def on_response_complete(self) -> None:
        self._owed -= 1
        super().on_response_complete()
        if self._refusal and not self._owed:
            super().send_400_response(self._refusal)

    # Callbacks of the parser

    def on_message_begin(self) -> None:
        self._in_header = True
        self._unread = self._fresh
        self._wait(min(HEADER_TIMEOUT, self.header_due - self.loop.time()))
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        # A proxy's form has a host of its own beside the Host header. After CONNECT the parser no longer reads HTTP.
        if not self.url.startswith(b"/") or self.parser.get_method() == b"CONNECT":
            raise HttpParserError("not the path of a resource")
        if self.parser.should_upgrade():  # _feed has it parsed again
            return
        version = self.parser.get_http_version()
        if version not in ("1.1", "1.0"):  # the parser also accepts 0.9 and 2.0, whose requests have another form
            raise HttpParserError("not a version of HTTP/1")
        codings = [value for name, value in self.headers if name == b"transfer-encoding"]
        if codings and (version == "1.0" or len(codings) > 1 or codings[0].strip().lower() != b"chunked"):
            raise HttpParserError("a transfer coding that others may read otherwise")  # RFC 9112, 6.1
        if len(self.pipeline) >= MAX_PIPELINED:
            raise HttpParserError("too many requests at once")
        if len(self.headers) > MAX_HEADERS:
            raise HttpParserError("too many headers")
        if self._is_large and len(self.url) + sum(map(len, chain.from_iterable(self.headers))) > MAX_HEADER:
            raise HttpParserError("header too large")
        self._in_header = False
        self.header_due = inf
        self._unread = 0
        self._body_until = self.loop.time() + WHOLE_BODY_TIMEOUT
        self._wait(BODY_TIMEOUT)
        super().on_headers_complete()
        self.headers = []  # for trailers, which must not be taken for headers
        self._in_body = True
        self._owed += 1

    def on_body(self, body: bytes) -> None:
        self._unread = 0
        self._wait(min(BODY_TIMEOUT, self._body_until - self.loop.time()))
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._fresh = 0
        if self._in_body:  # otherwise the request will be parsed again
            self._in_body = False
            self._stop_waiting()
            super().on_message_complete()

    # Deadlines

    def pause_writing(self) -> None:
        """Start the deadline for MOST_WAITING bytes in the transport that the peer does not take.

        The answer's next piece waits. The deadline ends when the peer has taken most of the bytes; nothing that the
        peer sends meanwhile moves it.
        """
        super().pause_writing()
        self._stalled = self.loop.call_later(WRITE_TIMEOUT, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

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
