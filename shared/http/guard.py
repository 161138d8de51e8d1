"""uvicorn's HTTP protocol, guarded against slow, silent, oversized and ambiguous requests.

uvicorn documents neither the class that this one extends nor asyncio the transport that `forget` takes apart. So pyproject.toml
bounds uvicorn's version, and tests/test_http_internals.py fails when a name or a call that is relied on here has moved.
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
WHOLE_BODY_TIMEOUT = 120.0  # s for all of it: a few bytes now and then shall not hold a connection for ever
WRITE_TIMEOUT = 30.0  # s in which the peer must take what waits in the transport, whatever it asks for meanwhile
CLOSE_TIMEOUT = 10.0  # s in which the peer must take LEAST_TAKEN of what it was still owed when we closed
LEAST_TAKEN = 8 * 1024  # bytes, or all that is left
MOST_WAITING = 32 * 1024  # bytes in the transport, beyond which an answer's next piece is not written
MAX_HEADER = 32 * 1024  # bytes of header, of a chunk's frame, or of trailers; honest ones have a few hundred
MAX_HEADERS = 100  # lines; honest requests have ten
MAX_PIPELINED = 128  # requests that wait for the one before them: a kilobyte each, and they are made of 30 bytes


class OneWrite:
    """A transport whose writes of one pass of the event loop leave in one system call.

    uvicorn writes a response's header and body apart: measured, the second send was an eighth of a request.
    """

    __slots__ = ("_loop", "_pending", "_size", "_transport", "closed")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._pending: list[bytes] = []
        self._size = 0  # bytes of that
        self.closed = False  # by us

    def write(self, data: bytes) -> None:
        if not self._pending:
            self._loop.call_soon(self._flush)
        self._pending.append(data)
        self._size += len(data)
        if self._size > MOST_WAITING:  # the writer is to learn that the network does not take it
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
        """The connection is lost."""
        forget(self._transport)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def close(transport: asyncio.WriteTransport, loop: asyncio.AbstractEventLoop) -> None:
    """Close once the peer has taken what it is owed. One that takes less than LEAST_TAKEN in CLOSE_TIMEOUT is cut off."""
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
    """Take apart a lost transport: asyncio's holds itself by a callback, and nsqd never collects old garbage.

    asyncio has no public way to do so. Where the attribute has another name, lost connections wait for the collector.
    """
    if hasattr(transport, "_read_ready_cb"):
        transport._read_ready_cb = None


def _make_parser(protocol: HttpToolsProtocol) -> Any:
    """As uvicorn makes its own: what comes after a request that closes the connection shall not spoil that one's answer."""
    parser = HttpRequestParser(protocol)
    parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser


class GuardedProtocol(HttpToolsProtocol):
    """Deadlines for headers, bodies and answers, bounds on sizes, and 400 for what proxies read otherwise."""

    on_left: Callable[[], None] | None = None  # called when the connection has ended
    _until = inf  # when the connection is closed, by the loop's clock, unless what it waits for comes
    _timer: asyncio.TimerHandle | None = None  # one for all deadlines, set anew when it fires: one a request is dear
    _in_header = True
    _in_body = False  # a request was given to its handler, or waits for its turn, and its body has not ended
    _owed = 0  # answers: requests with a complete header, less those answered
    _refusal = ""  # not "": 400 with this text follows what is owed, and nothing more is read
    _unread = 0  # bytes that came since the parser last began a request or gave us a piece of one
    _fresh = 0  # bytes that came last, if no request has ended in them
    _is_large = False  # the header at hand may be beyond MAX_HEADER without `_unread` having told
    _body_until = inf  # when the body must be complete
    _first: bytes | None = b""  # what came before the first line was complete; None: it is
    _stalled: asyncio.TimerHandle | None = None  # while an answer waits for the peer: when it has waited too long

    def __init__(self, config: Config, server_state: ServerState, budget: Budget) -> None:
        super().__init__(config, server_state, {})
        self._budget = budget
        self._application = self.app
        self.app = self._exchange  # it holds us: see `forget`

    def connection_made(self, transport: Any) -> None:
        transport.set_write_buffer_limits(MOST_WAITING)
        super().connection_made(OneWrite(transport, self.loop))  # type: ignore[arg-type]
        self._wait(HEADER_TIMEOUT)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        if self._timer is not None:
            self._timer.cancel()
        if self._stalled is not None:
            self._stalled.cancel()
        self._stop_idle_timer()  # uvicorn leaves it when the client resets: it would hold us
        super().connection_lost(exc)
        self.pipeline.clear()  # requests that nobody will answer; they and we hold each other
        self.transport.forget()  # type: ignore[attr-defined]
        self.forget()
        if self.on_left is not None:
            self.on_left()

    def _stop_idle_timer(self) -> None:
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
            self.timeout_keep_alive_task = None

    def forget(self) -> None:
        """Take it apart: these hold it, and it them. To be called by hand if there was never a connection."""
        self.parser = self.cycle = self.app = None  # type: ignore[assignment]

    async def _exchange(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The application, with the request's share of the budget, and a limit on how slowly its answer may leave."""
        exchange = scope["exchange"] = Exchange(scope, send, self._budget, self.transport.abort)
        try:
            await self._application(scope, receive, exchange.send)
        finally:
            exchange.end()

    def data_received(self, data: bytes) -> None:
        if self.transport.closed or self._refusal:  # type: ignore[attr-defined]  # under TLS some comes after we closed
            return
        if self._first is not None:
            data = self._first + data
            if data.startswith(b" ") and b"\n" not in data and len(data) < MAX_HEADER:
                self._first = data  # an NSQ client at the wrong port: it reads the 400 after its first command
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
        """Raises HttpParserError."""
        while True:
            try:
                self.parser.feed_data(data)
                return
            except HttpParserUpgrade as upgrade:
                data = memoryview(data)[upgrade.args[0] :]
                self._decline_upgrade()

    def _decline_upgrade(self) -> None:
        """Read the header again without its wish for another protocol, as Java's clients have with every first request.

        The parser has given up at the header's end. It would lose the body, or take it for the next request.
        """
        line = b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
        kept = [b"%s: %s" % header for header in self.headers if header[0] != b"upgrade"]
        self.parser = _make_parser(self)
        self.parser.feed_data(b"\r\n".join([line, *kept, b"", b""]))

    def send_400_response(self, msg: str) -> None:
        """Answer 400 and close, after the answers to requests that came before."""
        if self.transport.closed:  # type: ignore[attr-defined]
            return
        if self._in_body and self.cycle.response_started:  # the text would become a part of this request's own answer
            self.transport.close()
        elif self._owed > self._in_body:
            if self._in_body:  # it waits behind the others, and shall not be handled
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

    # What the parser finds

    def on_message_begin(self) -> None:
        self._in_header = True
        self._unread = self._fresh
        self._wait(HEADER_TIMEOUT)
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        # A proxy's form has a host of its own beside the Host header. After CONNECT the parser reads no HTTP any more.
        if not self.url.startswith(b"/") or self.parser.get_method() == b"CONNECT":
            raise HttpParserError("not the path of a resource")
        if self.parser.should_upgrade():  # _feed has it read again
            return
        version = self.parser.get_http_version()
        if version not in ("1.1", "1.0"):  # the parser also takes 0.9 and 2.0, whose requests look otherwise
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
        self._unread = 0
        self._body_until = self.loop.time() + WHOLE_BODY_TIMEOUT
        self._wait(BODY_TIMEOUT)
        super().on_headers_complete()
        self.headers = []  # for trailers, which nobody shall take for headers
        self._in_body = True
        self._owed += 1

    def on_body(self, body: bytes) -> None:
        self._unread = 0
        self._wait(min(BODY_TIMEOUT, self._body_until - self.loop.time()))
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._fresh = 0
        if self._in_body:  # else it is to be read again
            self._in_body = False
            self._stop_waiting()
            super().on_message_complete()

    # Deadlines

    def pause_writing(self) -> None:
        """The transport has MOST_WAITING bytes that the peer does not take. The answer's next piece waits.

        The deadline ends when the peer has taken most of them. Nothing that the peer sends meanwhile moves it.
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
