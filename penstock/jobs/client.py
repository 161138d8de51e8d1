"""The blocking client of jobs: plain sockets, one thread, one connection. It executes the steps of `session`."""

import select
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from time import monotonic, sleep
from typing import TypeVar

from penstock.client.dial import dial
from penstock.forks import Guard
from penstock.jobs.calls import Call
from penstock.jobs.commands import Commands
from penstock.jobs.errors import JobsError
from penstock.jobs.job import Job
from penstock.jobs.session import Check, Dial, Exchange, Pause, Step, Steps
from penstock.sansio.address import server_name

T = TypeVar("T")
RECEIVE_BYTES = 1 << 16
SLACK = 1.1  # a timeout may be longer than asked by this factor and a second, so that it is seldom changed


class Jobs(Commands[Job]):
    """A client of jobs for one thread; it connects when it is first used. Every method raises JobsError.

    `address` is host:port, or the path of a unix socket. `use` is the tube of puts, `watch` are the tubes of reserves. A
    lost connection is replaced, with growing pauses; jobs that it had reserved are then ready again. After a fork, the child's
    copy opens a connection of its own; jobs that were reserved before belong to the parent. Raises ValueError for a bad address
    or name.

    >>> with Jobs(address, use="pictures", watch=["pictures"]) as worker:
    ...     job_id = worker.put(b"resize picture 7")
    ...     job = worker.reserve(timeout_s=5)
    ...     job.delete()
    """

    _new_job = Job
    _socket: socket.socket | None = None
    _guard: Guard | None = None  # as long as there is a socket
    _timeout_s = 0.0  # of the socket

    def close(self) -> None:
        """Close the connection: reserved jobs become ready. Any other method connects again.

        >>> jobs.close()
        """
        self._hang_up()
        self._session.reset()

    def __enter__(self) -> "Jobs":
        return self

    def __exit__(self, *_: object) -> None:
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

    def perform(self, work: Call[T] | Steps[T]) -> T:
        """Perform a call of penstock.jobs.calls and return its result.

        >>> jobs.perform(calls.LIST_TUBES) == jobs.list_tubes()
        True
        """
        steps = self._session.perform(work) if isinstance(work, Call) else work
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
        if not step.seconds <= self._timeout_s <= SLACK * step.seconds + 1:
            self._set_timeout(sock, step.seconds)
        try:
            if step.data:
                sent = sock.send(step.data)
                if sent < len(step.data):
                    self._send_rest(sock, memoryview(step.data)[sent:], step.seconds)
            return sock.recv(RECEIVE_BYTES)
        except BlockingIOError:  # so the options of `_set_timeout` end a call
            raise TimeoutError from None

    @staticmethod
    def _send_rest(sock: socket.socket, data: memoryview, seconds: float) -> None:
        deadline = monotonic() + seconds
        while data:
            data = data[sock.send(data) :]
            if monotonic() > deadline:
                raise TimeoutError

    def _set_timeout(self, sock: socket.socket, seconds: float) -> None:
        """Let calls of the socket end after `seconds`.

        Options of a blocking socket cost nothing per call; Python's own timeouts cost a poll before each send and recv. TLS
        needs those.
        """
        self._timeout_s = seconds
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
            self._set_timeout(self._socket, seconds)
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
