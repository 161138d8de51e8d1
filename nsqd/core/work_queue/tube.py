"""A tube: the channel of a topic whose messages are jobs, in the order of priority and id, each reserved by one worker.

It stands beside the topic's NSQ channels and is told the same things by the topic; what it tells the log is one row for each
change of a job. The ready order and the times are heaps of numbers (priority or time, then ordinal); entries that no longer
hold are passed over, and swept when they outnumber the jobs. Nothing here waits: a body that is on disk only makes the tube
`reading`, and whoever asked asks again.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import Protocol

from nsqd.core.message.frame import HEADER_SIZE, STAMP, message_id
from nsqd.core.reader import Batch, Kind, Parts
from nsqd.core.sequence.extent import Extent
from nsqd.core.sequence.puts import USUAL, Puts, Terms
from nsqd.core.sequence.spans import without
from nsqd.core.timing.deferred import Message
from nsqd.core.timing.duequeue import SLACK
from nsqd.core.work_queue.jobs import PAGE, Job, Jobs, JobState, rows_of_puts
from shared.values import SECOND

WORK = ":work"  # the channel's name: no client of NSQ can name it
ABSORBED_AT_ONCE = 2000  # messages that become jobs in a turn: about 10 ms
URGENT = 1024  # priorities below it
_BITS = 48  # of an ordinal in a heap's entry
_ORDINAL = (1 << _BITS) - 1


_IN_ORDER = (JobState.READY, JobState.DELAYED, JobState.RESERVED)


def entry_of(job: Job) -> int:
    """Of the heap of its state; of buried ones, too, it is higher the later they were buried."""
    return (job.priority if job.state is JobState.READY else job.due) << _BITS | job.ordinal


class Reading(Exception):
    """The body is on disk only and is being read: ask again when the tube is told that it can be."""

    def __init__(self, tube: Tube) -> None:
        super().__init__()
        self.tube = tube


class Worker(Protocol):
    """Who reserves jobs."""

    def hold(self, tube: int, ordinal: int, end: int) -> None:
        """It has that reservation until then."""

    def lost(self, tube: int, ordinal: int) -> None:
        """It has that reservation no more."""


class Home(Protocol):
    """All tubes of the node, as far as one of them needs to know."""

    timeouts: int

    def came(self, job_id: int, tube: Tube, ordinal: int) -> None:
        """There is a job of that id."""

    def came_together(self, job_ids: list[int], tube: Tube, first: int) -> None:
        """There are jobs of these ids, ascending, and of ordinals from `first` on."""

    def went(self, job_id: int) -> None:
        """It is gone."""

    def serve(self, tube: Tube, now: int) -> None:
        """It may have jobs for those who wait."""

    def read_completed(self, tube: Tube) -> None:
        """What it waited for can be read now."""

    def dropped(self, tube: Tube) -> None:
        """It is gone."""

    def find(self, job_id: int) -> tuple[Tube, Job] | None:
        """The job of that id, and its tube."""


class Tube:
    """See above. Created by Tubes. Implements Reader."""

    kind = Kind.WORK_QUEUE
    ephemeral = False
    takes_terms = True

    __slots__ = (
        "_buried_last",
        "_heaps",
        "_holes",
        "_max_attempts",
        "_topic_edge",
        "agenda",
        "buried",
        "counts",
        "delayed",
        "deleted",
        "edge",
        "extents",
        "jobs",
        "journal",
        "name",
        "number",
        "pause_asked",
        "pause_until",
        "reading",
        "reserved",
        "start",
        "terms",
        "topic_name",
        "total",
        "tubes",
        "urgent",
        "watched",
    )

    def __init__(self, parts: Parts, tubes: Home) -> None:
        self.agenda = parts.agenda
        self.extents = parts.extents
        self.journal = parts.journal
        self.tubes = tubes
        self._topic_edge = parts.edge
        self._max_attempts = parts.max_attempts
        self.topic_name = parts.topic
        self.name = WORK
        self.number = parts.number  # never used again on this node
        self.deleted = False
        self.start = self.edge = parts.edge.distributed  # messages before the edge are jobs, or are gone
        # by ordinal, of messages that will be jobs: others are put on the usual terms
        self.terms = {
            message.ordinal: Terms(due=due)
            for due, message in parts.edge.lane.waiting.items()
            if message.ordinal >= self.edge
        }
        self._holes: deque[tuple[int, int]] = deque()  # spans from the edge on that are not for us, ascending
        self.delayed = 0  # messages in the topic's delay lane that the topic counts as ours; they are jobs already
        self.jobs = Jobs()
        self.buried: dict[int, None] = {}  # ordinals, the first buried first
        self.reserved: dict[int, Worker] = {}  # by ordinal
        self.counts = dict.fromkeys(JobState, 0)
        self.urgent = 0  # ready jobs of a priority below URGENT
        self.total = 0  # jobs that came since the process started
        self.pause_until = self.pause_asked = 0  # monotonic ns; ns
        self._buried_last = 0  # the number of the last one
        self.reading = False
        self.watched: tuple[int, int] | None = None  # (due, handle) of our entry in the scan's index
        # by state, heaps of priority (or due) << _BITS | ordinal: of all jobs in it, and of some that were
        self._heaps: dict[JobState, list[int]] = {state: [] for state in _IN_ORDER}

    # what the topic tells

    def extend(self, batch: Batch) -> None:
        """There is more: the edge of the topic is behind these messages now."""
        self.delayed += batch.delayed
        puts = batch.puts
        if puts is not None:  # they need not be looked for, whatever stands before them
            if puts.first == self.edge and not self._holes:
                self.edge = puts.end
            self._come_together(puts)
        self.wake()

    def expect(self, first: int, count: int, terms: Terms) -> None:
        """Messages `first`.. will come on these terms."""
        self.terms.update(dict.fromkeys(range(first, first + count), terms))

    def wake(self) -> None:
        """There may be more messages, or somebody to give jobs to."""
        self._absorb()
        if self.counts[JobState.READY]:
            self.agenda.awake[self] = None

    def skip(self, first: int, end: int, ordinary: int) -> None:
        """Messages first..end are not for us, or not any more."""
        if first >= self.edge:
            self._holes.append((first, end))
            self.terms = {ordinal: terms for ordinal, terms in self.terms.items() if not first <= ordinal < end}
            return
        for ordinal in range(first, end):
            job = self.jobs.get(ordinal)
            if job is not None:
                self._forget(job)

    def release(self, message: Message) -> None:
        """A message's delay at the topic is over; the job has its own time."""
        self.delayed -= 1

    def own(self, due: int, message: Message, now: int) -> None:
        """What waits in the topic's delay lane waits here alone: it does already."""
        self.delayed -= 1

    def _absorb(self) -> None:
        """What the topic has handed out becomes jobs, as far as it can be read at once."""
        left = ABSORBED_AT_ONCE
        while self.edge < self._topic_edge.distributed and not self.reading:
            if left <= 0:
                self.agenda.awake[self] = None  # `serve` goes on
                return
            if self._holes and self._holes[0][0] <= self.edge:
                self.edge = max(self.edge, self._holes.popleft()[1])
                continue
            extent = self.extents.read(self.edge)
            if extent is None:
                self.reading = True
                return
            limit = self._holes[0][0] if self._holes else self._topic_edge.distributed
            if (
                extent.first > self.edge or not extent.frames
            ):  # somebody has finished what was between, or it was damaged
                self.edge = min(extent.first, limit) if extent.frames else limit
                continue
            stop = min(extent.end, limit, self.edge + left)
            left -= stop - self.edge
            for ordinal in range(self.edge, stop):
                frame = extent.frames[ordinal - extent.first]
                if frame and self.jobs.get(ordinal) is None:
                    self._come(ordinal, frame)
            self.edge = stop

    def _come(self, ordinal: int, frame: bytes) -> None:
        terms = self.terms.pop(ordinal, USUAL)
        number, created = int(message_id(frame)[4:], 16), int.from_bytes(frame[STAMP], "big")
        job = Job(ordinal, number, terms.priority, terms.delay, terms.ttr, created)
        self.tubes.came(number, self, ordinal)
        self.total += 1
        late = terms.due > self.agenda.now
        job.due = terms.due if late else 0
        self._enter(job, JobState.DELAYED if late else JobState.READY, note=True)

    def _come_together(self, puts: Puts) -> None:
        """As `_come` for each of them, for a fifth of what that costs."""
        terms, first, count = puts.terms, puts.first, len(puts.frames)
        late = terms.due > self.agenda.now
        state, due = (JobState.DELAYED, terms.due) if late else (JobState.READY, 0)
        self.jobs.put_rows(first, rows_of_puts(puts, due, state))
        self.tubes.came_together(puts.numbers, self, first)
        self.total += count
        self.counts[state] += count
        if not late and terms.priority < URGENT:
            self.urgent += count
        heap, base = self._heaps[state], (due if late else terms.priority) << _BITS
        for entry in range(base | first, (base | first) + count):
            heappush(heap, entry)
        if late:
            self._watch_by(due)
        else:
            self.agenda.awake[self] = None

    # after a restart

    def resume(self, start: int, edge: int, holes: list[tuple[int, int]], jobs: Jobs, offset: int) -> None:
        """It begins with `start`; messages before `edge` are among `jobs`, or gone. `offset`: see Jobs.restart."""
        self.start, self.edge, self.jobs = start, edge, jobs
        self._holes.extend(holes)
        reserved = jobs.in_state(JobState.RESERVED, -1) if self._max_attempts else ()
        given_up = [job.ordinal for job in reserved if self.is_given_up(job)]
        now = self.agenda.now
        ready, delayed = self._heaps[JobState.READY], self._heaps[JobState.DELAYED]
        buried: list[tuple[int, int]] = []  # due, ordinal
        is_ready, is_delayed = int(JobState.READY), int(JobState.DELAYED)
        for page, briefs in jobs.restart(offset, now):
            ids: list[int] = []
            for ordinal, (job_id, priority, due, state) in enumerate(briefs, page * PAGE):
                if state == is_ready:
                    ready.append(priority << _BITS | ordinal)
                    self.urgent += priority < URGENT
                elif state == is_delayed:
                    delayed.append(due << _BITS | ordinal)
                elif state:
                    buried.append((due, ordinal))
                else:  # there is none
                    self._found_again(ids, ordinal)
                    continue
                ids.append(job_id)
            self._found_again(ids, (page + 1) * PAGE)
        buried.sort()
        self.buried.update((ordinal, None) for _, ordinal in buried)
        self._buried_last = buried[-1][0] if buried else 0
        for state, heap in self._heaps.items():
            self.counts[state] = len(heap)
            heapify(heap)
        self.counts[JobState.BURIED] = len(buried)
        for ordinal in given_up:
            job = self.jobs.get(ordinal)
            assert job is not None
            self.bury(job, job.priority)
        if ready:
            self.agenda.awake[self] = None
        self._watch()

    def _found_again(self, ids: list[int], end: int) -> None:
        """Jobs with ordinals up to `end` have these ids, which are noted and taken from the list."""
        if ids:
            self.tubes.came_together(ids, self, end - len(ids))
            ids.clear()

    # states

    def _enter(self, job: Job, state: JobState, *, note: bool = False) -> None:
        """A job is in that state from now on, having been in none. `note`: the log is told."""
        job.state = state
        self._count(job, state, 1)
        row = self.jobs.put(job)
        if note:
            self.journal.job(job.ordinal, row)
        self._index(job)

    def _leave(self, job: Job) -> None:
        """It is in no state for a moment."""
        self._count(job, job.state, -1)
        if job.state is JobState.BURIED:
            del self.buried[job.ordinal]
            return
        heap = self._heaps[job.state]
        if heap and heap[0] == entry_of(job):
            heappop(heap)
        if job.state is JobState.RESERVED:
            worker = self.reserved.pop(job.ordinal)
            worker.lost(self.number, job.ordinal)

    def _count(self, job: Job, state: JobState, difference: int) -> None:
        self.counts[state] += difference
        if state is JobState.READY and job.priority < URGENT:
            self.urgent += difference

    def _index(self, job: Job) -> None:
        """It is found in its state."""
        state = job.state
        if state is JobState.BURIED:
            self.buried[job.ordinal] = None
            return
        heap = self._heaps[state]
        heappush(heap, entry_of(job))
        if len(heap) > 2 * self.counts[state] + SLACK:
            heap[:] = {entry for entry in heap if self.found(state, entry) is not None}
            heapify(heap)
        if state is JobState.READY:
            self.agenda.awake[self] = None
        else:
            self._watch_by(job.due)

    def found(self, state: JobState, entry: int) -> Job | None:
        """The job of a heap's entry; None: the entry does not hold any more."""
        job = self.jobs.get(entry & _ORDINAL)
        return job if job is not None and job.state is state and entry_of(job) == entry else None

    def _forget(self, job: Job) -> None:
        """It is gone, and the log knows or need not."""
        self._leave(job)
        if job.ordinal >= self.edge:  # known from before a restart: it is not to come again
            insort(self._holes, (job.ordinal, job.ordinal + 1))
        self.jobs.remove(job.ordinal)
        self.tubes.went(job.id)

    # what workers do

    def head(self, state: JobState = JobState.READY) -> Job | None:
        """The next one to be reserved; of those that are delayed or reserved the next whose time is over."""
        heap = self._heaps[state]
        while heap:
            job = self.found(state, heap[0])
            if job is not None:
                return job
            heappop(heap)
        return None

    def body(self, job: Job) -> bytes | None:
        """None: it is damaged on disk, and the job is gone. Raises Reading."""
        extent: Extent | None = self.extents.read(job.ordinal)
        if extent is None:
            self.reading = True
            raise Reading(self)
        if extent.first > job.ordinal or not extent.frames or not extent.frames[job.ordinal - extent.first]:
            self._forget(job)
            return None
        return extent.frames[job.ordinal - extent.first][HEADER_SIZE:]

    def reserve(self, job: Job, worker: Worker, now: int) -> None:
        """The job, which nobody has reserved, is the worker's until its time to run is over."""
        self._leave(job)
        job.reserves += 1
        job.due = now + job.ttr * SECOND
        self.reserved[job.ordinal] = worker
        worker.hold(self.number, job.ordinal, job.due)
        self._enter(job, JobState.RESERVED, note=True)

    def touch(self, job: Job, worker: Worker, now: int) -> None:
        """Its time to run begins again."""
        job.due = now + job.ttr * SECOND
        worker.hold(self.number, job.ordinal, job.due)
        self._count(job, job.state, -1)
        self._enter(job, JobState.RESERVED, note=True)

    def let_go(self, job: Job) -> None:
        """Its worker is gone: as if it had never been reserved, but for the count."""
        self._leave(job)
        job.due = 0
        self._enter(job, JobState.READY, note=True)

    def is_given_up(self, job: Job) -> bool:
        """It has been reserved as often as its topic allows (-max-attempts)."""
        return 0 < self._max_attempts <= job.reserves

    def hand_back(self, job: Job, priority: int, delay: int, now: int) -> None:
        """It is ready again, or delayed, with that priority; or buried if it is given up."""
        if self.is_given_up(job):
            job.releases += 1
            self.bury(job, priority)
            return
        self._leave(job)
        job.priority, job.delay = priority, delay
        job.releases += 1
        job.due = now + delay * SECOND if delay else 0
        self._enter(job, JobState.DELAYED if delay else JobState.READY, note=True)

    def bury(self, job: Job, priority: int) -> None:
        """It waits until it is kicked."""
        self._leave(job)
        self._buried_last += 1
        job.priority, job.due = priority, self._buried_last  # so they come back from the log in their order
        job.buries += 1
        self._enter(job, JobState.BURIED, note=True)

    def amend(self, ordinal: int, counts: tuple[int, int, int, int, int], state: JobState | None) -> None:
        """A job that was just put has been elsewhere before: what happened to it there; None: it stays in its state."""
        job = self.jobs.get(ordinal)
        assert job is not None
        self._leave(job)
        job.reserves, job.timeouts, job.releases, job.buries, job.kicks = counts
        if state is JobState.BURIED:
            self._buried_last = job.due = self._buried_last + 1
        self._enter(job, job.state if state is None else state, note=True)

    def kick(self, job: Job) -> None:
        """A buried or delayed one is ready."""
        self._leave(job)
        job.kicks += 1
        job.due = 0
        self._enter(job, JobState.READY, note=True)

    def finish(self, job: Job) -> None:
        """It is done with."""
        self._forget(job)
        self.journal.finish(job.ordinal, 1)

    def first_buried(self, count: int = 1) -> list[Job]:
        """The ones that were buried first."""
        ordinals = [ordinal for ordinal, _ in zip(self.buried, range(count), strict=False)]
        return [job for job in map(self.jobs.get, ordinals) if job is not None]

    def next_to_kick(self, state: JobState) -> Job | None:
        """The one that was buried first, or that is ready the soonest of those that are delayed."""
        return next(iter(self.first_buried()), None) if state is JobState.BURIED else self.head(state)

    def pause_for(self, ns: int, now: int) -> None:
        """No job is given out for so long; 0: they are again."""
        self.pause_until, self.pause_asked = (now + ns if ns else 0), ns
        self.agenda.awake[self] = None
        self._watch()

    def is_paused(self, now: int) -> bool:
        """No job is to be given out."""
        return self.pause_until > now

    # time

    def scan(self, now: int, limit: int) -> int:
        """What was delayed long enough is ready; reservations end. Returns how many."""
        moved = 0
        for state in (JobState.DELAYED, JobState.RESERVED):
            while moved < limit and (job := self.head(state)) is not None and job.due <= now:
                if state is JobState.RESERVED:
                    job.timeouts += 1
                    self.tubes.timeouts += 1
                moved += 1
                if state is JobState.RESERVED and self.is_given_up(job):
                    self.bury(job, job.priority)
                    continue
                self._leave(job)
                job.due = 0
                self._enter(job, JobState.READY, note=True)
        if self.pause_until and self.pause_until <= now:
            self.pause_until = self.pause_asked = 0
            moved += 1
            self.agenda.awake[self] = None
        return moved

    def may_be_due(self, now: int) -> bool:
        """False if scan has nothing to do. Looks at no job, so an entry that no longer holds makes it True."""
        bound = (now + 1) << _BITS
        delayed, reserved = self._heaps[JobState.DELAYED], self._heaps[JobState.RESERVED]
        if (delayed and delayed[0] < bound) or (reserved and reserved[0] < bound):
            return True
        return 0 < self.pause_until <= now

    def next_due(self) -> int | None:
        """When scan has something to do."""
        heads = self.head(JobState.DELAYED), self.head(JobState.RESERVED)
        dues = [job.due for job in heads if job is not None]
        if self.pause_until:
            dues.append(self.pause_until)
        return min(dues, default=None)

    def _watch(self) -> None:
        due = self.next_due()
        if due is not None:
            self._watch_by(due)

    def _watch_by(self, due: int) -> None:
        if self.watched is None or due < self.watched[0]:
            self.agenda.watch(self, due)

    def serve(self, now: int) -> None:
        """Give jobs to those who wait."""
        self._absorb()
        self.tubes.serve(self, now)

    def read_completed(self) -> None:
        """What we waited for can be read now."""
        self.reading = False
        self.wake()
        self.tubes.read_completed(self)

    # operators, and what NSQ's side asks of a channel

    def empty(self) -> None:
        """All jobs are gone, and what is to become one."""
        end = self._topic_edge.distributed
        owed = [(ordinal, 1) for ordinal in self.jobs.ordinals()]
        for first, stop, _ in self.extents.extents(self.edge, end):
            for start, upto in without(first, stop, self._holes):
                owed += [(ordinal, 1) for ordinal in range(start, upto) if self.jobs.get(ordinal) is None]
        self.journal.finish_all(end, owed)
        for job in list(self.jobs):
            self._forget(job)
        self.start = self.edge = end
        self.delayed = 0
        self._holes.clear()
        for heap in self._heaps.values():
            heap.clear()

    def delete(self) -> None:
        """All jobs are gone, and the tube. Called by the topic."""
        self.empty()
        self.journal.drop()
        self.deleted = True
        self.tubes.dropped(self)

    def heap(self, state: JobState) -> Sequence[int]:
        """The entries of the jobs in that state, which is not BURIED, as a heap; some do not hold any more (see `found`)."""
        return self._heaps[state]

    def holes(self) -> list[tuple[int, int]]:
        """Spans (first, end) from the edge on that are not for us."""
        return list(self._holes)

    def check(self) -> None:
        """Raise AssertionError if a sentence above is false."""
        self.jobs.check()
        found = dict.fromkeys(JobState, 0)
        entries = {state: set(heap) for state, heap in self._heaps.items()}
        for job in self.jobs:
            found[job.state] += 1
            assert job.state is JobState.BURIED or entry_of(job) in entries[job.state]
            assert (job.state is JobState.BURIED) == (job.ordinal in self.buried)
            assert (job.state is JobState.RESERVED) == (job.ordinal in self.reserved)
            assert self.tubes.find(job.id) == (self, job)
        assert found == self.counts
        assert self.urgent == sum(job.state is JobState.READY and job.priority < URGENT for job in self.jobs)
        assert all(len(heap) <= 2 * self.counts[state] + SLACK for state, heap in self._heaps.items())
