"""The commands with which AsyncJobs shows and changes tubes and jobs, over `perform`."""

from abc import ABC, abstractmethod
from typing import TypeVar

from penstock.jobs import calls
from penstock.jobs.calls import Call, Figures, Pair
from penstock.jobs.job import FoundJob
from penstock.jobs.session import Session

T = TypeVar("T")


class AsyncOperators(ABC):
    """The part of AsyncJobs that looks at tubes and jobs, and acts on them as an operator does.

    >>> isinstance(jobs, AsyncOperators)
    True
    """

    _session: Session

    @abstractmethod
    async def perform(self, call: Call[T]) -> T:
        """Perform the call and return its result. Raises JobsError.

        >>> await jobs.perform(calls.list_tubes()) == await jobs.list_tubes()
        True
        """

    async def kick(self, count: int, tube: str = "") -> int:
        """Make up to `count` buried jobs of the tube ready, or, if there are none, delayed ones; return how many.

        >>> job_id = await jobs.put(b"work", delay=60)
        >>> await jobs.kick(10)
        1
        """
        return await self.perform(calls.kick(tube or self._session.using, count))

    async def kick_job(self, job_id: int) -> None:
        """Make one buried or delayed job ready. Raises NotFound.

        >>> await jobs.kick_job(await jobs.put(b"work", delay=60))
        """
        await self.perform(calls.kick_job(job_id))

    async def peek(self, job_id: int) -> FoundJob | None:
        """Return the job without reserving it, or None.

        >>> (await jobs.peek(await jobs.put(b"work"))).body
        b'work'
        """
        return _found(await self.perform(calls.peek(job_id)))

    async def peek_ready(self, tube: str = "") -> FoundJob | None:
        """Return the next ready job of the tube without reserving it, or None.

        >>> job_id = await jobs.put(b"work")
        >>> (await jobs.peek_ready()).body
        b'work'
        """
        return _found(await self.perform(calls.peek_first(tube or self._session.using, "ready")))

    async def peek_delayed(self, tube: str = "") -> FoundJob | None:
        """Return the delayed job of the tube whose delay ends first, or None.

        >>> job_id = await jobs.put(b"work", delay=60)
        >>> (await jobs.peek_delayed()).body
        b'work'
        """
        return _found(await self.perform(calls.peek_first(tube or self._session.using, "delayed")))

    async def peek_buried(self, tube: str = "") -> FoundJob | None:
        """Return the buried job of the tube that would be kicked first, or None.

        >>> await jobs.peek_buried() is None
        True
        """
        return _found(await self.perform(calls.peek_first(tube or self._session.using, "buried")))

    async def stats(self) -> Figures:
        """Return the server's figures, as beanstalkd names them.

        >>> (await jobs.stats())["current-connections"] > 0
        True
        """
        return await self.perform(calls.stats())

    async def stats_job(self, job_id: int) -> Figures:
        """Return the figures of a job. Raises NotFound.

        >>> (await jobs.stats_job(await jobs.put(b"work", ttr=90)))["ttr"]
        90
        """
        return await self.perform(calls.stats_job(job_id))

    async def stats_tube(self, tube: str = "") -> Figures:
        """Return the figures of a tube. Raises NotFound.

        >>> job_id = await jobs.put(b"work")
        >>> (await jobs.stats_tube())["current-jobs-ready"]
        1
        """
        return await self.perform(calls.stats_tube(tube or self._session.using))

    async def list_tubes(self) -> list[str]:
        """Return the names of the server's tubes.

        >>> jobs.using in await jobs.list_tubes()
        True
        """
        return await self.perform(calls.list_tubes())

    async def list_jobs(self, state: str = "ready", limit: int = 1000, after: int = 0, tube: str = "") -> list[int]:
        """Return the ids of at most `limit` jobs of the tube in `state`, behind the id `after`.

        `state` is ready, reserved, delayed or buried. Raises NotFound for a tube that does not exist. An extension: raises
        Unsupported.

        >>> job_id = await jobs.put(b"work")
        >>> await jobs.list_jobs() == [job_id]
        True
        """
        return await self.perform(calls.list_jobs(tube or self._session.using, state, limit, after))

    async def pause_tube(self, tube: str, seconds: float) -> None:
        """Hand out no job of the tube for `seconds`, rounded up; 0 ends a pause. Raises NotFound, and ValueError for `inf`.

        >>> await jobs.pause_tube(jobs.using, 0)
        """
        await self.perform(calls.pause_tube(tube, seconds))

    async def clear_tube(self, tube: str) -> int:
        """Delete the ready, delayed and buried jobs of the tube; return how many. An extension: raises Unsupported.

        >>> job_id = await jobs.put(b"work")
        >>> await jobs.clear_tube(jobs.using)
        1
        """
        return await self.perform(calls.clear_tube(tube))

    async def move_job(self, job_id: int, tube: str) -> int:
        """Move a job to another tube and return its new id. An extension: raises Unsupported. Raises NotFound.

        >>> job_id = await jobs.move_job(await jobs.put(b"work"), "elsewhere")
        >>> await jobs.delete(job_id)
        """
        return await self.perform(calls.move_job(job_id, tube))


def _found(found: Pair | None) -> FoundJob | None:
    return None if found is None else FoundJob(*found)
