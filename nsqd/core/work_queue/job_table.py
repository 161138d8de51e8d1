"""The jobs of one tube by state, with the order of the jobs that are ready, delayed or reserved.

The table knows no log, no worker and no topic: the caller that changes a job records the row that it gets back. Each order is a
heap of integers, the *entries*: the priority of a ready job, or the due time of another, in the high bits, and the ordinal in
the low ones. A stale entry, whose job has changed since, stays until it is first, or until stale entries outnumber the jobs.
Jobs with a time to live have an entry in one more heap, by when they go, in whatever state they are.
"""

from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush

from nsqd.core.timing.duequeue import SLACK
from nsqd.core.work_queue.job import Job, JobState
from nsqd.core.work_queue.job_pages import JobPages

FREED_AT_ONCE = 2000  # entries of a heap, or buried ones: 0.1 ms
URGENT = 1024  # priorities below this one are urgent
_BITS = 48  # low bits of an entry, which are the ordinal
_ORDINAL = (1 << _BITS) - 1
_READY, _RESERVED, _BURIED, _DELAYED = JobState
_IN_ORDER = (_READY, _DELAYED, _RESERVED)  # the states that have a heap


def entry_of(job: Job) -> int:
    """Return the job's entry in the order of its state. The entry of a buried job is higher the later it was buried."""
    return (job.priority if job.state is _READY else job.due) << _BITS | job.ordinal


class JobTable:
    """All jobs of one tube: their rows, their counts by state, and which comes next in each state."""

    __slots__ = ("_expiring", "_heaps", "_last_burial", "buried", "counts", "jobs", "urgent")

    def __init__(self, jobs: JobPages | None = None) -> None:
        """Begin with `jobs`, the rows from before a restart, for which the caller must then call `restart`; or with none."""
        self.jobs = JobPages() if jobs is None else jobs
        self.counts = dict.fromkeys(JobState, 0)
        self.urgent = 0  # number of ready jobs with a priority below URGENT
        self.buried: dict[int, None] = {}  # ordinals, the first buried first
        self._last_burial = 0  # the number that the last burial got
        self._heaps: dict[JobState, list[int]] = {state: [] for state in _IN_ORDER}  # with an entry for every job
        self._expiring: list[int] = []  # a heap: when each job with a ttl goes (s since the epoch), and its ordinal

    # commands

    def add(self, job: Job) -> bytes:
        """Add a job in the state that it has. Return its row."""
        row = job.pack()
        self.jobs.put_row(job.ordinal, row)
        self._enter(job)
        if job.ttl:
            self._expire(range(job.ordinal, job.ordinal + 1), job.expires)
        return row

    def add_together(
        self, first: int, rows: list[bytes], state: JobState, priority: int, due: int, expires: int = 0
    ) -> None:
        """Add jobs with ordinals from `first` on, all of this state (ready or delayed), priority and due time (ns).

        `expires`: when they go, in s since the epoch; 0: never.
        """
        count = len(rows)
        self.jobs.put_rows(first, rows)
        if expires:
            self._expire(range(first, first + count), expires)
        self.counts[state] += count
        if state is _READY and priority < URGENT:
            self.urgent += count
        heap, entry = self._heaps[state], (priority if state is _READY else due) << _BITS | first
        for one in range(entry, entry + count):
            heappush(heap, one)

    def move(self, job: Job, state: JobState, priority: int, due: int) -> bytes:
        """Put the job into a state, with that priority and due time (ns). Return its row. To bury a job, call `bury`."""
        self._leave(job)
        job.state, job.priority, job.due = state, priority, due
        row = job.pack()
        self.jobs.put_row(job.ordinal, row)
        self._enter(job)
        return row

    def bury(self, job: Job, priority: int) -> bytes:
        """Bury the job as the last of the buried ones, with that priority. Return its row."""
        self._last_burial += 1
        return self.move(job, _BURIED, priority, self._last_burial)

    def remove(self, job: Job) -> None:
        """Remove the job from its state and its row from the pages."""
        self._leave(job)
        self.jobs.remove(job.ordinal)

    def _enter(self, job: Job) -> None:
        state = job.state
        self.counts[state] += 1
        if state is _BURIED:
            self.buried[job.ordinal] = None
            return
        key = job.due
        if state is _READY:
            key = job.priority
            self.urgent += key < URGENT
        heap = self._heaps[state]
        heappush(heap, key << _BITS | job.ordinal)
        if len(heap) > 2 * self.counts[state] + SLACK:
            self._sweep(state, heap)

    def _sweep(self, state: JobState, heap: list[int]) -> None:
        """Remove the stale entries of a state."""
        heap[:] = {entry for entry in heap if self.found(state, entry) is not None}
        heapify(heap)

    def _expire(self, ordinals: Iterable[int], at: int) -> None:
        """Note that these jobs go at `at` (s since the epoch)."""
        heap = self._expiring
        for ordinal in ordinals:
            heappush(heap, at << _BITS | ordinal)
        if len(heap) > 2 * self.jobs.count + SLACK:
            heap[:] = {entry for entry in heap if self._lives(entry) is not None}
            heapify(heap)

    def _lives(self, entry: int) -> Job | None:
        """Return the job of an entry of `_expiring`, or None if it is gone."""
        job = self.jobs.get(entry & _ORDINAL)
        return job if job is not None and job.expires == entry >> _BITS else None

    def _leave(self, job: Job) -> None:
        state = job.state
        self.counts[state] -= 1
        if state is _BURIED:
            del self.buried[job.ordinal]
            return
        if state is _READY and job.priority < URGENT:
            self.urgent -= 1
        heap = self._heaps[state]
        if heap and heap[0] & _ORDINAL == job.ordinal:  # its entry, or a stale one
            heappop(heap)
        if len(heap) > 2 * self.counts[state] + SLACK:
            self._sweep(state, heap)

    def restart(self, offset: int, now: int) -> Iterator[tuple[list[int], int]]:
        """Take up the jobs from before a restart. End all reservations, and the delays that are over by `now` (ns).

        Every due time is made earlier by `offset` (ns), to convert it from the log's clock.

        Yield the ids of all jobs in runs, each with the ordinal of its first job; the others follow without a gap.
        """
        ready, delayed = self._heaps[_READY], self._heaps[_DELAYED]
        buried: list[tuple[int, int]] = []  # due, ordinal
        is_ready, is_delayed = int(_READY), int(_DELAYED)
        for first, briefs in self.jobs.restart(offset, now):
            all_ids, priorities, _, states = zip(*briefs, strict=True)
            if states.count(is_ready) == len(states):  # nearly always so, and a fifth of the cost of the code below
                ready += [priority << _BITS | ordinal for ordinal, priority in enumerate(priorities, first)]
                if min(priorities) < URGENT:
                    self.urgent += sum(map(URGENT.__gt__, priorities))
                yield list(all_ids), first
                continue
            ids: list[int] = []
            for ordinal, (job_id, priority, due, state) in enumerate(briefs, first):
                if state == is_ready:
                    ready.append(priority << _BITS | ordinal)
                    self.urgent += priority < URGENT
                elif state == is_delayed:
                    delayed.append(due << _BITS | ordinal)
                elif state:
                    buried.append((due, ordinal))
                else:  # this row has no job
                    if ids:
                        yield ids, ordinal - len(ids)
                        ids = []
                    continue
                ids.append(job_id)
            if ids:
                yield ids, first + len(briefs) - len(ids)
        buried.sort()
        self.buried.update((ordinal, None) for _, ordinal in buried)
        self._last_burial = buried[-1][0] if buried else 0
        self.counts[_BURIED] = len(buried)
        for state_in_order, heap in self._heaps.items():
            self.counts[state_in_order] = len(heap)
            heapify(heap)
        self._expiring = [at << _BITS | ordinal for ordinal, at in self.jobs.lives()]
        heapify(self._expiring)

    def take_apart(self) -> Iterator[tuple[list[int], list[int]]]:
        """Free everything, which nobody needs any more. Yield the ordinals and the ids of the jobs of each step."""
        while self.jobs.count:
            yield self.jobs.pop_page()
        for heap in (*self._heaps.values(), self._expiring):
            while heap:
                del heap[-FREED_AT_ONCE:]
                yield [], []
        while self.buried:
            for _ in range(min(FREED_AT_ONCE, len(self.buried))):
                self.buried.popitem()
            yield [], []

    # queries

    def head(self, state: JobState = _READY) -> Job | None:
        """Return the next job in that state: the most urgent ready one, or the one due first. The state must not be BURIED."""
        heap, get = self._heaps[state], self.jobs.get
        while heap:
            entry = heap[0]
            job = get(entry & _ORDINAL)  # what follows is `found`, inlined
            if (
                job is not None
                and job.state is state
                and (job.priority if state is _READY else job.due) == entry >> _BITS
            ):
                return job
            heappop(heap)
        return None

    def found(self, state: JobState, entry: int) -> Job | None:
        """Return the job of an entry in the order of that state, or None if the entry is stale."""
        job = self.jobs.get(entry & _ORDINAL)
        return job if job is not None and job.state is state and entry_of(job) == entry else None

    def first_expiring(self) -> Job | None:
        """Return the job that goes first of those that go by themselves, or None if there is none."""
        heap = self._expiring
        while heap:
            job = self._lives(heap[0])
            if job is not None:
                return job
            heappop(heap)
        return None

    def first_buried(self, count: int = 1) -> list[Job]:
        """Return the jobs that were buried first, at most `count` of them."""
        ordinals = [ordinal for ordinal, _ in zip(self.buried, range(count), strict=False)]
        return [job for job in map(self.jobs.get, ordinals) if job is not None]

    def first(self, state: JobState) -> Job | None:
        """Return the next job in any state: like `head`, or the one that was buried first."""
        return next(iter(self.first_buried()), None) if state is _BURIED else self.head(state)

    def next_due(self) -> int | None:
        """Return when the next delay or reservation ends (ns), or None if there is none."""
        delayed, reserved = self.head(_DELAYED), self.head(_RESERVED)
        if delayed is None or reserved is None:
            one = delayed or reserved
            return one.due if one is not None else None
        return min(delayed.due, reserved.due)

    def heap(self, state: JobState) -> Sequence[int]:
        """Return the entries of that state, which must not be BURIED, as a heap. Some may be stale: see `found`."""
        return self._heaps[state]

    def check(self) -> None:
        """Raise AssertionError if an invariant of this class does not hold."""
        self.jobs.check()
        found = dict.fromkeys(JobState, 0)
        entries = {state: set(heap) for state, heap in self._heaps.items()}
        expiring = set(self._expiring)
        for job in self.jobs:
            found[job.state] += 1
            assert not job.ttl or job.expires << _BITS | job.ordinal in expiring
            assert job.state is _BURIED or entry_of(job) in entries[job.state]
            assert (job.state is _BURIED) == (job.ordinal in self.buried)
        assert found == self.counts
        assert self.urgent == sum(job.state is _READY and job.priority < URGENT for job in self.jobs)
        assert len(self.buried) == found[_BURIED]
        assert all(len(heap) <= 2 * self.counts[state] + SLACK for state, heap in self._heaps.items())

    def __repr__(self) -> str:
        counts = ", ".join(f"{count} {state.name.lower()}" for state, count in self.counts.items())
        return f"<JobTable: {counts}>"
