"""NSQ's HTTP conventions (specs/nsq.md b), on Starlette's requests and responses.

A daemon hands in a table of routes; this file answers 404, 405, OPTIONS, redirects, bad queries and foreign hosts, and
writes errors and JSON as the original does. It runs in the HTTP thread and knows nothing of any daemon.
"""

import ipaddress
import posixpath
import re
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import quote, unquote_plus

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from shared.budget import FREE
from shared.http.errors import HttpError
from shared.http.exchange import exchange_of
from shared.log import log
from shared.text import go_json

Handler = Callable[[Request], Awaitable[Response]]
Routes = Mapping[str, Mapping[str, Handler]]  # path -> method -> handler; a part of a path may be a "{parameter}"

V1_HEADERS = {"X-Nsq-Content-Type": "nsq; version=1.0"}
# a name or an address, and a port
_HOST = re.compile(r"(?:([A-Za-z0-9._-]+)|\[([0-9A-Fa-f:.]+(?:%[A-Za-z0-9._~-]+)?)\])(?::[0-9]*)?")
_OWN_SITES = (b"same-origin", b"none")  # Sec-Fetch-Site of our own pages, and of what people typed
_BAD_ESCAPE = re.compile(r"%(?![0-9a-fA-F]{2})")


class Api:
    """An ASGI application made of a route table."""

    def __init__(self, routes: Routes, hosts: "Hosts", on_bug: Callable[[BaseException], None]) -> None:
        self._exact = {path: methods for path, methods in routes.items() if "{" not in path}
        self._patterns = [(path.split("/"), methods) for path, methods in routes.items() if "{" in path]
        self._hosts = hosts
        self._on_bug = on_bug  # called with an exception that is our fault; the daemon stops

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            self._hosts.check(scope)
            response = await self._respond(request)
        except HttpError as error:
            response = error_response(request, error)
            error.__traceback__ = None  # it holds the frames that hold it, and with them the connection
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
        """Another case, a trailing slash, `//`, `..`: they lead to the canonical path, as by httprouter; else 404."""
        found = self._canonical(posixpath.normpath("/" + path.lstrip("/")))
        if request.method not in (self._find(found) or ()):
            raise HttpError(404, "NOT_FOUND")
        query = request.url.query
        location = quote(found, safe="/:@!$&'()*+,;=~")  # it was decoded, and may hold anything
        location += f"?{query}" if query else ""
        return Response(status_code=301 if request.method == "GET" else 307, headers={"Location": location})

    def _canonical(self, path: str) -> str:
        """The known path that `path` is but for its case; a parameter keeps its own. "" if there is none."""
        for exact in self._exact:
            if exact.lower() == path.lower():
                return exact
        parts = path.split("/")
        for pattern, _ in self._patterns:
            if _matches([word.lower() for word in pattern], parts, str.lower):
                return "/".join(own if _is_parameter(word) else word for word, own in zip(pattern, parts, strict=True))
        return ""


def _is_parameter(word: str) -> bool:
    return word.startswith("{")


def _matches(pattern: list[str], parts: list[str], folded: Callable[[str], str] = str) -> bool:
    """Each word is the same, or a parameter that is not empty."""
    if len(pattern) != len(parts):
        return False
    return all(
        bool(part) if _is_parameter(word) else word == folded(part) for word, part in zip(pattern, parts, strict=True)
    )


class Hosts:
    """Which Host and Origin are ours: protection against web pages that talk to a daemon through a browser.

    An IP address, a name without a dot and the names given are ours; a page's DNS name that was re-bound to this machine
    is not. An Origin must be the very host and port the request was sent to. A browser that says by Sec-Fetch-Site that another
    site's page has sent the request may only be following a link: a GET or HEAD that opens a document of its own, as links to
    nsqadmin in a chat or a wiki do.
    """

    def __init__(self, names: list[str]) -> None:
        self._names = {name.lower() for name in names if name and not name.startswith(".")} | {"localhost"}
        self._names.add(socket.gethostname().lower())
        self._suffixes = tuple(name.lower() for name in names if name.startswith("."))
        self._known: set[str] = set()  # Host values that passed, bounded: the hot path is one look-up

    def check(self, scope: Scope) -> None:
        """Raise HttpError: 403 for a foreign Host, Origin or site, 400 for no Host, two (RFC 9112, 3.2) or a malformed one."""
        hosts, origin, site = [], "", b"none"
        for name, value in scope["headers"]:
            if name == b"host":
                hosts.append(value.decode("latin-1"))
            elif name == b"origin":
                origin = value.decode("latin-1")
            elif name == b"sec-fetch-site":
                site = value
        if len(hosts) != 1 and (hosts or scope["http_version"] != "1.0"):
            raise HttpError(400, "BAD_REQUEST", {"Connection": "close"})
        host = hosts[0] if hosts else ""
        if host and host not in self._known:
            if not self._ours(host):
                raise HttpError(403, "FOREIGN_HOST")
            if len(self._known) < 64:
                self._known.add(host)
        if origin and origin.lower().removeprefix("http://").removeprefix("https://") != host.lower():
            raise HttpError(403, "FOREIGN_ORIGIN")
        if site not in _OWN_SITES and not _follows_a_link(scope):
            raise HttpError(403, "FOREIGN_ORIGIN")

    def _ours(self, host: str) -> bool:
        match = _HOST.fullmatch(host)
        if match is None:
            raise HttpError(400, "BAD_REQUEST", {"Connection": "close"})
        name = (match[1] or match[2]).lower().rstrip(".")
        if name in self._names or name.endswith(self._suffixes or ("\0",)):
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return "." not in name
        return True


def _follows_a_link(scope: Scope) -> bool:
    """Whether a browser says that the request opens a document, and in no frame of another one."""
    headers = dict(scope["headers"])
    return (
        scope["method"] in ("GET", "HEAD")
        and headers.get(b"sec-fetch-mode") == b"navigate"
        and headers.get(b"sec-fetch-dest", b"document") == b"document"
    )


def query(request: Request) -> dict[str, str]:
    """The query's arguments, the first of each name. HttpError 400 INVALID_REQUEST on bad encoding, as Go's parser."""
    arguments: dict[str, str] = {}
    for part in _parts(request):
        if part:
            key, _, value = part.partition("=")
            arguments.setdefault(unquote_plus(key), unquote_plus(value))
    return arguments


def query_all(request: Request, name: str) -> list[str]:
    """Of an argument that may be repeated every value, in their order. HttpError 400 as by `query`."""
    pairs = (part.partition("=") for part in _parts(request))
    return [unquote_plus(value) for key, _, value in pairs if unquote_plus(key) == name]


def _parts(request: Request) -> list[str]:
    raw: str = request.scope["query_string"].decode("latin-1")
    if ";" in raw or _BAD_ESCAPE.search(raw):
        raise HttpError(400, "INVALID_REQUEST")
    return raw.split("&")


async def read_body(request: Request, limit: int, too_big: str) -> bytes:
    """The whole body, of at most `limit` bytes; else HttpError 413 with the text `too_big`, before more is read.

    HttpError 503 if the memory budget has no room for it, likewise before more is read.
    """
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


def json_response(value: Any) -> Response:
    """200 with JSON."""
    return raw_json_response(go_json(value))


def raw_json_response(text: str) -> Response:
    """200 with JSON that is encoded already."""
    return Response(text, media_type="application/json; charset=utf-8", headers=V1_HEADERS)


def text_response(text: str) -> Response:
    """200 with text, e.g. OK."""
    return Response(text, media_type="text/plain", headers=V1_HEADERS)


def empty_response() -> Response:
    """200 with nothing in it."""
    return Response(headers=V1_HEADERS)


def error_response(request: Request, error: HttpError) -> Response:
    """NSQ's error: {"message":"TEXT"}."""
    return Response(
        go_json({"message": error.text}),
        status_code=error.status,
        media_type="application/json; charset=utf-8",
        headers=V1_HEADERS | error.headers,
    )


class TlsRequired:
    """An ASGI application for plain HTTP where TLS is required: 403 to everything, and where to go instead."""

    def __init__(self, https_port: int) -> None:
        self._body = f'{{"message": "TLS_REQUIRED", "https_port": {https_port}}}'  # with Go's spaces, unlike all else

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = Response(
            self._body, status_code=403, media_type="application/json; charset=utf-8", headers=V1_HEADERS
        )
        await response(scope, receive, send)
