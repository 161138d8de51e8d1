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
from tests.shared.http.serving import Serving

pytestmark = pytest.mark.process

GOOD = b"GET /good HTTP/1.1\r\nHost: localhost\r\n\r\n"
BAD = b"GET /bad HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Site(Serving):
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


def test_a_server_that_cannot_start_says_so() -> None:
    bugs: list[BaseException] = []
    closed = socket.create_server(("127.0.0.1", 0))
    closed.close()
    HttpServer(Api({}, Hosts([]), bugs.append), [closed], bugs.append).start()  # returns
    assert len(bugs) == 1
