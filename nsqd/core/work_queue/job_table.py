"""The jobs of one queue, and which of them are in which state: what comes next of those that are ready, delayed or reserved.

The table knows no log, no worker and no topic; whoever changes a job writes the row that it is given. The orders are heaps of
integers: the priority of a ready job or the due time of another, then its ordinal. An entry that no longer holds stays until
it is first, or until such entries outnumber the jobs.
"""

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush

from nsqd.core.timing.duequeue import SLACK
from nsqd.core.work_queue.job import Job, JobState
from nsqd.core.work_queue.job_pages import JobPages

URGENT = 1024  # priorities below this one are urgent
_BITS = 48  # of an entry that are the ordinal
_ORDINAL = (1 << _BITS) - 1
_READY, _RESERVED, _BURIED, _DELAYED = JobState
_IN_ORDER = (_READY, _DELAYED, _RESERVED)  # the states that have a heap


def entry_of(job: Job) -> int:
    """Return the job's entry in the order of its state. A buried job's is higher the later it was buried."""
    return (job.priority if job.state is _READY else job.due) << _BITS | job.ordinal


class JobTable:
    """See above."""

    __slots__ = ("_heaps", "_last_burial", "buried", "counts", "jobs", "urgent")

    def __init__(self, jobs: JobPages | None = None) -> None:
        """`jobs`: those of before a restart, for which `restart` must be called."""
        self.jobs = JobPages() if jobs is None else jobs
        self.counts = dict.fromkeys(JobState, 0)
        self.urgent = 0  # ready jobs of a priority below URGENT
        self.buried: dict[int, None] = {}  # ordinals, the first buried first
        self._last_burial = 0  # the number that the last burial got
        self._heaps: dict[JobState, list[int]] = {state: [] for state in _IN_ORDER}  # every job in it has an entry

    # commands

    def add(self, job: Job) -> bytes:
        """Add a job in the state that it has. Returns its row."""
        row = job.pack()
        self.jobs.put_row(job.ordinal, row)
        self._enter(job)
        return row

    def add_together(self, first: int, rows: list[bytes], state: JobState, priority: int, due: int) -> None:
        """Add jobs with ordinals from `first` on, all of this state (ready or delayed), priority and due time (ns)."""
        count = len(rows)
        self.jobs.put_rows(first, rows)
        self.counts[state] += count
        if state is _READY and priority < URGENT:
            self.urgent += count
        heap, entry = self._heaps[state], (priority if state is _READY else due) << _BITS | first
        for one in range(entry, entry + count):
            heappush(heap, one)

    def move(self, job: Job, state: JobState, priority: int, due: int) -> bytes:
        """Put the job into a state, with that priority and due time (ns). Returns its row. See `bury` for burials."""
        self._leave(job)
        job.state, job.priority, job.due = state, priority, due
        row = job.pack()
        self.jobs.put_row(job.ordinal, row)
        self._enter(job)
        return row

    def bury(self, job: Job, priority: int) -> bytes:
        """Bury the job behind all that are buried. Returns its row."""
        self._last_burial += 1
        return self.move(job, _BURIED, priority, self._last_burial)

    def remove(self, job: Job) -> None:
        """Remove the job."""
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
            heap[:] = {entry for entry in heap if self.found(state, entry) is not None}
            heapify(heap)

    def _leave(self, job: Job) -> None:
        state = job.state
        self.counts[state] -= 1
        if state is _BURIED:
            del self.buried[job.ordinal]
            return
        if state is _READY and job.priority < URGENT:
            self.urgent -= 1
        heap = self._heaps[state]
        if heap and heap[0] & _ORDINAL == job.ordinal:  # its entry, or one that no longer holds
            heappop(heap)

    def restart(self, offset: int, now: int) -> Iterator[tuple[list[int], int]]:
        """Take up the jobs of before a restart: no job is reserved, and delays that are over by `now` have ended.

        Every time is moved back by `offset` (both are ns).

        Yields the ids of all jobs in runs, each with the ordinal of its first; the rest of a run follows it without a gap.
        """
        ready, delayed = self._heaps[_READY], self._heaps[_DELAYED]
        buried: list[tuple[int, int]] = []  # due, ordinal
        is_ready, is_delayed = int(_READY), int(_DELAYED)
        for first, briefs in self.jobs.restart(offset, now):
            all_ids, priorities, _, states = zip(*briefs, strict=True)
            if states.count(is_ready) == len(states):  # nearly always, and a fifth of what is below
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
                else:  # there is none
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

    # queries

    def head(self, state: JobState = _READY) -> Job | None:
        """Return the next job in that state, which is not BURIED: the most urgent one that is ready, or the one due first."""
        heap, get = self._heaps[state], self.jobs.get
        while heap:
            entry = heap[0]
            job = get(entry & _ORDINAL)  # and then as `found` has it, without its calls
            if (
                job is not None
                and job.state is state
                and (job.priority if state is _READY else job.due) == entry >> _BITS
            ):
                return job
            heappop(heap)
        return None

    def found(self, state: JobState, entry: int) -> Job | None:
        """Return the job of an entry in that state's order, or None if the entry no longer holds."""
        job = self.jobs.get(entry & _ORDINAL)
        return job if job is not None and job.state is state and entry_of(job) == entry else None

    def first_buried(self, count: int = 1) -> list[Job]:
        """Return up to `count` of the jobs that were buried first."""
        ordinals = [ordinal for ordinal, _ in zip(self.buried, range(count), strict=False)]
        return [job for job in map(self.jobs.get, ordinals) if job is not None]

    def first(self, state: JobState) -> Job | None:
        """Return the job that comes next in that state: as `head`, or the one that was buried first."""
        return next(iter(self.first_buried()), None) if state is _BURIED else self.head(state)

    def next_due(self) -> int | None:
        """Return when the next delay or reservation ends (ns), or None if there is none."""
        delayed, reserved = self.head(_DELAYED), self.head(_RESERVED)
        if delayed is None or reserved is None:
            one = delayed or reserved
            return one.due if one is not None else None
        return min(delayed.due, reserved.due)

    def heap(self, state: JobState) -> Sequence[int]:
        """Return the entries of that state's order, which is not BURIED's, as a heap. Some may no longer hold: see `found`."""
        return self._heaps[state]

    def check(self) -> None:
        """Raise AssertionError if an invariant of this class does not hold."""
        self.jobs.check()
        found = dict.fromkeys(JobState, 0)
        entries = {state: set(heap) for state, heap in self._heaps.items()}
        for job in self.jobs:
            found[job.state] += 1
            assert job.state is _BURIED or entry_of(job) in entries[job.state]
            assert (job.state is _BURIED) == (job.ordinal in self.buried)
        assert found == self.counts
        assert self.urgent == sum(job.state is _READY and job.priority < URGENT for job in self.jobs)
        assert len(self.buried) == found[_BURIED]
        assert all(len(heap) <= 2 * self.counts[state] + SLACK for state, heap in self._heaps.items())

    def __repr__(self) -> str:
        counts = ", ".join(f"{count} {state.name.lower()}" for state, count in self.counts.items())
        return f"<JobTable: {counts}>"
