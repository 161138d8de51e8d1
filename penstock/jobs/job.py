"""Jobs in a worker's hands, and jobs that were only looked at."""

import os
from typing import TYPE_CHECKING, NamedTuple

from penstock.jobs import calls
from penstock.jobs.calls import Figures
from penstock.jobs.errors import ReservationLost

if TYPE_CHECKING:
    from penstock.jobs.aio import AsyncJobs
    from penstock.jobs.client import Jobs

DEFAULT_PRIORITY = 65536  # as other clients of beanstalkd have it
DEFAULT_TTR_S = 60


class FoundJob(NamedTuple):
    """A job that a peek found: it is not reserved.

    >>> job_id = jobs.put(b"work")
    >>> jobs.peek(job_id).body
    b'work'
    """

    id: int
    body: bytes


class ReservedJob:
    """What Job and AsyncJob have in common: `id`, `body`, and the connection that reserved them.

    >>> job_id = jobs.put(b"work")
    >>> isinstance(jobs.reserve(), ReservedJob)
    True
    """

    __slots__ = ("_pid", "body", "epoch", "id", "is_answered")

    def __init__(self, job_id: int, body: bytes, epoch: int) -> None:
        self.id = job_id
        self.body = body
        self.epoch = epoch  # the number of the client's connection that holds the reservation
        self.is_answered = False  # True: it was deleted, released or buried over this object
        self._pid = os.getpid()

    def _require_own(self) -> None:
        """Raise ReservationLost in a process that was forked since."""
        if os.getpid() != self._pid:
            raise ReservationLost(
                f"job {self.id} is reserved by the process that forked this one, and only that one can answer it"
            )

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

    __slots__ = ("_jobs",)

    def __init__(self, job_id: int, body: bytes, epoch: int, jobs: "Jobs") -> None:
        super().__init__(job_id, body, epoch)
        self._jobs = jobs

    def delete(self) -> None:
        """Delete the job: the work is done. Raises NotFound if its time to run is over and another worker has it.

        As the other methods do, it raises ReservationLost in a process that was forked after the job was reserved.

        >>> job_id = jobs.put(b"work")
        >>> jobs.reserve().delete()
        """
        self._require_own()
        self._jobs.perform(calls.delete(self.id))
        self.is_answered = True

    def release(self, priority: int = DEFAULT_PRIORITY, delay: float = 0) -> bool:
        """Make the job ready again after `delay`. Return False if it had its last attempt, and was buried instead.

        Raises ReservationLost and NotFound.

        >>> job_id = jobs.put(b"work")
        >>> jobs.reserve().release(delay=60)
        True
        """
        self._require_own()
        released = self._jobs.perform(calls.release(self.id, priority, delay, self.epoch))
        self.is_answered = True
        return released

    def bury(self, priority: int = DEFAULT_PRIORITY) -> None:
        """Set the job aside until it is kicked. Raises ReservationLost and NotFound.

        >>> job_id = jobs.put(b"work")
        >>> jobs.reserve().bury()
        >>> jobs.kick(10)
        1
        """
        self._require_own()
        self._jobs.perform(calls.bury(self.id, priority, self.epoch))
        self.is_answered = True

    def touch(self) -> None:
        """Begin the time to run anew. Raises ReservationLost and NotFound.

        >>> job_id = jobs.put(b"work", ttr=5)
        >>> jobs.reserve().touch()
        """
        self._require_own()
        self._jobs.perform(calls.touch(self.id, self.epoch))

    def stats(self) -> Figures:
        """Return the job's figures, as beanstalkd names them. Raises NotFound.

        >>> job_id = jobs.put(b"work", priority=7)
        >>> figures = jobs.reserve().stats()
        >>> figures["state"], figures["pri"], figures["reserves"]
        ('reserved', 7, 1)
        """
        return self._jobs.perform(calls.stats_job(self.id))


class AsyncJob(ReservedJob):
    """A job that an AsyncJobs has reserved; as Job, with methods to await.

    >>> job_id = await jobs.put(b"work")
    >>> job = await jobs.reserve(timeout_s=5)
    >>> job.body
    b'work'
    >>> await job.delete()
    """

    __slots__ = ("_jobs",)

    def __init__(self, job_id: int, body: bytes, epoch: int, jobs: "AsyncJobs") -> None:
        super().__init__(job_id, body, epoch)
        self._jobs = jobs

    async def delete(self) -> None:
        """Delete the job, as Job.delete does.

        >>> job_id = await jobs.put(b"work")
        >>> await (await jobs.reserve()).delete()
        """
        self._require_own()
        await self._jobs.perform(calls.delete(self.id))
        self.is_answered = True

    async def release(self, priority: int = DEFAULT_PRIORITY, delay: float = 0) -> bool:
        """Make the job ready again after `delay`, as Job.release does.

        >>> job_id = await jobs.put(b"work")
        >>> await (await jobs.reserve()).release(delay=60)
        True
        """
        self._require_own()
        released = await self._jobs.perform(calls.release(self.id, priority, delay, self.epoch))
        self.is_answered = True
        return released

    async def bury(self, priority: int = DEFAULT_PRIORITY) -> None:
        """Set the job aside, as Job.bury does.

        >>> job_id = await jobs.put(b"work")
        >>> await (await jobs.reserve()).bury()
        >>> await jobs.kick(10)
        1
        """
        self._require_own()
        await self._jobs.perform(calls.bury(self.id, priority, self.epoch))
        self.is_answered = True

    async def touch(self) -> None:
        """Begin the time to run anew, as Job.touch does.

        >>> job_id = await jobs.put(b"work", ttr=5)
        >>> await (await jobs.reserve()).touch()
        """
        self._require_own()
        await self._jobs.perform(calls.touch(self.id, self.epoch))

    async def stats(self) -> Figures:
        """Return the job's figures, as Job.stats does.

        >>> job_id = await jobs.put(b"work", priority=7)
        >>> (await (await jobs.reserve()).stats())["pri"]
        7
        """
        return await self._jobs.perform(calls.stats_job(self.id))
