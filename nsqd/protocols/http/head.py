"""Recognize the heads of requests that can be answered in the turn. Pure: bytes go in, a Request or None comes out.

This is no parser of HTTP. It accepts only what every server reads in the same way, and only headers that do not change the
answer. For any other one it returns None, so uvicorn alone decides the meaning of a strange request.
"""

import re
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

MAX_HEAD = 4096  # bytes: an honest head has a few hundred
_LINE = re.compile(
    rb"(?:POST (?P<post>/(?P<route>m?pub)\?topic=(?P<topic>[.a-zA-Z0-9_-]{1,64})(?P<binary>&binary=true)?)"
    rb"|GET (?P<get>/ping|/livez|/readyz|/stats\?format=json&topic=(?P<seen>[.a-zA-Z0-9_-]{1,64})"
    rb"(?:&channel=(?P<channel>[.a-zA-Z0-9_-]{1,64}))?(?P<without>(?:&include_(?:clients|mem)=(?:true|false))*)))"
    rb" HTTP/1\.1\r\n"
)
_HEADER = re.compile(rb"([A-Za-z][A-Za-z-]*):[ \t]*([\x21-\x7e](?:[\t\x20-\x7e]*[\x21-\x7e])?)\r\n")
_LENGTH = re.compile(rb"[0-9]{1,9}")
# Headers that change nothing about the answer of these routes.
_IGNORED = frozenset(
    (b"accept", b"accept-encoding", b"accept-language", b"cache-control", b"content-type", b"pragma", b"traceparent",
     b"tracestate", b"user-agent", b"x-request-id")
)  # fmt: skip
_BEARER = b"Bearer "
_BEGINNINGS = (
    b"POST /pub?topic=", b"POST /mpub?topic=", b"GET /ping HTTP/1.1\r\n", b"GET /livez HTTP/1.1\r\n",
    b"GET /readyz HTTP/1.1\r\n", b"GET /stats?format=json&topic=",
)  # fmt: skip


class Route(Enum):
    """The routes that are answered in the turn."""

    PING = 0
    PUB = 1
    MPUB = 2  # one message a line
    LIVEZ = 3
    READYZ = 4
    STATS = 5  # of one topic, as JSON
    BINARY = 6  # an /mpub whose messages follow their lengths


_POSTS = {(b"pub", None): Route.PUB, (b"mpub", None): Route.MPUB, (b"mpub", b"&binary=true"): Route.BINARY}
_GETS = {b"/ping": Route.PING, b"/livez": Route.LIVEZ, b"/readyz": Route.READYZ}


class Request(NamedTuple):
    """A request whose head has been read."""

    route: Route
    topic: bytes  # b"" for routes about the node
    length: int  # bytes of its body
    method: str
    target: bytes  # path and query
    channel: bytes = b""  # for STATS, the one that is wanted; b"": all
    clients: bool = True  # for STATS: whether the response has clients
    memory: bool = True  # for STATS: whether the response has the process's memory
    token: bytes = b""  # of its sender; b"": there is none


def may_become(data: bytes) -> bool:
    """Return whether `data`, a head that is not complete, may be the beginning of a request that is answered in the turn."""
    if data.count(b"\n") != data.count(b"\r\n") or (b"\r\n" in data and not _LINE.match(data)):
        return False
    return any(data.startswith(one) or one.startswith(data) for one in _BEGINNINGS)


def read_head(head: bytes, is_own_host: Callable[[bytes], bool]) -> Request | None:
    """Return the request of a complete head, or None if uvicorn has to read it. `is_own_host`: see shared.http.hosts.Hosts."""
    line = _LINE.match(head)
    headers = _headers(head, line.end()) if line is not None else None
    if line is None or headers is None:
        return None
    host, length = headers.pop(b"host", b""), headers.pop(b"content-length", None)
    shown = headers.pop(b"authorization", None)
    if shown is not None and not shown.startswith(_BEARER):
        return None
    token = shown[len(_BEARER) :].strip() if shown is not None else b""
    if headers.pop(b"connection", b"keep-alive").lower() != b"keep-alive" or not headers.keys() <= _IGNORED:
        return None
    if length is not None and not _LENGTH.fullmatch(length):
        return None
    if not host or not is_own_host(host):
        return None
    if line["get"] is not None:
        found = _get(line) if length in (None, b"0") else None
        return found._replace(token=token) if found is not None and token else found
    route = _POSTS.get((line["route"], line["binary"]))
    if route is None or length is None:
        return None
    return Request(route, line["topic"], int(length), "POST", line["post"], token=token)


def _get(line: re.Match[bytes]) -> Request | None:
    """Return the request of a line with GET; None if it says something twice."""
    target = line["get"]
    if line["seen"] is None:
        return Request(_GETS[target], b"", 0, "GET", target)
    without = line["without"]
    if without.count(b"clients") > 1 or without.count(b"mem") > 1:
        return None
    clients, memory = b"clients=false" not in without, b"mem=false" not in without
    return Request(Route.STATS, line["seen"], 0, "GET", target, line["channel"] or b"", clients, memory)


def _headers(head: bytes, at: int) -> dict[bytes, bytes] | None:
    """Return the headers by name in lower case; None if one is repeated or not of the plain form."""
    headers: dict[bytes, bytes] = {}
    while not head.startswith(b"\r\n", at):
        match = _HEADER.match(head, at)
        if match is None or (name := match[1].lower()) in headers:
            return None
        headers[name] = match[2]
        at = match.end()
    return headers if at + 2 == len(head) else None
