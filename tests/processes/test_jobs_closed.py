"""What becomes of the calls of other tasks when an AsyncJobs is closed; real sockets, asyncio and trio."""

import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from penstock.jobs import AsyncJobs, ClientClosed, JobsError, JobsSettings

pytestmark = pytest.mark.process
BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])
PATIENCE_S = 30.0


class SilentServer:
    """A server that accepts, receives and never answers. It knows which connections are open."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.accepted: list[socket.socket] = []
        self.asked = threading.Semaphore(0)  # one for each connection that sent something
        self.ended = threading.Semaphore(0)  # one for each that the client closed

    def serve(self) -> None:
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            self.accepted.append(sock)
            threading.Thread(target=self._listen, args=(sock,), daemon=True).start()

    def _listen(self, sock: socket.socket) -> None:
        try:
            if sock.recv(65536):
                self.asked.release()
                while sock.recv(65536):
                    pass
        except OSError:
            pass
        self.ended.release()


@contextmanager
def silent_server() -> Iterator[SilentServer]:
    server = SilentServer()
    threading.Thread(target=server.serve, daemon=True).start()
    try:
        yield server
    finally:
        server.listener.shutdown(socket.SHUT_RDWR)
        server.listener.close()
        for sock in server.accepted:
            sock.close()


async def reserve(jobs: AsyncJobs) -> object:
    return await jobs.reserve()


async def run(jobs: AsyncJobs) -> None:
    await jobs.run(lambda job: job.delete(), 1)


@BACKENDS
@pytest.mark.parametrize(("pending", "connections"), [(reserve, 1), (run, 2)])
def test_closing_ends_the_calls_of_other_tasks_and_nothing_connects_again(
    backend: str, pending: Callable[[AsyncJobs], Awaitable[object]], connections: int
) -> None:
    errors: list[JobsError] = []

    async def call(jobs: AsyncJobs) -> None:
        try:
            await pending(jobs)
        except JobsError as error:
            errors.append(error)

    async def main(server: SilentServer) -> None:
        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as group, AsyncJobs(server.address) as jobs:
                group.start_soon(call, jobs)
                group.start_soon(call, jobs)  # it waits for its turn
                for _ in range(connections):
                    assert await anyio.to_thread.run_sync(server.asked.acquire, True, PATIENCE_S)
            for _ in range(connections):
                assert await anyio.to_thread.run_sync(server.ended.acquire, True, PATIENCE_S)
            for late in (jobs.stats(), jobs.reserve(0), run(jobs)):
                with pytest.raises(ClientClosed, match="the client is closed"):
                    await late
            assert len(server.accepted) == connections
            await jobs.aclose()  # again

    with silent_server() as server:
        anyio.run(main, server, backend=backend)
    assert [type(error) for error in errors] == [ClientClosed] * 2


@BACKENDS
def test_closing_ends_a_pause_between_attempts(backend: str) -> None:
    """The call would try for an hour, with pauses of up to 5 s."""

    async def main() -> None:
        jobs = AsyncJobs("127.0.0.1:1", JobsSettings(retry_s=3600))

        async def stats() -> None:
            with pytest.raises(ClientClosed):
                await jobs.stats()

        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as group:
                group.start_soon(stats)
                await anyio.lowlevel.checkpoint()
                await jobs.aclose()

    anyio.run(main, backend=backend)
