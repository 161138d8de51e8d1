"""NSQ's HTTP conventions, on Starlette's requests and responses.

A daemon passes a table of routes. This file answers 404, 405, OPTIONS, redirects, bad queries and foreign hosts, and
writes errors and JSON as the original does. It runs in the HTTP thread and does not depend on any daemon.

See docs/contributing/design/nsq-http.md#general-rules.
"""

import asyncio
import posixpath
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import quote, unquote_plus

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shared.budget import FREE
from shared.http.bridge import Bridge
from shared.http.errors import HttpError
from shared.http.exchange import exchange_of
from shared.http.hosts import Hosts
from shared.log import log
from shared.text import go_json

Handler = Callable[[Request], Awaitable[Response]]
# Returns another answer to an error, such as a page; None: the error is answered in NSQ's form.
ErrorPage = Callable[[Request, HttpError], Awaitable[Response | None]]
Routes = Mapping[str, Mapping[str, Handler]]  # path -> method -> handler; a segment of a path may be a "{parameter}"

LIVE_TIMEOUT = 2.0  # s that the trio thread may take to answer /livez; one turn of it takes microseconds
_JSON = "application/json; charset=utf-8"
V1_HEADERS = {"X-Nsq-Content-Type": "nsq; version=1.0"}
_BAD_ESCAPE = re.compile(r"%(?![0-9a-fA-F]{2})")


class Api:
    """An ASGI application made of a route table."""

    def __init__(
        self,
        routes: Routes,
        hosts: Hosts,
        on_bug: Callable[[BaseException], None],
        error_page: ErrorPage | None = None,
    ) -> None:
        self._exact = {path: methods for path, methods in routes.items() if "{" not in path}
        self._patterns = [(path.split("/"), methods) for path, methods in routes.items() if "{" in path]
        self._hosts = hosts
        self._on_bug = on_bug  # called with an exception that is a bug; the daemon stops
        self._error_page = error_page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            self._hosts.check(scope)
            response = await self._respond(request)
        except HttpError as error:
            page = await self._error_page(request, error) if self._error_page is not None else None
            response = page or error_response(request, error)
            error.__traceback__ = None  # it refers to frames that refer to it, and keeps the connection alive
        except ClientDisconnect:
            return
        except Exception as bug:
            log.critical("HTTP: %s %s failed", request.method, request.url.path, exc_info=bug)
            self._on_bug(bug)
            response = error_response(request, HttpError(500, "INTERNAL_ERROR"))
        await response(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        path: str = request.scope["path"]
        methods = self._find(path)
        if methods is None:
            return self._redirect(request, path)
        handler = methods.get(request.method)
        if handler is not None:
            return await handler(request)
        allow = {"Allow": ", ".join(sorted([*methods, "OPTIONS"]))}
        if request.method == "OPTIONS":
            return Response(status_code=200, headers=allow)
        raise HttpError(405, "METHOD_NOT_ALLOWED", allow)

    def _find(self, path: str) -> Mapping[str, Handler] | None:
        methods = self._exact.get(path)
        if methods is not None or not self._patterns:
            return methods
        parts = path.split("/")
        return next((methods for pattern, methods in self._patterns if _matches(pattern, parts)), None)

    def _redirect(self, request: Request, path: str) -> Response:
        """Redirect other case, a trailing slash, `//` and `..` to the canonical path, as httprouter does. Raises HttpError."""
        found = self._canonical(posixpath.normpath("/" + path.lstrip("/")))
        if request.method not in (self._find(found) or ()):
            raise HttpError(404, "NOT_FOUND")
        query = request.url.query
        location = quote(found, safe="/:@!$&'()*+,;=~")  # the path was decoded, and may contain any character
        location += f"?{query}" if query else ""
        return Response(status_code=301 if request.method == "GET" else 307, headers={"Location": location})

    def _canonical(self, path: str) -> str:
        """Return the known path that equals `path` except for case, or "". Parameters keep their case."""
        for exact in self._exact:
            if exact.lower() == path.lower():
                return exact
        parts = path.split("/")
        for pattern, _ in self._patterns:
            if _matches([part.lower() for part in pattern], parts, str.lower):
                return "/".join(own if _is_parameter(part) else part for part, own in zip(pattern, parts, strict=True))
        return ""


def _is_parameter(part: str) -> bool:
    return part.startswith("{")


def _matches(pattern: list[str], parts: list[str], folded: Callable[[str], str] = str) -> bool:
    """Return whether each segment equals that of the pattern, or is a parameter that is not empty."""
    return len(pattern) == len(parts) and all(
        bool(part) if _is_parameter(own) else own == folded(part) for own, part in zip(pattern, parts, strict=True)
    )


def query(request: Request) -> dict[str, str]:
    """Return the query's arguments, the first of each name. Raises HttpError 400 for bad encoding, as Go's parser does."""
    arguments: dict[str, str] = {}
    for part in _parts(request):
        if part:
            key, _, value = part.partition("=")
            arguments.setdefault(unquote_plus(key), unquote_plus(value))
    return arguments


def query_all(request: Request, name: str) -> list[str]:
    """Return every value of an argument that may be repeated, in order. Raises HttpError 400 as `query` does."""
    pairs = (part.partition("=") for part in _parts(request))
    return [unquote_plus(value) for key, _, value in pairs if unquote_plus(key) == name]


def _parts(request: Request) -> list[str]:
    raw: str = request.scope["query_string"].decode("latin-1")
    if ";" in raw or _BAD_ESCAPE.search(raw):
        raise HttpError(400, "INVALID_REQUEST")
    return raw.split("&")


async def read_body(request: Request, limit: int, too_big: str) -> bytes:
    """Return the whole body. Raises HttpError 413 `too_big` beyond `limit` bytes, and 503 beyond the budget, before that."""
    for name, value in request.scope["headers"]:
        if name == b"content-length" and value.isdigit():
            announced = int(value.lstrip(b"0")[:20] or b"0")
            if announced > limit:
                raise HttpError(413, too_big, {"Connection": "close"})
            if announced > FREE:
                exchange_of(request.scope).check_room(announced)
    chunks, size, more = [], 0, True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunk = message.get("body", b"")
        more = message.get("more_body", False)
        size += len(chunk)
        if size > limit:
            raise HttpError(413, too_big, {"Connection": "close"})
        if size > FREE:
            exchange_of(request.scope).hold(size)
        chunks.append(chunk)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def json_response(value: Any, status: int = 200) -> Response:
    """Return a response with `value` as JSON."""
    return raw_json_response(go_json(value), status)


def raw_json_response(text: str, status: int = 200) -> Response:
    """Return a response with JSON that is encoded already."""
    return Response(text, status, media_type=_JSON, headers=V1_HEADERS)


def text_response(text: str) -> Response:
    """Return a 200 response with text, such as OK."""
    return Response(text, media_type="text/plain", headers=V1_HEADERS)


def empty_response() -> Response:
    """Return a 200 response without a body."""
    return Response(headers=V1_HEADERS)


def error_response(request: Request, error: HttpError) -> Response:
    """Return an error in NSQ's form: {"message":"TEXT"}."""
    body = go_json({"message": error.text})
    return Response(body, status_code=error.status, media_type=_JSON, headers=V1_HEADERS | error.headers)


def tls_required(https_port: int) -> Response:
    """Return the answer of plain HTTP where TLS is required; it is an ASGI application, too. With Go's spaces in its JSON."""
    body = b'{"message": "TLS_REQUIRED", "https_port": %d}' % https_port
    return Response(body, status_code=403, media_type=_JSON, headers=V1_HEADERS)


class WithHeaders:
    """An ASGI application whose answers have further headers."""

    def __init__(self, app: ASGIApp, headers: Mapping[str, str]) -> None:
        """`headers`: by lower-case name."""
        self._app = app
        self._headers = [(name.encode(), value.encode()) for name, value in headers.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *self._headers]
            await send(message)

        await self._app(scope, receive, send_with)


def plain(status: int, text: str) -> Response:
    """Return a text response without the header X-Nsq-Content-Type."""
    return Response(text, status_code=status, media_type="text/plain")


async def live(bridge: Bridge) -> Response:
    """Answer 200 if the trio thread runs a call within LIVE_TIMEOUT, otherwise 503."""
    try:
        await asyncio.wait_for(bridge.observe(lambda: None), LIVE_TIMEOUT)
    except TimeoutError:
        return plain(503, "NOK - the daemon does not answer")
    return plain(200, "OK")
