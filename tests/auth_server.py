"""An authorization server for tests, on loopback, that does what its mood says, and remembers what it was asked.

    with AuthServer(says(200, {"ttl": 60, ...})) as server:
        nsqd(path, "-auth-http-address", server.address)
        assert server.requests[0].query["secret"] == "abc"

The mood may be changed at any time. Each connection has a thread; leaving the block ends them all.
"""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

EVERYTHING = {"topic": ".*", "channels": [".*"], "permissions": ["subscribe", "publish"]}
_END_TIMEOUT = 20.0  # s


@dataclass(frozen=True)
class Request:
    """A request as the server received it."""

    method: str
    target: str  # as in the request line
    headers: dict[str, str]  # names in lower case
    body: bytes
    connection: int  # the first one is 0

    @property
    def query(self) -> dict[str, str]:
        return {name: values[-1] for name, values in parse_qs(urlsplit(self.target).query, True).items()}


Mood = Callable[["Visit"], None]


@dataclass
class Visit:
    """One request and the connection it came by. A mood that closes it ends the connection; else more may come."""

    request: Request
    socket: socket.socket
    server: AuthServer
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


class AuthServer:
    """See above. With `tls` it speaks HTTPS."""

    def __init__(self, mood: Mood, tls: ssl.SSLContext | None = None) -> None:
        self.mood = mood
        self.requests: list[Request] = []
        self.connections = 0
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._sockets: set[socket.socket] = set()
        self._lock = threading.Lock()  # guards _sockets, _stopped, requests and connections
        self._stopped = False
        self._threads: list[threading.Thread] = []

    @property
    def port(self) -> int:
        """Where it listens, also when it does no more."""
        return self._port

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def secrets(self) -> list[str]:
        """What it was asked about, in order."""
        return [request.query["secret"] for request in self.requests]

    def __enter__(self) -> AuthServer:
        self._port: int = self._listener.getsockname()[1]
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Hang up everywhere, and listen no more: from now on it is down."""
        with self._lock:
            self._stopped = True
            for sock in [self._listener, *self._sockets]:
                _shut(sock)
        for thread in list(self._threads):
            thread.join(_END_TIMEOUT)
            assert not thread.is_alive()
        self._listener.close()

    def _start(self, target: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                if self._stopped:
                    sock.close()
                    return
                self._sockets.add(sock)
                number, self.connections = self.connections, self.connections + 1
            self._start(self._serve, sock, number)

    def _serve(self, sock: socket.socket, number: int) -> None:
        spoken: socket.socket = sock
        try:
            if self._tls is not None:
                spoken = self._tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
                with self._lock:  # the wrapper has taken the descriptor over
                    self._sockets.add(spoken)
                spoken.do_handshake()  # type: ignore[attr-defined]
            with spoken.makefile("rb") as file:
                while (request := _read(file, number)) is not None:
                    with self._lock:
                        self.requests.append(request)
                    visit = Visit(request, spoken, self)
                    self.mood(visit)
                    if visit.closed:
                        break
        except (OSError, ValueError):
            pass  # it has gone, or we stop, or it speaks no HTTP
        finally:
            with self._lock:
                self._sockets -= {sock, spoken}
            spoken.close()
            sock.close()


def _read(file: Any, connection: int) -> Request | None:
    """The next request; None when there is none."""
    line = file.readline()
    if not line:
        return None
    method, target, _ = line.decode("latin-1").split(" ")
    headers: dict[str, str] = {}
    while (line := file.readline()) not in (b"\r\n", b""):
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.lower()] = value.strip()
    return Request(method, target, headers, file.read(int(headers.get("content-length", 0))), connection)


def _shut(sock: socket.socket) -> None:
    """End it for a waiting thread."""
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
