"""Many jobs at a time: workers with a connection each, and one task that touches what they work on.

A job is deleted only after its handler returned. Whatever else happens to the handler, the job stays with the server.
"""

import logging
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Protocol, Self

import anyio
import anyio.abc
import anyio.lowlevel

from penstock.jobs.commands import DEFAULT_PRIORITY
from penstock.jobs.errors import (
    BadServer,
    ConnectionLost,
    DeadlineSoon,
    JobsError,
    OutOfMemory,
    Refused,
    ReservationLost,
    ServerFailed,
)
from penstock.jobs.job import AsyncJob
from penstock.jobs.retries import LEARN_AFTER_S, Retries, TouchPlan, whole_stat
from penstock.telemetry import activated

logger = logging.getLogger("penstock.jobs")
# s before the next attempt after DEADLINE_SOON, or when no server was there for the whole time of retrying
PAUSE_S = 1.0

Handler = Callable[[AsyncJob], Awaitable[object]]


class JobsClient(Protocol):
    """A client of one connection: penstock.jobs.AsyncJobs."""

    @property
    def address(self) -> str: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *_: object) -> None: ...
    @property
    def reserve(self) -> Callable[[], Awaitable[AsyncJob | None]]: ...
    async def hang_up(self) -> None: ...


class Runner:
    """The workers of one AsyncJobs.run, each with a connection of its own, and the task that touches their jobs."""

    def __init__(
        self,
        new_client: Callable[[], JobsClient],
        handler: Handler,
        retries: Retries,
        grace_s: float,
    ) -> None:
        self._new_client = new_client
        self._handler = handler
        self._retries = retries
        self._grace_s = grace_s  # s to delete, release or bury a job, also when cancelled
        self._at_work: dict[AsyncJob, TouchPlan] = {}

    async def run(self, concurrency: int) -> None:
        """Work until cancelled. Raises ValueError for a concurrency below 1."""
        if concurrency < 1:
            raise ValueError(f"concurrency must be at least 1: {concurrency}")
        failures: list[JobsError] = []
        async with anyio.create_task_group() as group:
            group.start_soon(self._touch_all, group)
            for _ in range(concurrency):
                group.start_soon(self._work, failures, group.cancel_scope)
        if failures:
            raise failures[0]

    async def _work(self, failures: list[JobsError], scope: anyio.CancelScope) -> None:
        """Handle jobs one after the other. An error that ends the run is appended to `failures`."""
        async with self._new_client() as jobs:
            try:
                while True:
                    job = await self._next_job(jobs)
                    if job is not None:
                        await self._handle(job)
            except JobsError as error:
                failures.append(error)
                scope.cancel()

    async def _next_job(self, jobs: JobsClient) -> AsyncJob | None:
        try:
            return await jobs.reserve()
        except BadServer:
            raise
        except DeadlineSoon:  # a job that the server refused to release or bury: it does so when the connection ends
            await jobs.hang_up()
            await anyio.sleep(PAUSE_S)
            return None
        except ConnectionLost as error:
            logger.warning("no server of jobs at %s, trying again: %s", jobs.address, error)
            await anyio.sleep(PAUSE_S)
            return None

    async def _handle(self, job: AsyncJob) -> None:
        self._at_work[job] = TouchPlan(monotonic())
        try:
            failure = await self._call_handler(job)
        except BaseException:  # cancelled
            await self._settle(job, self._give_back)
            raise
        finally:
            del self._at_work[job]
        await self._settle(job, AsyncJob.delete if failure is None else self._retry, failure)

    async def _call_handler(self, job: AsyncJob) -> BaseException | None:
        """Return the exception of the handler, or None. If this task is cancelled, that is raised instead."""
        try:
            with activated(job.operation):
                await self._handler(job)
        except anyio.get_cancelled_exc_class() as error:
            await anyio.lowlevel.checkpoint_if_cancelled()
            return error  # the handler awaited something that was cancelled, such as an asyncio task
        except Exception as error:
            return error
        return None

    async def _settle(self, job: AsyncJob, answer: Handler, failure: BaseException | None = None) -> None:
        """Send the answer within the grace time, also when cancelled; if it is lost, the job may be handled again."""
        if failure is not None:
            logger.warning("the handler of job %d failed", job.id, exc_info=failure)
            if job.operation is not None:
                job.operation.end(failure)
        if job.is_answered:
            return
        with anyio.CancelScope(shield=True):
            try:
                with anyio.fail_after(self._grace_s):
                    await answer(job)
            except (JobsError, TimeoutError) as error:
                logger.warning("job %d may be handled again: %s", job.id, str(error) or "no answer in time")

    async def _give_back(self, job: AsyncJob) -> None:
        await job.release(whole_stat(await job.stats(), "pri"))

    async def _retry(self, job: AsyncJob) -> None:
        stats = await job.stats()
        priority = whole_stat(stats, "pri") if "pri" in stats else DEFAULT_PRIORITY
        delay = self._retries.delay_s(whole_stat(stats, "reserves"))
        if delay is None:
            await job.bury(priority)
        else:
            await job.release(priority, delay)

    async def _touch_all(self, group: anyio.abc.TaskGroup) -> None:
        """Touch the jobs at work in time."""
        while True:
            await anyio.sleep(LEARN_AFTER_S)
            now = monotonic()
            for job, plan in self._at_work.items():
                if plan.is_due(now):
                    plan.is_busy = True
                    group.start_soon(self._touch, job, plan)

    async def _touch(self, job: AsyncJob, plan: TouchPlan) -> None:
        try:
            if plan.asks_for_ttr:
                plan.note_ttr(whole_stat(await job.stats(), "ttr"), monotonic())
            else:
                await job.touch()
                plan.note_touched(monotonic())
            plan.is_busy = False  # after an error of the last kind it stays busy, so that the job is touched no longer
        except (ServerFailed, OutOfMemory) as error:
            logger.warning("job %d was not touched, trying again: %s", job.id, error)
            plan.note_failed(monotonic())
            plan.is_busy = False
        except (Refused, ReservationLost, ConnectionLost) as error:
            if job in self._at_work and not job.is_answered:
                logger.warning("job %d is no longer touched while it is handled: %s", job.id, error)
