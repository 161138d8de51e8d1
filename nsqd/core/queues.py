"""The queues of Disque's clients: what they do to jobs by message id.

A queue is the tube of the same name, so clients of Disque and of beanstalkd share its jobs. They differ in two ways. A client
does not own the jobs that it fetches: a job stays out for its time to run, which Disque calls retry, whatever becomes of the
connection, and any client may act on it. And a queue is made by its first job or pause, and deleted when it has neither and was
not used for a while. Looking at a queue, fetching from it or waiting for its jobs makes none.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from nsqd.core.imports import Imports
from nsqd.core.timing.pause import Pause
from nsqd.core.tubes import Tubes
from nsqd.core.work_queue.job import Job, JobState, Outline
from nsqd.core.work_queue.listing import list_jobs
from nsqd.core.work_queue.tube import Tube
from nsqd.core.work_queue.waiters import Reading, turn_of
from nsqd.core.work_queue.worker import Holder, Names, NobodysSink, Worker
from shared.values import SECOND

IDLE = 300 * SECOND  # ns until an unused empty queue is deleted
IDLE_IF_SHORT = 2 * SECOND  # ns until then while there are nearly as many topics as there may be
LOOKED_AT = 2  # queues that are checked for that when another queue appears
LOOKED_AT_IF_FULL = 64  # queues that are checked when a topic cannot be made because there are too many

QueuedJob = tuple[Tube, Job]


class TooLateError(Exception):
    """More than half of a job's time to live is over, so its next delivery can not be postponed."""


@dataclass(slots=True)
class QueueUse:
    """The use of one queue since it appeared, or since the node started."""

    since: int  # monotonic ns
    last: int  # monotonic ns
    fetched: int = 0  # jobs


class Queues:
    """All queues of one node: by name, with the clients that wait for their jobs, and single jobs by their message ids.

    Names are those of topics, checked by the caller; ids are whole message ids. Times are passed in: `now` is monotonic ns, and
    `wall` ns since the epoch. A job comes and goes with its tube, the one of the node's own log or one of a promoted log.
    """

    def __init__(self, tubes: Tubes) -> None:
        """Begin without a use of any queue: those that `tubes` has, the node's, are found as soon as they are named."""
        self.tubes = tubes
        self.holder = Holder(NobodysSink())  # has all jobs that clients of Disque have fetched
        # by name of a queue that exists, the longest unused first
        self.uses: OrderedDict[str, QueueUse] = OrderedDict()
        self._knows_old = False  # True: `uses` has the queues of earlier runs, too
        tubes.make_room = self._make_room
        self.imports = Imports()  # jobs of other nodes that clients of this one got lately

    # queues

    def use(self, name: str, now: int) -> QueueUse | None:
        """Note at `now` (monotonic ns) that the queue is used, and return its uses; None: it does not exist.

        Unused queues are deleted when others appear.
        """
        use = self.uses.get(name)
        if use is not None:
            self.uses.move_to_end(name)
            use.last = now
        elif self.tubes.tube(name) is not None:
            self.evict_idle(now, LOOKED_AT)
            use = self.uses[name] = QueueUse(now, now)
        return use

    def evict_idle(self, now: int, most: int) -> int:
        """Delete queues that hold nothing and were idle for long; as `evict`. While topics are many, that is not so long."""
        if not self._knows_old:
            self._knows_old = True
            for name in self.tubes.waiters.queues:
                self.uses.setdefault(name, QueueUse(now, now))
        return self.evict(now, IDLE_IF_SHORT if self.tubes.is_crowded else IDLE, most)

    def evict(self, now: int, idle: int, most: int) -> int:
        """Delete queues that hold nothing and were not used for `idle` ns before `now` (monotonic ns).

        Looks at `most` queues, the longest unused first. Returns how many of them are gone.
        """
        gone = 0
        for _ in range(min(most, len(self.uses))):
            name, use = next(iter(self.uses.items()))
            if use.last + idle > now:
                break
            tube = self.tubes.tube(name)
            if tube is not None and not (tube.paused or tube.pause_until):
                self.tubes.leave_empty(name)
            if self.tubes.tube(name) is None:
                del self.uses[name]
                gone += 1
            else:  # it holds something
                self.uses.move_to_end(name)
        return gone

    def _make_room(self) -> None:
        """Delete a queue that holds nothing, however recently it was used, because there are as many topics as there may be."""
        self.evict(self.tubes.now, 0, LOOKED_AT_IF_FULL)

    def drop_empty(self) -> None:
        """Drop all queues without jobs for whose jobs no client waits, also paused ones."""
        for name in list(self.tubes.waiters.queues):
            tube = self.tubes.made(name)
            if tube.paused or tube.pause_until:
                tube.pause_queue(None)
            self.tubes.leave_empty(name)
        self.uses.clear()

    def is_known(self, name: str) -> bool:
        """Return True if there is such a queue, or a client waits for its jobs."""
        return self.tubes.tube(name) is not None or self.tubes.waiters.is_awaited(name)

    def length(self, name: str) -> int:
        """Return the number of queued jobs."""
        return sum(tube.table.counts[JobState.READY] for tube in self.tubes.everywhere(name))

    def pause(self, name: str, paused: Pause | None, now: int) -> None:
        """Pause a queue as `paused` says until the next call, also over restarts; None: resume it. `now`: monotonic ns.

        Raises TooMany.
        """
        tube = self.tubes.made(name)
        self.use(name, now)
        tube.pause_queue(paused)

    def pauses(self, name: str) -> tuple[bool, bool]:
        """Return whether the queue is paused for jobs that come, and for those that go, here or in a promoted log."""
        everywhere = self.tubes.everywhere(name)
        return any(tube.refuses_jobs for tube in everywhere[:1]), any(tube.pause_until > 0 for tube in everywhere)

    # those who wait

    def watch(self, worker: Worker, names: Iterable[str]) -> None:
        """Have the worker take jobs of these queues, in this order. Raises TooMany."""
        worker.watching = Names(*names)
        self.tubes.attach_all(worker.watching)

    def wait(self, worker: Worker) -> None:
        """Let the worker wait for one job of the queues that it watches. Topics that others make become queues meanwhile."""
        self.tubes.waiters.wait(worker)

    def stop_waiting(self, worker: Worker) -> None:
        """End that, if the worker waits."""
        self.tubes.waiters.stop_waiting(worker)

    def fetch(self, worker: Worker, count: int, now: int) -> list[tuple[str, Job, bytes]]:
        """Fetch up to `count` jobs for the worker: one of each queue in turn, of a queue the one that was added first.

        Returns (queue, job, body) of each. Raises Reading if a body must be read from disk and there is none before it.
        """
        taken: list[tuple[str, Job, bytes]] = []
        made = self.tubes.waiters.queues
        names = [name for name in worker.watching if name in made]
        while names:
            left: list[str] = []
            for name in names:
                try:
                    found = self._fetch_one(name, worker, now)
                except Reading:
                    if taken:
                        return taken
                    raise
                if found is None:
                    continue
                taken.append((name, *found))
                if len(taken) == count:
                    return taken
                left.append(name)
            names = left
        return taken

    def _fetch_one(self, name: str, worker: Worker, now: int) -> tuple[Job, bytes] | None:
        while True:
            found: QueuedJob | None = None
            for tube in self.tubes.everywhere(name):
                head = tube.next_ready() if not tube.holds_back(now) else None
                if head is not None and (found is None or turn_of(head) < turn_of(found[1])):
                    found = tube, head
            if found is None:
                return None
            tube, job = found
            body = tube.body(job, worker.takes_headers)
            if body is not None:
                tube.reserve(job, worker, now)
                self.note_fetched(name, now)
                return job, body

    def note_fetched(self, name: str, now: int) -> None:
        """Count a job of that queue that was fetched, and note that it is used."""
        use = self.use(name, now)
        if use is not None:
            use.fetched += 1

    # jobs

    def find(self, message_id: int) -> QueuedJob | None:
        """Return the job whose message has this id, and its tube; None: this node does not own such a job."""
        index = self.tubes.index
        found = self.tubes.find(index.client_id(message_id))
        return found if found is not None and found[1].id == message_id else None

    def locate(self, message_id: int) -> tuple[Tube, int, Outline] | None:
        """Return the tube, the ordinal and the outline of the job that `find` finds."""
        found = self.tubes.locate(self.tubes.index.client_id(message_id))
        return found if found is not None and found[2][0] == message_id else None

    def acknowledge(self, found: QueuedJob) -> None:
        """Finish the job: it is done, or no longer needed."""
        tube, job = found
        tube.finish(job)

    def return_job(self, found: QueuedJob) -> bool:
        """Queue a job again that a client has failed to do. Returns False if it is queued already."""
        tube, job = found
        if job.state is JobState.READY:
            return False
        job.releases += 1
        tube.fail(job)
        return True

    def enqueue(self, found: QueuedJob) -> bool:
        """Queue a job that is out, delayed or buried. Returns False if it is queued already."""
        tube, job = found
        if job.state is JobState.READY:
            return False
        if job.state is JobState.DELAYED and not job.reserves:
            tube.unreserve(job)  # it is its first delivery
        else:
            tube.kick(job)
        return True

    def dequeue(self, found: QueuedJob, now: int) -> bool:
        """Take a job out of its queue until its retry time is over. Returns False if it is not queued.

        One that is delivered once at most is buried: it waits for `enqueue`.
        """
        tube, job = found
        if job.state is not JobState.READY:
            return False
        if job.ttr:
            tube.touch(job, self.holder, now)
        else:
            tube.bury(job, job.priority)
        return True

    def postpone(self, found: QueuedJob, now: int, wall: int) -> int:
        """Restart the retry time of a job, and take it out of its queue. Returns that time in s.

        Does nothing to a job that is delivered once at most: returns 0. Raises TooLateError.
        """
        tube, job = found
        if job.ttl and 2 * (wall - job.created) > job.ttl * SECOND:
            raise TooLateError
        if job.ttr:
            tube.touch(job, tube.reserved.get(job.ordinal, self.holder), now)
        return job.ttr

    def queued(self, name: str, newest_first: bool, limit: int) -> list[QueuedJob]:
        """Return up to `limit` queued jobs: those that leave next, or those that were added last."""
        found: list[QueuedJob] = []
        for tube in self.tubes.everywhere(name) if limit else ():
            wall = tube.agenda.wall
            if newest_first:
                last = (job for job in tube.jobs.last_in_state(JobState.READY) if not job.is_over(wall))
                found += [(tube, job) for job in islice(last, limit)]
            elif tube.next_ready() is not None:
                jobs = list_jobs(tube.table, JobState.READY, "", limit)[0]
                found += [(tube, job) for job in jobs if not job.is_over(wall)]
        return sorted(found, key=_turn, reverse=newest_first)[:limit]

    def __repr__(self) -> str:
        return f"<Queues: {len(self.uses)} in use>"


def _turn(found: QueuedJob) -> tuple[int, int, int]:
    return turn_of(found[1])
