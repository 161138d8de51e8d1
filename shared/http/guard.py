"""A guard in front of the HTTP server's protocol, against slow, silent, oversized and ambiguous requests.

The guard owns the connection. It parses the input, and writes each request again for the protocol behind it: with one idea of
where its body ends, without headers that only the connection needs, and only once the request before has been answered. So that
protocol, uvicorn's, sees nothing but one good request after another, and answers them as it likes. The guard uses only what
asyncio, uvicorn and httptools document.

See docs/contributing/design/security.md#requests-that-two-servers-read-differently, and docs/contributing/decisions/0080-a-guard-in-front-of-uvicorn.md.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from email.utils import formatdate
from itertools import chain
from math import inf
from typing import Any

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from starlette.types import ASGIApp, Receive, Scope, Send

from shared.budget import Budget
from shared.foreign import MOST_LOOKED_AT, Foreign, recognize
from shared.http.exchange import Exchange
from shared.http.proof import Proof, proof_of
from shared.http.transport import AnswerTransport
from shared.log import log

HEADER_TIMEOUT = 10.0  # s from the first byte (or the connection) to the end of the header
BODY_TIMEOUT = 30.0  # s between two pieces of a body
WHOLE_BODY_TIMEOUT = 120.0  # s for the whole body, so that a few bytes now and then cannot hold a connection forever
WRITE_TIMEOUT = 30.0  # s for the peer to take what waits in the transport, whatever it sends meanwhile
KEEP_ALIVE = 75.0  # s that an idle kept-alive connection is held
MAX_HEADER = 32 * 1024  # bytes of a header, of a chunk's framing, or of trailers; honest ones have a few hundred
MAX_HEADERS = 100  # header lines; honest requests have ten
MAX_PIPELINED = 128  # requests that wait for the one before: each takes a kilobyte, and costs a client 30 bytes
# Headers of every answer, also of those that no application gave: a browser must not guess what type the content has.
HEADERS = [("X-Content-Type-Options", "nosniff")]

# Makes the protocol behind a guard. Its ASGI scopes have the given dictionary, or a copy of it, as their `state`.
MakeProtocol = Callable[[dict[str, Any]], asyncio.Protocol]


def guarded(application: ASGIApp) -> ASGIApp:
    """Return the ASGI application that the server behind guards runs: it runs `application` as an exchange of the guard."""

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        guard: GuardedProtocol = scope.pop("state")["guard"]
        await guard.exchange(application, scope, receive, send)

    return run


class GuardedProtocol(asyncio.Protocol):
    """Deadlines for headers, bodies and answers, bounds on sizes, and 400 for requests that proxies read differently."""

    on_left: Callable[[], None] | None = None  # called when the connection has ended
    handed_over = b""  # what another thread has read from the connection before this object got it
    header_due = inf  # until when the first header must be complete, by the loop's clock, if sooner than HEADER_TIMEOUT

    def __init__(self, make_protocol: MakeProtocol, budget: Budget) -> None:
        self._loop = asyncio.get_running_loop()
        self._make_protocol = make_protocol
        self._budget = budget
        self._answers: AnswerTransport
        self._inner: asyncio.Protocol | None = None  # the protocol behind; None: the connection is not made, or lost
        self._lost: asyncio.Protocol | None = None  # the protocol behind a lost connection whose handler still runs
        self._exchange: Exchange | None = None  # of the current request, once its handler runs
        self._proof: Proof | None = None  # None until it is requested
        # Input
        self._parser: Any = _make_parser(self)
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._is_chunked = False  # True: the current body is passed on in chunks
        self._in_header = True
        self._in_body = False  # a request was passed on, or queued, and its body has not ended
        self._unread = 0  # bytes since the parser last began a request or passed on a piece of one
        self._fresh = 0  # size of the last bytes received, if no request has ended in them
        self._is_large = False  # the current header may exceed MAX_HEADER although `_unread` does not show it
        self._opening = b""  # the first bytes of the connection
        self._first: bytes | None = b""  # bytes received before the first line was complete; None: it is complete
        # Requests
        self._out: list[bytes] = []  # pieces of the current request that the protocol behind has not got
        self._queue: deque[list[bytes]] = deque()  # pieces of the requests that wait for it to be answered
        self._receiving = self._out  # the list for pieces of the request that is being received
        self._is_answering = False  # True: the current request has not been answered
        self._is_passed = False  # True: the protocol behind has got its header
        self._owed = 0  # pending answers: requests with a complete header, minus those answered
        self._refusal = ""  # not "": this status follows the pending answers, and nothing more is read
        # Deadlines, by the loop's clock
        self._until = inf  # when the connection is closed unless what it waits for arrives
        self._timer: asyncio.TimerHandle | None = None  # one for all, set again when it fires: one per request is slow
        self._body_until = inf  # when the body must be complete
        self._stalled: asyncio.TimerHandle | None = None  # runs while an answer waits for the peer

    # The connection

    def connection_made(self, transport: Any) -> None:
        self._answers = AnswerTransport(transport, self._loop)
        self._inner = self._make_protocol({"guard": self})
        self._inner.connection_made(self._answers)
        self._wait(min(HEADER_TIMEOUT, self.header_due - self._loop.time()))
        if self.handed_over:
            data, self.handed_over = self.handed_over, b""
            self.data_received(data)

    @property
    def is_idle(self) -> bool:
        """Return True if no request is being received or answered. Any thread may ask."""
        return not (self._owed or self._in_body or self._is_answering)

    def connection_lost(self, exc: Exception | None) -> None:
        self._until = inf
        for timer in (self._timer, self._stalled):
            if timer is not None:
                timer.cancel()
        self._queue.clear()  # requests that will not be answered
        self._answers.drop()
        inner, self._inner = self._inner, None
        if inner is not None:
            inner.connection_lost(None)  # whatever the reason was: with one, uvicorn does not cancel its idle timer
            if self._is_answering and self._is_passed:
                self._lost = inner  # its handler is cancelled, and ends soon
            else:
                _take_apart(inner)
        self.forget()
        if self.on_left is not None:
            self.on_left()

    def forget(self) -> None:
        """Break the reference cycles of this object. Call it directly if there never was a connection."""
        self._parser = self._exchange = None

    # Input

    def data_received(self, data: bytes) -> None:
        if self._inner is None or self._answers.closed or self._refusal:
            self._answers.discard(len(data))
            return
        if self._first is not None:
            data = self._first + data
            if data.startswith(b" ") and b"\n" not in data and len(data) < MAX_HEADER:
                self._first = data  # an NSQ client on the wrong port: it reads the 400 after its first command
                return
            self._first, self._opening = None, data[:MOST_LOOKED_AT]
        size = len(data)
        self._is_large = size > MAX_HEADER or (self._is_large and self._in_header)
        self._unread += size
        self._fresh = size
        try:
            self._feed(data)
        except HttpParserError:
            self._refuse("400 Bad Request")
        if self._unread > MAX_HEADER:
            self._refuse("400 Bad Request")
        self._pass_on()

    def _feed(self, data: bytes | memoryview) -> None:
        """Feed data to the parser. Raises HttpParserError."""
        while True:
            try:
                self._parser.feed_data(data)
                return
            except HttpParserUpgrade as upgrade:
                data = memoryview(data)[upgrade.args[0] :]
                self._decline_upgrade()

    def _decline_upgrade(self) -> None:
        """Parse the header again without its upgrade to another protocol, which Java's clients send with every first request.

        The parser has stopped at the header's end. It would lose the body, or take it for the next request.
        """
        self._headers = [header for header in self._headers if header[0].lower() != b"upgrade"]
        head = self._head()
        self._parser = _make_parser(self)
        self._parser.feed_data(head)

    def _head(self) -> bytes:
        """Return the request line and the headers as they are passed on."""
        parser = self._parser
        line = b"%s %s HTTP/%s" % (parser.get_method(), self._url, parser.get_http_version().encode())
        return b"\r\n".join([line, *(b"%s: %s" % header for header in self._headers), b"", b""])

    # Callbacks of the parser

    def on_message_begin(self) -> None:
        self._in_header = True
        self._url, self._headers = b"", []
        self._unread = self._fresh
        self._wait(min(HEADER_TIMEOUT, self.header_due - self._loop.time()))

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_header:  # otherwise it is a trailer, which must not be taken for a header
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._check_header()
        if self._parser.should_upgrade():  # _feed has it parsed again
            return
        head = self._head()
        if not head.count(b"\n") == head.count(b"\r") == len(self._headers) + 2:
            raise HttpParserError("a line end within a header")
        self._in_header = False
        self.header_due = inf
        self._unread = 0
        self._body_until = self._loop.time() + WHOLE_BODY_TIMEOUT
        self._wait(BODY_TIMEOUT)
        self._in_body = self._answers.is_unread = True
        self._owed += 1
        if self._is_answering:
            self._receiving = []
            self._queue.append(self._receiving)
            self._answers.hold_reading(True)
        else:
            self._begin()
            self._receiving = self._out
        self._receiving.append(head)

    def _check_header(self) -> None:
        """Raise HttpParserError for a request that is too large, or that others may read in another way."""
        # A proxy's form has a host in addition to the Host header. After CONNECT the parser no longer reads HTTP.
        if not self._url.startswith(b"/") or self._parser.get_method() == b"CONNECT":
            raise HttpParserError("not the path of a resource")
        version = self._parser.get_http_version()
        if version not in ("1.1", "1.0"):  # the parser also accepts 0.9 and 2.0, whose requests have another form
            raise HttpParserError("not a version of HTTP/1")
        codings = [value for name, value in self._headers if name.lower() == b"transfer-encoding"]
        if codings and (version == "1.0" or len(codings) > 1 or codings[0].strip().lower() != b"chunked"):
            raise HttpParserError("a transfer coding that others may read otherwise")  # RFC 9112, 6.1
        self._is_chunked = bool(codings)
        if len(self._queue) >= MAX_PIPELINED:
            raise HttpParserError("too many requests at once")
        if len(self._headers) > MAX_HEADERS:
            raise HttpParserError("too many headers")
        if self._is_large and len(self._url) + sum(map(len, chain.from_iterable(self._headers))) > MAX_HEADER:
            raise HttpParserError("header too large")

    def on_body(self, body: bytes) -> None:
        self._unread = 0
        self._wait(min(BODY_TIMEOUT, self._body_until - self._loop.time()))
        if not body:
            return  # where the parser has got no bytes; an empty chunk would end the body
        if self._is_chunked:
            self._receiving += (b"%x\r\n" % len(body), body, b"\r\n")
        else:
            self._receiving.append(body)

    def on_message_complete(self) -> None:
        self._fresh = 0
        if self._in_body:  # otherwise the request will be parsed again
            self._in_body = self._answers.is_unread = False
            self._until = inf
            if self._is_chunked:
                self._receiving.append(b"0\r\n\r\n")
            if not self._owed:  # it was answered before it was complete
                self._wait(KEEP_ALIVE)

    # Requests and answers

    def _begin(self) -> None:
        """Begin with the next request."""
        self._is_answering, self._is_passed, self._exchange = True, False, None

    def _pass_on(self) -> None:
        """Give the protocol behind the received pieces of the current request."""
        if self._out and self._inner is not None and not self._answers.closed:
            data = b"".join(self._out)
            self._out.clear()
            self._is_passed = True
            self._inner.data_received(data)

    async def exchange(self, application: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application with the request's share of the budget, and a limit on how slowly its answer may leave."""
        exchange = scope["exchange"] = self._exchange = Exchange(scope, send, self._budget, self._answers.abort)
        scope["proof"] = self.proof
        try:
            await application(scope, receive, exchange.send)
        finally:
            exchange.end()
            scope.pop("proof")  # it refers to this object, which refers to the scope
            self._loop.call_soon(self._answered)  # not before the protocol behind has seen the end, too

    def proof(self) -> Proof:
        """Return the client's identity by its connection."""
        if self._proof is None:
            self._proof = proof_of(self._answers)
        return self._proof

    def _answered(self) -> None:
        """Continue with the next request: the current one has been answered."""
        self._is_answering = False
        self._owed -= 1
        if self._lost is not None:
            _take_apart(self._lost)
            self._lost = self._exchange = None
        if self._inner is None or self._answers.closed:
            return
        if self._refusal and not self._owed:
            self._send_refusal(self._refusal)
        elif self._queue:
            waiting = self._queue.popleft()
            self._begin()
            self._out += waiting
            if self._receiving is waiting:
                self._receiving = self._out
            if not self._queue:
                self._answers.hold_reading(False)
            self._pass_on()
        elif self._until == inf:
            self._wait(KEEP_ALIVE)

    def _refuse(self, status: str) -> None:
        """Answer with that status and close, after the answers to earlier requests."""
        if self._answers.closed or self._refusal:
            return
        found = recognize(self._opening)
        if found not in (None, Foreign.HTTP):
            address = self._answers.get_extra_info("peername")
            ip, port = address[:2] if isinstance(address, tuple) else ("", "")  # "": a unix socket
            log.warning("HTTP: closed %s:%s, which sent %s", ip, port, found)
        is_at_hand = self._in_body and self._receiving is self._out
        if is_at_hand and self._exchange is not None and self._exchange.has_begun:
            self._answers.close()  # the text would become part of the answer in progress
        elif self._owed > self._in_body:
            if self._in_body:  # this request waits behind others, and must not be handled
                self._queue.pop()
                self._owed -= 1
            self._until = inf
            self._refusal = status
        else:
            self._send_refusal(status)

    def _send_refusal(self, status: str) -> None:
        headers = "".join(f"{name.lower()}: {value}\r\n" for name, value in HEADERS)
        self._answers.write(
            f"HTTP/1.1 {status}\r\ndate: {formatdate(time.time(), usegmt=True)}\r\n{headers}"
            f"content-type: text/plain; charset=utf-8\r\ncontent-length: {len(status)}\r\n"
            f"connection: close\r\n\r\n{status}".encode()
        )
        self._answers.expect_more()
        self._answers.close()

    # Deadlines

    def pause_writing(self) -> None:
        """Start the deadline for the bytes in the transport. It ends when the peer has taken most of them."""
        if self._inner is not None:
            self._inner.pause_writing()
        self._stalled = self._loop.call_later(WRITE_TIMEOUT, self._answers.abort)

    def resume_writing(self) -> None:
        if self._inner is not None:
            self._inner.resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _wait(self, seconds: float) -> None:
        self._until = self._loop.time() + seconds
        if self._timer is None or self._timer.when() > self._until:
            self._set_timer(self._until)

    def _set_timer(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._due)

    def _due(self) -> None:
        self._timer = None
        if self._until <= self._loop.time():
            self._answers.is_unread = False  # a peer that sends too slowly gets no answer
            self._answers.close()
        elif self._until < inf:
            self._set_timer(self._until)


def _take_apart(protocol: asyncio.Protocol) -> None:
    """Clear a protocol whose connection is lost: it and its parser refer to each other, and nsqd never collects old garbage."""
    getattr(protocol, "__dict__", {}).clear()


def _make_parser(callbacks: GuardedProtocol) -> Any:
    """Return a parser that accepts data after a request that closes the connection."""
    parser = HttpRequestParser(callbacks)
    parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser
