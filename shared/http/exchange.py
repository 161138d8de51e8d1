"""One HTTP request and its answer: what it holds of the memory budget, how the answer is sent, and the line in the log.

An answer is written in pieces, each after the network has taken the one before. So little waits in the transport, the
request holds its share of the budget until nearly all of the answer is sent, and the next request of the connection,
which may have arrived already, is answered only then.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from starlette.types import Message, Scope, Send

from shared.budget import FREE, Budget, Share
from shared.http import extensions
from shared.http.answer_log import leaves_out_answer, write_answer
from shared.http.errors import HttpError

PIECE = 64 * 1024  # bytes of an answer that are written at a time
ANSWER_TIMEOUT = 30.0  # s that a client may take for any answer
LEAST_RATE = 64 * 1024  # bytes per second that a client must take beyond that: 8 MiB in 158 s
RETRY_AFTER = "1"  # s: honest requests give their shares back sooner

_BUSY_BODY = b'{"message":"BUFFER_BUDGET_EXCEEDED"}'
_BUSY: Message = {
    "type": "http.response.start",
    "status": 503,
    "headers": [
        (b"content-length", b"%d" % len(_BUSY_BODY)),
        (b"content-type", b"application/json; charset=utf-8"),
        (b"retry-after", RETRY_AFTER.encode()),
        (b"x-nsq-content-type", b"nsq; version=1.0"),
    ],
}


def exchange_of(scope: Scope) -> Exchange:
    """Return the exchange of a request. Without a server, as in tests, it is a new one with a budget of its own."""
    found: Exchange | None = scope.get("exchange")
    return found if found is not None else Exchange({"client": None}, _nowhere, Budget(), lambda: None)


async def _nowhere(message: Message) -> None:
    """Drop the answer: it has no connection."""


def _busy() -> HttpError:
    """Return the error for a request that the budget has no room for. The rest of its body is not read."""
    return HttpError(503, "BUFFER_BUDGET_EXCEEDED", {"Retry-After": RETRY_AFTER, "Connection": "close"})


class Exchange:
    """A request, from its first byte until the application has returned."""

    __slots__ = ("__weakref__", "_began", "_scope", "_send", "_share", "_start", "_status", "abort")

    def __init__(self, scope: Scope, send: Send, budget: Budget, abort: Callable[[], None]) -> None:
        """`abort` closes the connection at once."""
        client = scope["client"]
        self._scope = scope
        self._send = send
        self.abort = abort
        self._share = Share(budget, client[0] if client else "")
        self._start: Message | None = None  # status and headers of the answer, until the size of its body is known
        self._status = 0  # of the answer; 0: it has not begun
        self._began = time.perf_counter_ns()

    @property
    def has_begun(self) -> bool:
        """Return True if a part of the answer has been sent."""
        return self._status != 0 and self._start is None

    def hold(self, size: int) -> None:
        """Count `size` bytes in all as buffered by the request. Raises HttpError 503 if the budget has no room for them."""
        if not self._share.hold(size):
            raise _busy()

    def check_room(self, size: int) -> None:
        """Raise HttpError 503 if `size` bytes could not be held now."""
        if not self._share.fits(size, is_counted=True):
            raise _busy()

    async def send(self, message: Message) -> None:
        """Send a part of the application's answer, an ASGI message."""
        if message["type"] == "http.response.start":
            self._status = message["status"]
            if int(dict(message["headers"]).get(b"content-length", 0)) > FREE:
                self._start = message
            else:
                await self._send(message)
            return
        body = message.get("body", b"")
        if self._start is not None:
            start, self._start = self._start, None
            if not message.get("more_body", False) and not self._share.hold(len(body)):
                self._status = 503
                start, message = _BUSY, {"type": "http.response.body", "body": _BUSY_BODY}
                body = _BUSY_BODY
            await self._send(start)
        if len(body) > PIECE:
            await self._send_in_pieces(body, message.get("more_body", False))
        else:
            await self._send(message)

    async def _send_in_pieces(self, body: bytes, more: bool) -> None:
        """Send a large body in pieces. Each piece waits until the network has taken most of those before it."""
        seconds = ANSWER_TIMEOUT + len(body) / LEAST_RATE
        deadline = asyncio.get_running_loop().call_later(seconds, self.abort)
        view, size = memoryview(body), len(body)
        try:
            for at in range(0, size, PIECE):
                piece = view[at : at + PIECE]
                await self._send({"type": "http.response.body", "body": piece, "more_body": more or at + PIECE < size})
        finally:
            deadline.cancel()

    def end(self) -> None:
        """Give back what the request holds, and write the log line. The application has returned."""
        self._share.hold(0)
        scope = self._scope
        level = logging.DEBUG if self._status < 500 and is_routine(scope) else logging.INFO
        if self._status and not leaves_out_answer(level):
            took = time.perf_counter_ns() - self._began
            write_answer(level, self._status, scope["method"], target_of(scope), scope["client"], took)
        scope.pop("exchange", None)  # they refer to each other, and nsqd never collects old garbage


PROBES = frozenset({"/ping", "/livez", "/readyz", "/metrics"})  # asked again and again by machines
PUBLISHES = frozenset({"/pub", "/mpub"})  # the original logs none of them
_OF_NSQADMIN = extensions.HEADER.lower().encode()


def is_routine(scope: Scope) -> bool:
    """Return whether a program repeats the request: a publish, a probe, or what nsqadmin or one of its pages reads."""
    if scope["method"] not in ("GET", "HEAD"):
        return scope["path"] in PUBLISHES
    if scope["path"] in PROBES:
        return True
    headers = dict(scope["headers"])
    is_fetched = headers.get(b"sec-fetch-dest", b"document") != b"document"
    return is_fetched or _OF_NSQADMIN in headers or b"hx-request" in headers


def target_of(scope: Scope) -> bytes:
    """Return the path and query as the client wrote them."""
    raw: bytes = scope["raw_path"]
    return raw + b"?" + scope["query_string"] if scope["query_string"] else raw
