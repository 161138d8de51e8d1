"""The tube: a reader whose messages are jobs. One worker at a time reserves a job, in the order of priority and id.

A topic may have a tube and channels, and it calls it as it calls them. Messages become jobs as soon as they can be
read. For each change of a job the log gets one row. job_table.py knows which job is in which state. Nothing here blocks: if a
body is on disk only, the tube is `reading`, and the caller asks again when the body has been read.

See docs/contributing/design/channel.md#tubes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nsqd.core.message.frame import HEADER_SIZE, STAMP, message_id
from nsqd.core.reader import Counts, DistributedBatch, Parts, ReaderKind, ReaderSettings
from nsqd.core.sequence.ahead import Ahead
from nsqd.core.sequence.journal import ReaderJournal
from nsqd.core.sequence.put_batch import USUAL, JobOptions, PutBatch
from nsqd.core.sequence.spans import runs
from nsqd.core.timing.agenda import Agenda
from nsqd.core.timing.deferred import Message
from nsqd.core.timing.throttle import Throttle, limit
from nsqd.core.work_queue.arrivals import Arrivals
from nsqd.core.work_queue.job import STATES, Job, JobState, is_over
from nsqd.core.work_queue.job_index import JobIndex
from nsqd.core.work_queue.job_pages import JobPages
from nsqd.core.work_queue.job_table import JobTable
from nsqd.core.work_queue.pausable import Pausable
from nsqd.core.work_queue.tube_list import TubeList
from nsqd.core.work_queue.waiters import Reading, Waiters
from nsqd.core.work_queue.worker import Holder, Worker
from shared.values import SECOND

WORK = ":work"  # the name of the tube as a reader of its topic; it is not a valid channel name in NSQ
ABSORBED_AT_ONCE = 2000  # messages that become jobs in a turn: about 10 ms
MOST_PASSED = 500  # ready jobs that are over or given up, in a call of `next_ready`: about 10 ms


class Tube(Pausable):
    """One tube of a node, with its jobs. Tubes creates it. Implements Reader."""

    kind = ReaderKind.WORK_QUEUE
    ephemeral = False
    takes_job_options = True

    __slots__ = (
        "_made_among", "_random_below", "agenda", "arrivals", "delayed", "deleted", "expire_at", "extents", "index",
        "jobs", "key", "last_over", "listed", "name", "number", "offsets", "reading", "reserved", "scan_entry",
        "settings", "start", "table", "throttle", "topic_name", "total", "waiters",
    )  # fmt: skip

    def __init__(self, parts: Parts, index: JobIndex[Tube], waiters: Waiters[Tube], listed: TubeList) -> None:
        super().__init__()
        self.topic_name, self.number, self.offsets = parts.topic, parts.number, parts.offsets
        self.extents, self.journal, self.agenda = parts.extents, parts.journal, parts.agenda
        self.settings = ReaderSettings()
        self.throttle: Throttle | None = None  # of the tube and its shards; None: nothing limits reservations
        self._random_below = parts.random_below
        self.index = index
        self.key = parts.number  # by which workers know the tube; negative: it is a shard
        self.shards: tuple[Tube, ...] = (self,)  # the tubes of this name in all logs, this one first
        self._made_among = waiters
        self.waiters = waiters  # a shard's are those of the node's own log
        self.listed = listed
        self.name = WORK
        self.deleted = False
        self.start = parts.offsets.distributed
        self.arrivals = Arrivals(parts.offsets, parts.extents)
        self.delayed = 0  # messages that the topic's delay queue counts for this tube; they are jobs already
        self.table = JobTable()
        self.jobs = self.table.jobs
        self.reserved: dict[int, Worker] = {}  # the worker that has reserved a job, by ordinal
        self.total = 0  # jobs that came since the process started
        self.expire_at: int | None = None  # monotonic ns: when to look for jobs that go; None: none has a ttl
        self.reading = False  # True: a body is being read from disk
        self.scan_entry: tuple[int, int] | None = None  # (due, handle) of this tube's entry in the agenda
        self.last_over = 0  # monotonic ns: when the last reservation ended that was over
        self.configure(parts.settings)

    # calls from the topic

    def extend(self, batch: DistributedBatch) -> None:
        """Make jobs of the messages that the distributed offset has passed."""
        self.delayed += batch.delayed
        if batch.put_batch is None:
            self.wake()
            return
        self._add_batch(batch.put_batch)  # no need to read them, even if earlier messages are still to become jobs
        if batch.first == self.arrivals.position:
            self.arrivals.position = batch.end
        else:
            self._absorb()

    def expect(self, first: int, count: int, options: JobOptions) -> None:
        """Note that `count` messages from ordinal `first` on will become jobs with these options."""
        self.arrivals.expect(first, count, options)

    def configure(self, settings: ReaderSettings) -> None:
        old, self.settings = self.settings, settings
        limits = settings.concurrency, settings.rate
        if limits != (old.concurrency, old.rate) and self.key > 0:
            limit(self, *limits, self.agenda.now)

    def wake(self) -> None:
        """Make jobs of the messages that have come and can be read, and offer ready jobs to waiting workers."""
        self._absorb()
        if self.table.counts[JobState.READY]:
            self.offer()

    def skip(self, first: int, end: int, ordinary: int) -> None:
        """Leave out messages first..end, which are not for this tube, or no longer. Forget those that are jobs already."""
        if first >= self.arrivals.position:
            self.arrivals.skip(first, end)
            return
        for ordinal in range(first, end):
            job = self.jobs.get(ordinal)
            if job is not None:
                self._forget(job.ordinal, job.id, job.priority, job.state)

    def release(self, message: Message) -> None:
        """Count one message less in the topic's delay queue. Nothing else changes: the job itself has its due time."""
        self.delayed -= 1

    def own(self, due: int, message: Message, now: int) -> None:
        """Count one message less in the topic's delay queue. Nothing else changes: the job waits in this tube already."""
        self.delayed -= 1

    def read_completed(self) -> None:
        """Continue after a read from disk: make jobs of new messages, and wake the workers that were blocked."""
        self.reading = False
        self.wake()
        self.waiters.read_completed(self)

    def _absorb(self) -> None:
        """Make jobs of distributed messages, as far as they are in memory, at most ABSORBED_AT_ONCE in a call."""
        arrivals, left = self.arrivals, ABSORBED_AT_ONCE
        while not arrivals.is_complete and not self.reading:
            if left <= 0:
                self.agenda.awake[self] = None  # `serve` continues
                return
            taken = arrivals.read_next(left)
            if taken is None:
                self.reading = True
                return
            first, frames = taken
            left -= len(frames)
            for ordinal, frame in enumerate(frames, first):
                options = arrivals.options.pop(ordinal, USUAL)
                if frame and ordinal not in self.jobs:
                    self._add_job(ordinal, frame, options)

    def _add_job(self, ordinal: int, frame: bytes, options: JobOptions) -> None:
        job_id, created = int(message_id(frame), 16), int.from_bytes(frame[STAMP], "big")
        job = Job(ordinal, job_id, options.priority, options.delay, options.ttr, created)
        job.ttl, job.copies = options.ttl, options.copies
        if options.due > self.agenda.now:
            job.state, job.due = JobState.DELAYED, options.due
        if not self.jobs.count:
            self.listed.show(self.topic_name)
        self.index.add_job(job_id, self.number, ordinal)
        self.total += 1
        self._note(job, self.table.add(job))
        if job.ttl:
            self._watch_expiry()

    def _add_batch(self, put_batch: PutBatch) -> None:
        """Make jobs of the batch, at a fifth of the cost of `_add_job` for each job.

        The log gets no rows for them: their publish record says that they are jobs.
        """
        options, first, count = put_batch.options, put_batch.first, len(put_batch.numbers)
        late = options.due > self.agenda.now
        state, due = (JobState.DELAYED, options.due) if late else (JobState.READY, 0)
        if not self.jobs.count:
            self.listed.show(self.topic_name)
        if options.due != due:
            options = options._replace(due=due)
        self.table.add_together(first, put_batch.numbers, options, put_batch.created, state)
        self.index.add_jobs(put_batch.numbers, self.number, first)
        self.total += count
        if options.ttl:
            ends = self.agenda.now + put_batch.created + options.ttl * SECOND - self.agenda.wall
            if self.expire_at is None or ends < self.expire_at:
                self._watch_expiry()
        if late:
            self.agenda.schedule_scan(self, due)
        else:
            self.offer()

    # after a restart

    def resume(self, start: int, position: int, holes: list[tuple[int, int]], jobs: JobPages, offset: int) -> None:
        """Fill a new tube after a restart.

        Messages before `start` are not the tube's, and those before `position` are in `jobs` or gone. `holes` are the spans
        from there on that are not to become jobs. `offset`: see JobTable.restart.
        """
        self.start, self.jobs, self.table = start, jobs, JobTable(jobs)
        self.arrivals.resume(position, holes)
        for ids, first in self.table.restart(offset, self.agenda.now):
            self.index.add_jobs(ids, self.number, first)
        if jobs.count or self.paused:
            self.listed.show(self.topic_name)
        if self.table.counts[JobState.READY]:
            self.offer()
        self._watch_expiry()
        self._schedule_scan()

    # actions for workers

    def next_ready(self) -> Job | None:
        """Return the job to reserve next, of all that may be: others are finished or buried, MOST_PASSED of them in a call."""
        for _ in range(MOST_PASSED):
            job = self.table.head()
            if job is None or self.is_deliverable(job):
                return job
        self.offer()  # it continues in the next turn
        return None

    def holds_back(self, now: int) -> bool:
        """Return True while no job may be reserved: the tube is paused, or its limits are reached. `now`: monotonic ns."""
        return self.pause_until > now or (self.throttle is not None and not self.throttle.lets(self, now))

    def is_deliverable(self, job: Job) -> bool:
        """Return True if a job that is not reserved may be. Finish it if its life is over, bury it if it is given up."""
        if job.ttl and job.is_over(self.agenda.wall):
            self.end_life(job)
            return False
        if self.settings.is_given_up(job.failures) and job.state is not JobState.BURIED:
            self.bury(job, job.priority)
            return False
        return True

    def end_life(self, job: Job) -> None:
        """Finish a job whose time to live is over."""
        self.finish(job)
        self.listed.expired += 1

    def body(self, job: Job, with_headers: bool = False) -> bytes | None:
        """Return the job's body, with its headers in front if asked (penstock/protocol/headers.py).

        If it is corrupt on disk, forget the job and return None. Raise Reading if it must be read.
        """
        extent = self.extents.read(job.ordinal)
        if extent is None:
            self.reading = True
            raise Reading(self)
        place = job.ordinal - extent.first
        frame = extent.frames[place] if place >= 0 and extent.frames else b""
        if not frame:
            self._forget(job.ordinal, job.id, job.priority, job.state)
            return None
        return (extent.headers_of(job.ordinal) if with_headers else b"") + frame[HEADER_SIZE:]

    def reserve(self, job: Job, worker: Worker, now: int) -> None:
        """Reserve a job that is not reserved for the worker, until its time to run is over. `now`: monotonic ns.

        A job without a time to run is finished instead, and leaves when that is as durable as the topic promises: it is
        delivered once at most.
        """
        job.reserves += 1
        if self.throttle is not None:
            self.throttle.spend(1)
        if job.state is JobState.BURIED:
            job.failures = 0
        self._pass_gate(worker)
        if job.ttr:
            self.touch(job, worker, now)
            return
        worker.sink.wait_for(self.journal.promise())
        self.finish(job)

    def reserve_plain(self, worker: Worker, now: int) -> tuple[int, int, int, bytes] | None:
        """Reserve the first ready job for the worker as `reserve` does. Returns the job's id, ttl and ttr (s), and body.

        None: nothing was done, because there is no job, or one that is more than that to be looked at: see `next_ready`.
        """
        head = self.table.plain_head()
        if head is None or worker.takes_headers:
            return None
        ordinal, (job_id, priority, ttr, created, reserves, ttl, failures, _) = head
        if not ttr or failures or is_over(created, ttl, self.agenda.wall):
            return None
        extent = self.extents.read(ordinal)
        if extent is None or extent.first > ordinal or not extent.frames:
            return None
        frame = extent.frames[ordinal - extent.first]
        if not frame:
            return None
        if self.offsets.gate is not None:
            self._pass_gate(worker)
        if self.throttle is not None:
            self.throttle.spend(1)
        due = now + ttr * SECOND
        self.reserved[ordinal] = worker.holder
        self._note_held(ordinal, due, self.table.reserve(ordinal, priority, reserves + 1, due))
        return job_id, ttl, ttr, frame[HEADER_SIZE:]

    def _pass_gate(self, worker: Worker) -> None:
        """Hold the job that follows back while copies of the topic's messages are missing."""
        gate = self.offsets.gate
        if gate is not None and (marks := gate.pass_through()):
            worker.sink.wait_for(marks)

    def touch(self, job: Job, worker: Worker, now: int) -> None:
        """Restart the time to run of a job that the worker has reserved. `now`: monotonic ns."""
        self.reserved[job.ordinal] = worker.holder
        self._hold(job, now + job.ttr * SECOND)

    def _hold(self, job: Job, due: int) -> None:
        """Let the time to run of a reserved job end at `due` (monotonic ns)."""
        self._note_held(job.ordinal, due, self.table.move(job, JobState.RESERVED, job.priority, due))

    def _note_held(self, ordinal: int, due: int, row: bytes) -> None:
        """Note that the job with that row is reserved, for the worker in `reserved`, until `due`."""
        self.reserved[ordinal].hold(self.key, ordinal, due)
        self.journal.job(ordinal, row)
        if self.scan_entry is None or due < self.scan_entry[0]:
            self.agenda.schedule_scan(self, due)

    def hand_over(self, job: Job, worker: Worker) -> None:
        """Let the worker have a job that another one has reserved, for what is left of the time to run."""
        self.reserved[job.ordinal].lost(self.key, job.ordinal)
        self.reserved[job.ordinal] = worker
        worker.hold(self.key, job.ordinal, job.due)

    def unreserve(self, job: Job) -> None:
        """Make a reserved job ready again with its priority. Only its count of reservations still shows the reservation."""
        self._move(job, JobState.READY, job.priority, 0)

    def fail(self, job: Job) -> None:
        """Make a reserved job ready again, as not done; or bury it if it is given up."""
        self._fail(job, job.priority, 0, self.agenda.now)

    def _fail(self, job: Job, priority: int, delay: int, now: int) -> None:
        """Release a job that has failed, to be ready after `delay` ns or as the settings say; or bury it if it is given up."""
        job.failures += 1
        if self.settings.is_given_up(job.failures):
            self.bury(job, priority)
            return
        delay = delay or self.settings.retry.delay(job.failures, self._random_below)
        self._move(job, *((JobState.DELAYED, priority, now + delay) if delay else (JobState.READY, priority, 0)))

    def hand_back(self, job: Job, priority: int, delay: int, now: int) -> None:
        """Release a reserved job with that priority, to be ready after `delay` s; or bury it if it is given up."""
        job.releases += 1
        if not self.settings.is_given_up(job.failures + 1):
            job.delay = delay
        self._fail(job, priority, delay * SECOND, now)

    def bury(self, job: Job, priority: int) -> None:
        """Bury the job with that priority. It waits until it is kicked."""
        job.buries += 1
        if job.state is JobState.RESERVED:
            self._end_reservation(job.ordinal)
        self._note(job, self.table.bury(job, priority))

    def kick(self, job: Job) -> None:
        """Make a buried or delayed job ready, as if it had never failed; or a reserved one, whose failures stay."""
        job.kicks += 1
        if job.state is not JobState.RESERVED:
            job.failures = 0
        self._move(job, JobState.READY, job.priority, 0)

    def amend(self, ordinal: int, counts: tuple[int, int, int, int, int], is_buried: bool) -> None:
        """Give a job that was just put the history it had on another server: its five counts, and whether it is buried."""
        job = self.jobs.get(ordinal)
        assert job is not None
        job.reserves, job.timeouts, job.releases, job.buries, job.kicks = counts
        if is_buried:
            self._note(job, self.table.bury(job, job.priority))
        else:
            self._move(job, job.state, job.priority, job.due)

    def finish(self, job: Job) -> None:
        """Finish the job: forget it, and record in the log that its message is finished."""
        self.finish_row(job.ordinal, job.id, job.priority, job.state)

    def finish_row(self, ordinal: int, job_id: int, priority: int, state: int) -> None:
        """Finish the job with this ordinal, of which its row says the rest."""
        self._forget(ordinal, job_id, priority, STATES[state])
        self.journal.finish(ordinal, 1)

    def _move(self, job: Job, state: JobState, priority: int, due: int) -> None:
        """Put the job, which may be reserved, into another state."""
        if job.state is JobState.RESERVED:
            self._end_reservation(job.ordinal)
        self._note(job, self.table.move(job, state, priority, due))

    def _end_reservation(self, ordinal: int) -> None:
        self.reserved.pop(ordinal).lost(self.key, ordinal)
        if self.throttle is not None:
            self.throttle.wake()

    def _note(self, job: Job, row: bytes) -> None:
        """Record the job's row in the log. Offer a ready job to waiting workers; watch the due time of other jobs."""
        self.journal.job(job.ordinal, row)
        if job.state is JobState.READY:
            self.offer()
        elif job.state is not JobState.BURIED and (self.scan_entry is None or job.due < self.scan_entry[0]):
            self.agenda.schedule_scan(self, job.due)

    def _forget(self, ordinal: int, job_id: int, priority: int, state: JobState) -> None:
        """Remove the job everywhere but in the log, which is the caller's concern."""
        if state is JobState.RESERVED:
            self._end_reservation(ordinal)
        self.table.remove(ordinal, state, priority)
        if ordinal >= self.arrivals.position:  # a put job: its message must not become a job again
            self.arrivals.skip(ordinal, ordinal + 1)
        self.index.remove_job(job_id)

    # pauses, timeouts and delays

    def pause_changed(self) -> None:
        self._note_pause()
        self.offer()
        self._schedule_scan()

    def _note_pause(self) -> None:
        """Let other nodes know whether workers wait for jobs of this tube here."""
        if self.waiters.changed is not None:
            self.waiters.changed.add(self.topic_name)

    def move(self, agenda: Agenda) -> None:
        self.agenda = agenda
        due = self.next_due()
        if due is not None:
            agenda.schedule_scan(self, due)
        if not self.arrivals.is_complete:
            agenda.awake[self] = None  # `serve` continues with them

    def scan(self, now: int, limit: int) -> int:
        """End up to `limit` delays and reservations that are over at `now`, and the pause if it is over. Return how many."""
        moved = 0
        for state in (JobState.DELAYED, JobState.RESERVED):
            while moved < limit and (job := self.table.head(state)) is not None and job.due <= now:
                moved += 1
                if state is JobState.RESERVED:
                    if (due := self._end_of_reservation(job, now)) > now:
                        self._hold(job, due)
                    else:
                        self._time_out(job)
                else:
                    self._move(job, JobState.READY, job.priority, 0)
        if self.expire_at is not None and self.expire_at <= now:
            moved += self._end_lives(limit)
        if 0 < self.pause_until <= now:
            self.pause_until = self.pause_asked = 0
            self._note_pause()
            moved += 1
            self.offer()
        if self.throttle is not None:
            self.throttle.scan(now)
        return moved

    def _end_of_reservation(self, job: Job, now: int) -> int:
        """Return the end of a reservation that is due: the time to run begins when the job has left for the client."""
        gate, reserved = self.offsets.gate, job.due - job.ttr * SECOND
        left = gate.left_at(reserved, now) if gate is not None else reserved
        return (now if left is None else left) + job.ttr * SECOND

    def _time_out(self, job: Job) -> None:
        """End the reservation of a job whose time to run is over.

        Of jobs that a client has fetched together (GETJOB with COUNT), only the first one has failed: they end together, and
        the client has most likely not come to the others. A worker of beanstalkd asks for each job.
        """
        job.timeouts += 1
        self.listed.timeouts += 1
        is_behind = job.due == self.last_over and isinstance(self.reserved[job.ordinal], Holder)
        self.last_over = job.due
        if is_behind:
            self.unreserve(job)
        else:
            self.fail(job)

    def next_due(self) -> int | None:
        """Return the time at which `scan` has something to do (monotonic ns), or None if nothing waits for a time."""
        due = self.table.next_due()
        pause_end = self.pause_end
        if pause_end is not None and (due is None or pause_end < due):
            due = pause_end
        if self.expire_at is not None and (due is None or self.expire_at < due):
            due = self.expire_at
        throttled = self.throttle.due if self.throttle is not None else None
        if throttled is not None and (due is None or throttled < due):
            due = throttled
        return due

    def _end_lives(self, limit: int) -> int:
        """Finish up to `limit` jobs whose time to live is over. Return how many."""
        over = self.table.lifetimes.over(self.agenda.wall // SECOND, limit)
        for ordinal in over:
            job = self.jobs.get(ordinal)
            assert job is not None
            self.end_life(job)
        self.expire_at = None
        self._watch_expiry()
        return len(over)

    def _watch_expiry(self) -> None:
        """Look for jobs whose time to live is over when the first of them may go, by the present clocks."""
        first = self.table.lifetimes.next()
        if first is None:
            return
        due = self.agenda.now + max(0, first * SECOND - self.agenda.wall)
        if self.expire_at is None or due < self.expire_at:
            self.expire_at = due
            self.agenda.schedule_scan(self, due)

    def _schedule_scan(self) -> None:
        due = self.next_due()
        if due is not None:
            self.schedule_scan(due)

    def schedule_scan(self, due: int) -> None:
        """See to it that the scan looks at this tube by `due` (monotonic ns)."""
        self.agenda.schedule_scan(self, due)

    def offer(self) -> None:
        """Enter the tube for serving if any worker waits. If none does, the next one to reserve looks for a job itself."""
        if self.waiters.count:
            self.agenda.awake[self] = None
            self.waiters.awake[self] = None

    def serve(self, now: int) -> None:
        """Make jobs of new messages, and give ready jobs to the workers that wait."""
        self._absorb()
        if self in self.waiters.awake:
            del self.waiters.awake[self]
            if self.waiters.serve(self.topic_name, self, now):
                self.offer()

    # actions of operators

    def delete(self) -> None:
        """Drop all jobs, the messages that are still to become jobs, and the tube itself. The topic that goes calls this."""
        self.journal.finish_all(self.offsets.distributed)
        self.journal.drop()
        self.deleted = True
        self._end_reservations()
        del self.index.holders[self.number]
        left = self.arrivals.give_up()
        self.agenda.reclaimer.add(release_jobs(self.table, left, self.index, self.number, self.journal))
        self.start, self.delayed, self.expire_at = self.offsets.distributed, 0, None
        self.table = JobTable()
        self.jobs = self.table.jobs
        self.waiters.forget(self)
        self.waiters.sharded.pop(self.key, None)
        self._made_among.remove(self.topic_name, self)
        self.listed.hide(self.topic_name)

    # shards

    def become_shard(self, local: Tube, key: int) -> None:
        """Let the workers of the node's own tube `local` reserve these jobs, too. No worker may have watched this tube before.

        `key`: a negative number that is never used again.
        """
        assert not self.reserved
        self.key, self.waiters, self.listed, self.throttle = key, local.waiters, local.listed, local.throttle
        self.waiters.sharded[key] = self
        local.shards += (self,)
        self.inherit_pause(local)
        if self.jobs.count:
            self.listed.show(self.topic_name)
        self._schedule_scan()
        if self.table.counts[JobState.READY]:
            self.offer()

    def end_shard(self, local: Tube | None) -> None:
        """Take the jobs away from the workers again, also reserved ones. `local`: as before; None: it is deleted."""
        if local is not None:
            local.shards = tuple(one for one in local.shards if one is not self)
        self.throttle = None
        self._end_reservations()
        self.waiters.sharded.pop(self.key, None)
        self.waiters.forget(self)
        self.journal.detach()

    def _end_reservations(self) -> None:
        """End the workers' reservations of all jobs of this tube. The jobs themselves are dropped, so they do not change."""
        for ordinal, worker in self.reserved.items():
            worker.lost(self.key, ordinal)
        self.reserved = {}

    def is_buried(self, ordinal: int) -> bool:
        job = self.jobs.get(ordinal)
        return job is not None and job.state is JobState.BURIED

    def frozen_chunks(self) -> Iterable[bytes]:
        return ()

    def counts(self) -> Counts:
        found = self.table.counts
        states = JobState.READY, JobState.RESERVED, JobState.DELAYED, JobState.BURIED
        return Counts(*map(found.__getitem__, states))

    @property
    def pending_count(self) -> int:
        """Return at most how many distributed messages are not jobs yet: some may be jobs, or finished."""
        return self.offsets.distributed - self.arrivals.position

    @property
    def in_flight_count(self) -> int:
        """Return the number of reserved jobs."""
        return len(self.reserved)

    @property
    def finishable_count(self) -> int:
        return len(self.reserved)

    def check(self) -> None:
        """Raise AssertionError if an invariant of this class does not hold."""
        self.table.check()
        self.arrivals.check()
        assert self.jobs is self.table.jobs
        for job in self.jobs:
            assert (job.state is JobState.RESERVED) == (job.ordinal in self.reserved)
            assert self.index.find(self.index.client_id(job.id)) == (self, job.ordinal)
        assert len(self.reserved) == self.table.counts[JobState.RESERVED]

    def __repr__(self) -> str:
        return f"<Tube {self.topic_name}, {self.jobs.count} jobs, {self.arrivals!r}>"


def release_jobs(
    table: JobTable, arrivals: Ahead, index: JobIndex[Tube], number: int, journal: ReaderJournal
) -> Iterator[None]:
    """Release the messages of a deleted tube, free its jobs and take them out of the index, a part with each step.

    `arrivals`: messages that were to become jobs, some of which are jobs already; `number`: that of the tube.
    """
    for spans in arrivals.spans():
        for first, end in spans:
            for start, stop in runs(table.jobs.absent(first, end)):
                journal.release(start, stop)
        yield
    for ordinals, ids in table.take_apart():
        for first, end in runs(ordinals):
            journal.release(first, end)
        index.remove_leftovers(ids, number)
        yield
