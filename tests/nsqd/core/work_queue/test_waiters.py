"""Waiting workers and the jobs that they get: with queues that are nothing but a table."""

from nsqd.core.sequence.mark import Mark
from nsqd.core.work_queue.job import Job, JobState
from nsqd.core.work_queue.job_table import JobTable
from nsqd.core.work_queue.waiters import Reading, Waiters
from nsqd.core.work_queue.worker import MARGIN, Worker


class Hand:
    """A worker's sink, which keeps what the worker was given."""

    def __init__(self) -> None:
        self.got: list[int] = []
        self.asked_again = 0
        self.marks: list[Mark] = []

    def wait_for(self, marks: tuple[Mark, ...]) -> None:
        self.marks += marks

    def reserved(self, tube: str, job: Job, body: bytes) -> None:
        assert body == b"%d" % job.id
        self.got.append(job.id)

    def read_completed(self) -> None:
        self.asked_again += 1


class Queue:
    """A JobQueue that is nothing but a table of jobs."""

    def __init__(self, *jobs: tuple[int, int]) -> None:
        """Make a queue of `jobs`, each given as (id, priority)."""
        self.topic_name = "of a test"
        self.table = JobTable()
        self.pause_until = 0
        self.corrupt: set[int] = set()  # ids
        self.on_disk = False
        for job_id, priority in jobs:
            self.add(job_id, priority)

    def add(self, job_id: int, priority: int) -> None:
        self.table.add(Job(job_id, job_id, priority, 0, 60, 0))

    def holds_back(self, now: int) -> bool:
        return self.pause_until > now

    def next_ready(self) -> Job | None:
        return self.table.head()

    def body(self, job: Job, with_headers: bool = False) -> bytes | None:
        if self.on_disk:
            raise Reading(self)
        if job.id in self.corrupt:
            self.table.remove(job.ordinal, job.state, job.priority)
            return None
        return b"%d" % job.id

    def reserve(self, job: Job, worker: Worker, now: int) -> None:
        self.table.move(job, JobState.RESERVED, job.priority, now + 1)


def worker(*tubes: str) -> tuple[Worker, Hand]:
    hand = Hand()
    one = Worker(hand)
    one.watching.remove("default")
    for name in tubes:
        one.watching.add(name)
    return one, hand


def waiters(**queues: Queue) -> Waiters[Queue]:
    made: Waiters[Queue] = Waiters()
    made.queues.update(queues)
    return made


def test_the_most_urgent_job_of_all_tubes_comes_first_and_corrupt_ones_never() -> None:
    pool = waiters(a=Queue((3, 5), (4, 1)), b=Queue((1, 5), (2, 1)), c=Queue((9, 0)))
    one, _ = worker("a", "b", "none")
    order = []
    while (found := pool.next_for(one, 0)) is not None:
        queue, job, body = found
        queue.reserve(job, one, 0)
        order.append((job.id, body))
    assert order == [(2, b"2"), (4, b"4"), (1, b"1"), (3, b"3")]
    queue = Queue((1, 0), (2, 0))
    queue.corrupt = {1}
    one, _ = worker("a")
    found = waiters(a=queue).next_for(one, 0)
    assert found[1].id == 2
    assert queue.table.jobs.count == 1


def test_a_read_for_one_tube_does_not_delay_jobs_of_others() -> None:
    on_disk, queue = Queue((1, 0)), Queue((2, 5))
    on_disk.on_disk = True
    pool = waiters(d=on_disk, a=queue)
    (both, first), (only, second) = worker("d", "a"), worker("a")
    pool.wait(both)
    pool.wait(only)
    pool.serve("a", queue, 0)
    assert (first.got, second.got) == ([], [2])
    assert pool.count == 1


def test_a_blocked_worker_is_notified_once_and_only_for_its_tube() -> None:
    queue, other = Queue(), Queue()
    pool = waiters(a=queue, b=other)
    (one, hand), (two, hand_of_two), (gone, hand_of_gone) = worker("a"), worker("b"), worker("a")
    pool.block(one, queue)
    pool.block(two, other)
    pool.block(gone, queue)
    pool.leave(gone)
    pool.read_completed(queue)
    pool.read_completed(queue)
    assert (hand.asked_again, hand_of_two.asked_again, hand_of_gone.asked_again) == (1, 0, 0)
    pool.awake[other] = None
    pool.remove("b", other)  # workers that wait for its bodies are notified, too
    assert hand_of_two.asked_again == 1
    assert not pool.awake
    assert list(pool.queues) == ["a"]


def test_a_worker_is_warned_before_the_first_of_its_reservations_ends() -> None:
    one, _ = worker()
    assert one.warned_at() is None
    one.hold(1, 5, 9 * MARGIN)
    one.hold(1, 6, 4 * MARGIN)
    assert one.warned_at() == 3 * MARGIN
    for more in range(1000):
        one.hold(1, 6, 7 * MARGIN + more)  # touched
    assert len(one._ends) <= 66
    assert one.warned_at() == 6 * MARGIN + 999
    one.lost(1, 6)
    assert one.warned_at() == 8 * MARGIN
    one.lost(1, 5)
    one.lost(1, 5)
    assert one.warned_at() is None
