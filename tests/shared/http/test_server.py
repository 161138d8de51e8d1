"""The HTTP thread: it frees its connections by reference counts alone, reports what stopped it, and closes slow clients."""

import asyncio
import gc
import socket
import struct
import time
from asyncio.selector_events import _SelectorSocketTransport  # type: ignore[attr-defined]
from collections import Counter
from collections.abc import Iterator

import pytest
from starlette.requests import Request
from starlette.responses import Response
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from shared.connection_limiter import ConnectionLimiter, ConnectionLimits
from shared.http import guard, server
from shared.http.api import Api
from shared.http.bridge import Bridge
from shared.http.errors import HttpError
from shared.http.hosts import Hosts
from shared.http.server import HttpServer
from tests.cases import each
from tests.shared.http.serving import Serving

pytestmark = pytest.mark.process

GOOD = b"GET /good HTTP/1.1\r\nHost: localhost\r\n\r\n"
BAD = b"GET /bad HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Site(Serving):
    """A server with a route that works and one that answers an error through the bridge."""

    def __init__(self) -> None:
        self.bridge = Bridge(lambda: self.bridge.deliver(self.bridge.serve()))
        routes = {"/good": {"GET": self._good}, "/bad": {"GET": self._bad}}
        self.limiter = ConnectionLimiter("HTTP", ConnectionLimits(1000, 0), Counter())
        super().__init__(routes, limiter=self.limiter)

    async def _good(self, request: Request) -> Response:
        return Response(await self.bridge.call(lambda: "fine"))

    async def _bad(self, request: Request) -> Response:
        def fail() -> str:
            raise HttpError(404, "NOT_THERE")

        return Response(await self.bridge.call(fail))


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    yield site
    site.close()


@pytest.fixture
def uncollected() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def objects() -> int:
    kinds = (_SelectorSocketTransport, guard.GuardedProtocol, HttpToolsProtocol)
    return sum(type(thing) in kinds for thing in gc.get_objects())


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("requests", [GOOD, BAD, GOOD * 100])
@pytest.mark.parametrize("is_reset", [False, True])
def test_connections_are_freed_without_the_collector(site: Site, requests: bytes, is_reset: bool) -> None:
    """Kept alive, or with requests in the pipeline: neither a timer nor a queue may hold it."""
    before = objects()
    for _ in range(10):
        client = site.connect()
        client.sendall(requests)
        assert client.recv(16)
        if is_reset:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close by RST
        client.close()
    deadline = time.monotonic() + 20
    while objects() > before + 3 and time.monotonic() < deadline:  # the loop may hold the last one it served
        with site.connect() as client:
            client.sendall(GOOD)
            assert client.recv(4096)
    assert objects() <= before + 3


def test_a_call_that_cannot_be_promised_is_refused_and_a_server_that_cannot_start_says_so(site: Site) -> None:
    site.bridge._wake = lambda: site.bridge.refuse(site.bridge.serve())
    with site.connect() as client:
        client.sendall(GOOD)
        assert client.recv(13) == b"HTTP/1.1 503 "
    bugs: list[BaseException] = []
    closed = socket.create_server(("127.0.0.1", 0))
    closed.close()
    broken = HttpServer(Api({}, Hosts([]), bugs.append), [closed], bugs.append)
    broken.start()  # returns
    assert len(bugs) == 1


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A server that waits for nothing."""
    for name in ("HEADER_TIMEOUT", "BODY_TIMEOUT", "WHOLE_BODY_TIMEOUT", "KEEP_ALIVE"):
        monkeypatch.setattr(guard, name, 0.1)
    site = Site()
    yield site
    site.close()


EARLY = b"POST /good HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"  # answered before its body has come


@each("pieces, status", [
    ([b""], b""), ([b"GET /good HT"], b""), ([EARLY % 5 + b"x"], b" 405 "), ([GOOD], b" 200 "), ([EARLY % 1, b"x"], b" 405 "),
])  # fmt: skip
def test_a_client_that_stops_in_the_middle_or_is_idle_is_closed(
    hasty: Site, pieces: list[bytes], status: bytes
) -> None:
    with hasty.connect() as client:
        for piece in pieces:
            client.sendall(piece)
        answer = client.recv(4096)
        assert status in answer
        assert not answer or client.recv(4096) == b""


def test_a_header_without_end_is_cut_off(site: Site) -> None:
    with site.connect() as client:
        try:
            for _ in range(100):
                client.sendall(b"GET /good HTTP/1.1\r\n" if _ == 0 else b"X-A: " + b"x" * 1000 + b"\r\n")
            assert client.recv(4096).startswith(b"HTTP/1.1 400 ")
            assert client.recv(4096) == b""
        except (ConnectionResetError, BrokenPipeError):
            pass  # as good


@pytest.mark.parametrize("rest", [b"", GOOD[20:]])
def test_a_header_that_was_half_read_elsewhere_has_only_the_time_that_is_left(site: Site, rest: bytes) -> None:
    accepted, client = socket.socketpair()
    with client:
        assert site.limiter.admits("", 0)
        site.server.adopt(accepted, "", GOOD[:20], time.monotonic_ns() + (5_000_000_000 if rest else 100_000_000))
        client.settimeout(5)  # s: half of what a header has otherwise
        client.sendall(rest)
        assert client.recv(4096).endswith(b"fine" if rest else b"")
        assert rest or client.recv(4096) == b""


def test_the_loop_waits_for_the_next_date_and_ends_without_waiting_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "TICK", 3600.0)

    async def run() -> None:
        config = server._config(Api({}, Hosts([]), lambda bug: None))
        config.load()
        uvicorn = server._Uvicorn(config)
        loop = asyncio.create_task(uvicorn.main_loop())
        while not uvicorn.server_state.default_headers:
            await asyncio.sleep(0)
        assert b"date" in dict(uvicorn.server_state.default_headers)
        uvicorn.end()
        await asyncio.wait_for(loop, 60)

    asyncio.run(run())
