"""The workers that wait for jobs, and the choice of the job that each one is given.

A worker is given the ready job with the lowest priority number, and among equals the lowest sequence, of all tubes that it
watches. The worker that has waited longest is served first.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from nsqd.core.message.ids import SEQUENCE
from nsqd.core.work_queue.job import Job
from nsqd.core.work_queue.job_table import JobTable
from nsqd.core.work_queue.worker import FEW, Worker

MOST_NAMES = 8192  # that workers watch who are given jobs in a turn: to take them out of the tubes takes about 2 ms


class JobQueue(Protocol):
    """The part of a tube that this file needs."""

    topic_name: str
    table: JobTable

    shards: Any  # tubes of the same name of promoted logs: a sequence of queues of the same class

    def holds_back(self, now: int) -> bool:
        """Return True while no job may be reserved: the tube is paused, or its limits are reached. `now`: monotonic ns."""

    def next_ready(self) -> Job | None:
        """Return the ready job that is to be reserved next; None: there is none now."""

    def body(self, job: Job, with_headers: bool = False) -> bytes | None:
        """Return the job's body, or None if it is corrupt on disk; then the job is gone. Raise Reading if it must be read.

        `with_headers`: with its headers in front (penstock/protocol/headers.py).
        """

    def reserve(self, job: Job, worker: Worker, now: int) -> None:
        """Reserve a job that is not reserved for the worker. `now`: monotonic ns."""


class Reading(Exception):
    """The body is on disk only and is being read. The caller blocks its worker (Waiters.block), which asks again later."""

    def __init__(self, queue: JobQueue) -> None:
        super().__init__()
        self.queue = queue


class WaitingCounts(NamedTuple):
    """The numbers of workers that wait for a job of one tube."""

    holders: int  # clients that hold what they reserve: those of beanstalkd
    others: int  # clients that do not: those of Disque
    nodes: int  # other nodes of the cluster, each for its clients


Q = TypeVar("Q", bound=JobQueue)


def turn_of(job: Job) -> tuple[int, int, int]:
    """Return the sort key of a job. It has the sequence before the whole id, since a log may have had several node numbers."""
    return job.priority, job.id & SEQUENCE, job.id


def _earlier(found: tuple[Q, Job] | None, shards: Sequence[Q], now: int) -> tuple[Q, Job] | None:
    """Return `found`, or the ready job of a shard that comes before it."""
    for shard in shards:
        job = shard.next_ready() if not shard.holds_back(now) else None
        if job is not None and (found is None or turn_of(job) < turn_of(found[1])):
            found = shard, job
    return found


class Waiters(Generic[Q]):
    """All workers of a node that wait for a job or for the disk. A node has one such object."""

    __slots__ = ("_blocked", "_by_tube", "awake", "changed", "count", "guests", "names_left", "queues", "sharded")

    def __init__(self) -> None:
        self.queues: dict[str, Q] = {}  # all tubes of the node's own log, by name
        # by the negative numbers with which workers know them: tubes of promoted logs, which are shards of one of `queues`
        self.sharded: dict[int, Q] = {}
        self.awake: dict[Q, None] = {}  # tubes that may have a job for a waiting worker
        self.names_left = MOST_NAMES  # names that all workers together may still watch that get jobs in this turn
        self.count = 0  # number of workers that wait for a job
        self.guests = 0  # of these, those that stand for another node of the cluster
        # names of the tubes that more or fewer workers of this node wait for; None: they are not recorded
        self.changed: set[str] | None = None
        self._by_tube: dict[str, dict[Worker, None]] = {}  # those workers by name of the tube, first come first
        self._blocked: dict[Worker, JobQueue] = {}  # workers that wait for a read from disk, with the tube that reads

    def remove(self, name: str, queue: Q) -> None:
        """Remove a deleted tube. Workers blocked on its bodies ask again, and then find that the jobs are gone."""
        del self.queues[name]
        self.forget(queue)

    def forget(self, queue: Q) -> None:
        """Forget a tube that is deleted, or that is a shard no more."""
        self.awake.pop(queue, None)
        self.read_completed(queue)

    # workers that wait

    def wait(self, worker: Worker) -> None:
        """Let the worker wait for the next job in any of the tubes that it watches."""
        worker.waiting = True
        self.count += 1
        self.guests += worker.is_guest
        if self.changed is not None and not worker.is_guest:
            self.changed.update(worker.watching)
        for name in worker.watching:
            self._by_tube.setdefault(name, {})[worker] = None

    def stop_waiting(self, worker: Worker) -> None:
        """Stop waiting for a job, if the worker does."""
        if self.retire(worker):
            for name in worker.watching:
                self.unregister(worker, name)

    def retire(self, worker: Worker) -> bool:
        """Give the worker no more jobs. Returns True if it waited: then `unregister` must follow for all that it watches."""
        if not worker.waiting:
            return False
        worker.waiting = False
        self.count -= 1
        self.guests -= worker.is_guest
        if self.changed is not None and not worker.is_guest:
            self.changed.update(worker.watching)
        return True

    def unregister(self, worker: Worker, name: str) -> None:
        """Forget that a retired worker waits for jobs of the tube of that name."""
        waiting = self._by_tube[name]
        del waiting[worker]
        if not waiting:
            del self._by_tube[name]

    def is_awaited(self, name: str) -> bool:
        """Return True if any worker waits for a job of this tube."""
        return name in self._by_tube

    @property
    def awaited_count(self) -> int:
        """Return for jobs of how many tubes any worker waits."""
        return len(self._by_tube)

    def count_at(self, name: str) -> int:
        """Return the number of workers that wait for a job of this tube."""
        return sum(worker.waiting for worker in self._by_tube.get(name, ()))

    def kinds_at(self, name: str) -> WaitingCounts:
        """Count the workers that wait for a job of this tube, by whose they are."""
        waiting = [worker for worker in self._by_tube.get(name, ()) if worker.waiting]
        guests = sum(worker.is_guest for worker in waiting)
        of_queues = sum(worker.holder is not worker and not worker.is_guest for worker in waiting)
        return WaitingCounts(len(waiting) - guests - of_queues, of_queues, guests)

    def own_at(self, name: str) -> Iterator[Worker]:
        """Yield the workers of this node that wait for a job of this tube, the longest wait first."""
        return (worker for worker in self._by_tube.get(name, ()) if worker.waiting and not worker.is_guest)

    def names(self) -> list[str]:
        """Return the names of the tubes that any worker waits for."""
        return list(self._by_tube)

    def block(self, worker: Worker, queue: JobQueue) -> None:
        """Block a worker until `queue` has read from disk; then its sink's `read_completed` is called."""
        self._blocked[worker] = queue

    def leave(self, worker: Worker) -> bool:
        """Give a worker that leaves neither a job nor what is read from disk. Returns as `retire`."""
        self._blocked.pop(worker, None)
        return self.retire(worker)

    # jobs for workers

    def next_for(self, worker: Worker, now: int, offered: Q | None = None) -> tuple[Q, Job, bytes] | None:
        """Return the most urgent ready job of the tubes that the worker watches, as (tube, job, body); None if there is none.

        Tubes that hold their jobs back are left out. Raise Reading if the body must be read from disk first. `now`: monotonic
        ns. `offered`: a tube that has a job for the worker, which waits; None: it does not wait. Of one that waits and watches
        many tubes, only those are looked at that may have a job: `offered`, and those in `awake`.
        """
        names: Iterable[str] = worker.watching
        if offered is not None and len(worker.watching) > FEW and len(self.awake) < len(worker.watching):
            of_awake = [queue.topic_name for queue in self.awake if queue.topic_name in worker.watching]
            names = dict.fromkeys((offered.topic_name, *of_awake))
        while True:
            found: tuple[Q, Job] | None = None
            for name in names:
                queue = self.queues.get(name)
                if queue is None or queue.holds_back(now):
                    continue
                job = queue.next_ready()
                if job is not None and (found is None or turn_of(job) < turn_of(found[1])):
                    found = queue, job
                if self.sharded:
                    found = _earlier(found, queue.shards[1:], now)
            if found is None:
                return None
            body = found[0].body(found[1], worker.takes_headers)
            if body is not None:
                return *found, body

    def serve(self, name: str, queue: Q, now: int) -> bool:
        """Give jobs to the workers that wait for this tube, while it has ready ones. Returns True if there is more to do."""
        waiting = list(self._by_tube.get(name, ()))
        if self.guests:
            waiting.sort(key=lambda worker: worker.is_guest)  # those of this node come first
        for worker in waiting:
            if not worker.waiting:  # held back, because of what another one was given
                continue
            if queue.holds_back(now) or queue.next_ready() is None:
                return False
            if self.names_left <= 0:
                return True
            try:
                found = self.next_for(worker, now, queue)
            except Reading:
                continue  # the body may be another tube's; this tube's jobs go to the other workers meanwhile
            if found is not None:
                self.names_left -= len(worker.watching)
                self.stop_waiting(worker)
                best, job, body = found
                best.reserve(job, worker, now)
                worker.sink.reserved(best.topic_name, job, body)
        return False

    def read_completed(self, queue: JobQueue) -> None:
        """Wake the workers that are blocked on this tube, since it has read from disk."""
        for worker in [worker for worker, waits_for in self._blocked.items() if waits_for is queue]:
            del self._blocked[worker]
            worker.sink.read_completed()

    def check(self) -> None:
        """Raise AssertionError if an invariant of this class does not hold."""
        assert all(self._by_tube.values())
        for name, waiting in self._by_tube.items():
            assert all(name in worker.watching for worker in waiting)
        assert self.count == len({one for waiting in self._by_tube.values() for one in waiting if one.waiting})

    def __repr__(self) -> str:
        return f"<Waiters: {self.count} wait, {len(self._blocked)} wait for the disk, {len(self.queues)} tubes>"
