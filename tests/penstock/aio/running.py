"""Helpers of the tests of the async client: a network that breaks on request, and waiting."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import anyio
from anyio.abc import SocketAttribute, SocketStream


class Network:
    """A proxy before one address, which loses data on request."""

    def __init__(self, target: str) -> None:
        self.address = ""
        self.connections = 0
        self.swallows_answers = False  # data from the server is dropped
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
    while not done():
        await anyio.sleep(0.01)
