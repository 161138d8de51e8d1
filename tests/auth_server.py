"""An authorization server for tests, on loopback, that does what its mood says, and remembers what it was asked.

    with AuthServer(says(200, {"ttl": 60, ...})) as server:
        nsqd(path, "-auth-http-address", server.address)
        assert server.requests[0].query["secret"] == "abc"

The mood may be changed at any time.
"""

import json
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.http_endpoint import Endpoint, Request

EVERYTHING = {"topic": ".*", "channels": [".*"], "permissions": ["subscribe", "publish"]}
Mood = Callable[["Visit"], None]


@dataclass
class Visit:
    """One request and the connection it came by. A mood that closes it ends the connection; else more may come."""

    request: Request
    socket: socket.socket
    closed: bool = field(default=False)

    def send(self, data: bytes) -> bool:
        """False if the other side has gone."""
        try:
            self.socket.sendall(data)
        except OSError:
            self.closed = True
        return not self.closed

    def close(self) -> None:
        self.closed = True

    def wait_for_the_end(self) -> None:
        """Say nothing until the other side hangs up or the server stops."""
        try:
            while self.socket.recv(4096):
                pass
        except OSError:
            pass
        self.closed = True


# Moods


def allowing(*rules: object, **fields: object) -> dict[str, object]:
    """An answer's JSON: everything is allowed for a minute, unless said otherwise."""
    return {"ttl": 60, "identity": "ann", "authorizations": list(rules or [EVERYTHING]), **fields}


def response(status: int, body: bytes, **headers: str) -> bytes:
    """HTTP. The names of headers are written with _ for -."""
    lines = [f"HTTP/1.1 {status} Any"]
    lines += [
        f"{name.replace('_', '-')}: {value}" for name, value in {"Content_Length": str(len(body)), **headers}.items()
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


def says(status: int, answer: object = "", **headers: str) -> Mood:
    """An HTTP answer: bytes as they are, else JSON."""
    body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    return lambda visit: void(visit.send(response(status, body, **headers)))


def says_raw(data: bytes) -> Mood:
    """Bytes, whatever they are, and the end of the connection."""

    def mood(visit: Visit) -> None:
        visit.send(data)
        visit.close()

    return mood


def hangs(after: bytes = b"") -> Mood:
    """Return a mood that sends some bytes and then nothing more."""

    def mood(visit: Visit) -> None:
        visit.send(after)
        visit.wait_for_the_end()

    return mood


def never_ends(head: bytes, part: bytes, pause: float = 0.0) -> Mood:
    """The same again and again, with `pause` seconds between, until the other side has enough."""

    def mood(visit: Visit) -> None:
        visit.send(head)
        while visit.send(part):
            time.sleep(pause)

    return mood


def void(_: object) -> None:
    pass


class AuthServer(Endpoint):
    """See above. With `tls` it speaks HTTPS."""

    def __init__(self, mood: Mood, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(self._visit, tls=tls)
        self.mood = mood

    @property
    def secrets(self) -> list[str]:
        """What it was asked about, in order."""
        return [request.query["secret"] for request in self.requests]

    def _visit(self, request: Request, peer: socket.socket) -> bool:
        visit = Visit(request, peer)
        self.mood(visit)
        return not visit.closed
