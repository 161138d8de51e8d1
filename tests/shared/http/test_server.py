"""The HTTP thread: its loop, and a server that cannot start. Its connections are those of test_secure.py and test_guard.py."""

import asyncio
import socket

import pytest

from shared.http import server
from shared.http.api import Api
from shared.http.hosts import Hosts
from shared.http.server import HttpServer


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


@pytest.mark.process
def test_a_server_that_cannot_start_says_so() -> None:
    bugs: list[BaseException] = []
    closed = socket.create_server(("127.0.0.1", 0))
    closed.close()
    HttpServer(Api({}, Hosts([]), bugs.append), [closed], bugs.append).start()  # returns
    assert len(bugs) == 1
