"""Servers in the test's process, which nsqadmin's HTTP client reaches without a socket."""

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count

import httpx
import pytest

from tests.admin.asking import NOWHERE

Response = tuple[int, bytes]
Answer = Callable[[str], Response | Awaitable[Response]]


Serve = Callable[[httpx.Request], Awaitable[httpx.Response]]


async def _refuse(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("All connection attempts failed")


_SERVERS: dict[str, Serve] = {NOWHERE: _refuse}  # by address
_PORTS = count(1000)  # beyond 80, which httpx leaves out of an address
_by_socket = httpx.AsyncHTTPTransport.handle_async_request


@contextmanager
def near(
    answer: Answer,
    headers: Mapping[str, str] | None = None,
    on_request: Callable[[httpx.Request], object] = lambda request: None,
) -> Iterator[str]:
    """A server that answers each path as `answer` says, with these headers. `on_request` is called with each request.

    An answer that takes its time is awaited.
    """

    async def serve(request: httpx.Request) -> httpx.Response:
        on_request(request)
        answered = answer(request.url.raw_path.decode())
        status, content = await answered if inspect.isawaitable(answered) else answered
        return httpx.Response(status, headers=headers, stream=httpx.ByteStream(content))

    address = f"127.0.0.1:{next(_PORTS)}"
    _SERVERS[address] = serve
    try:
        yield address
    finally:
        _SERVERS[address] = _refuse


async def _handle(transport: httpx.AsyncHTTPTransport, request: httpx.Request) -> httpx.Response:
    serve = _SERVERS.get(request.url.netloc.decode())
    return await (_by_socket(transport, request) if serve is None else serve(request))


@pytest.fixture(autouse=True)
def _nearby(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let clients of this process reach these servers; all others they reach by sockets."""
    monkeypatch.setattr(httpx.AsyncHTTPTransport, "handle_async_request", _handle)
