"""What clients make the HTTP thread buffer: bounded by the budget, given back whatever they do, not held by slow readers."""

import random
import socket
import struct
from collections.abc import Iterator

import pytest
from starlette.requests import Request
from starlette.responses import Response

from shared.budget import FREE, Budget
from shared.http import exchange, guard
from shared.http.api import read_body
from tests.daemons import eventually
from tests.effort import seeds
from tests.shared.http.serving import Serving, all_of

pytestmark = pytest.mark.process

LARGE = 40 * 1024 * 1024  # bytes of an answer: more than the kernel takes off our hands
GET_LARGE = b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n"
GET_SMALL = b"GET /small HTTP/1.1\r\nHost: localhost\r\n\r\n"
BUSY = b"HTTP/1.1 503 Service Unavailable\r\n"


def post(announced: int, body: bytes) -> bytes:
    return b"POST /pub HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % announced + body


class Site(Serving):
    """A server that takes bodies, and has a large and a small answer."""

    def __init__(self, limit: int) -> None:
        self.budget = Budget(limit)
        self.bodies: list[int] = []  # their sizes
        self.asked = 0  # for the large answer
        routes = {"/pub": {"POST": self._pub}, "/large": {"GET": self._large}, "/small": {"GET": self._small}}
        super().__init__(routes, budget=self.budget)

    @property
    def used(self) -> int:
        return self.budget.figures().used

    @property
    def connections(self) -> int:
        return self.server._limiter._open

    async def _pub(self, request: Request) -> Response:
        self.bodies.append(len(await read_body(request, 10_000_000, "TOO_BIG")))
        return Response("OK")

    async def _large(self, request: Request) -> Response:
        self.asked += 1
        return Response(bytes(LARGE))

    async def _small(self, request: Request) -> Response:
        return Response("small")

    def connect(self, receives: int = 4096) -> socket.socket:
        """`receives`: bytes that the client's kernel keeps for it."""
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receives)
        client.settimeout(10)
        client.connect(self.address)
        return client


def opened(limit: int) -> Iterator[Site]:
    site = Site(limit)
    yield site
    site.close()
    assert site.used == 0


@pytest.fixture
def site() -> Iterator[Site]:
    yield from opened(100 * FREE)


@pytest.fixture
def roomy() -> Iterator[Site]:
    yield from opened(10 * LARGE)


def test_what_there_is_no_room_for_is_refused_and_small_requests_are_served(site: Site) -> None:
    site.budget.charge(100 * FREE, "10.0.0.1")
    with site.connect() as client:
        client.sendall(post(FREE, bytes(FREE)))
        assert client.recv(4096).startswith(b"HTTP/1.1 200 ")
        client.sendall(GET_SMALL)
        assert client.recv(4096).endswith(b"small")
        client.sendall(post(FREE + 1, b""))
        answer = all_of(client)
    assert answer.startswith(BUSY)
    assert b"\r\nretry-after: 1\r\n" in answer
    assert answer.endswith(b'{"message":"BUFFER_BUDGET_EXCEEDED"}')
    assert site.bodies == [FREE], "the other one was not read"
    site.budget.release(100 * FREE - 1, "10.0.0.1")
    with site.connect() as client:
        client.sendall(GET_LARGE + GET_SMALL)
        assert client.recv(4096).startswith(BUSY)
        eventually(lambda: site.used == 1)
    site.budget.release(1, "10.0.0.1")


def test_bodies_that_never_end_take_no_more_than_the_budget(site: Site) -> None:
    clients = []
    for _ in range(20):
        clients.append(site.connect())
        try:
            clients[-1].sendall(post(20 * FREE, bytes(20 * FREE - 1)))
        except (ConnectionResetError, BrokenPipeError):
            pass  # it was refused
    eventually(lambda: site.budget.figures().refused > 0)
    figures = site.budget.figures()
    assert 0 < figures.used <= figures.peak <= 50 * FREE  # half of it, for one address
    for client in clients:
        client.close()

    def is_served() -> bool:  # not at once: connections that the server has yet to accept bring their bytes still
        with site.connect() as client:
            try:
                client.sendall(post(20 * FREE, bytes(20 * FREE)))
                return client.recv(4096).startswith(b"HTTP/1.1 200 ")
            except (ConnectionResetError, BrokenPipeError):
                return False

    eventually(is_served)
    eventually(lambda: site.used == 0)


def test_chunks_of_a_body_are_counted_as_they_come(site: Site) -> None:
    with site.connect() as client:
        client.sendall(b"POST /pub HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        client.sendall(b"%x\r\n" % (5 * FREE) + bytes(5 * FREE) + b"\r\n")
        eventually(lambda: site.used == 5 * FREE)
    eventually(lambda: site.used == 0)


def test_who_does_not_read_is_cut_off(roomy: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "WRITE_TIMEOUT", 0.3)
    clients = [roomy.connect() for _ in range(3)]
    for client in clients:
        client.sendall(GET_LARGE * 3)
    eventually(lambda: roomy.asked == 3)
    eventually(lambda: roomy.connections == 0)
    assert roomy.asked == 3  # an answer is made when the one before is sent
    eventually(lambda: roomy.used == 0)
    for client in clients:
        client.close()


def test_who_reads_a_little_now_and_then_is_cut_off(roomy: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "ANSWER_TIMEOUT", 0.3)
    monkeypatch.setattr(exchange, "LEAST_RATE", 1 << 40)
    with roomy.connect() as client:
        client.sendall(GET_LARGE)
        eventually(lambda: roomy.used == LARGE)
        eventually(lambda: not client.recv(1000) or roomy.connections == 0)
        eventually(lambda: roomy.connections == 0 and roomy.used == 0)


@pytest.mark.parametrize("seed", seeds(2))
def test_whatever_connections_do_the_budget_returns_to_nothing(
    site: Site, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(guard, "WRITE_TIMEOUT", 0.2)
    monkeypatch.setattr(guard, "BODY_TIMEOUT", 0.3)
    chance = random.Random(seed)
    clients = [site.connect() for _ in range(10)]
    for _ in range(80):
        client = chance.choice(clients)
        size = chance.choice((10, FREE, 3 * FREE, 10 * FREE))
        said = chance.choice(
            (GET_LARGE, GET_SMALL, post(size, bytes(size)), post(size, bytes(size // 2)), b"CONNECT / HTTP/1.1\r\n\r\n")
        )
        client.settimeout(0.02)
        try:
            client.sendall(said)
            if chance.random() < 0.3:
                client.recv(1000)
        except OSError:
            pass  # cut off, or not read
        if chance.random() < 0.2:
            if chance.random() < 0.5:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close by RST
            client.close()
            clients[clients.index(client)] = site.connect()
    for client in clients:
        client.close()
    eventually(lambda: site.used == 0 and site.connections == 0)
    assert site.budget._owners == {}
