"""The async client of jobs, for asyncio and trio: one connection, and calls one after the other.

It executes the steps of `session`; `run` is in `runner`.
"""

import os
import select
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import TypeVar

import anyio
import anyio.abc
from anyio.streams.tls import TLSStream

from penstock.forks import Guard
from penstock.jobs.calls import Call
from penstock.jobs.commands import Commands
from penstock.jobs.errors import ClientClosed, JobsError
from penstock.jobs.job import AsyncJob
from penstock.jobs.retries import Retries
from penstock.jobs.runner import Handler, Runner
from penstock.jobs.session import DEFAULT_TUBE, Check, Dial, Exchange, Pause, Step, Steps
from penstock.jobs.settings import JobsSettings
from penstock.sansio.address import is_path, path_of, server_name, split_address

T = TypeVar("T")
RECEIVE_BYTES = 1 << 16


class AsyncJobs(Commands[AsyncJob]):
    """A client of jobs for asyncio and trio, as Jobs with methods to await.

    Its calls go one after the other, so a reserve that waits holds up all others: give each task that reserves a client of
    its own (`clone`), or leave that to `run`. A call that is cancelled closes the connection, and the server releases what
    was reserved over it. After a fork, the child's copy connects again in an event loop of the child.

    >>> async with AsyncJobs(address, use="pictures", watch=["pictures"]) as worker:
    ...     job_id = await worker.put(b"resize picture 7")
    ...     job = await worker.reserve(timeout_s=5)
    ...     await job.delete()
    """

    _new_job = AsyncJob

    def __init__(
        self,
        address: str,
        settings: JobsSettings | None = None,
        use: str = DEFAULT_TUBE,
        watch: Iterable[str] = (DEFAULT_TUBE,),
    ) -> None:
        super().__init__(address, settings, use, watch)
        self._stream: anyio.abc.ByteStream | None = None
        self._fd = -1  # the descriptor of the stream's socket
        self._guard: Guard | None = None  # as long as there is a stream
        self._pid = os.getpid()
        self._turn = anyio.Lock(fast_acquire=True)  # held during a call
        # of the call that has the turn, and of each run: closing cancels them
        self._scopes: set[anyio.CancelScope] = set()
        self._is_closed = False

    def clone(self) -> "AsyncJobs":
        """Return a client with the same address, settings and tubes, and a connection of its own.

        >>> other = jobs.clone()
        >>> other.using == jobs.using
        True
        """
        return AsyncJobs(self.address, self._settings, self.using, self.watching)

    async def aclose(self) -> None:
        """Close the connection permanently: reserved jobs become ready.

        Calls that other tasks are waiting for, `run` among them, raise ClientClosed, and so does every later call.

        >>> await jobs.aclose()
        """
        self._leave_parent()
        self._is_closed = True
        for scope in self._scopes:
            scope.cancel()
        with anyio.CancelScope(shield=True):
            async with self._turn:  # the call in progress has ended, and so has its attempt to connect
                await self.hang_up()

    async def hang_up(self) -> None:
        """Close the connection: reserved jobs become ready. The next call connects again. No other call may be in progress.

        >>> await jobs.hang_up()
        """
        self._leave_parent()
        await self._hang_up()
        self._session.reset()

    async def __aenter__(self) -> "AsyncJobs":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def reserve_each(self, timeout_s: float | None = None) -> AsyncIterator[AsyncJob]:
        """Yield one job after the other, until none came for `timeout_s` seconds (None: without end).

        >>> job_id = await jobs.put(b"work")
        >>> async for job in jobs.reserve_each(timeout_s=0):
        ...     print(job.body)
        ...     await job.delete()
        b'work'
        """
        while (job := await self.reserve(timeout_s)) is not None:
            yield job

    async def run(self, handler: Handler, concurrency: int = 8, retries: Retries | None = None) -> None:
        """Reserve jobs and await `handler` with each, `concurrency` at a time, until cancelled.

        A job is deleted when the handler returns. If it raises an exception, the job is released with a growing delay, and
        buried after the last attempt (`retries`). While it works, the job is touched. A job that the
        handler deletes, releases or buries is left alone. On cancellation the jobs at work are released. `concurrency`
        connections are opened, in addition to this client's. It survives the server's absence; raises BadServer, Refused, and
        ClientClosed when this client is closed meanwhile.

        >>> job_id = await jobs.put(b"work")
        >>> async def handler(job):
        ...     print(job.body)
        ...     scope.cancel()
        >>> with anyio.CancelScope() as scope:
        ...     await jobs.run(handler)
        b'work'
        """
        runner = Runner(self.clone, handler, retries or Retries(), self._settings.timeout_s)
        await self._unless_closed(lambda: runner.run(concurrency))

    async def perform(self, work: Call[T] | Steps[T]) -> T:
        """Perform a call of penstock.jobs.calls and return its result.

        >>> await jobs.perform(calls.LIST_TUBES) == await jobs.list_tubes()
        True
        """
        self._leave_parent()
        steps = self._session.perform(work) if isinstance(work, Call) else work
        async with self._turn:
            return await self._unless_closed(lambda: self._drive(steps))

    def _leave_parent(self) -> None:
        """In a process that was forked since, forget the connection and the tasks of the parent, and its event loop."""
        if os.getpid() != self._pid:
            self._pid, self._stream, self._guard = os.getpid(), None, None
            self._turn, self._scopes = anyio.Lock(fast_acquire=True), set()
            self._session.reset()

    async def _unless_closed(self, work: Callable[[], Awaitable[T]]) -> T:
        """Await the work and return its result. Raises ClientClosed if the client is closed, before the work or during it."""
        if not self._is_closed:
            with anyio.CancelScope() as scope:
                self._scopes.add(scope)
                try:
                    return await work()
                finally:
                    self._scopes.discard(scope)
        raise ClientClosed("the client is closed")

    async def _drive(self, steps: Steps[T]) -> T:
        try:
            step = next(steps)
            while True:
                try:
                    data = await self._execute(step)
                except OSError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(data)
        except StopIteration as done:
            result: T = done.value
            return result
        except (JobsError, ValueError):
            raise
        except BaseException:  # cancelled: an answer may be on its way that no call waits for
            await self.hang_up()
            raise

    async def _execute(self, step: Step) -> bytes:
        if isinstance(step, Exchange):
            return await self._exchange(step)
        if isinstance(step, Check):
            return self._check()
        if isinstance(step, Dial):
            await self._dial(step.seconds)
        elif isinstance(step, Pause):
            await anyio.sleep(step.seconds)
        else:
            await self._hang_up()
        return b""

    async def _exchange(self, step: Exchange) -> bytes:
        stream = self._stream
        if stream is None:
            raise ConnectionResetError("not connected")
        try:
            with anyio.fail_after(step.seconds):
                if step.data:
                    await stream.send(step.data)
                return await stream.receive(RECEIVE_BYTES)
        except anyio.EndOfStream:
            return b""
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise ConnectionResetError("the connection broke") from error

    async def _dial(self, seconds: float) -> None:
        await self._hang_up()
        with anyio.fail_after(seconds):
            self._stream = stream = await self._connect()
            self._fd = stream.extra(anyio.abc.SocketAttribute.raw_socket).fileno()
            self._guard = Guard(self._fd)
            tls = self._settings.tls
            if tls is not None:
                name = server_name(self.address)
                self._stream = await TLSStream.wrap(stream, hostname=name, ssl_context=tls, standard_compatible=False)

    async def _connect(self) -> anyio.abc.SocketStream:
        if is_path(self.address):
            return await anyio.connect_unix(path_of(self.address))
        return await anyio.connect_tcp(*split_address(self.address))

    def _check(self) -> bytes:
        """Return b"" if there is nothing to read, as it should be. TLS may have records of its own: it is not checked."""
        if self._stream is None or self._settings.tls is not None:
            return b""
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        return b"!" if poll.poll(0) else b""

    async def _hang_up(self) -> None:
        stream, self._stream = self._stream, None
        self._guard = None
        if stream is not None:
            with anyio.CancelScope(shield=True):
                await anyio.aclose_forcefully(stream)
