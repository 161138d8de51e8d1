"""Further requests of clients of a simulated cluster, besides publishing and consuming, in the runs that are wide.

Jobs are put, reserved, deleted, released and buried. A topic with a short retention is read back by a client with a cursor,
which holds what it has not read. Operators change the configurations of topics. What must hold:

* a job that was acknowledged is given to a worker until one deletes it, if it was buried, when it is kicked;
* messages acknowledged in the topic with the cursor were read, or can be read;
* all nodes agree on the configuration of each topic, it is not an older one than before, and promoted logs have it.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from nsqd.cluster.membership.topic_configs import VersionedConfig
from nsqd.cluster.promotion.promoted_log import ATTACHING
from nsqd.core.retention.cursors import Cursor
from nsqd.core.retention.history import MessagesGone
from nsqd.core.sequence.mark import Mark
from nsqd.core.sequence.put_batch import JobOptions
from nsqd.core.topic import Topic
from nsqd.core.work_queue.job import Job, JobState
from nsqd.core.work_queue.tube import Tube
from nsqd.core.work_queue.waiters import Reading
from nsqd.core.work_queue.worker import Worker
from nsqd.storage.log.history import LogHistory
from shared.topic_config import TopicConfig
from tests.nsqd.any_config import HARMLESS, any_config
from tests.nsqd.core.node import MS, SECOND
from tests.simulation.books import Publish, number_of

if TYPE_CHECKING:
    from tests.simulation.cluster import ClusterRun
    from tests.simulation.cluster_node import ClusterNode, Reply
    from tests.simulation.machine import Machine

JOBS, READ, SET = "jobs", "read", "set"  # topics; nothing is published into the last, which operators give any settings
CURSOR, HOLD = "reader", 1000 * 3600 * SECOND
RETENTIONS = (5 * SECOND, 3600 * SECOND)
WIDE_TOPICS = {JOBS: TopicConfig(), READ: TopicConfig(retention=RETENTIONS[0]), SET: TopicConfig()}
MOST_READ = 2000  # bytes that the client with the cursor reads at a time
MOST_RESERVED = 30  # jobs of one worker


class JobClient:
    """A client of beanstalkd at one node, with its worker. Implements nsqd.core.work_queue.worker.WorkerSink."""

    def __init__(self, node: ClusterNode) -> None:
        self.node = node
        # jobs that it was given and has not let go: their tubes, ordinals and bodies
        self.seen: list[tuple[Tube, int, bytes]] = []
        self.fresh: list[tuple[int, bytes, int]] = []  # ids, bodies and true times that the books do not have yet
        self._marks: set[Mark] = set()
        self._begin()

    def _begin(self) -> None:
        self._worker = worker = Worker(self)
        tubes = self.node.broker.tubes
        tubes.join(worker)
        tubes.watch(worker, JOBS)
        self.seen.clear()

    def leave(self) -> None:
        """Close the connection, and make another one: the jobs are ready again."""
        self.node.broker.tubes.leave(self._worker)
        self._begin()

    # WorkerSink: this one never waits for a job

    def reserved(self, job: Job, body: bytes) -> None: ...
    def read_completed(self) -> None: ...

    def wait_for(self, marks: tuple[Mark, ...]) -> None:
        self._marks.update(marks)

    def reserve(self, most: int, make: type[Reply]) -> Reply | None:
        """Reserve up to `most` jobs. Returns what is answered then; None: there is no job, or it must be read first."""
        node, worker = self.node, self._worker
        found: list[tuple[Tube, int, int, bytes]] = []
        at, self._marks = node.machine.run.now, set()
        while len(found) < most:
            try:
                given = node.broker.tubes.waiters.next_for(worker, node.clock.now)
            except Reading:
                break
            if given is None:
                break
            tube, job, body = given
            tube.reserve(job, worker, node.clock.now)
            found.append((tube, job.ordinal, job.id, body))
        if not found:
            return None

        def report() -> None:
            self.seen += [(tube, ordinal, body) for tube, ordinal, _, body in found]
            self.fresh += [(number, body, at) for _, _, number, body in found]

        return make(tuple(self._marks), report, self.leave)

    def held(self) -> list[tuple[Tube, Job, bytes]]:
        """Return the jobs that it has seen and that are still reserved for it, with their bodies."""
        # some were redelivered
        once = {(tube.key, ordinal): (tube, ordinal, body) for tube, ordinal, body in self.seen}
        jobs = [(tube, tube.jobs.get(ordinal), body) for tube, ordinal, body in once.values()]
        held = [one for one in jobs if one[1] is not None and one[0].reserved.get(one[1].ordinal) is self._worker]
        self.seen = [(tube, job.ordinal, body) for tube, job, body in held]
        return held

    def kick_all(self) -> None:
        """Make all jobs that are buried or delayed ready."""
        for tube in self.node.broker.tubes.everywhere(JOBS):
            for job in tube.table.first_buried(1 << 20):
                tube.kick(job)
            while (delayed := tube.table.head(JobState.DELAYED)) is not None:
                tube.kick(delayed)


class Wide:
    def __init__(self, run: ClusterRun, random: Random) -> None:
        self._run, self._random = run, random
        self.is_on = random.random() < 0.4
        self.topics = WIDE_TOPICS if self.is_on else {}
        self._read: set[int] = set()  # numbers of the publishes that the client with the cursor has read
        self._agreed: dict[str, VersionedConfig] = {}  # the configurations on which all nodes agreed last

    def prepare(self, node: ClusterNode) -> None:
        if self.is_on:
            node.broker.tubes.made(JOBS)
            topic = node.broker.topics[READ]
            if CURSOR not in topic.cursors:
                topic.set_cursor(CURSOR, Cursor(0, hold=HOLD))
            node.jobs = JobClient(node)

    def options(self, now: int) -> JobOptions:
        """Return options for a job that is put at `now`, monotonic ns."""
        random = self._random
        delay = random.choice((0, 0, 0, 1))
        return JobOptions(
            random.choice((0, 5, 2000)), random.choice((1, 30)), delay, now + delay * SECOND if delay else 0, True
        )

    def act(self, machine: Machine, node: ClusterNode) -> Reply | None:
        from tests.simulation.cluster_node import Reply

        random, run = self._random, self._run
        deed = random.random()
        if deed < 0.35:
            return run.publish(machine, node, random.choice((JOBS, JOBS, READ)), random.choice((1, 1, 2, 2, 3)))
        if deed < 0.6 and node.jobs is not None and len(node.jobs.seen) < MOST_RESERVED:
            return node.jobs.reserve(random.choice((1, 3, 10)), Reply)
        if deed < 0.8 and node.jobs is not None:
            self._act_on_job(node, node.jobs)
        elif deed < 0.93:
            self._read_on(node)
        elif deed < 0.96:
            self._configure(node)
        return None

    def _act_on_job(self, node: ClusterNode, client: JobClient) -> None:
        random, held = self._random, client.held()
        if not held:
            return
        tube, job, body = random.choice(held)
        deed = random.choice(("delete", "delete", "delete", "release", "bury", "touch", "kick", "leave"))
        self._run.books.counts[f"jobs: {deed}"] += 1
        if deed == "delete":
            self.finish(node, tube, job, body)
        elif deed == "release":
            tube.hand_back(job, random.choice((1, 7)), random.choice((0, 2)), node.clock.now)
        elif deed == "bury":
            tube.bury(job, 3)
        elif deed == "touch":
            tube.touch(job, client._worker, node.clock.now)
        elif deed == "kick":
            client.kick_all()
        else:
            client.leave()

    def finish(self, node: ClusterNode, tube: Tube, job: Job, body: bytes) -> None:
        run = self._run
        publish = run.books.publishes[number_of(body)]
        publish.finished = True
        tube.finish(job)
        if publish.done is None:
            publish.done = run.now, node.machine.name

    def note_fresh(self, node: ClusterNode) -> None:
        if node.jobs is None:
            return
        for number, body, at in node.jobs.fresh:
            publish = self._run.books.given(b"%016x" % number, body, node.machine.name, at)
            assert publish.topic == JOBS, f"given as a job: {publish}"
        node.jobs.fresh.clear()

    def drain(self, node: ClusterNode) -> list[Callable[[], Reply | None]]:
        """Return the commands by which a worker reserves all jobs of a node, buried ones included."""
        from tests.simulation.cluster_node import Reply

        client = node.jobs
        if client is None:
            return []

        def reserve() -> Reply | None:
            client.kick_all()
            return client.reserve(1 << 20, Reply)

        return [reserve]

    def held(self, node: ClusterNode) -> set[int]:
        """Return the numbers of the publishes whose jobs a worker has reserved at a node."""
        return {number_of(body) for _, _, body in node.jobs.held()} if node.jobs is not None else set()

    def finish_part(self, node: ClusterNode, part: float) -> None:
        for tube, job, body in node.jobs.held() if node.jobs is not None else ():
            if self._random.random() < part:
                self.finish(node, tube, job, body)

    def _logs(self, node: ClusterNode) -> list[tuple[Topic, LogHistory]]:
        """Return the topic with the cursor in each log that a node serves, with what reads it back."""
        logs = [(node.broker, node.log)]
        promoted = node.promoted.promotions.logs.values()
        attached = [one for one in promoted if one.broker in node.broker.logs and one.state != ATTACHING]
        logs += [(one.broker, one.log) for one in attached if one.log is not None]
        return [(broker.topics[READ], log.history()) for broker, log in logs if READ in broker.topics]

    def _read_on(self, node: ClusterNode) -> None:
        """Read a part of a log from the cursor on, and advance the cursor past it."""
        topic, history = self._random.choice(self._logs(node))
        cursor = topic.cursors.get(CURSOR)
        window = history.window(topic.number)
        start = max(cursor.offset if cursor is not None else 0, window.first)
        try:
            found, end = self._read_part(history, topic.number, start, window.next)
        except (MessagesGone, OSError):
            return
        self._read |= found
        if self._run.has_damage(node.machine) and len(found) < end - start:
            return  # X-Nsq-Missing: the client reads again before it continues
        if end > start:
            topic.set_cursor(CURSOR, Cursor(end, hold=HOLD))

    def _read_part(self, history: LogHistory, topic: int, start: int, end: int) -> tuple[set[int], int]:
        """Return the numbers of the publishes in a part of a topic, and where it ends. Raises MessagesGone, OSError."""
        if start >= end:
            return set(), start
        batches, behind = history.plan(topic, start, end, MOST_READ).read()
        return {number_of(frame[34:]) for batch in batches for _, frame in batch.messages()}, behind

    def readable(self, node: ClusterNode) -> set[int]:
        """Return the numbers of all publishes that can be read back at a node."""
        found: set[int] = set()
        for topic, history in self._logs(node) if self.is_on else ():
            window = history.window(topic.number)
            at = window.first
            while at < window.next:
                part, behind = self._read_part(history, topic.number, at, window.next)
                found |= part
                at = max(behind, at + 1)
        return found

    def lost_to_readers(self, readable: set[int]) -> list[Publish]:
        """Return the publishes that were acknowledged and can neither be read back nor were read."""
        books = self._run.books
        unread = [one for one in books.publishes if one.topic == READ and one.number not in readable | self._read]
        return [one for one in unread if one.acked and len(books.lost_by(one)) < max(1, one.n)]

    def _configure(self, node: ClusterNode) -> None:
        random = self._random
        name = random.choice(("two", READ, SET))
        topic = node.broker.topics[name]
        if name == READ:
            config = TopicConfig(retention=random.choice(RETENTIONS))
        elif name == SET:
            config = any_config(random, HARMLESS)
        else:
            config = TopicConfig(replicate=min(random.choice((1, 2, 2, 3)), 1 + node.sizes.replicas))  # as HTTP has it
        topic.configure(config)
        node.cluster.configs.configure(name, config, node.clock.wall // MS, node.number)
        self._run.books.counts["configurations"] += 1

    def allow_copies(self, node: ClusterNode, most: int) -> None:
        """Let topics ask for no more copies than there can be, now that nodes have left: otherwise they deliver nothing."""
        topic = node.broker.topics.get("two")
        if self.is_on and topic is not None and (topic.config.replicate or 1) > most:
            config = TopicConfig(replicate=most)
            topic.configure(config)
            node.cluster.configs.configure("two", config, node.clock.wall // MS, node.number)

    def judge_configs(self, nodes: list[ClusterNode]) -> None:
        """Assert that all nodes agree on the configurations of topics, and that all logs have them."""
        first = nodes[0].cluster.configs.known
        for node in nodes:
            assert node.cluster.configs.known == first, "nodes do not agree on the configurations of topics"
            for broker in node.broker.logs:
                for word in first.values():
                    topic, config = broker.topics.get(word.topic), word.config
                    is_so = topic is None or topic.config == config
                    assert is_so, f"a log does not have the configuration {word}: {topic}"
        older = [word for name, word in self._agreed.items() if name not in first or first[name].version < word.version]
        assert not older, f"nodes have forgotten {older}"
        self._agreed = dict(first)
