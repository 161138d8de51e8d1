"""The blocking client of jobs: plain sockets, one thread, one connection.

It executes the steps of `session`, which decides everything; the commands that do not reserve are in `operators`.
"""

import random
import select
import socket
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from time import monotonic, sleep
from types import TracebackType
from typing import TypeVar

from penstock.client.dial import dial
from penstock.forks import Guard
from penstock.jobs import calls
from penstock.jobs.calls import Call, Pair
from penstock.jobs.errors import JobsError
from penstock.jobs.job import DEFAULT_PRIORITY, DEFAULT_TTR_S, Job
from penstock.jobs.operators import Operators
from penstock.jobs.session import DEFAULT_TUBE, Check, Dial, Exchange, Pause, Session, Step, Steps
from penstock.jobs.settings import JobsSettings
from penstock.sansio.address import check_address, server_name

T = TypeVar("T")
RECEIVE_BYTES = 1 << 16
SLACK = 1.1  # a timeout may be longer than asked by this factor and a second, so that it is seldom set anew


class Jobs(Operators):
    """A client of jobs for one thread; it connects when it is first used. Every method raises JobsError.

    `address` is host:port, or the path of a unix socket. `use` is the tube of puts, `watch` are the tubes of reserves. A
    lost connection is replaced, with growing pauses; jobs that it had reserved are then ready again. After a fork, the child's
    copy connects anew when it is used; jobs that were reserved before stay the parent's. Raises ValueError for a bad address or
    name.

    >>> with Jobs(address, use="pictures", watch=["pictures"]) as worker:
    ...     job_id = worker.put(b"resize picture 7")
    ...     job = worker.reserve(timeout_s=5)
    ...     job.delete()
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
        self._socket: socket.socket | None = None
        self._guard: Guard | None = None  # as long as there is a socket
        self._patience = 0.0  # s: the socket's present timeout

    @property
    def using(self) -> str:
        """The tube of puts, kicks and peeks that name none.

        >>> Jobs(address, use="pictures").using
        'pictures'
        """
        return self._session.using

    @property
    def epoch(self) -> int:
        """The number of connections so far. A reservation lasts as long as the connection with its `Job.epoch`.

        >>> Jobs(address).epoch
        0
        """
        return self._session.epoch

    @property
    def watching(self) -> tuple[str, ...]:
        """The tubes of reserves.

        >>> Jobs(address, watch=["pictures", "films"]).watching
        ('pictures', 'films')
        """
        return tuple(self._session.watching)

    def close(self) -> None:
        """Close the connection: reserved jobs become ready. Any other method connects again.

        >>> jobs.close()
        """
        self._hang_up()
        self._session.reset()

    def __enter__(self) -> "Jobs":
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def reserve_each(self, timeout_s: float | None = None) -> Iterator[Job]:
        """Yield one job after the other, until none came for `timeout_s` seconds (None: without end).

        The caller deletes, releases or buries each job.

        >>> job_id = jobs.put(b"work")
        >>> for job in jobs.reserve_each(timeout_s=0):
        ...     print(job.body)
        ...     job.delete()
        b'work'
        """
        while (job := self.reserve(timeout_s)) is not None:
            yield job

    def put(
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

        >>> job_id = jobs.put(b"resize picture 7", delay=60)
        >>> jobs.stats_job(job_id)["state"]
        'delayed'
        """
        return self.perform(calls.put(tube or self._session.using, body, priority, delay, ttr))

    def put_unique(
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

        >>> job_id = jobs.put_unique("order-17", b"send invoice")
        >>> jobs.put_unique("order-17", b"send invoice") is None
        True
        """
        return self.perform(calls.put_unique(tube or self._session.using, key, body, priority, delay, ttr))

    def reserve(self, timeout_s: float | None = None) -> Job | None:
        """Return the next job of the watched tubes, or None after `timeout_s` seconds (None: wait without end).

        A lost connection is replaced. Raises DeadlineSoon; ConnectionLost if no server was there for the settings' retry_s.

        >>> jobs.reserve(timeout_s=0) is None
        True
        """
        found = self._run(self._session.reserve(timeout_s))
        return self._held(found)

    def reserve_job(self, job_id: int) -> Job | None:
        """Reserve the job with this id, whatever tube it is in; None if it does not exist or is reserved.

        >>> job_id = jobs.put(b"work")
        >>> jobs.reserve_job(job_id).body
        b'work'
        """
        return self._held(self.perform(calls.reserve_job(job_id)))

    def reserve_batch(self, count: int, timeout_s: int = 0) -> list[Job]:
        """Return up to `count` (at most 100) ready jobs, or wait for one; [] after `timeout_s` seconds.

        An extension: raises Unsupported.

        >>> ids = [jobs.put(b"a"), jobs.put(b"b")]
        >>> [job.body for job in jobs.reserve_batch(100)]
        [b'a', b'b']
        """
        return [Job(*pair, self._session.epoch, self) for pair in self.perform(calls.reserve_batch(count, timeout_s))]

    def delete(self, job_id: int) -> None:
        """Delete a job that this client has reserved, or that nobody has. Raises NotFound; TypeError for an id that is no int.

        >>> jobs.delete(jobs.put(b"work"))
        """
        self.perform(calls.delete(job_id))

    def delete_batch(self, job_ids: Sequence[int]) -> int:
        """Delete the jobs as `delete` does and return how many existed. An extension: raises Unsupported.

        Raises ValueError for ids that do not fit on a line of 224 bytes; ten always do.

        >>> jobs.delete_batch([jobs.put(b"a"), jobs.put(b"b")])
        2
        """
        return self.perform(calls.delete_batch(job_ids))

    def use(self, tube: str) -> None:
        """Use the tube for every put, kick and peek that names none, also after a reconnect.

        >>> jobs.use("pictures")
        >>> jobs.using
        'pictures'
        """
        self._run(self._session.use(tube))

    def watch(self, tube: str) -> int:
        """Reserve from this tube, too, also after a reconnect; return how many tubes are watched.

        >>> jobs.watch("pictures")
        2
        """
        return self._run(self._session.watch(tube))

    def ignore(self, tube: str) -> int:
        """Reserve from this tube no longer; return how many are watched. Raises NotIgnored for the last one.

        >>> jobs.watch("pictures")
        2
        >>> jobs.ignore("pictures")
        1
        """
        return self._run(self._session.ignore(tube))

    def perform(self, call: Call[T]) -> T:
        """Perform a call of penstock.jobs.calls and return its result.

        >>> jobs.perform(calls.list_tubes()) == jobs.list_tubes()
        True
        """
        return self._run(self._session.perform(call))

    def _held(self, found: Pair | None) -> Job | None:
        return None if found is None else Job(found[0], found[1], self._session.epoch, self)

    def _run(self, steps: Steps[T]) -> T:
        """Execute the steps and return their result."""
        if self._guard is not None and self._guard.is_inherited:
            self.close()
        try:
            step = next(steps)
            while True:
                try:
                    data = self._execute(step)
                except OSError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(data)
        except StopIteration as done:
            result: T = done.value
            return result
        except (JobsError, ValueError):
            raise
        except BaseException:  # an answer may be on its way that no call waits for
            self.close()
            raise

    def _execute(self, step: Step) -> bytes:
        if isinstance(step, Exchange):
            return self._exchange(step)
        if isinstance(step, Check):
            return self._check()
        if isinstance(step, Dial):
            self._dial(step.seconds)
        elif isinstance(step, Pause):
            sleep(step.seconds)
        else:
            self._hang_up()
        return b""

    def _exchange(self, step: Exchange) -> bytes:
        sock = self._socket
        if sock is None:
            raise ConnectionResetError("not connected")
        if not step.seconds <= self._patience <= SLACK * step.seconds + 1:
            self._be_patient(sock, step.seconds)
        try:
            if step.data:
                sent = sock.send(step.data)
                if sent < len(step.data):
                    self._send_rest(sock, memoryview(step.data)[sent:], step.seconds)
            return sock.recv(RECEIVE_BYTES)
        except BlockingIOError:  # so the options of `_be_patient` end a call
            raise TimeoutError from None

    @staticmethod
    def _send_rest(sock: socket.socket, data: memoryview, seconds: float) -> None:
        deadline = monotonic() + seconds
        while data:
            data = data[sock.send(data) :]
            if monotonic() > deadline:
                raise TimeoutError

    def _be_patient(self, sock: socket.socket, seconds: float) -> None:
        """Let calls of the socket end after `seconds`.

        Options of a blocking socket cost nothing per call; Python's own timeouts cost a poll before each send and recv. TLS
        needs those.
        """
        self._patience = seconds
        if self._settings.tls is not None:
            sock.settimeout(seconds)
            return
        whole, part = divmod(int(max(seconds, 0.001) * 1_000_000), 1_000_000)
        value = struct.pack("ll", whole, part)  # struct timeval
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, value)

    def _dial(self, seconds: float) -> None:
        self._hang_up()
        plain = dial(self.address, seconds)
        self._guard = Guard(plain.fileno())
        try:
            plain.settimeout(seconds)
            tls = self._settings.tls
            self._socket = plain if tls is None else tls.wrap_socket(plain, server_hostname=server_name(self.address))
            if tls is None:
                plain.settimeout(None)
            self._be_patient(self._socket, seconds)
        except BaseException:
            plain.close()
            raise

    def _check(self) -> bytes:
        """Return b"" if there is nothing to read, as it should be. TLS may have records of its own: it is not checked."""
        sock = self._socket
        if sock is None or self._settings.tls is not None:
            return b""
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        return b"!" if poll.poll(0) else b""

    def _hang_up(self) -> None:
        if self._socket is not None:
            with suppress(OSError):  # it is given up in any case
                self._socket.close()
            self._socket = None
        self._guard = None
