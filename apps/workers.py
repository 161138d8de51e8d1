"""Threads for blocking work, publishes and HTTP requests, while the main thread owns the consumers.

Invariant: each job of `submit` has exactly one result in `results`; all other state of a thread is in its Worker.
An exception that leaves `work` is a bug: `results` raises it in the main thread.
"""

import socket
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Generic, Protocol, TypeVar

J = TypeVar("J", contravariant=True)
R = TypeVar("R", covariant=True)
Job = TypeVar("Job")
Result = TypeVar("Result")

IDLE_S = 5.0  # how long a thread waits for a job before it calls `idle`; a heartbeat is due every 30 s


class Worker(Protocol[J, R]):
    """The part of a thread that does jobs, one after the other."""

    def work(self, job: J) -> R:
        """Do one job. It may wait, and raises nothing that the job or a peer can cause."""

    def idle(self) -> None:
        """Do what is due while there is no job, such as answering heartbeats."""


class Waker:
    """A socket that is readable, for a selector, as soon as a thread has called `wake`."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._awake = False  # a byte is on its way

    def wake(self) -> None:
        """Wake the owner. May be called from any thread."""
        if not self._awake:
            self._awake = True
            with suppress(OSError):  # closed: the owner no longer waits
                self._writer.send(b"!")

    def clear(self) -> None:
        """Make the socket unreadable. The owner calls this before it looks for what the threads have left."""
        with suppress(BlockingIOError):
            self._reader.recv(4096)
        self._awake = False

    def fileno(self) -> int:
        """Return the file descriptor that a selector waits for."""
        return self._reader.fileno()

    def close(self) -> None:
        """Close both sockets."""
        self._reader.close()
        self._writer.close()


class Workers(Generic[Job, Result]):
    """At most `most` threads, each started when it is first needed, with a worker that `make` returns."""

    def __init__(self, make: Callable[[], Worker[Job, Result]], most: int, wake: Callable[[], None]) -> None:
        self._make = make
        self._most = most
        self._wake = wake
        self._started = 0  # threads
        self._busy = 0  # jobs whose result was not returned yet
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()  # None ends a thread
        self._results: deque[Result | BaseException] = deque()

    @property
    def busy(self) -> int:
        """The number of jobs whose results were not returned yet."""
        return self._busy

    @property
    def free(self) -> int:
        """The number of jobs that can be submitted without waiting behind another one."""
        return self._most - self._busy

    def submit(self, job: Job) -> None:
        """Give a job to a thread."""
        self._busy += 1
        if self._busy > self._started < self._most:
            self._started += 1
            # A daemon thread, because a peer that does not answer must not keep the program from ending.
            threading.Thread(target=self._run, name=f"worker {self._started}", daemon=True).start()
        self._jobs.put(job)

    def results(self) -> list[Result]:
        """Return the results that have come since the last call, or raise what a thread died of."""
        found: list[Result] = []
        while self._results:
            result = self._results.popleft()
            if isinstance(result, BaseException):
                raise result
            found.append(result)
        self._busy -= len(found)
        return found

    def close(self) -> None:
        """End the threads that wait for a job; one that waits for a peer ends with the program."""
        for _ in range(self._started):
            self._jobs.put(None)

    def _run(self) -> None:
        try:
            worker = self._make()
            while (job := self._next(worker)) is not None:
                self._results.append(worker.work(job))
                self._wake()
        except BaseException as error:
            self._results.append(error)
            self._wake()

    def _next(self, worker: Worker[Job, Result]) -> Job | None:
        while True:
            try:
                return self._jobs.get(timeout=IDLE_S)
            except Empty:
                worker.idle()
