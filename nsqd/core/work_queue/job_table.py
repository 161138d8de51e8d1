"""The jobs of one tube by state, with the order of the jobs that are ready, delayed or reserved.

The table knows no log, no worker and no topic: the caller that changes a job records the row that it gets back. Each order is a
heap of integers, the *entries* (entries.py): the priority of a ready job, or the due time of another, in the high bits, and the
ordinal in the low ones. A stale entry, whose job has changed since, stays until it is first, or until stale entries outnumber
the jobs. lifetimes.py knows when jobs with a time to live go, in whatever state they are.
"""

from collections import OrderedDict
from collections.abc import Iterator
from functools import partial
from heapq import heappush

from nsqd.core.sequence.put_batch import JobOptions
from nsqd.core.timing.duequeue import SLACK
from nsqd.core.work_queue.entries import Entries
from nsqd.core.work_queue.job import Job, JobState, Outline, expiry
from nsqd.core.work_queue.job_pages import Brief, JobPages
from nsqd.core.work_queue.lifetimes import Lifetimes

SEARCHED_PAGES = 256  # of 64 jobs: 0.1 ms
FREED_AT_ONCE = 1000  # runs of entries, or buried jobs: 0.1 ms
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

    __slots__ = ("_last_burial", "_orders", "buried", "counts", "jobs", "lifetimes", "urgent")

    def __init__(self, jobs: JobPages | None = None) -> None:
        """Begin with `jobs`, the rows from before a restart, for which the caller must then call `restart`; or with none."""
        self.jobs = JobPages() if jobs is None else jobs
        self.counts = dict.fromkeys(JobState, 0)
        self.urgent = 0  # number of ready jobs with a priority below URGENT
        # ordinals, the first buried first; a dict would walk over all that were taken out before it finds the next one
        self.buried: OrderedDict[int, None] = OrderedDict()
        self._last_burial = 0  # the number that the last burial got
        self._orders = {state: Entries() for state in _IN_ORDER}  # with an entry for every job
        self.lifetimes = Lifetimes(self.jobs)

    # commands

    def add(self, job: Job) -> bytes:
        """Add a job in the state that it has. Return its row."""
        row = job.pack()
        self.jobs.put_row(job.ordinal, row)
        self._enter(job.ordinal, job.state, job.priority if job.state is _READY else job.due)
        if job.ttl:
            self.lifetimes.record(job.ordinal, 1, job.expires)
        return row

    def add_together(self, first: int, ids: list[int], options: JobOptions, created: int, state: JobState) -> None:
        """Add new jobs of consecutive ordinals from `first` on, all in this state (ready or delayed) and with these options.

        `options.due` is 0 if they are ready. `created`: ns since the epoch.
        """
        count, key = len(ids), options.due
        self.jobs.put_new(first, ids, options, created, state)
        if options.ttl:
            self.lifetimes.record(first, count, expiry(created, options.ttl))
        self.counts[state] += count
        if state is _READY:
            key = options.priority
            if key < URGENT:
                self.urgent += count
        entry = key << _BITS | first
        self._orders[state].add_run(entry, entry + count)

    def move(self, job: Job, state: JobState, priority: int, due: int) -> bytes:
        """Put the job into a state, with that priority and due time (ns). Return its row. To bury a job, call `bury`."""
        self._leave(job.ordinal, job.state, job.priority)
        job.state, job.priority, job.due = state, priority, due
        row = job.pack()
        self.jobs.put_row(job.ordinal, row)
        self._enter(job.ordinal, state, priority if state is _READY else due)
        return row

    def reserve(self, ordinal: int, priority: int, reserves: int, due: int) -> bytes:
        """Reserve the job that `plain_head` returned until `due` (ns), for the `reserves`th time. Return its row.

        Does what `_leave` and `_enter` do, at half of their cost.
        """
        counts, ready = self.counts, self._orders[_READY]
        row = self.jobs.reserve(ordinal, due, reserves)
        ready.advance((priority << _BITS | ordinal) + 1)
        counts[_READY] -= 1
        counts[_RESERVED] += 1
        if priority < URGENT:
            self.urgent -= 1
        heappush(self._orders[_RESERVED].heap, due << _BITS | ordinal)
        if len(ready.heap) > 2 * counts[_READY] + SLACK:
            ready.sweep(partial(self._first_found, _READY))
        return row

    def bury(self, job: Job, priority: int) -> bytes:
        """Bury the job as the last of the buried ones, with that priority. Return its row."""
        self._last_burial += 1
        return self.move(job, _BURIED, priority, self._last_burial)

    def remove(self, ordinal: int, state: JobState, priority: int) -> None:
        """Remove a job from its state, and its row from the pages."""
        self._leave(ordinal, state, priority)
        self.jobs.remove(ordinal)

    def _enter(self, ordinal: int, state: JobState, key: int) -> None:
        """Enter a job into the order of its state. `key`: the priority of a ready job, the due time of another.

        No more entries are stale than before, and there is one job more, so nothing is to be swept.
        """
        self.counts[state] += 1
        if state is _BURIED:
            self.buried[ordinal] = None
            return
        if state is _READY:
            self.urgent += key < URGENT
        heappush(self._orders[state].heap, key << _BITS | ordinal)

    def _first_found(self, state: JobState, first: int, end: int) -> int | None:
        """Return the first entry of first..end, a run in the order of that state, that is not stale; None: all are."""
        key, last = first & ~_ORDINAL, (end - 1) & _ORDINAL
        while first < end:
            ordinal = self.jobs.next_in_state(state, first & _ORDINAL, last + 1)
            if ordinal is None:
                return None
            if self.found(state, key | ordinal) is not None:
                return key | ordinal
            first = (key | ordinal) + 1
        return None

    def _leave(self, ordinal: int, state: JobState, priority: int) -> None:
        count = self.counts[state] = self.counts[state] - 1
        if state is _BURIED:
            del self.buried[ordinal]
            return
        if state is _READY and priority < URGENT:
            self.urgent -= 1
        order = self._orders[state]
        heap = order.heap
        if heap[0] & _ORDINAL == ordinal:  # its entry, or a stale one; there is one for each job
            order.advance(heap[0] + 1)
        if len(heap) > 2 * count + SLACK:
            order.sweep(partial(self._first_found, state))

    def restart(self, offset: int, now: int) -> Iterator[tuple[list[int], int]]:
        """Take up the jobs from before a restart. End all reservations, and the delays that are over by `now` (ns).

        Every due time is made earlier by `offset` (ns), to convert it from the log's clock.

        Yield the ids of all jobs in runs, each with the ordinal of its first job; the others follow without a gap.
        """
        buried: list[tuple[int, int]] = []  # due, ordinal
        mixed: list[int] = []  # entries of ready jobs of different priorities
        is_ready = int(_READY)
        for first, briefs in self.jobs.restart(offset, now):
            ids, priorities, _, states = zip(*briefs, strict=True)
            if states.count(is_ready) < len(states):
                yield from self._restart_page(first, briefs, buried)
                continue
            if priorities.count(priorities[0]) == len(states):  # nearly always so
                self._restart_ready(priorities[0], first, len(states))
            else:
                mixed += [priority << _BITS | ordinal for ordinal, priority in enumerate(priorities, first)]
                self.urgent += sum(map(URGENT.__gt__, priorities))
            yield list(ids), first
        self._orders[_READY].add_all(mixed)
        self.counts[_READY] += len(mixed)
        buried.sort()
        self.buried.update((ordinal, None) for _, ordinal in buried)
        self._last_burial = buried[-1][0] if buried else 0
        self.counts[_BURIED] = len(buried)
        self.lifetimes.restart()

    def _restart_page(
        self, first: int, briefs: list[Brief], buried: list[tuple[int, int]]
    ) -> Iterator[tuple[list[int], int]]:
        """Take up a page not all of whose jobs are there and ready, and yield their ids as `restart` does. Fill `buried`."""
        ids: list[int] = []
        for ordinal, (job_id, priority, due, state) in enumerate(briefs, first):
            if state == _READY:
                self._restart_ready(priority, ordinal, 1)
            elif state == _DELAYED:
                self._orders[_DELAYED].add_run(entry := due << _BITS | ordinal, entry + 1)
                self.counts[_DELAYED] += 1
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

    def _restart_ready(self, priority: int, first: int, count: int) -> None:
        """Take up ready jobs of this priority, with consecutive ordinals from `first` on."""
        entry = priority << _BITS | first
        self._orders[_READY].add_run(entry, entry + count)
        self.counts[_READY] += count
        if priority < URGENT:
            self.urgent += count

    def take_apart(self) -> Iterator[tuple[list[int], list[int]]]:
        """Free everything, which nothing else uses. Yield the ordinals and the ids of the jobs of each step."""
        while self.jobs.count:
            yield self.jobs.pop_page()
        parts: list[Entries | Lifetimes] = [*self._orders.values(), self.lifetimes]
        while parts:
            if parts[-1].pop_batch(FREED_AT_ONCE):
                yield [], []
            else:
                parts.pop()
        while self.buried:
            for _ in range(min(FREED_AT_ONCE, len(self.buried))):
                self.buried.popitem()
            yield [], []

    # queries

    def head(self, state: JobState = _READY) -> Job | None:
        """Return the next job in that state: the most urgent ready one, or the one due first. The state must not be BURIED."""
        order, get = self._orders[state], self.jobs.get
        heap = order.heap
        while heap:
            entry = heap[0]
            job = get(entry & _ORDINAL)  # what follows is `found`, inlined
            if (
                job is not None
                and job.state is state
                and (job.priority if state is _READY else job.due) == entry >> _BITS
            ):
                return job
            first, end = order.lowest_run()
            following = self._first_found(state, first + 1, end)
            order.advance(end if following is None else following)
        return None

    @property
    def first_priority(self) -> int:
        """Return a priority that no ready job is below; -1: there is no ready job."""
        heap = self._orders[_READY].heap
        return heap[0] >> _BITS if heap else -1

    def plain_head(self) -> tuple[int, Outline] | None:
        """Return the ordinal and the outline of the first ready job if its entry is first; None: `head` has to look for it."""
        heap = self._orders[_READY].heap
        if heap:
            entry = heap[0]
            outline = self.jobs.outline(entry & _ORDINAL)
            if outline is not None and outline[-1] == _READY and outline[1] == entry >> _BITS:
                return entry & _ORDINAL, outline
        return None

    def found(self, state: JobState, entry: int) -> Job | None:
        """Return the job of an entry in the order of that state, or None if the entry is stale."""
        job = self.jobs.get(entry & _ORDINAL)
        return job if job is not None and job.state is state and entry_of(job) == entry else None

    def first_buried(self, count: int = 1) -> list[Job]:
        """Return the jobs that were buried first, at most `count` of them."""
        ordinals = [ordinal for ordinal, _ in zip(self.buried, range(count), strict=False)]
        return [job for job in map(self.jobs.get, ordinals) if job is not None]

    def first(self, state: JobState) -> Job | None:
        """Return the next job in any state: like `head`, or the one that was buried first."""
        return next(iter(self.first_buried()), None) if state is _BURIED else self.head(state)

    def oldest(self) -> tuple[int, int]:
        """Return when the oldest ready job and the oldest in any state were created (ns since the epoch); 0: there is none.

        If the SEARCHED_PAGES pages with the oldest jobs have no ready one, the ready job that is next counts as the oldest.
        """
        ready, of_all = self.jobs.oldest(SEARCHED_PAGES)
        if not ready and self.counts[_READY] and (job := self.head()) is not None:
            ready = job.created
        return ready, of_all

    def next_due(self) -> int | None:
        """Return the end of the next delay or reservation (ns), or None if there is none."""
        delayed, reserved = self.head(_DELAYED), self.head(_RESERVED)
        if delayed is None or reserved is None:
            one = delayed or reserved
            return one.due if one is not None else None
        return min(delayed.due, reserved.due)

    def order(self, state: JobState) -> Entries:
        """Return the entries of that state, which must not be BURIED. Some may be stale: see `found`."""
        return self._orders[state]

    def check(self) -> None:
        """Raise AssertionError if an invariant of this class does not hold."""
        self.jobs.check()
        found = dict.fromkeys(JobState, 0)
        entries = {state: set(order.ascending()) for state, order in self._orders.items()}
        for job in self.jobs:
            found[job.state] += 1
            assert job.state is _BURIED or entry_of(job) in entries[job.state]
            assert (job.state is _BURIED) == (job.ordinal in self.buried)
        assert found == self.counts
        assert self.urgent == sum(job.state is _READY and job.priority < URGENT for job in self.jobs)
        assert len(self.buried) == found[_BURIED]
        for state, order in self._orders.items():
            order.check()
            assert len(order) <= 2 * self.counts[state] + SLACK
        self.lifetimes.check()

    def __repr__(self) -> str:
        counts = ", ".join(f"{count} {state.name.lower()}" for state, count in self.counts.items())
        return f"<JobTable: {counts}>"
