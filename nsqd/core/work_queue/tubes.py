"""All tubes of a node: their names, who uses, watches and waits for them, jobs by id, and the next job for a worker.

A tube is shown while it has jobs, or somebody uses or watches it; `default` always is. Its jobs are messages of the topic of
its name. To use or watch it makes no topic: the topic, and with it the tube, is made by the first message. A worker waits in
each tube that it watches; of these it gets the job of the lowest priority and id.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Protocol

from nsqd.core.directory import Directory
from nsqd.core.reader import Kind, Parts
from nsqd.core.sequence.puts import Terms
from nsqd.core.timing.duequeue import SLACK
from nsqd.core.topic import Topic
from nsqd.core.work_queue.jobs import Job, JobState
from nsqd.core.work_queue.tube import WORK, Reading, Tube
from shared.values import SECOND

DEFAULT = "default"
MARGIN = SECOND  # ns before a reservation ends that its worker is warned
MOST_WATCHED = 1000  # tubes of a worker: each reserve looks at all of them, which takes 2 ms
RELEASED_AT_ONCE = 100  # jobs of a tube that are released for a worker whose time is over: about 1 ms
_PAGE = 64  # ids


class Names:
    """Names in the order of their coming; but one that goes is replaced by the last. None is there twice."""

    __slots__ = ("_names", "_places")

    def __init__(self, *names: str) -> None:
        self._names: list[str] = []
        self._places: dict[str, int] = {}
        for name in names:
            self.add(name)

    def add(self, name: str) -> None:
        """It is there."""
        if name not in self._places:
            self._places[name] = len(self._names)
            self._names.append(name)

    def remove(self, name: str) -> None:
        """It is there no more."""
        place, last = self._places.pop(name), self._names.pop()
        if last != name:
            self._names[place] = last
            self._places[last] = place

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class Sink(Protocol):
    """Where a worker's answers go: the connection, or a test."""

    def reserved(self, job: Job, body: bytes) -> None:
        """What it waited for."""

    def read_completed(self) -> None:
        """It asked for what was on disk only: it may ask again."""


class Worker:
    """A client: what it uses and watches, and what it has reserved."""

    __slots__ = ("_ends", "holds", "produces", "sink", "using", "waiting", "watching", "works")

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.using = DEFAULT
        self.watching = Names(DEFAULT)
        self.holds: dict[tuple[int, int], int] = {}  # what it has reserved, by tube's number and ordinal: until when
        self._ends: list[
            tuple[int, int, int]
        ] = []  # heap of (until when, number, ordinal), of these and of some that were
        self.waiting = False  # for a job
        self.produces = False  # it has put a job
        self.works = False  # it has asked for one

    def hold(self, tube: int, ordinal: int, end: int) -> None:
        """It has that reservation until then."""
        self.holds[tube, ordinal] = end
        ends = self._ends
        heappush(ends, (end, tube, ordinal))
        if len(ends) > 2 * len(self.holds) + SLACK:
            ends[:] = [entry for entry in ends if self.holds.get(entry[1:]) == entry[0]]
            heapify(ends)

    def lost(self, tube: int, ordinal: int) -> None:
        """It has that reservation no more."""
        self.holds.pop((tube, ordinal), None)

    def warned_at(self) -> int | None:
        """When it is to be told that a reservation will end soon (ns); None: it has none."""
        ends, holds = self._ends, self.holds
        while ends and holds.get(ends[0][1:]) != ends[0][0]:
            heappop(ends)
        return ends[0][0] - MARGIN if ends else None


class Users:
    """Who is at a tube of that name, whether it is there or not."""

    __slots__ = ("using", "waiting", "watching")

    def __init__(self) -> None:
        self.using = 0  # workers
        self.watching = 0  # workers
        self.waiting: dict[Worker, None] = {}  # those who wait for a job, the first to be served first


class Tubes:
    """See above. One of a broker."""

    def __init__(self, directory: Directory) -> None:
        commons = directory.commons
        self._directory = directory
        self._agenda = commons.agenda
        self._registry = commons.registry
        self._limits = commons.limits
        self._ids = commons.ids
        self._tubes: dict[str, Tube] = {}  # by topic
        directory.on_created.append(self._created)
        self._by_number: dict[int, Tube] = {}
        self._pages: dict[int, tuple[array[int], array[int]]] = {}  # by id: ordinals + 1 (0: none), and tubes' numbers
        self._counts: dict[int, int] = {}  # jobs of each page
        self.names = Names()  # of all there are
        self.users: dict[str, Users] = {}  # of those that somebody uses or watches
        self._blocked: dict[Worker, Tube] = {}  # those who wait for the disk
        self.commands: Counter[str] = Counter()  # that were understood
        self.of_tube: dict[str, Counter[str]] = {}  # by tube: successful deletes, pauses
        self.timeouts = 0  # reservations that ended by themselves
        self.total = 0  # jobs put
        self._waiting = 0  # workers that wait for a job

    # tubes come and go

    def tube(self, name: str) -> Tube | None:
        """The tube of that name, if it has been made."""
        return self._tubes.get(name)

    def _created(self, topic: Topic) -> None:
        """A topic was made: if it had been deleted while workers were there, they find its tube again."""
        if topic.name in self.users:
            self.work(topic)

    def work(self, topic: Topic) -> Tube:
        """The topic's tube, made if it is not there. Raises TooMany."""
        tube = self._tubes.get(topic.name)
        return tube if tube is not None else topic.attach(Kind.WORK_QUEUE, WORK, self.added)

    def made(self, name: str) -> Tube:
        """The tube of that name, made if it is not there. Raises TooMany."""
        tube = self.tube(name)
        if tube is not None:
            return tube
        is_new = name not in self._directory.topics
        topic = self._directory.topic(name)
        topic.is_tubes_own |= is_new
        return self.work(topic)

    def names_of_all(self) -> list[str]:
        """Of tubes that were made, and of those that somebody uses or watches other than `default`."""
        return [*self._tubes, *(name for name in self.users if name != DEFAULT and name not in self._tubes)]

    def added(self, parts: Parts) -> Tube:
        """A topic gets a tube."""
        tube = Tube(parts, self)
        self._by_number[tube.number] = self._tubes[tube.topic_name] = tube
        self._show(tube.topic_name)
        return tube

    def dropped(self, tube: Tube) -> None:
        """Its topic has dropped it."""
        del self._by_number[tube.number], self._tubes[tube.topic_name]
        self._hide(tube.topic_name)
        self.read_completed(tube)  # who waits for its bodies asks again, and is told that they are gone

    def _meet(self, name: str) -> None:
        """Somebody is about to use or watch it: what the topic of that name has become jobs. Raises TooMany."""
        topic = self._directory.topics.get(name)
        if topic is not None:
            self.work(topic)
        elif name not in self.of_tube and len(self.names) >= self._limits.max_topics:
            raise self._registry.exceeded("max_topics", f"tubes exceed limit of {self._limits.max_topics}")

    def _show(self, name: str) -> None:
        if name not in self.of_tube:
            self.names.add(name)
            self.of_tube[name] = Counter()

    def _hide(self, name: str) -> None:
        """If nobody is there."""
        if name in self.users or name == DEFAULT or name not in self.of_tube:
            return
        self.names.remove(name)
        del self.of_tube[name]

    def leave_empty(self, name: str) -> None:
        """If nobody uses or watches a tube without jobs it goes, and its topic too if that is nothing but the tube."""
        tube = self.tube(name)
        has_jobs = tube is not None and (tube.jobs.count or tube.reading or self._directory.topics[name].depth)
        if name in self.users or name == DEFAULT or has_jobs:
            return
        topic = self._directory.topics.get(name)
        if topic is not None and tube is not None and topic.may_go:
            self._directory.delete(name)
        self._hide(name)

    # workers

    def join(self, worker: Worker) -> None:
        """A client has come: it uses and watches `default`."""
        self._show(DEFAULT)
        users = self.users.setdefault(DEFAULT, Users())
        users.using += 1
        users.watching += 1

    def leave(self, worker: Worker) -> None:
        """It is gone. What it has reserved is ready again."""
        self.stop_waiting(worker)
        self._blocked.pop(worker, None)
        for number, ordinal in list(worker.holds):
            tube = self._by_number[number]
            job = tube.jobs.get(ordinal)
            if job is not None:
                tube.let_go(job)
        self._use(worker, None)
        for name in list(worker.watching):
            self.ignore(worker, name)

    def use(self, worker: Worker, name: str) -> None:
        """What it puts goes there. Raises TooMany."""
        if name != worker.using:
            self._meet(name)
            self._use(worker, name)

    def _use(self, worker: Worker, name: str | None) -> None:
        before = worker.using
        if name is not None:
            self._show(name)
            self.users.setdefault(name, Users()).using += 1
            worker.using = name
        self.users[before].using -= 1
        self._unused(before)

    def watch(self, worker: Worker, name: str) -> None:
        """It is given jobs of that tube, too. Raises TooMany."""
        if name not in worker.watching:
            if len(worker.watching) >= MOST_WATCHED:
                raise self._registry.exceeded("max_watched_tubes", f"watched tubes exceed limit of {MOST_WATCHED}")
            self._meet(name)
            self._show(name)
            self.users.setdefault(name, Users()).watching += 1
            worker.watching.add(name)

    def ignore(self, worker: Worker, name: str) -> None:
        """No more."""
        if name not in worker.watching:
            return
        worker.watching.remove(name)
        self.users[name].watching -= 1
        self._unused(name)

    def _unused(self, name: str) -> None:
        users = self.users[name]
        if not users.using and not users.watching:
            del self.users[name]
            self.leave_empty(name)

    def wait(self, worker: Worker) -> None:
        """It is given the next job that there is."""
        worker.waiting = True
        self._waiting += 1
        for name in worker.watching:
            self.users[name].waiting[worker] = None

    def stop_waiting(self, worker: Worker) -> None:
        """It waits no longer."""
        if worker.waiting:
            worker.waiting = False
            self._waiting -= 1
            for name in worker.watching:
                self.users[name].waiting.pop(worker, None)

    # jobs

    def came(self, job_id: int, tube: Tube, ordinal: int) -> None:
        """There is a job of that id."""
        self._show(tube.topic_name)
        ordinals, numbers, at = self._page(job_id)
        ordinals[at], numbers[at] = ordinal + 1, tube.number
        self._counts[job_id // _PAGE] += 1

    def came_together(self, job_ids: list[int], tube: Tube, first: int) -> None:
        """There are jobs of these ids, ascending, and of ordinals from `first` on."""
        start, count = job_ids[0], len(job_ids)
        if job_ids[-1] - start != count - 1:
            for ordinal, job_id in enumerate(job_ids, first):
                self.came(job_id, tube, ordinal)
            return
        self._show(tube.topic_name)
        done = 0
        while done < count:
            ordinals, numbers, at = self._page(start + done)
            end = min(_PAGE, at + count - done)
            ordinals[at:end] = array("Q", range(first + done + 1, first + done + 1 + end - at))
            numbers[at:end] = array("I", (tube.number,)) * (end - at)
            self._counts[(start + done) // _PAGE] += end - at
            done += end - at

    def _page(self, job_id: int) -> tuple[array[int], array[int], int]:
        """Where an id is noted: ordinals and numbers of its page, and its place there."""
        page, at = divmod(job_id, _PAGE)
        found = self._pages.get(page)
        if found is None:
            found = self._pages[page] = array("Q", bytes(8 * _PAGE)), array("I", bytes(4 * _PAGE))
            self._counts[page] = 0
        return *found, at

    def went(self, job_id: int) -> None:
        """It is gone."""
        page, at = divmod(job_id, _PAGE)
        self._pages[page][0][at] = 0
        self._counts[page] -= 1
        if not self._counts[page]:
            del self._pages[page], self._counts[page]

    def find(self, job_id: int) -> tuple[Tube, Job] | None:
        """The job of that id, and its tube."""
        page, at = divmod(job_id, _PAGE)
        if page not in self._pages:
            return None
        ordinals, numbers = self._pages[page]
        if not ordinals[at]:
            return None
        tube = self._by_number[numbers[at]]
        job = tube.jobs.get(ordinals[at] - 1)
        assert job is not None
        return tube, job

    def put(self, worker: Worker, bodies: list[bytes], terms: Terms) -> int:
        """New jobs in the tube it uses: the id of the first; the others' follow it. Raises TooMany."""
        topic = self._topic(worker.using)
        self.total += len(bodies)
        number = topic.put(bodies, terms)
        if self._waiting:
            self.match()
        return number

    def put_unique(self, worker: Worker, body: bytes, terms: Terms, key: str) -> int:
        """A new job in the tube it uses: its id; 0: it was given one with that key already. Raises TooMany."""
        topic = self._topic(worker.using)
        if topic.knows(key):
            return 0
        self.total += 1
        number = topic.put([body], terms, key)
        if self._waiting:
            self.match()
        return number

    def put_to(self, name: str, body: bytes, terms: Terms) -> int:
        """A new job in a tube: its id. Raises TooMany."""
        topic = self._topic(name)
        number = topic.put([body], terms)
        topic.settle()  # what follows, in the log too, may count upon it
        return number

    def _topic(self, name: str) -> Topic:
        """The topic of a tube, both made if they are not there. Raises TooMany."""
        self.made(name)
        return self._directory.topics[name]

    def burn_id(self) -> None:
        """One is taken, and no job has it."""
        self._ids.one()

    def next_for(self, worker: Worker, now: int) -> tuple[Tube, Job, bytes] | None:
        """The most urgent job of the tubes it watches, and its body; None: there is none. Raises Reading."""
        while True:
            best: tuple[int, int] | None = None
            found: tuple[Tube, Job] | None = None
            for name in worker.watching:
                tube = self.tube(name)
                job = tube.head() if tube is not None and not tube.is_paused(now) else None
                if tube is not None and job is not None and (best is None or (job.priority, job.id) < best):
                    best, found = (job.priority, job.id), (tube, job)
            if found is None:
                return None
            body = found[0].body(found[1])
            if body is not None:
                return *found, body

    def match(self) -> None:
        """Jobs that are ready now are for those who wait, before anybody else asks."""
        agenda = self._agenda
        agenda.settle()
        if self._waiting:
            for tube in [tube for tube in self._tubes.values() if tube in agenda.awake]:
                tube.serve(agenda.now)

    def release_due(self, worker: Worker, now: int) -> None:
        """What is due in the tubes it watches is ready, and given to those who wait, before it is told that there is nothing.

        The scan comes by every 25 ms; a worker's deadline is exact. What a scan has released in this turn waits to be given.
        """
        for name in worker.watching:
            tube = self.tube(name)
            if tube is None:
                continue
            if tube.may_be_due(now):
                tube.scan(now, RELEASED_AT_ONCE)
            if tube in self._agenda.awake:
                self.serve(tube, now)

    @property
    def is_awaited(self) -> bool:
        """Somebody waits for a job, of whatever tube."""
        return self._waiting > 0

    def has_ready(self, worker: Worker) -> bool:
        """Some tube that it watches has a ready job, paused or not."""
        tubes = (self.tube(name) for name in worker.watching)
        return any(tube is not None and tube.counts[JobState.READY] for tube in tubes)

    def serve(self, tube: Tube, now: int) -> None:
        """It may have jobs for those who wait."""
        users = self.users.get(tube.topic_name)
        for worker in list(users.waiting) if users is not None else ():
            if tube.is_paused(now) or tube.head() is None:
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

    def block(self, worker: Worker, tube: Tube) -> None:
        """It is told when the tube has read from disk."""
        self._blocked[worker] = tube

    def read_completed(self, tube: Tube) -> None:
        """It has."""
        for worker in [worker for worker, waits_for in self._blocked.items() if waits_for is tube]:
            del self._blocked[worker]
            worker.sink.read_completed()

    def counts(self, state: JobState) -> int:
        """Jobs in that state."""
        return sum(tube.counts[state] for tube in self._by_number.values())

    @property
    def urgent(self) -> int:
        """Ready jobs that are urgent."""
        return sum(tube.urgent for tube in self._by_number.values())

    def check(self) -> None:
        """Raise AssertionError if a sentence above is false."""
        assert len(set(self.names)) == len(self.names)
        assert set(self.names) == set(self.of_tube)
        for tube in self._by_number.values():
            assert tube.topic_name in self.of_tube or not tube.jobs.count
            assert not tube.deleted
        assert sum(self._counts.values()) == sum(tube.jobs.count for tube in self._by_number.values())
        for users in self.users.values():
            assert users.using or users.watching
            assert all(worker.waiting for worker in users.waiting)
        assert self._waiting == len({worker for users in self.users.values() for worker in users.waiting})
