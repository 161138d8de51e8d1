"""A small HTTP server for tests: it notes requests, and answers as the test says, well or badly."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import BinaryIO
from urllib.parse import parse_qsl, urlsplit

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK"


def status(code: int, *headers: str) -> bytes:
    """Return a whole answer without a body."""
    return "\r\n".join([f"HTTP/1.1 {code} Because", "Content-Length: 0", *headers, "\r\n"]).encode()


@dataclass(frozen=True)
class Request:
    """A request as it came."""

    method: str
    target: str
    headers: dict[str, str]  # names in lower case
    body: bytes
    connection: int = field(default=0, compare=False)  # the first one is 0

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.target).query, keep_blank_values=True))


Answer = Callable[[Request, socket.socket], bool]


def always(data: bytes, keep: bool = True) -> Answer:
    """Return a behavior: answer `data`; `keep` says whether the connection stays open."""

    def answer(request: Request, peer: socket.socket) -> bool:
        peer.sendall(data)
        return keep

    return answer


@dataclass
class Endpoint:
    """The server, from construction to the end of the block. `answer` may be replaced at any time."""

    answer: Answer = field(default_factory=lambda: always(OK))
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    tls: ssl.SSLContext | None = None

    def __enter__(self) -> Endpoint:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self._peers: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for peer in self._peers:
            with suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)

    @property
    def address(self) -> str:
        """Return host:port."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """Return the URL of a page."""
        return f"{'https' if self.tls else 'http'}://{self.address}/x"

    @property
    def bodies(self) -> list[bytes]:
        """Return the bodies of all requests so far."""
        return [request.body for request in [*self.requests]]

    def _accept(self) -> None:
        with suppress(OSError):  # the listener was closed
            while True:
                peer, number = self._listener.accept()[0], self.connections
                self.connections += 1
                self._peers.append(peer)
                threading.Thread(target=self._serve, args=(peer, number), daemon=True).start()

    def _serve(self, plain: socket.socket, number: int) -> None:
        with suppress(OSError, ValueError), self._shake_hands(plain) as peer, peer.makefile("rb") as file:
            while (request := _read(file, number)) is not None:
                self.requests.append(request)
                if not self.answer(request, peer):
                    return

    def _shake_hands(self, plain: socket.socket) -> socket.socket:
        return self.tls.wrap_socket(plain, server_side=True) if self.tls else plain


def _read(file: BinaryIO, connection: int) -> Request | None:
    line = file.readline().decode().split()
    if len(line) != 3:
        return None
    headers = {}
    while (header := file.readline().decode().strip()) != "":
        name, _, value = header.partition(":")
        headers[name.strip().lower()] = value.strip()
    return Request(line[0], line[1], headers, file.read(int(headers.get("content-length", "0"))), connection)
