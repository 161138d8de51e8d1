"""A server of HTTP in a thread of the test, and what a client of it reads."""

import socket
from contextlib import suppress
from typing import Any

from shared.http.api import Api
from shared.http.hosts import Hosts
from shared.http.server import HttpServer


class Serving:
    """A server of these routes."""

    def __init__(self, routes: dict[str, dict[str, Any]], **more: Any) -> None:
        self.bugs: list[BaseException] = []
        listener = socket.create_server(("127.0.0.1", 0))
        self.address = listener.getsockname()
        self.server = HttpServer(Api(routes, Hosts([]), self.bugs.append), [listener], self.bugs.append, **more)
        self.server.start()

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=10)

    def close(self) -> None:
        self.server.stop()
        assert self.bugs == []


def all_of(connection: socket.socket) -> bytes:
    """Return all bytes until the peer closes."""
    received = b""
    with suppress(ConnectionResetError):  # it closed before it had read all that we sent
        while data := connection.recv(1 << 20):
            received += data
    return received
