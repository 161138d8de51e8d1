"""What clients make the HTTP thread buffer: bounded by the budget, given back whatever they do, not held by slow readers."""

import random
from collections.abc import Iterator
from contextlib import suppress

import pytest
from starlette.requests import Request
from starlette.responses import Response

from shared.budget import FREE, Budget
from shared.http.api import read_body
from shared.http.exchange import ANSWER_TIMEOUT, LEAST_RATE
from shared.http.guard import WRITE_TIMEOUT
from tests.effort import seeds
from tests.shared.http.serving import LocalServing, all_of

LIMIT = 100 * FREE
LARGE = 2 << 20  # bytes of an answer: more than the budget, and than the network takes off our hands
GET_LARGE = b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n"
GET_SMALL = b"GET /small HTTP/1.1\r\nHost: localhost\r\n\r\n"
BUSY = b"HTTP/1.1 503 Service Unavailable\r\n"
SECOND = 1_000_000_000  # ns


def post(announced: int, body: bytes) -> bytes:
    return b"POST /pub HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % announced + body


class Site(LocalServing):
    def __init__(self) -> None:
        self.budget = Budget(LIMIT)
        self.bodies: list[int] = []  # their sizes
        self.asked = 0  # for the large answer
        routes = {"/pub": {"POST": self._pub}, "/large": {"GET": self._large}, "/small": {"GET": self._small}}
        super().__init__(routes, budget=self.budget)

    @property
    def used(self) -> int:
        return self.budget.figures().used

    async def _pub(self, request: Request) -> Response:
        self.bodies.append(len(await read_body(request, 10_000_000, "TOO_BIG")))
        return Response("OK")

    async def _large(self, request: Request) -> Response:
        self.asked += 1
        return Response(bytes(LARGE))

    async def _small(self, request: Request) -> Response:
        return Response("small")


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    yield site
    site.close()
    assert site.used == 0
    assert site.budget._owners == {}


def test_what_there_is_no_room_for_is_refused_and_small_requests_are_served(site: Site) -> None:
    site.budget.charge(LIMIT, "10.0.0.1")
    with site.connect() as client:
        client.sendall(post(FREE, bytes(FREE)) + GET_SMALL + post(FREE + 1, b""))
        published, small, refused = all_of(client).split(b"HTTP/1.1 ")[1:]
    assert published.startswith(b"200 ")
    assert small.endswith(b"small")
    assert refused.startswith(BUSY[9:])
    assert b"\r\nretry-after: 1\r\n" in refused
    assert refused.endswith(b'{"message":"BUFFER_BUDGET_EXCEEDED"}')
    assert site.bodies == [FREE], "the other one was not read"
    site.budget.release(LIMIT - 1, "10.0.0.1")
    with site.connect(begins_with=GET_LARGE + GET_SMALL.replace(b"Host", b"Connection: close\r\nHost")) as client:
        assert all_of(client).startswith(BUSY)
        assert site.used == 1
    site.budget.release(1, "10.0.0.1")


def test_bodies_that_never_end_take_no_more_than_the_budget(site: Site) -> None:
    clients = [site.connect() for _ in range(20)]
    for client in clients:
        with suppress(ConnectionResetError, BrokenPipeError):  # it was refused
            client.sendall(post(20 * FREE, bytes(20 * FREE - 1)))
    figures = site.budget.figures()
    assert figures.refused > 0
    assert 0 < figures.used <= figures.peak <= LIMIT // 2  # for one address
    for client in clients:
        client.close()
    with site.connect() as client:
        client.sendall(post(20 * FREE, bytes(20 * FREE)))
        assert site.node.wait(lambda: site.bodies == [20 * FREE])


def test_chunks_of_a_body_are_counted_as_they_come(site: Site) -> None:
    with site.connect() as client:
        client.sendall(b"POST /pub HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        client.sendall(b"%x\r\n" % (5 * FREE) + bytes(5 * FREE) + b"\r\n")
        assert site.node.wait(lambda: site.used == 5 * FREE)


def test_who_does_not_read_is_cut_off_however_much_he_asks_for(site: Site) -> None:
    with site.connect(begins_with=GET_LARGE * 3):
        began = site.now
        assert site.node.wait(lambda: site.used == LARGE)
        assert site.node.wait(lambda: site.connections == 0)
    assert site.now - began == pytest.approx(WRITE_TIMEOUT, abs=0.1)
    assert site.asked == 1  # an answer is made when the one before is sent


def test_who_reads_a_little_now_and_then_is_cut_off(site: Site) -> None:
    with site.connect(begins_with=GET_LARGE) as client:
        began = site.now
        while site.connections:
            for _ in range(10):
                client.recv(1000)
            site.node.advance(SECOND // 5)
    assert site.now - began == pytest.approx(ANSWER_TIMEOUT + LARGE / LEAST_RATE, abs=1)


@pytest.mark.parametrize("seed", seeds(2))
def test_the_budget_returns_to_nothing(site: Site, seed: int) -> None:
    chance = random.Random(seed)
    clients = [site.connect() for _ in range(10)]
    for _ in range(80):
        client = chance.choice(clients)
        size = chance.choice((10, FREE, 3 * FREE, 10 * FREE))
        said = chance.choice(
            (GET_LARGE, GET_SMALL, post(size, bytes(size)), post(size, bytes(size // 2)), b"CONNECT / HTTP/1.1\r\n\r\n")
        )
        client.settimeout(0.02)
        with suppress(OSError):  # cut off, or not read
            client.sendall(said)
            if chance.random() < 0.3:
                client.recv(1000)
        if chance.random() < 0.2:
            if chance.random() < 0.5:
                client._end.reset()
            client.close()
            clients[clients.index(client)] = site.connect()
    for client in clients:
        client.close()
