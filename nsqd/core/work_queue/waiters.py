"""Which worker waits for which tube, and which job it is given: of all tubes that it watches, the one of the lowest priority
and sequence. Whoever waits longest is served first.
"""

from typing import Generic, Protocol, TypeVar

from nsqd.core.message.ids import SEQUENCE
from nsqd.core.work_queue.job import Job
from nsqd.core.work_queue.job_table import JobTable
from nsqd.core.work_queue.worker import Worker


class JobQueue(Protocol):
    """A tube, as far as workers are concerned."""

    table: JobTable
    pause_until: int  # ns: no job is given out before

    def body(self, job: Job) -> bytes | None:
        """Return the job's body, or None if it was damaged on disk; then the job is gone. Raises Reading."""

    def reserve(self, job: Job, worker: Worker, now: int) -> None:
        """Reserve a job, which nobody has reserved, for the worker."""


class Reading(Exception):
    """The body is on disk only and is being read. Whoever asked is to be blocked (Waiters.block), and asks again then."""

    def __init__(self, queue: JobQueue) -> None:
        super().__init__()
        self.queue = queue


Q = TypeVar("Q", bound=JobQueue)


def _turn_of(job: Job) -> tuple[int, int, int]:
    """A log may have had several node numbers: sequences tell which job is older, whole ids do not."""
    return job.priority, job.id & SEQUENCE, job.id


class Waiters(Generic[Q]):
    """See above. One of a node."""

    __slots__ = ("_blocked", "_by_tube", "awake", "count", "queues")

    def __init__(self) -> None:
        self.queues: dict[str, Q] = {}  # all tubes that have been made, by name
        self.awake: dict[Q, None] = {}  # those that may have a job for somebody who waits
        self.count = 0  # workers that wait for a job
        self._by_tube: dict[str, dict[Worker, None]] = {}  # those who wait, by tube; the first to be served first
        self._blocked: dict[Worker, JobQueue] = {}  # those who wait for the disk

    def remove(self, name: str, queue: Q) -> None:
        """The tube of that name is gone. Who waits for its bodies asks again, and is told that the jobs are gone."""
        del self.queues[name]
        self.awake.pop(queue, None)
        self.read_completed(queue)

    # who waits

    def wait(self, worker: Worker) -> None:
        """The worker is given the next job that there is in a tube that it watches."""
        worker.waiting = True
        self.count += 1
        for name in worker.watching:
            self._by_tube.setdefault(name, {})[worker] = None

    def stop_waiting(self, worker: Worker) -> None:
        """The worker waits no longer, if it did."""
        if not worker.waiting:
            return
        worker.waiting = False
        self.count -= 1
        for name in worker.watching:
            waiting = self._by_tube[name]
            del waiting[worker]
            if not waiting:
                del self._by_tube[name]

    def count_at(self, name: str) -> int:
        """Return how many workers wait for a job of that tube."""
        return len(self._by_tube.get(name, ()))

    def block(self, worker: Worker, queue: JobQueue) -> None:
        """The worker's sink is told when `queue` has read from disk what it needs."""
        self._blocked[worker] = queue

    def leave(self, worker: Worker) -> None:
        """The worker waits for nothing any more."""
        self.stop_waiting(worker)
        self._blocked.pop(worker, None)

    # who is given what

    def next_for(self, worker: Worker, now: int) -> tuple[Q, Job, bytes] | None:
        """Return the most urgent ready job of the tubes that the worker watches, its tube and body; or None. Raises Reading."""
        while True:
            found: tuple[Q, Job] | None = None
            for name in worker.watching:
                queue = self.queues.get(name)
                if queue is None or queue.pause_until > now:
                    continue
                job = queue.table.head()
                if job is not None and (found is None or _turn_of(job) < _turn_of(found[1])):
                    found = queue, job
            if found is None:
                return None
            body = found[0].body(found[1])
            if body is not None:
                return *found, body

    def serve(self, name: str, queue: Q, now: int) -> None:
        """Give the ready jobs of the tube of that name to those who wait for it."""
        for worker in list(self._by_tube.get(name, ())):
            if queue.pause_until > now or queue.table.head() is None:
                return
            try:
                found = self.next_for(worker, now)
            except Reading:
                continue  # what is read may be of another tube: this one's jobs are for the others meanwhile
            if found is not None:
                self.stop_waiting(worker)
                best, job, body = found
                best.reserve(job, worker, now)
                worker.sink.reserved(job, body)

    def read_completed(self, queue: JobQueue) -> None:
        """The tube has read from disk what those who are blocked asked for."""
        for worker in [worker for worker, waits_for in self._blocked.items() if waits_for is queue]:
            del self._blocked[worker]
            worker.sink.read_completed()

    def check(self) -> None:
        """Raise AssertionError if an invariant of this class does not hold."""
        assert all(self._by_tube.values())
        for name, waiting in self._by_tube.items():
            assert all(worker.waiting and name in worker.watching for worker in waiting)
        assert self.count == len({worker for waiting in self._by_tube.values() for worker in waiting})

    def __repr__(self) -> str:
        return f"<Waiters: {self.count} wait, {len(self._blocked)} wait for the disk, {len(self.queues)} tubes>"
