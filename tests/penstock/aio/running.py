"""What tests of the async client have in common: an event loop of either kind, and a network that breaks when told to."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

T = TypeVar("T")
BACKENDS = ("asyncio", "trio")
PATIENCE_S = 60.0


def run(backend: str, main: Callable[[], Awaitable[T]]) -> T:
    """Run an async function; it fails if it takes more than PATIENCE_S."""

    async def limited() -> T:
        with anyio.fail_after(PATIENCE_S):
            return await main()

    return anyio.run(limited, backend=backend)


Test = Callable[..., Awaitable[None]]


def on_asyncio(test: Test, *more: str) -> Callable[..., None]:
    """Make a test of an async function. `more`: what it wants beside the fixtures of the function."""

    def runs(backend: str = "asyncio", **fixtures: Any) -> None:
        run(backend, lambda: test(**fixtures))

    names = [*more, *inspect.signature(test).parameters]
    parameters = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names]
    runs.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # from which pytest knows the fixtures
    runs.__dict__.update(test.__dict__)  # its marks
    runs.__name__, runs.__module__ = test.__name__, test.__module__
    return runs


def on_both(test: Test) -> Callable[..., None]:
    """Make two tests of an async function: one on the event loop of asyncio, and one on that of trio."""
    return pytest.mark.parametrize("backend", BACKENDS)(on_asyncio(test, "backend"))


class Network:
    """A proxy before one address, which loses what the test tells it to lose."""

    def __init__(self, target: str) -> None:
        self.address = ""
        self.connections = 0
        self.swallows_answers = False  # what the server sends is dropped
        self.refuses = False  # new connections are closed at once
        self._target = target
        self._open: set[SocketStream] = set()

    def use(self, target: str) -> None:
        """Lead new connections to another address."""
        self._target = target

    async def cut(self) -> None:
        """Break all connections, of which there is at least one."""
        await until(lambda: self._open)
        for stream in [*self._open]:
            await anyio.aclose_forcefully(stream)

    async def serve(self, client: SocketStream) -> None:
        """Pass bytes on in both directions."""
        self.connections += 1
        if self.refuses:
            await client.aclose()
            return
        host, port = self._target.rsplit(":", 1)
        server = await anyio.connect_tcp(host, int(port))
        self._open |= {client, server}
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._pass_on, client, server, False)
            await self._pass_on(server, client, True)
            await anyio.aclose_forcefully(client)
        self._open -= {client, server}

    async def _pass_on(self, source: SocketStream, sink: SocketStream, is_answer: bool) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream):
            while True:
                data = await source.receive()
                if not (is_answer and self.swallows_answers):
                    await sink.send(data)
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            await sink.send_eof()


@asynccontextmanager
async def network(target: str) -> AsyncIterator[Network]:
    """Listen before `target` (host:port)."""
    proxy = Network(target)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    proxy.address = f"127.0.0.1:{listener.listeners[0].extra(SocketAttribute.local_port)}"
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, proxy.serve)
        yield proxy
        tasks.cancel_scope.cancel()


async def until(done: Callable[[], object]) -> None:
    """Wait until `done` returns something true."""
    while not done():
        await anyio.sleep(0.01)
