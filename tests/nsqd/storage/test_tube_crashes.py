"""Jobs over crashes: random clients of beanstalkd and of NSQ, small segments, checkpoints, cleaning; and what must be there.

A kill loses nothing that was written: every job is as it was, but that reservations are over. A power cut may end the log
earlier, but at no place that was promised; where it ends with a group all is as it was then.
"""

from functools import partial
from random import Random

import pytest

from nsqd.core.limits import Limits
from nsqd.core.message import ids
from nsqd.core.retention.policy import Durability
from nsqd.core.sequence.put_batch import JobOptions
from nsqd.core.story import Story
from nsqd.core.work_queue.job import Job, JobState
from nsqd.core.work_queue.tube import Tube
from nsqd.core.work_queue.waiters import Reading
from nsqd.core.work_queue.worker import Worker
from nsqd.storage.log import checkpoint, tidying
from tests.effort import seeds
from tests.nsqd.core.client import Client as Subscriber
from tests.nsqd.core.node import MS, SECOND, Inbox
from tests.nsqd.storage.sim_disk import PowerCut, SimDisk
from tests.nsqd.storage.sim_node import Clock, SimNode
from tests.nsqd.storage.stories import told_of

SEEDS = seeds(3)
NAMES = ("default", "a", "b/c")
Seen = tuple[object, ...]
World = dict[str, tuple[dict[int, Seen], list[int]]]


def told(job: Job, clock: Clock) -> Seen:
    reserved = job.state is JobState.RESERVED
    due = job.due - clock.now + clock.true if job.state is JobState.DELAYED else 0
    counts = job.reserves, job.timeouts, job.releases, job.buries, job.kicks
    return job.priority, job.delay, job.ttr, job.created, JobState.READY if reserved else job.state, due, counts


def look(node: SimNode) -> World:
    """All jobs by tube and id, and the order of the buried ones."""
    world: World = {}
    for name, topic in node.broker.topics.items():
        tube = node.broker.tubes.tube(topic.name)
        if tube is not None:
            buried = [job.id for job in tube.table.first_buried(1 << 30)]
            world[name] = {job.id: told(job, node.clock) for job in tube.jobs}, buried
    return world


class Client:
    def __init__(self, node: SimNode) -> None:
        self.worker = Worker(self)
        self.bodies: dict[int, bytes] = {}
        node.broker.tubes.join(self.worker)

    def reserved(self, tube: str, job: Job, body: bytes) -> None:
        self.bodies[job.id] = body

    def read_completed(self) -> None:
        pass


class Reader:
    """Somebody who looks at a job."""

    def __init__(self, node: SimNode, tube: Tube, job: Job) -> None:
        self.body: bytes | None = None
        self._node, self._tube, self._job = node, tube, job
        self._worker = Worker(self)
        self.read_completed()

    def reserved(self, tube: str, job: Job, body: bytes) -> None:
        raise AssertionError("it has not asked")

    def read_completed(self) -> None:
        self.waits = True
        try:
            self.body = self._tube.body(self._job)
            self.waits = False
        except Reading as reading:
            self._node.broker.tubes.waiters.block(self._worker, reading.queue)


class Run:
    """One run of a node through several lives, with its workers."""

    def __init__(self, seed: int, durability: Durability) -> None:
        self.random = Random(seed)
        self.durability = durability
        self.clock = Clock()
        random = self.random
        self.disk = SimDisk(random, random.choice((512, 4096)))
        self.disk.cached = random.choice((0, 0.5, 1))
        self.sizes = random.choice((2000, 10_000)), random.choice((0, 2000, 1 << 30))
        self.tail = random.choice((10, 50, 1 << 30)), random.choice((1000, 20_000, 1 << 40))
        self.slice = random.choice((0, 1000 * SECOND))
        self.bodies: dict[int, bytes] = {}  # by id, of what was put or seen
        self.gone: set[int] = set()  # ids of jobs that were deleted
        self.places: dict[tuple[int, int], int] = {}  # ids of jobs by topic and ordinal
        self.worlds: dict[int, tuple[World, frozenset[int]]] = {}  # and those, by the position of the log
        self.safe = self.written = 0
        self.story = Story(keeps_bodies=True)

    def run(self) -> None:
        before = ids.LEASE, checkpoint.SLICE, tidying.SLICE
        ids.LEASE, checkpoint.SLICE, tidying.SLICE = 64, self.slice, self.slice
        try:
            with told_of(self.story):
                for _ in range(4):
                    self._live()
        finally:
            ids.LEASE, checkpoint.SLICE, tidying.SLICE = before

    def _open(self, disk: SimDisk) -> SimNode:
        return SimNode(disk, self.durability, self.clock, self.random, Limits(), *self.sizes, *self.tail, self.story)

    def _live(self) -> None:
        random, self.node = self.random, self._open(self.disk)
        self.node.after_commit = self._committed
        clients = [Client(self.node) for _ in range(3)]
        self.disk.cut_in = random.randrange(200) if random.random() < 0.4 else None
        self.disk.cut_write_in = random.randrange(100) if random.random() < 0.4 else None
        try:
            for _ in range(random.choice((3, 30, 150))):
                self._step(clients)
        except PowerCut:
            pass
        self._crash()

    def _committed(self, position: int) -> None:
        self.worlds[position] = look(self.node), frozenset(self.gone)
        self.written = position

    def _step(self, clients: list[Client]) -> None:
        random, node = self.random, self.node
        client = random.choice(clients)
        deeds = (
            [self._put] * 4
            + [self._reserve] * 3
            + [self._act] * 4
            + [self._use, self._kick, self._nsq, self._pause]
            + [self._empty]
        )
        node.turn(*[partial(random.choice(deeds), client) for _ in range(random.choice((0, 1, 3)))])
        if random.random() < 0.2:
            node.advance(random.choice((1, 300, 2500)) * MS)
        for step, share in (
            (node.syncer.step, 0.8),
            (node.cache.step, 0.7),
            (node.cleaner.step, 0.3),
            (node.spare.step, 0.3),
        ):
            if random.random() < share:
                step()
        node.broker.check()
        node.broker.tubes.check()

    def _put(self, client: Client) -> None:
        random, now, broker = self.random, self.node.clock.now, self.node.broker
        broker.tubes.made(client.worker.using)
        topic = broker.topics[client.worker.using]
        first, jobs = topic.offsets.end, []
        for _ in range(random.choice((1, 1, 5))):
            bodies = [b"x" * random.choice((0, 5, 300)) for _ in range(random.choice((1, 1, 3)))]
            delay = random.choice((0, 0, 0, 1, 90))
            options = JobOptions(
                random.choice((0, 5, 2000)), random.choice((1, 30)), delay, now + delay * SECOND if delay else 0, True
            )
            number = broker.tubes.put(client.worker, bodies, options)
            self.bodies.update(enumerate(bodies, number))
            jobs += range(number, number + len(bodies))
        broker.seal_puts()
        self.places.update(((topic.number, ordinal), job) for ordinal, job in enumerate(jobs, first))

    def _reserve(self, client: Client) -> None:
        tubes = self.node.broker.tubes
        try:
            found = tubes.waiters.next_for(client.worker, self.node.clock.now)
        except Reading:
            return
        if found is not None:
            tube, job, body = found
            assert self.bodies.setdefault(job.id, body) == body
            tube.reserve(job, client.worker, self.node.clock.now)

    def _act(self, client: Client) -> None:
        random, now = self.random, self.node.clock.now
        if not client.worker.holds:
            self._reserve(client)
            return
        number, ordinal = random.choice(list(client.worker.holds))
        tubes = list(self.node.broker.tubes.waiters.queues.values())
        (tube,) = [tube for tube in tubes if tube.number == number]
        job = tube.jobs.get(ordinal)
        deed = random.randrange(5)
        if deed == 0:
            tube.hand_back(job, random.choice((1, 7)), random.choice((0, 2, 100)), now)
        elif deed == 1:
            tube.bury(job, 3)
        elif deed == 2:
            tube.touch(job, client.worker, now)
        else:
            name = tube.topic_name
            tube.finish(job)
            self.gone.add(job.id)
            self.node.broker.tubes.leave_empty(name)

    def _use(self, client: Client) -> None:
        name, tubes = self.random.choice(NAMES), self.node.broker.tubes
        self.random.choice((tubes.use, tubes.watch))(client.worker, name)

    def _kick(self, client: Client) -> None:
        tube = self.node.broker.tubes.tube(client.worker.using)
        jobs = [*tube.table.first_buried(2), tube.table.head(JobState.DELAYED)] if tube is not None else []
        for job in jobs:
            if job is not None and tube is not None:
                tube.kick(job)

    def _nsq(self, client: Client) -> None:
        """A client of NSQ publishes to a topic, maybe of a tube, or subscribes to it."""
        random, topic = self.random, self.node.broker.topic("a")
        if random.random() < 0.2:
            channel = topic.channel("c")
            Subscriber(channel, Inbox(), SECOND, 0).set_ready(5)
            return
        bodies = [b"nsq" * random.choice((1, 100))] * random.choice((1, 20))
        if random.random() < 0.2:
            topic.publish_deferred(bodies[0], self.node.clock.now + random.choice((1, 90)) * SECOND)
        else:
            topic.publish(bodies, sum(map(len, bodies)))

    def _pause(self, client: Client) -> None:
        """Nothing of a topic is handed out for a while."""
        topic = self.node.broker.topics.get(self.random.choice(NAMES))
        if topic is not None:
            self.node.broker.pause(topic, not topic.paused)

    def _empty(self, client: Client) -> None:
        """What a topic has handed out to none is dropped."""
        topic = self.node.broker.topics.get(self.random.choice(NAMES))
        if topic is not None and self.random.random() < 0.3:
            self.gone.update(
                self.places[topic.number, ordinal]
                for ordinal in range(topic.offsets.distributed, topic.offsets.end)
                if (topic.number, ordinal) in self.places
            )
            topic.empty()

    def _crash(self) -> None:
        random = self.random
        self.safe = max(self.safe, self.node.log.writer.durable.position)
        cut = random.random() < 0.6
        self.disk = self.disk.crash(random) if cut else self.disk.kill()
        self.clock = self.clock.after(random.choice((0, 1, 300)) * MS, random.choice((5, 10**6)) * SECOND, rebooted=cut)
        node = self._open(self.disk.kill())
        assert not node.log.start_results.damage.spots
        assert node.end >= (self.safe if cut else self.written)
        node.broker.check()
        node.broker.tubes.check()
        while node.cache.step():  # what was handed out and was no job yet is read first
            node.turn()
        if node.end in self.worlds:
            world, self.gone = self.worlds[node.end][0], set(self.worlds[node.end][1])
            self._compare(node, world)
        self._drain(node)
        self.gone -= {job.id for tube in node.broker.tubes.waiters.queues.values() for job in tube.jobs}
        self.worlds, self.written = {}, node.end

    def _compare(self, node: SimNode, before: World) -> None:
        """What was not read from disk yet may have become jobs meanwhile."""
        seen, now = look(node), node.clock.true
        for name, (jobs, buried) in before.items():
            there, graves = seen.get(name, ({}, []))
            assert graves == buried, f"{name}: buried {graves}, which were {buried}"
            for number, job in jobs.items():
                assert number in there, f"{name}: job {number} is lost: {job}"
                *rest, state, due, counts = job
                if state is JobState.DELAYED and isinstance(due, int) and due <= now:
                    state, due = JobState.READY, 0
                found = there[number]
                assert found[:5] == (*rest, state), f"{name}: job {number} is {found}, and was {job}"
                assert found[6] == counts, f"{name}: job {number} is {found}, and was {job}"
                assert abs(int(str(found[5])) - int(str(due))) < 1_000_000_000 if due else not found[5]
            for number in there.keys() - jobs.keys():
                assert there[number][6] == (0, 0, 0, 0, 0), f"{name}: job {number} came back: {there[number]}"
                assert number not in self.gone, f"{name}: job {number} came back"

    def _drain(self, node: SimNode) -> None:
        """Every job is there with its body, once, in the right order."""
        node.turn()
        for name, topic in list(node.broker.topics.items()):
            tube: Tube | None = node.broker.tubes.tube(topic.name)
            if tube is None:
                continue
            node.broker.pause(topic, False)
            node.turn()
            while tube.arrivals.position < topic.offsets.distributed:  # what is no job yet becomes one
                node.cache.step()
                node.turn()
            for job in list(tube.jobs):
                reader = Reader(node, tube, job)
                while reader.waits:
                    assert node.cache.step(), f"{name}: nobody reads {job}"
                    node.turn()
                assert reader.body is not None, f"{name}: the body of {job} is gone"
                assert self.bodies.setdefault(job.id, reader.body) == reader.body, f"{name}: {job} has another body"
        node.broker.check()
        node.broker.tubes.check()


@pytest.mark.long
@pytest.mark.parametrize("durability", list(Durability))
def test_jobs_survive(durability: Durability) -> None:
    for seed in SEEDS:
        try:
            Run(seed, durability).run()
        except Exception as error:
            raise AssertionError(f"seed {seed}, {durability.value}: {error}") from error
