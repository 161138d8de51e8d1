"""All tubes of a node: what clients of beanstalkd do to tubes by name, and to jobs by number.

The jobs of a tube are messages of the topic with the same name. Using or watching a tube makes no topic: the first message
makes the topic, and with it the tube. A tube that no client uses or watches is deleted with its last job.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from nsqd.core.directory import Directory
from nsqd.core.message.attributes import Attributes
from nsqd.core.reader import Parts, ReaderKind
from nsqd.core.sequence.mark import Mark
from nsqd.core.sequence.put_batch import JobOptions
from nsqd.core.timing.agenda import Agenda
from nsqd.core.topic import Topic
from nsqd.core.work_queue.job import Job, JobState, Outline, is_over
from nsqd.core.work_queue.job_index import JobIndex
from nsqd.core.work_queue.tube import WORK, Tube
from nsqd.core.work_queue.tube_list import TubeList
from nsqd.core.work_queue.waiters import Waiters, turn_of
from nsqd.core.work_queue.worker import BORROWED, DEFAULT, FEW, Worker
from penstock.protocol.headers import Headers
from shared.topic_config import TopicConfig

MOST_WATCHED = 1000  # tubes that a worker may watch: each reserve looks at all of them, which takes 2 ms
RELEASED_AT_ONCE = 100  # jobs of one tube that are released for a worker at its deadline: about 1 ms


class Tubes:
    """All tubes of one broker, and the workers that use and watch them."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self.topics = directory.topics
        self._agenda = directory.context.agenda
        self._registry = directory.context.registry
        self._limits = directory.context.limits
        self._ids = directory.context.ids
        self.index: JobIndex[Tube] = JobIndex(self._limits.whole_job_ids)
        self.waiters: Waiters[Tube] = Waiters()
        self.listed: TubeList = TubeList()
        self.commands: Counter[str] = Counter()  # how often each known command came, by its name
        self.total = 0  # jobs put
        # called before a topic is refused because there are too many; may delete queues that hold nothing
        self.make_room: Callable[[], None] = lambda: None
        self.shards: list[Tubes] = [self]  # those of all logs, this one first
        directory.on_created.append(self._topic_created)
        directory.make_room = lambda: self.make_room()

    def move(self, agenda: Agenda) -> None:
        """Take part in the turns of another agenda from now on."""
        self._agenda = agenda

    @property
    def now(self) -> int:
        """Return the time of this turn, in monotonic ns."""
        return self._agenda.now

    @property
    def is_crowded(self) -> bool:
        """Return True if more than three quarters of the topics exist that there may be."""
        return 4 * len(self.topics) > 3 * self._limits.max_topics

    @property
    def wall(self) -> int:
        """Return the time of this turn, in ns since the epoch."""
        return self._agenda.wall

    # tubes

    def tube(self, name: str) -> Tube | None:
        """Return the tube of that name, if it has been made."""
        return self.waiters.queues.get(name)

    def made(self, name: str) -> Tube:
        """Return the tube of that name, and make it if needed. Raises TooMany."""
        tube = self.waiters.queues.get(name)
        if tube is not None:
            return tube
        is_new = name not in self.topics
        topic = self._directory.topic(name)
        topic.is_tubes_own |= is_new
        return self.attach(topic)

    def attach(self, topic: Topic) -> Tube:
        """Return the topic's tube, and make it if needed. Raises TooMany."""
        tube = self.waiters.queues.get(topic.name)
        return tube if tube is not None else topic.attach(ReaderKind.WORK_QUEUE, WORK, self.new_tube)

    def new_tube(self, parts: Parts) -> Tube:
        """Return a new tube made of these parts, and register it by its name and number."""
        tube = Tube(parts, self.index, self.waiters, self.listed)
        self.index.holders[tube.number] = self.waiters.queues[parts.topic] = tube
        self.listed.show(parts.topic)
        return tube

    def _topic_created(self, topic: Topic) -> None:
        """Make the tube of a new topic if workers already use or watch a tube of its name, or wait for its jobs."""
        if topic.name in self.listed.users or self.waiters.is_awaited(topic.name):
            self.attach(topic)

    def names_of_all(self) -> list[str]:
        """Return the names of tubes that were made, or that workers use, watch or wait for; `default` only if it was made."""
        made = self.waiters.queues
        awaited = [name for name in self.waiters.names() if any(self.waiters.own_at(name))]
        others = dict.fromkeys([*self.listed.users, *awaited])
        return [*made, *(name for name in others if name != DEFAULT and name not in made)]

    def prepare(self, name: str) -> None:
        """Prepare a tube that a worker is about to use or watch: the topic's messages become jobs. Raises TooMany."""
        topic = self.topics.get(name)
        most = self._limits.max_topics
        if topic is not None:
            self.attach(topic)
        elif name not in self.listed.counters and len(self.listed.names) >= most:
            raise self._registry.exceeded("max_topics", f"tubes exceed limit of {most}")

    def attach_all(self, names: Iterable[str]) -> None:
        """Make the tubes of those of these names that are topics: their messages become jobs. Raises TooMany."""
        made, topics = self.waiters.queues, self.topics
        for name in names:
            if name not in made and name in topics:
                self.attach(topics[name])

    def leave_empty(self, name: str) -> None:
        """Remove a tube that has no jobs and no users or watchers, and its topic too if that serves the tube alone.

        Does nothing while its queue is paused.
        """
        if name in self.listed.users or name == DEFAULT or self.waiters.is_awaited(name):
            return
        tube = self.tube(name)
        if tube is not None and (tube.jobs.count or tube.reading or tube.paused or self.topics[name].depth):
            return
        if tube is not None and any(shard.jobs.count for shard in tube.shards[1:]):
            return
        topic = self.topics.get(name)
        if topic is not None and tube is not None and self._is_needless(topic):
            self._directory.drop(name)  # jobs that a promoted log has in such a tube stay
        self.listed.hide(name)

    def _is_needless(self, topic: Topic) -> bool:
        """Return True if the topic may be deleted with its empty tube.

        Clients of beanstalkd made it, no others used it, it has no settings of its own, and nothing can be read back.
        """
        retains = topic.offsets.end > 0 and self._limits.policy.over(topic.config).retains
        plain = topic.config == TopicConfig() and not topic.cursors and not retains
        is_tubes_alone = topic.is_tubes_own and not topic.intake.is_foreign and not topic.channels
        return is_tubes_alone and plain and len(topic.shards) == 1

    # workers

    def join(self, worker: Worker) -> None:
        """Add the worker of a new client, which uses and watches `default`."""
        self.listed.use(DEFAULT)
        self.listed.watch(DEFAULT)

    def watching_count(self, name: str) -> int:
        """Return the number of clients that watch a tube. Those of Disque watch while they wait."""
        users = self.listed.users.get(name)
        return (users.watching if users is not None else 0) + self.waiters.kinds_at(name).others

    def leave(self, worker: Worker) -> None:
        """Remove the worker of a client that is gone. Its reserved jobs have failed, unless the node stops."""
        self.forget_waiting(worker, self.ignore)
        if not self._agenda.is_stopping:
            self.release_all(worker, Tube.fail)
        self._unuse(worker)

    def forget_waiting(self, worker: Worker, forget: Callable[[Worker, str], None] | None = None) -> None:
        """Forget a worker that leaves, and all that it watches: in later turns if that is much.

        `forget` is called for each name; None: nothing is.
        """
        did_wait = self.waiters.leave(worker)
        steps = self._forget_names(worker, did_wait, forget)
        if len(worker.watching) > FEW:
            self._agenda.reclaimer.add_later(steps)
        else:
            for _ in steps:
                pass

    def _forget_names(
        self, worker: Worker, did_wait: bool, forget: Callable[[Worker, str], None] | None
    ) -> Iterator[None]:
        """Take the worker out of all tubes that it watches, a few in each step."""
        for number, name in enumerate(list(worker.watching), 1):
            if did_wait:
                self.waiters.unregister(worker, name)
            if forget is not None:
                forget(worker, name)
            if number % FEW == 0:
                yield

    def release_all(self, worker: Worker, release: Callable[[Tube, Job], None] = Tube.unreserve) -> None:
        """Release all jobs that the worker has reserved, except for those of other nodes."""
        for key, ordinal in list(worker.holds):
            if key != BORROWED:
                tube = self.waiters.sharded[key] if key < 0 else self.index.holders[key]
                job = tube.jobs.get(ordinal)
                if job is not None:
                    release(tube, job)

    def use(self, worker: Worker, name: str) -> None:
        """Direct the jobs that the worker puts to that tube from now on. Raises TooMany."""
        if name != worker.using:
            self.prepare(name)
            self.listed.use(name)
            self._unuse(worker)
            worker.using = name

    def _unuse(self, worker: Worker) -> None:
        if self.listed.leave(worker.using):
            self.leave_empty(worker.using)

    def watch(self, worker: Worker, name: str) -> None:
        """Let the worker reserve jobs of that tube, too. Raises TooMany."""
        if name not in worker.watching:
            if len(worker.watching) >= MOST_WATCHED:
                raise self._registry.exceeded("max_watched_tubes", f"watched tubes exceed limit of {MOST_WATCHED}")
            self.prepare(name)
            self.listed.watch(name)
            worker.watching.add(name)

    def ignore(self, worker: Worker, name: str) -> None:
        """Give the worker no more jobs of that tube."""
        if name in worker.watching:
            worker.watching.remove(name)
            if self.listed.ignore(name):
                self.leave_empty(name)

    def has_ready(self, worker: Worker) -> bool:
        """Return True if a tube that the worker watches has a ready job, even if the tube is paused."""
        tubes = (tube for name in worker.watching for tube in self.everywhere(name))
        return any(tube.table.counts[JobState.READY] for tube in tubes)

    def admit_waiting(self, worker: Worker) -> None:
        """Raise TooMany if workers of this node would wait for the jobs of too many tubes that do not exist."""
        waiters, topics, most = self.waiters, self.topics, self._limits.max_topics
        awaited = waiters.awaited_count
        if awaited + len(worker.watching) > most:
            new = sum(name not in topics and not waiters.is_awaited(name) for name in worker.watching)
            if new and awaited + new > most:
                raise self._registry.exceeded("max_topics", f"queues that are waited for exceed limit of {most}")

    def wait_again(self, worker: Worker) -> None:
        """Let a worker wait for a job again that did not wait for a while: there may be jobs for it by now."""
        self.waiters.wait(worker)
        for name in worker.watching:
            for tube in self.everywhere(name):
                if tube.table.counts[JobState.READY]:
                    tube.offer()

    def everywhere(self, name: str) -> tuple[Tube, ...]:
        """Return the tubes of that name in all logs; () if there is none."""
        tube = self.tube(name)
        return tube.shards if tube is not None else ()

    def first(self, name: str, state: JobState) -> tuple[Tube, Job] | None:
        """Return the job in that state that a worker, or kick, would take first, of the tube and its shards, and its tube."""
        found = [(tube, job) for tube in self.everywhere(name) if (job := _first(tube, state)) is not None]
        if state is JobState.READY:
            return min(found, key=lambda one: turn_of(one[1]), default=None)
        return min(found, key=lambda one: one[1].due if state is JobState.DELAYED else 0, default=None)

    def match(self) -> None:
        """Give ready jobs to the waiting workers before any other worker asks."""
        agenda = self._agenda
        if agenda.unsealed_puts:
            agenda.seal_puts()
        self.serve_waiting()

    def serve_waiting(self) -> None:
        """Give the ready jobs that are known to the waiting workers, as `match` does with those put in this turn, too."""
        if self.waiters.awake and not self._agenda.is_held:
            for tube in list(self.waiters.awake):
                tube.serve(self._agenda.now)

    def reserve_plain(self, name: str, worker: Worker, now: int) -> tuple[int, int, int, bytes] | None:
        """Reserve the first job of the tube of that name for the worker. Returns as Tube.reserve_plain.

        None: nothing was done, because something comes before that: `match`, `release_due`, or the choice among tubes.
        """
        agenda, tube = self._agenda, self.waiters.queues.get(name)
        if tube is None or self.waiters.awake or agenda.is_held or len(tube.shards) > 1 or tube.holds_back(now):
            return None
        if tube.scan_entry is not None and tube.scan_entry[0] <= now:
            return None
        if agenda.unsealed_puts and self.topics[name].intake.most_urgent < tube.table.first_priority:
            return None
        return tube.reserve_plain(worker, now)

    def offer_all(self) -> None:
        """Have all tubes look for workers that wait."""
        for tube in self.index.holders.values():
            tube.offer()

    def release_due(self, worker: Worker, now: int) -> None:
        """Make the due jobs of the tubes that the worker watches ready, and give them to waiting workers.

        The scan comes only every 25 ms, but a worker's deadline is exact. Jobs that a scan has just released are given, too.
        """
        queues, awake = self.waiters.queues, self.waiters.awake
        for name in worker.watching:
            tube = queues.get(name)
            if tube is None:
                continue
            for one in tube.shards:
                if one.scan_entry is not None and one.scan_entry[0] <= now:
                    one.scan(now, RELEASED_AT_ONCE)
                if one in awake and not self._agenda.is_held:
                    self.waiters.serve(name, one, now)

    # jobs

    def client_id(self, job: Job) -> int:
        """Return the id by which clients name the job."""
        return self.index.client_id(job.id)

    def find(self, client_id: int) -> tuple[Tube, Job] | None:
        """Return the job that clients name so and its tube, or None if there is no such job."""
        found = self.locate(client_id)
        if found is None:
            return None
        tube, ordinal, _ = found
        job = tube.jobs.get(ordinal)
        assert job is not None
        return tube, job

    def locate(self, client_id: int) -> tuple[Tube, int, Outline] | None:
        """Return the tube, the ordinal and the outline of the job that clients name so; None: there is no such job.

        Jobs that were put in this turn are found, too.
        """
        found = self.index.find(client_id)
        if found is None and self._agenda.unsealed_puts:
            self._agenda.seal_puts()
            found = self.index.find(client_id)
        if found is None:
            return self._locate_promoted(client_id)
        tube, ordinal = found
        outline = tube.jobs.outline(ordinal)
        assert outline is not None
        _, _, _, created, _, ttl, _, _ = outline
        if is_over(created, ttl, self._agenda.wall):
            job = tube.jobs.get(ordinal)
            assert job is not None
            tube.end_life(job)
            return None
        return tube, ordinal, outline

    def _locate_promoted(self, client_id: int) -> tuple[Tube, int, Outline] | None:
        """Return the same of the promoted logs, as far as their tubes are attached. Whole ids of several logs never meet."""
        for promoted in self.shards[1:]:
            found = promoted.locate(client_id)
            if found is not None and found[0].key < 0:
                return found
        return None

    def put(self, worker: Worker, bodies: list[bytes], options: JobOptions) -> int:
        """Put jobs into the tube that the worker uses. Returns the first client id; the others follow it. Raises TooMany."""
        return self.index.client_id(self.put_into(worker.using, bodies, options))

    def put_into(self, name: str, bodies: list[bytes], options: JobOptions, headers: Headers = ()) -> int:
        """Put jobs into the tube of that name. Returns the first message id; the others follow it. Raises TooMany."""
        job_id = self._topic(name).intake.put(bodies, options, Attributes(headers) if headers else None)
        self.total += len(bodies)
        if self.waiters.count:
            self.match()
        return job_id

    def put_buried(self, name: str, body: bytes, options: JobOptions, identity: Attributes | None = None) -> int:
        """Put a job into the tube of that name, which is full and buries it. Returns and raises as `put_unique`."""
        topic = self.topics[name]
        job_id = topic.intake.put([body], options) if identity is None else _put_once(topic, body, options, identity)
        if job_id is None:
            return 0
        client_id = self.index.client_id(job_id)
        self.total += 1
        found = self.find(client_id)
        assert found is not None
        found[0].bury(found[1], options.priority)
        return client_id

    def ask_for_copies(self, name: str, count: int, has_limit: bool = False) -> tuple[Mark, ...]:
        """Have the jobs that are put in this turn into the tube of that name wait for `count` copies.

        Returns the marks that replies wait for. `has_limit`: see Topic.ask_for_copies. Raises TooMany, TooFewCopies.
        """
        return self._topic(name).ask_for_copies(count, has_limit)

    def put_unique(self, worker: Worker, body: bytes, options: JobOptions, identity: Attributes) -> int:
        """Put a job into the tube that the worker uses, unless the topic remembers one with the key of this identity.

        It may have headers, too, one of which names a batch. Returns the job's client id, or 0 if none was put. Raises TooMany.
        """
        found = _put_once(self._topic(worker.using), body, options, identity)
        if found is None:
            return 0
        self.total += 1
        if self.waiters.count:
            self.match()
        return self.index.client_id(found)

    def pending_id(self, name: str, key: str) -> int:
        """Return the client id of the job of the tube of that name that is pending with this key: see Topic.pending_id."""
        return self.index.client_id(self.topics[name].pending_id(key))

    def put_to(self, name: str, body: bytes, options: JobOptions, headers: Headers = ()) -> int:
        """Put a job into a tube so that it exists at once. Returns the job's number. Raises TooMany."""
        topic = self._topic(name)
        job_id = topic.intake.put([body], options, Attributes(headers) if headers else None)
        topic.seal_puts()  # what follows, also in the log, may rely on the job
        return self.index.client_id(job_id)

    def _topic(self, name: str) -> Topic:
        """Return the topic of that name with a tube, and make both if needed. Raises TooMany, TooFewCopies."""
        if name not in self.waiters.queues:
            self.made(name)
        topic = self.topics[name]
        if topic.shut:
            topic.check_open(as_jobs=True)
        return topic

    def burn_id(self) -> None:
        """Use up an id without giving it to a job."""
        self._ids.issue_id()

    # counts

    def count(self, state: JobState) -> int:
        """Return the number of jobs of all tubes in that state."""
        return sum(tube.table.counts[state] for tube in self.all())

    @property
    def urgent(self) -> int:
        """Return the number of jobs of all tubes that are ready and urgent."""
        return sum(tube.table.urgent for tube in self.all())

    def all(self) -> Iterator[Tube]:
        """Yield all tubes and all shards."""
        yield from self.waiters.queues.values()
        yield from self.waiters.sharded.values()

    def check(self) -> None:
        """Raise AssertionError if an invariant of the tubes does not hold."""
        for part in (self.index, self.waiters, self.listed):
            part.check()
        made = self.waiters.queues
        assert self.index.holders == {tube.number: tube for tube in made.values()}
        assert len(self.index) == sum(tube.jobs.count for tube in made.values())
        for name, tube in made.items():
            assert tube.topic_name == name
            assert name in self.listed.counters or not tube.jobs.count
            assert not tube.deleted

    def __repr__(self) -> str:
        return f"<Tubes: {len(self.waiters.queues)} made, {self.listed!r}>"


def _put_once(topic: Topic, body: bytes, options: JobOptions, identity: Attributes) -> int | None:
    """Put a job, and return its message id; None: the topic remembers one with the key of this identity. Raises TooMany."""
    topic.admit_to_batch([body], identity, False)
    if identity.while_pending:
        return topic.publish_unless_pending(identity.key, lambda: topic.intake.put([body], options, identity))
    return None if topic.intake.admit(identity, 1) else topic.intake.put([body], options, identity)


def _first(tube: Tube, state: JobState) -> Job | None:
    """Return the next job of a tube in that state. Those whose time to live is over are finished."""
    if state is JobState.READY:
        return tube.next_ready()
    while (job := tube.table.first(state)) is not None and job.is_over(tube.agenda.wall):
        tube.end_life(job)
    return job
