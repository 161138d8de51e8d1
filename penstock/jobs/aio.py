"""The async client of jobs, for asyncio and trio: one connection, and calls one after the other.

It executes the steps of `session`, which decides everything; the commands that do not reserve are in `aio_operators`, and
`run` is in `runner`.
"""

import os
import random
import select
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from time import monotonic
from types import TracebackType
from typing import TypeVar

import anyio
import anyio.abc
from anyio.streams.tls import TLSStream

from penstock.forks import Guard
from penstock.jobs import calls
from penstock.jobs.aio_operators import AsyncOperators
from penstock.jobs.calls import Call, Pair
from penstock.jobs.errors import ClientClosed, JobsError
from penstock.jobs.job import DEFAULT_PRIORITY, DEFAULT_TTR_S, AsyncJob
from penstock.jobs.retries import Retries
from penstock.jobs.runner import Runner
from penstock.jobs.session import DEFAULT_TUBE, Check, Dial, Exchange, Pause, Session, Step, Steps
from penstock.jobs.settings import JobsSettings
from penstock.sansio.address import check_address, server_name, split_address

T = TypeVar("T")
RECEIVE_BYTES = 1 << 16


class AsyncJobs(AsyncOperators):
    """A client of jobs for asyncio and trio, as Jobs with methods to await.

    Its calls go one after the other, so a reserve that waits holds up all others: give each task that reserves a client of
    its own (`clone`), or leave that to `run`. A call that is cancelled closes the connection, and the server releases what
    was reserved over it. After a fork, the child's copy connects anew in an event loop of the child.

    >>> async with AsyncJobs(address, use="pictures", watch=["pictures"]) as worker:
    ...     job_id = await worker.put(b"resize picture 7")
    ...     job = await worker.reserve(timeout_s=5)
    ...     await job.delete()
    """

    def __init__(
        self,
        address: str,
        settings: JobsSettings | None = None,
        use: str = DEFAULT_TUBE,
        watch: Iterable[str] = (DEFAULT_TUBE,),
    ) -> None:
        self.address = check_address(address)
        self._settings = settings or JobsSettings()
        self._session = Session(self._settings, monotonic, random.random, use, watch)
        self._stream: anyio.abc.ByteStream | None = None
        self._fd = -1  # the descriptor of the stream's socket
        self._guard: Guard | None = None  # as long as there is a stream
        self._pid = os.getpid()
        self._turn = anyio.Lock(fast_acquire=True)  # held during a call
        self._scopes: set[anyio.CancelScope] = (
            set()
        )  # of the call that has the turn, and of each run: closing cancels them
        self._is_closed = False

    @property
    def using(self) -> str:
        """The tube of puts, kicks and peeks that name none.

        >>> AsyncJobs(address, use="pictures").using
        'pictures'
        """
        return self._session.using

    @property
    def epoch(self) -> int:
        """The number of connections so far. A reservation lasts as long as the connection with its `AsyncJob.epoch`.

        >>> AsyncJobs(address).epoch
        0
        """
        return self._session.epoch

    @property
    def watching(self) -> tuple[str, ...]:
        """The tubes of reserves.

        >>> AsyncJobs(address, watch=["pictures", "films"]).watching
        ('pictures', 'films')
        """
        return tuple(self._session.watching)

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

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None
    ) -> None:
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

    async def run(
        self, handler: Callable[[AsyncJob], Awaitable[object]], concurrency: int = 8, retries: Retries | None = None
    ) -> None:
        """Reserve jobs and await `handler` with each, `concurrency` at a time, until cancelled.

        A job is deleted when the handler returns. If it raises an exception, the job is released with a growing delay, and
        buried after the last attempt (`retries`). While it works, the job is touched. What the handler deletes, releases
        or buries itself is left alone. On cancellation the jobs at work are released. `concurrency` connections are
        opened, beside this client's. It survives the server's absence; raises BadServer, Refused, and ClientClosed when this
        client is closed meanwhile.

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

    async def put(
        self,
        body: bytes,
        priority: int = DEFAULT_PRIORITY,
        delay: float = 0,
        ttr: float = DEFAULT_TTR_S,
        tube: str = "",
    ) -> int:
        """Put a job into the tube (the used one by default) and return its id.

        A lower `priority` comes first; `delay` and `ttr`, the time to run, are in seconds, rounded up to whole ones. Raises
        TooBig, Draining and OutOfMemory; AnswerLost if nobody can know whether the job was put; TypeError for a body that is
        not bytes, and ValueError for a time that is not finite or a number out of range.

        >>> job_id = await jobs.put(b"resize picture 7", delay=60)
        >>> (await jobs.stats_job(job_id))["state"]
        'delayed'
        """
        return await self.perform(calls.put(tube or self._session.using, body, priority, delay, ttr))

    async def put_unique(
        self,
        key: str,
        body: bytes,
        priority: int = DEFAULT_PRIORITY,
        delay: float = 0,
        ttr: float = DEFAULT_TTR_S,
        tube: str = "",
    ) -> int | None:
        """Put a job once, however often it is tried; return its id, or None if the tube has got a job with that key before.

        The put is repeated over new connections until it is answered. Raises as `put`, and Unsupported: it is an extension.

        >>> job_id = await jobs.put_unique("order-17", b"send invoice")
        >>> await jobs.put_unique("order-17", b"send invoice") is None
        True
        """
        return await self.perform(calls.put_unique(tube or self._session.using, key, body, priority, delay, ttr))

    async def reserve(self, timeout_s: float | None = None) -> AsyncJob | None:
        """Return the next job of the watched tubes, or None after `timeout_s` seconds (None: wait without end).

        A lost connection is replaced. Raises DeadlineSoon; ConnectionLost if no server was there for the settings' retry_s.

        >>> await jobs.reserve(timeout_s=0) is None
        True
        """
        found = await self._run(self._session.reserve(timeout_s))
        return self._held(found)

    async def reserve_job(self, job_id: int) -> AsyncJob | None:
        """Reserve the job with this id, whatever tube it is in; None if it does not exist or is reserved.

        >>> job_id = await jobs.put(b"work")
        >>> (await jobs.reserve_job(job_id)).body
        b'work'
        """
        return self._held(await self.perform(calls.reserve_job(job_id)))

    async def reserve_batch(self, count: int, timeout_s: int = 0) -> list[AsyncJob]:
        """Return up to `count` (at most 100) ready jobs, or wait for one; [] after `timeout_s` seconds.

        An extension: raises Unsupported.

        >>> ids = [await jobs.put(b"a"), await jobs.put(b"b")]
        >>> [job.body for job in await jobs.reserve_batch(100)]
        [b'a', b'b']
        """
        return [
            AsyncJob(*pair, self._session.epoch, self)
            for pair in await self.perform(calls.reserve_batch(count, timeout_s))
        ]

    async def delete(self, job_id: int) -> None:
        """Delete a job that this client has reserved, or that nobody has. Raises NotFound; TypeError for an id that is no int.

        >>> await jobs.delete(await jobs.put(b"work"))
        """
        await self.perform(calls.delete(job_id))

    async def delete_batch(self, job_ids: Sequence[int]) -> int:
        """Delete the jobs as `delete` does and return how many existed. An extension: raises Unsupported.

        Raises ValueError for ids that do not fit on a line of 224 bytes; ten always do.

        >>> await jobs.delete_batch([await jobs.put(b"a"), await jobs.put(b"b")])
        2
        """
        return await self.perform(calls.delete_batch(job_ids))

    async def use(self, tube: str) -> None:
        """Use the tube for every put, kick and peek that names none, also after a reconnect.

        >>> await jobs.use("pictures")
        >>> jobs.using
        'pictures'
        """
        await self._run(self._session.use(tube))

    async def watch(self, tube: str) -> int:
        """Reserve from this tube, too, also after a reconnect; return how many tubes are watched.

        >>> await jobs.watch("pictures")
        2
        """
        return await self._run(self._session.watch(tube))

    async def ignore(self, tube: str) -> int:
        """Reserve from this tube no longer; return how many are watched. Raises NotIgnored for the last one.

        >>> await jobs.watch("pictures")
        2
        >>> await jobs.ignore("pictures")
        1
        """
        return await self._run(self._session.ignore(tube))

    async def perform(self, call: Call[T]) -> T:
        """Perform a call of penstock.jobs.calls and return its result.

        >>> await jobs.perform(calls.list_tubes()) == await jobs.list_tubes()
        True
        """
        return await self._run(self._session.perform(call))

    def _held(self, found: Pair | None) -> AsyncJob | None:
        return None if found is None else AsyncJob(found[0], found[1], self._session.epoch, self)

    async def _run(self, steps: Steps[T]) -> T:
        """Execute the steps and return their result."""
        self._leave_parent()
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
            self._stream = stream = await self._connected()
            self._fd = stream.extra(anyio.abc.SocketAttribute.raw_socket).fileno()
            self._guard = Guard(self._fd)
            tls = self._settings.tls
            if tls is not None:
                name = server_name(self.address)
                self._stream = await TLSStream.wrap(stream, hostname=name, ssl_context=tls, standard_compatible=False)

    async def _connected(self) -> anyio.abc.SocketStream:
        if "/" in self.address:
            return await anyio.connect_unix(self.address)
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
