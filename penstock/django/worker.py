"""Worker: threads that execute the tasks of a backend, and one that holds their jobs."""

import logging
from collections.abc import Iterable
from functools import partial
from queue import SimpleQueue
from threading import Thread

from django.utils.crypto import get_random_string

from penstock.django.backend import ID_LENGTH, PenstockBackend, StoredTask, read_task
from penstock.django.execution import execute
from penstock.django.tasks import TaskResultStatus
from penstock.jobs import BadServer, ConnectionLost, JobsError
from penstock.jobs.holder import HeldJob, JobHolder
from penstock.jobs.retries import whole_stat
from penstock.telemetry import JOBS, activated, telemetry

logger = logging.getLogger("penstock.django")
Holder = JobHolder[StoredTask]


class Worker:
    """Executes tasks of some queues, `threads` at a time."""

    def __init__(self, backend: PenstockBackend, queues: Iterable[str], threads: int) -> None:
        self._backend = backend
        self._tubes = tuple(map(backend.tube_of, queues))
        self._id = get_random_string(ID_LENGTH)
        self._count = threads
        self._deliveries: SimpleQueue[tuple[Holder, HeldJob[StoredTask]] | None] = SimpleQueue()
        self._ends: SimpleQueue[Exception | None] = SimpleQueue()  # why a holder ended; None: `stop` was called

    def stop(self) -> None:
        """Let `run` finish the tasks at work and return. A signal handler may call this."""
        self._ends.put(None)

    def run(self) -> None:
        """Execute tasks until `stop`. A lost node is waited for. Raises BadServer, Refused."""
        threads = [Thread(target=self._work, name="penstock tasks", daemon=True) for _ in range(self._count)]
        for thread in threads:
            thread.start()
        holder = self._hold()
        while (end := self._ends.get()) is not None:
            if not isinstance(end, ConnectionLost) or isinstance(end, BadServer):
                raise end
            logger.warning("no server of jobs at %s, trying again: %s", self._backend.address, end)
            holder = self._hold()
        holder.consume(())  # it reserves no more, and touches the jobs at work
        for _ in threads:
            self._deliveries.put(None)
        for thread in threads:
            thread.join()
        holder.stop()
        self._backend.jobs.close()

    def _hold(self) -> Holder:
        def deliver(held: HeldJob[StoredTask]) -> None:
            self._deliveries.put((holder, held))

        read = partial(read_task, alias=self._backend.alias)
        holder = JobHolder(self._backend.new_worker_jobs(), read, deliver, self._ends.put, self._count)
        holder.consume(self._tubes)
        return holder

    def _work(self) -> None:
        while (delivery := self._deliveries.get()) is not None:
            self._attempt(*delivery)

    def _attempt(self, holder: Holder, held: HeldJob[StoredTask]) -> None:
        """Execute a task; then delete its job, or release it for the next attempt, or bury it after the last one."""
        attempts = self._attempts(held.job.id)
        delay_s = self._backend.retries.delay_s(attempts)
        result, ids = held.content.result, [""] * (attempts - 1) + [self._id]  # the node does not know earlier workers
        tracing, tube = telemetry(), self._backend.tube_of(result.task.queue_name)
        operation = tracing.process(JOBS, tube, str(held.job.id), held.job.headers) if tracing is not None else None
        with activated(operation):
            error = execute(result, type(self._backend), ids, delay_s is not None)
        if operation is not None:
            operation.end(error)
        if result.status == TaskResultStatus.SUCCESSFUL:
            holder.acknowledge(held.job.id)
        elif delay_s is None:
            holder.bury(held.job.id)
        else:
            holder.release(held.job.id, delay_s)

    def _attempts(self, job_id: int) -> int:
        """Return the number of times the job was reserved; 1 if the node does not answer."""
        try:
            return max(1, whole_stat(self._backend.jobs.ask(lambda jobs: jobs.stats_job(job_id)), "reserves"))
        except JobsError:
            return 1
