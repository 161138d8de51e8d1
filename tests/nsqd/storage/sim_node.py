"""A node's core over the commit log on a simulated disk: opened, driven and lost as by nsqd/start/daemon.py and the reactor."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from nsqd.core.broker import Broker
from nsqd.core.limits import Limits
from nsqd.core.message.ids import IdSource
from nsqd.core.recovery import recover
from nsqd.core.sequence.mark import Promise
from nsqd.core.trace import Trace
from nsqd.core.work_queue.job import Job
from nsqd.core.work_queue.worker import Worker
from nsqd.storage.log.cache import Cache, ReadRequest
from nsqd.storage.log.checkpoint import Tail
from nsqd.storage.log.cleaner import Cleaner, RewriteJob
from nsqd.storage.log.clocks import Clocks
from nsqd.storage.log.opening import Extend, LogOptions, Simulated, open_log
from nsqd.storage.log.spare import Spare
from nsqd.storage.log.syncer import Syncer
from nsqd.storage.log.writer import SyncJob
from shared.topic_config import Durability
from tests.nsqd.core.client import Client
from tests.nsqd.core.node import SECOND, Inbox
from tests.nsqd.storage.sim_disk import SimDisk

NODE = 7
SYNC_EVERY = 5  # messages, in the mode `interval`


class Clock:
    """All clocks of a machine, and the time that it really is."""

    def __init__(self, now: int = 1000 * SECOND, wall: int = 1_800_000_000 * SECOND, boots: int = 1) -> None:
        """Of a machine that was just started, for the `boots`th time. `wall` is right."""
        self.now = now
        self.true = self.wall = wall
        self.boot, self.boots = 0, boots

    def advance(self, ns: int) -> None:
        """Let `ns` nanoseconds pass on all clocks."""
        self.now += ns
        self.wall += ns
        self.boot += ns
        self.true += ns

    def after(self, ns: int, now: int, rebooted: bool) -> "Clock":
        """Of the process that is started `ns` later."""
        clock = Clock(now, self.true + ns, self.boots + rebooted)
        clock.wall = self.wall + ns
        clock.boot = 0 if rebooted else self.boot + ns
        return clock

    def clocks(self) -> Clocks:
        return Clocks(lambda: self.now, lambda: self.wall, lambda: self.boot, b"%016d" % self.boots)


FOREVER = 1e9  # s: no sync takes longer


class SteppedSyncer(Syncer):
    """A Syncer whose thread is replaced by `step`, one system call at a time."""

    random: Random
    job: SyncJob | None = None
    steps: list[Callable[[], None]]

    def _sync(self, limit: float = 0.0) -> None:
        # not by how long it took: a seed replays exactly
        super()._sync(FOREVER if limit and self.random.random() < 0.5 else 0.0)

    def _hand_over(self, job: SyncJob) -> None:
        self.job, self.steps = job, [file.sync for file in job.files]
        if job.disk is not None:
            self.steps.append(job.disk.sync_directory)

    def _wait(self) -> None:
        while self.job is not None:
            self.step()

    def step(self) -> None:
        """The next system call, if there is one to be made."""
        if self.job is None:
            return
        error = None
        try:
            self.steps.pop(0)()
        except OSError as failure:
            error = failure
        if error is not None or not self.steps:
            self.done.append((self.job, 0.0, error))
            self.job = None


class SteppedCache(Cache):
    """A Cache whose reads happen one system call at a time, when the test steps it."""

    def _start(self, read: ReadRequest | None) -> None:
        if read is not None:
            self._jobs.put(read)

    def step(self) -> bool:
        """Do what was asked for first. False if there was nothing."""
        if self._jobs.empty():
            return False
        read = self._jobs.get()
        self._do(read)
        self.done.append(read)
        return True


class SteppedCleaner(Cleaner):
    """A Cleaner that cleans a segment in `step`."""

    waits: RewriteJob | None = None

    def _start(self, job: RewriteJob) -> None:
        self.waits = job

    def step(self) -> None:
        """Clean the segment that was chosen, if one was."""
        if self.waits is not None:
            job, self.waits = self.waits, None
            self._work(job)


class SteppedSpare(Spare):
    """A Spare that makes its file in `step`."""

    waits = False

    def _start(self) -> None:
        self.waits = True

    def step(self) -> None:
        """Make it, if it was asked for."""
        if self.waits:
            self.waits = False
            self._work()


class Sink:
    """The sink of a worker that waits for nothing."""

    def reserved(self, tube: str, job: Job, body: bytes) -> None: ...
    def read_completed(self) -> None: ...


def run_seeds(make: Callable[[int], Any], seeds: Iterable[int]) -> Iterator[Any]:
    """Make and run one run for each seed, and yield it. A failure names its seed."""
    for seed in seeds:
        run = make(seed)
        try:
            run.run()
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
        yield run


class SimNode:
    """See above. Raises LogError if the log cannot be opened."""

    def __init__(
        self,
        disk: SimDisk | None = None,
        durability: Durability = Durability.ALWAYS,
        clock: Clock | None = None,
        random: Random | None = None,
        limits: Limits | None = None,
        segment_size: int = 4096,
        budget: int = 1 << 30,
        tail_records: int = 1 << 30,
        tail_bytes: int = 1 << 40,
        trace: Trace | None = None,
        entropy: Callable[[int], bytes] = os.urandom,
        number: int | None = None,
        extend: Extend | None = None,
        first_id: int = 1,
        least_epoch: Callable[[], int] = lambda: 0,
        least_id: Callable[[], int] = lambda: 0,
    ) -> None:
        number = NODE if number is None else number  # tests replace NODE
        random = random or Random(1)
        self.clock = clock = clock or Clock()
        self.disk = disk = disk or SimDisk()
        self.woken = False  # another turn is wanted
        tail = Tail(tail_records, tail_bytes, tail_bytes)
        self.log = open_log(
            disk,
            LogOptions(number, durability, SYNC_EVERY, budget),
            self._wake,
            Simulated(
                clock.clocks(), segment_size, SteppedSyncer, SteppedCache, SteppedCleaner, SteppedSpare, tail, entropy
            ),
            extend,
            least_epoch=least_epoch,
        )
        self.end = self.log.writer.written.position  # where the log ended
        self.syncer, self.cache = self.log.syncer, self.log.cache
        self.syncer.random, self.store = random, self.log.store
        ids = IdSource(number, max(first_id, self.log.start_results.lease, least_id()), self.store.lease)
        limits = limits or Limits()
        limits = replace(limits, policy=replace(limits.policy, durability=durability))
        self.broker = Broker(limits, self.store, ids, random.randrange, trace)
        self.eager = False  # True: reads are done at once
        self.waiting: list[tuple[Sequence[Promise], Callable[[], None]]] = []  # replies, with what they wait for
        self.before_seal: Callable[[], None] = lambda: None
        self.before_commit: Callable[[], None] = lambda: None
        self.after_commit: Callable[[int], None] = lambda position: None  # the log's position after the group
        self.after_serve: Callable[[], None] = lambda: None
        self.broker.begin(clock.now, clock.wall)
        picture = self.log.take_snapshot()
        if picture is not None:
            recover(self.broker, picture, clock.now)
        self.broker.commit()
        self.log.serve(self.broker)
        self.cleaner, self.spare = self.log.tidying._cleaner, self.log.writer._spare

    def _wake(self) -> None:
        self.woken = True

    def publish(self, count: int = 1, topic: str = "t", body: bytes = b"x") -> None:
        """Publish `count` such messages to the topic, in a turn of their own."""
        self.turn(lambda: self.broker.topic(topic).publish([body] * count, len(body) * count))

    def subscribe(
        self, topic: str = "t", channel: str = "a", ready: int = 1000, timeout: int = 60 * SECOND
    ) -> tuple[Client, Inbox]:
        """Return a consumer of the channel, which is made if need be, and what it gets."""
        inbox = Inbox(1 << 30)
        consumer = Client(self.broker.topic(topic).channel(channel), inbox, timeout, 0)
        consumer.set_ready(ready)
        return consumer, inbox

    def worker(self) -> Worker:
        worker = Worker(Sink())
        self.broker.tubes.join(worker)
        return worker

    def checkpoint(self) -> None:
        self.log.checkpoints._begin()
        self.advance(0)

    @property
    def checkpoints(self) -> int:
        """Return the number of checkpoints written."""
        return self.log.checkpoints.written

    def turn(self, *commands: Callable[[], Callable[[], None] | None]) -> None:
        """A turn. A command may return a reply: it is called when it may leave."""
        self.woken = False
        self.broker.begin(self.clock.now, self.clock.wall)
        self.release()
        replies = [reply for reply in [command() for command in commands] if reply is not None]
        self.before_seal()
        self.broker.seal()
        self.broker.serve()
        self.after_serve()
        self.broker.tick()
        self.broker.serve()
        self.after_serve()
        self.before_commit()
        promises = self.broker.commit()
        self.after_commit(self.log.writer.written.position)
        self.waiting += [(promises, reply) for reply in replies]
        self.release()
        self.broker.fetch_changes()

    def release(self) -> None:
        """Send the replies whose promises are kept."""
        waiting, self.waiting = self.waiting, []
        for promises, reply in waiting:
            if all(promise.is_kept for promise in promises):
                reply()
            else:
                self.waiting.append((promises, reply))

    def advance(self, ns: int) -> None:
        """Let time pass, with a turn whenever something is due."""
        left = ns
        while True:
            while self.broker.agenda.awake or self.woken or (self.eager and self.cache.step()):
                self.turn()
            due = self.broker.scan.next_turn()
            step = left if due is None else max(0, min(left, due - self.clock.now))
            self.clock.advance(step)
            left -= step
            self.turn()
            if not left:
                return
