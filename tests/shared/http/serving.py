"""A server of HTTP: on a real socket, in a thread of the test, or on memory sockets in virtual time."""

import socket
from contextlib import suppress
from typing import Any

from shared.http.api import Api
from shared.http.hosts import Hosts
from shared.http.server import HttpServer
from tests.local_node import LocalNode, MemorySocket
from tests.simulation import net

Routes = dict[str, dict[str, Any]]


class Serving:
    def __init__(self, routes: Routes, *sockets: socket.socket) -> None:
        self.bugs: list[BaseException] = []
        listener = socket.create_server(("127.0.0.1", 0))
        self.address = listener.getsockname()
        app = Api(routes, Hosts([]), self.bugs.append)
        self.server = HttpServer(app, [listener, *sockets], self.bugs.append)
        self.server.start()

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=10)

    def close(self) -> None:
        self.server.stop()
        assert self.bugs == []


class LocalServing:
    """Time passes only while a client waits, and sent data arrives in pieces."""

    def __init__(self, routes: Routes, **more: Any) -> None:
        self.node = LocalNode()
        self.server = HttpServer(Api(routes, Hosts([]), self.node.bugs.append), [], self.node.bugs.append, **more)
        self.server.serve_within(self.node.loop)
        self._listener = net.Listener(self.node.network)

    @property
    def now(self) -> float:
        return self.node.clock.now / 1e9

    @property
    def connections(self) -> int:
        return self.server._limiter._open

    def connect(self, begins_with: bytes = b"", header_within: float = 1e9) -> MemorySocket:
        """Connect. The server has the first bytes already, and waits `header_within` s at most for the rest of the header."""
        end = self.node.network.dial(self._listener)
        self.node.network.move()
        accepted, _ = self._listener.accept()
        assert self.server._limiter.admits("127.0.0.1", 0)
        self.server.adopt(accepted, "127.0.0.1", begins_with, int((self.now + header_within) * 1e9))
        client = MemorySocket(self.node, end)
        client.settimeout(1000)
        return client

    def close(self) -> None:
        """Wait until no connection is left, and no task of one."""
        assert self.node.wait(lambda: self.connections == 0)
        self.node.advance(1_000_000_000)


def all_of(connection: socket.socket | MemorySocket) -> bytes:
    received = b""
    with suppress(ConnectionResetError):  # it closed before it had read all that we sent
        while data := connection.recv(1 << 20):
            received += data
    return received
