"""Jobs that a client has reserved."""

import os
from typing import TypeVar

from penstock.jobs import calls
from penstock.jobs.calls import Call
from penstock.jobs.commands import DEFAULT_PRIORITY, Async, Blocking, command
from penstock.jobs.errors import ReservationLost
from penstock.protocol.beanstalk import Stats
from penstock.protocol.headers import Headers
from penstock.telemetry import Operation

T = TypeVar("T")


class ReservedJob:
    """The content of Job and AsyncJob, and the methods that both have."""

    __slots__ = ("_pid", "body", "epoch", "headers", "id", "is_answered", "operation")

    def __init__(self, job_id: int, body: bytes, epoch: int, operation: Operation | None, headers: Headers) -> None:
        self.id = job_id
        self.body = body
        self.headers = dict(headers)  # values by name, if JobsSettings.headers is True
        self.epoch = epoch  # the number of the client's connection that holds the reservation
        self.is_answered = False  # True: it was deleted, released or buried over this object
        self.operation = operation  # the span in which the job is processed; None: there is none
        self._pid = os.getpid()

    @command
    def delete(self) -> Call[None]:
        """Delete the job: the work is done. Raises NotFound if its time to run is over and another worker has it.

        As the other methods do, it raises ReservationLost in a process that was forked after the job was reserved.

        >>> job_id = jobs.put(b"work")
        >>> jobs.reserve().delete()
        """
        return self._answer(calls.delete(self.id))

    @command
    def release(self, priority: int = DEFAULT_PRIORITY, delay: float = 0) -> Call[bool]:
        """Make the job ready again after `delay`. Return False if it had its last attempt, and was buried instead.

        Raises ReservationLost and NotFound.

        >>> job_id = jobs.put(b"work")
        >>> jobs.reserve().release(delay=60)
        True
        """
        return self._answer(calls.release(self.id, priority, delay, self.epoch))

    @command
    def bury(self, priority: int = DEFAULT_PRIORITY) -> Call[None]:
        """Keep the job from all workers until it is kicked. Raises ReservationLost and NotFound.

        >>> job_id = jobs.put(b"work")
        >>> jobs.reserve().bury()
        >>> jobs.kick(10)
        1
        """
        return self._answer(calls.bury(self.id, priority, self.epoch))

    @command
    def touch(self) -> Call[None]:
        """Start the time to run from the beginning. Raises ReservationLost and NotFound.

        >>> job_id = jobs.put(b"work", ttr=5)
        >>> jobs.reserve().touch()
        """
        self._require_own()
        return calls.touch(self.id, self.epoch)

    @command
    def stats(self) -> Call[Stats]:
        """Return the job's statistics, as beanstalkd names them. Raises NotFound.

        >>> job_id = jobs.put(b"work", priority=7)
        >>> stats = jobs.reserve().stats()
        >>> stats["state"], stats["pri"], stats["reserves"]
        ('reserved', 7, 1)
        """
        return calls.stats_job(self.id)

    def _answer(self, call: Call[T]) -> Call[T]:
        """Return the call, after which `is_answered` is True."""
        self._require_own()
        return calls.noting(call, self._note_answered)

    def _note_answered(self) -> None:
        self.is_answered = True
        if self.operation is not None:
            self.operation.end()

    def _require_own(self) -> None:
        """Raise ReservationLost in a process that was forked since."""
        if os.getpid() != self._pid:
            raise ReservationLost(f"job {self.id} is reserved by the process that forked this one: only it can answer")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {len(self.body)} bytes>"


class Job(ReservedJob):
    """A job that a Jobs has reserved. Times are in seconds, and are rounded up to whole ones.

    >>> job_id = jobs.put(b"work")
    >>> job = jobs.reserve(timeout_s=5)
    >>> job.body
    b'work'
    >>> job.delete()
    """

    __slots__ = ("perform",)

    def __init__(
        self,
        job_id: int,
        body: bytes,
        epoch: int,
        jobs: Blocking,
        operation: Operation | None = None,
        headers: Headers = (),
    ) -> None:
        super().__init__(job_id, body, epoch, operation, headers)
        self.perform = jobs.perform


class AsyncJob(ReservedJob):
    """A job that an AsyncJobs has reserved; as Job, with methods to await.

    >>> job_id = await jobs.put(b"work")
    >>> job = await jobs.reserve(timeout_s=5)
    >>> job.body
    b'work'
    >>> await job.delete()
    """

    __slots__ = ("perform",)

    def __init__(
        self,
        job_id: int,
        body: bytes,
        epoch: int,
        jobs: Async,
        operation: Operation | None = None,
        headers: Headers = (),
    ) -> None:
        super().__init__(job_id, body, epoch, operation, headers)
        self.perform = jobs.perform
