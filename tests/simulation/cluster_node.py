"""A whole node of a simulated cluster: broker, log, its side of the cluster, and clients that publish and consume.

It is wired as nsqd/start/clustering.py does it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from nsqd.cluster.departure import Departure
from nsqd.cluster.joining import CopyGate
from nsqd.cluster.membership.cluster import TICK, Cluster
from nsqd.cluster.membership.cluster_json import facts_of
from nsqd.cluster.membership.facts import ClusterFacts
from nsqd.cluster.membership.leaders import Vote
from nsqd.cluster.ownership.cases import Cases, Quorum
from nsqd.cluster.ownership.closed_logs import ClosedLogs
from nsqd.cluster.ownership.elections import Elections
from nsqd.cluster.ownership.leaving import Leaving, LeavingState, Transfers
from nsqd.cluster.ownership.replica_states import InSyncReports, KeptReplicas
from nsqd.cluster.promotion.closing import Closing
from nsqd.cluster.promotion.deleting import Deleting
from nsqd.cluster.promotion.diverged.arbiter import Arbiter
from nsqd.cluster.promotion.diverged.salvage import Salvage
from nsqd.cluster.promotion.promoted_log import SERVING
from nsqd.cluster.replication.copying import Copying
from nsqd.cluster.replication.leader import LeaderSide
from nsqd.cluster.replication.replicas import Replicas
from nsqd.cluster.wire.frames import FrameKind
from nsqd.cluster.wire.handshake import Credentials
from nsqd.cluster.wire.link import Link
from nsqd.cluster.wire.node_identity import NodeIdentity
from nsqd.cluster.wire.part import Part
from nsqd.core.channel.channel import Channel
from nsqd.core.limits import Limits, TooFewCopies
from nsqd.core.message.epoch import Epoch
from nsqd.core.sequence.mark import Mark, Promise
from nsqd.core.topic import Topic
from nsqd.storage.log.checkpoint import Tail
from nsqd.storage.log.copying import LogSource
from nsqd.storage.log.opening import Extend, Simulated
from nsqd.storage.log.space import reserve_of
from nsqd.tasks.batch_task import BatchTask
from nsqd.tasks.schedule_task import ScheduleTask
from shared.topic_config import Durability, TopicConfig
from tests.nsqd.cluster.replication.archive import Archive
from tests.nsqd.core.client import Client
from tests.nsqd.core.node import MS, SECOND
from tests.nsqd.storage.sim_disk import PowerCut, SimDisk
from tests.nsqd.storage.sim_node import Clock, SimNode, SteppedCache, SteppedCleaner, SteppedSpare, SteppedSyncer
from tests.simulation.books import Publish
from tests.simulation.diverged import SimDiverged
from tests.simulation.job_node import JobNode
from tests.simulation.promoted import PromotedLogs, SimOldLogs, step_threads
from tests.simulation.repairing import SimRepair
from tests.simulation.wide import JOBS, JobClient

if TYPE_CHECKING:
    from tests.simulation.machine import Machine, SimDirectory

T = TypeVar("T")
# Each mode has a topic; `two` asks for two copies by itself. All have one channel.
TOPICS = {mode.value: TopicConfig(mode) for mode in Durability} | {"two": TopicConfig(replicate=2)}
CHANNEL = "work"
SECRET = b"the secret of this cluster"
SUSPECT_AFTER = 3 * SECOND
PATIENCE = 2 * SECOND  # of replies that wait for copies


class Sizes:
    """The choices of a run for all its nodes."""

    def __init__(self, random: Random, nodes: int) -> None:
        self.segment = random.choice((500, 2000, 10_000))
        self.tail = random.choice((20, 50, 1 << 30)), random.choice((5000, 20_000))
        self.budget = random.choice((2000, 1 << 30))
        self.durability = random.choice(list(Durability))
        self.limits = Limits(mem_queue_size=random.choice((0, 2, 1000)), requeue_on_disconnect=True)
        self.replicas = random.choice((1, 2, 2, min(3, nodes - 1)))
        self.replace_after = random.choice((3, 10, 60)) * SECOND
        self.rate = random.choice((0, 0, 20_000))  # bytes a second for followers that are far behind
        self.quorum, self.unclean_after = Quorum.NONE, 20 * SECOND
        self.timer, self.is_punctual = SECOND // 2, False  # between ticks of a log's timer

    def simulated(self, clock: Clock, random: Random) -> Simulated:
        tail = Tail(*self.tail, self.tail[1])
        return Simulated(
            clock.clocks(), self.segment, SteppedSyncer, SteppedCache, SteppedCleaner, SteppedSpare, tail, random.randbytes,
        )  # fmt: skip


class FactsFile:
    """cluster.json of a node: written elsewhere, which takes a while. Callers are notified a moment later."""

    def __init__(self, node: ClusterNode, random: Random) -> None:
        self._node, self._random = node, random
        self.written: Callable[[ClusterFacts], None] = lambda facts: None
        # known when a caller asked to keep it, so others may be notified of it
        self.voted: dict[bytes, Vote] = {}
        self._waiting: list[Callable[[bool], None]] = []
        self._writing: tuple[ClusterFacts, list[Callable[[bool], None]]] | None = None
        self._due = 0  # monotonic ns
        self._is_written = False

    def keep(self, then: Callable[[bool], None]) -> None:
        """Write what is known now, and call `then` when it is durable."""
        known = dict(self._node.cluster.leaders.votes)

        def settled(is_kept: bool) -> None:
            self.voted |= known
            then(is_kept)

        self._waiting.append(settled)

    @property
    def is_busy(self) -> bool:
        return bool(self._waiting) or self._writing is not None

    def step(self) -> None:
        """Do the next step: begin to write, write, or notify callers. A crash may come between."""
        now = self._node.clock.now
        if self._writing is None and self._waiting:
            self._writing, self._waiting = (self._node.facts(), self._waiting), []
            self._due, self._is_written = now + self._random.choice((0, 5, 200)) * MS, False
        if self._writing is None or now < self._due:
            return
        facts, waiting = self._writing
        if not self._is_written:
            self.written(facts)
            self._due, self._is_written = now + self._random.choice((0, 0, 50)) * MS, True
            return
        self._writing = None
        for then in waiting:
            then(True)


class TimedWork:
    """Work that takes as long as the disk needs. Implements nsqd.cluster.replication.follower.Work."""

    def __init__(self, random: Random, clock: Clock) -> None:
        self._random, self._clock = random, clock
        self._waiting: list[tuple[int, Callable[[], Callable[[], None]]]] = []  # (when it is done, work)
        self.duration = 0  # ns

    def run(self, work: Callable[[], T], done: Callable[[T | OSError], None]) -> None:
        def finish() -> Callable[[], None]:
            result: T | OSError
            try:
                result = work()
            except OSError as error:
                result = error
            return lambda: done(result)

        self._waiting.append((self._clock.now + self.duration, finish))

    def step(self) -> bool:
        """Carry out one step that is due, and report its result. Returns False if there is none."""
        due = [one for one in self._waiting if one[0] <= self._clock.now]
        if not due:
            return False
        one = self._random.choice(due)
        self._waiting.remove(one)
        one[1]()()
        return True


class Reply:
    def __init__(self, marks: Sequence[Mark], report: Callable[[], None], give_up: Callable[[], None]) -> None:
        self.marks, self.report, self.give_up = tuple(marks), report, give_up


class Consumer:
    """A consumer of one channel, and its connection: what it is handed is seen when its copies exist."""

    def __init__(self, node: ClusterNode, channel: Channel, ready: int) -> None:
        self.node, self.gone = node, False
        self.channel = channel
        self.held: list[bytes] = []  # frames of this turn
        self.marks: set[Mark] = set()  # for which they wait
        self.seen: list[bytes] = []  # frames that the client has read
        # those of them that the books do not have yet, with the time at which they were handed over, true ns
        self.fresh: list[tuple[bytes, int]] = []
        self.client = Client(channel, self, node.random.choice((300 * MS, 20 * SECOND)), 0)
        self.client.set_ready(ready)

    def deliver(self, frames: list[bytes], size: int, now: int) -> None:
        gate = self.channel.offsets.gate
        if gate is not None:
            self.marks.update(gate.pass_through())
        self.node.machine.run.governed.handed_over(self.channel.topic_name, frames, self.node.broker.wall)
        self.held += frames

    def room(self) -> int:
        return 1 << 20

    def flush(self) -> None: ...

    def evicted(self) -> None:
        self.gone = True

    def take_reply(self) -> Reply | None:
        """Return the bytes that the connection sends in this turn."""
        frames, self.held, marks, self.marks = self.held, [], self.marks, set()
        at = self.node.machine.run.now
        if not frames:
            return None

        def see() -> None:
            self.seen += frames
            self.fresh += [(frame, at) for frame in frames]

        def break_off() -> None:
            if not self.gone:
                self.gone = True
                self.client.leave(self.node.broker)

        return Reply(tuple(marks), see, break_off)


class _WatchedCopying(Copying):
    """Copying that notes how far each follower has ever said that it has the node's own log: written, and durable."""

    def __init__(self, own: bytes, replicas: Replicas, reported: dict[int, tuple[int, int]]) -> None:
        super().__init__(own, replicas)
        self._reported = reported

    def receive(self, link: Link, kind: FrameKind, content: bytes, now: int) -> None:
        super().receive(link, kind, content, now)
        for number, one in self.leader_side.followers.items() if kind is FrameKind.COPIED else ():
            if one.has_replica:
                known = self._reported.get(number, (0, 0))
                self._reported[number] = max(known[0], one.written), max(known[1], one.durable)


class ClusterNode(SimNode):
    """See above. Raises LogError if the log cannot be opened."""

    def __init__(
        self,
        number: int,
        disk: SimDisk,
        clock: Clock,
        random: Random,
        sizes: Sizes,
        extend: Extend | None,
        first_id: int,
        archive: Archive,
        least_epoch: Callable[[], int],
        least_id: Callable[[], int],
    ) -> None:
        self.random, self.sizes = random, sizes
        self.replies: list[tuple[list[Promise], Reply]] = []
        self.consumers: list[Consumer] = []
        self.jobs: JobClient | None = None  # in a wide run
        self.jobs_part: JobNode | None = None  # in a run with clients of Disque
        self.tasks: tuple[ScheduleTask, BatchTask] | None = None  # in a run with schedules and batches
        self.tasks_due = 0  # true ns
        self.sent: list[Reply] = []  # replies to tasks about what the next turn publishes
        self.flush: Callable[[], None] = lambda: None  # lets the network take what the links have
        super().__init__(
            disk, sizes.durability, clock, random, sizes.limits, sizes.segment, sizes.budget, *sizes.tail,
            entropy=random.randbytes, number=number, extend=extend, first_id=first_id,
            least_epoch=least_epoch, least_id=least_id,
        )  # fmt: skip
        archive.opened(self)
        self.archive = archive
        self.number = number
        self._timer_due = self._tick_due = self._sync_due = 0
        self.sync_takes = 0  # ns for each step of a sync of the node's own log
        self.unwritten: list[Publish] = []  # of this turn, and of those whose group has no space
        self.group_end = 0  # the log's end after the last group, before the upkeep writes anything
        # by node, how far it has ever said that it has the log
        self.reported_positions: dict[int, tuple[int, int]] = {}

    def join(
        self, own: NodeIdentity, seeds: Iterable[str], facts: ClusterFacts, directory: SimDirectory, machine: Machine
    ) -> None:
        """Begin this run's part in the cluster."""
        log, clock, sizes = self.log, self.clock, self.sizes
        self.machine = machine
        self.began = machine.run.now  # true ns
        self.work = TimedWork(self.random, clock)
        credentials = Credentials("c", SECRET, own)
        side = machine.run.side
        self.cluster = cluster = Cluster(credentials, seeds, SUSPECT_AFTER, self.random.randbytes, facts, clock.now)
        self.source = LogSource(log.disk, log.writer, log.syncer, log.tidying)
        log.writer.files.repair = SimRepair(machine, log)
        copies = log.store.copies
        copies.is_paused = lambda: self.broker.agenda.stood_still_at > 0
        self.leader_side = LeaderSide(
            cluster, self.source, copies, self.work, sizes.replicas, sizes.replace_after, sizes.rate
        )
        self.archive.after = self.leader_side.sender
        self.source.tap(self.archive)
        self.replicas = Replicas(directory, self.work, lambda: clock.now, cluster.may_write_replica)
        self.replicas.open_all()
        self.copying = _WatchedCopying(own.log_id, self.replicas, self.reported_positions)
        self.copying.add(self.leader_side)
        cluster.add(self.copying)
        log.store.after_write = self._copied_group
        copies.patience = PATIENCE
        cluster.add(CopyGate(cluster, self.broker, copies))
        self.facts_file = FactsFile(self, side)
        self.facts_file.written, self.facts_file.voted = machine.keep_facts, machine.voted
        keep = self.facts_file.keep
        kept, witnesses = KeptReplicas(self.copying, lambda: clock.now), partial(machine.run.lookups.ask, machine, self)
        cases = Cases(cluster, kept, keep, sizes.quorum, SUSPECT_AFTER, sizes.unclean_after, clock.now)
        self.elections = elections = Elections(cases, witnesses, side.randbytes)
        cluster.add(
            self._watch(), Transfers(cluster, elections), InSyncReports(cluster, elections, self.copying), elections
        )
        self.fence: tuple[bytes, Epoch] | None = None  # another node leads the log, by that epoch
        self.promoted = PromotedLogs(self, machine)
        promotions = self.promoted.promotions
        ended = lambda: machine.run.departures.ended(machine, self.leaving.state is LeavingState.LEFT)  # noqa: E731
        closed, writer = ClosedLogs(cluster, keep), log.writer
        self.salvage = Salvage(
            cluster, self.copying, promotions, Arbiter(cluster, self.copying.leader_sides, keep, lambda: clock.now),
            SimDiverged(machine), self.work, lambda: clock.now, sizes.unclean_after,
        )  # fmt: skip
        hold = partial(self.broker.drain, True)
        departure = Departure(self.broker, log, self.copying, promotions, self.salvage, hold, ended)
        self.leaving = Leaving(cluster, keep, elections, departure)
        machine.run.jobs.join(self)
        own_end = lambda: writer.written.position  # noqa: E731
        closing = Closing(
            cluster, closed, promotions, self.copying, SimOldLogs(machine), self.work, own_end, self.salvage.is_agreed
        )
        cluster.add(promotions, Deleting(cluster, promotions, self.broker), closed, closing, self.salvage, self.leaving)

    def led(self) -> list[dict[str, Any]]:
        own = {"node": self.number, "state": SERVING, **self.leader_side.led()}
        begun = {log_id.hex(): leader_side.led() for log_id, leader_side in self.copying.leader_sides.items()}
        promoted = self.promoted.promotions.figures()
        return [own, *({"epochs": [], "end": 0} | begun.get(str(one["log_id"]), {}) | one for one in promoted)]

    def _watch(self) -> Part:
        """Return a part that checks the results of elections before anything is done about them."""

        def fenced(log_id: bytes, epoch: Epoch) -> None:
            held = self.cluster.leaders.held.get(log_id)
            assert held is None or epoch > held, f"node {self.number} gives a log up to a lower epoch: {held}, {epoch}"
            if log_id == self.cluster.own.log_id:
                self.fence = log_id, epoch

        part = Part()
        part.won = lambda log_id, number, is_clean: self.machine.run.won(log_id, self.elections, self, is_clean)
        part.fenced = fenced
        return part

    def identity(self, incarnation: int) -> NodeIdentity:
        own = self.log.identity
        places = f"node{self.number}:4152", f"node{self.number}:4151"
        return NodeIdentity(self.number, incarnation, own.log_id, own.epoch.pack(), *places)

    def facts(self) -> ClusterFacts:
        return facts_of(self.cluster)

    def _copied_group(self, is_awaited: bool, is_durable: bool) -> None:
        self.group_end = self.log.writer.written.position
        if not self.log.writer.failure:
            for publish in self.unwritten:
                publish.position = self.group_end
            self.unwritten.clear()
        self.copied_group(self.leader_side, is_awaited, is_durable)

    def copied_group(self, leader_side: LeaderSide, is_awaited: bool, is_durable: bool) -> None:
        """Run the port's work after a group of a log was written."""
        if is_awaited:
            leader_side.sender.request_sync(is_durable)
        self.flush()

    def events(self) -> None:
        for part in self.cluster.pumped:
            part.pump(self.clock.now)
        self.flush()

    def tick(self) -> list[str]:
        now = self.clock.now
        if now < self._tick_due:
            return []
        self._tick_due = now + TICK
        self.cluster.lease = self.log.store.leased
        disks = self.machine.disks.all()
        self.cluster.is_full = any(disk.free() < 3 * reserve_of(disk.total()) for disk in disks)
        self.cluster.tick(now)
        dials = []
        while (address := self.cluster.take_due(now)) is not None:
            dials.append(address)
        for part in self.cluster.parts:
            part.tick(now)
        self.events()
        return dials

    def step_threads(self) -> None:
        random = self.random
        while random.random() < 0.7 and self.work.step():
            self.flush()
            self.events()
        if random.random() < 0.7 and self.clock.now >= self._sync_due:
            self.syncer.step()
            self._sync_due = self.clock.now + self.sync_takes
        step_threads(self, random)
        self.promoted.step(random)
        self.facts_file.step()
        if self.clock.now >= self._timer_due:
            since = self._timer_due if self.sizes.is_punctual and self._timer_due else self.clock.now
            self._timer_due = since + self.sizes.timer
            self.log.timer()

    def turn(self, *commands: Callable[[], Reply | None]) -> None:
        """A turn. Its commands return what is answered when their marks allow it."""
        self.woken = False
        broker = self.broker
        broker.begin(self.clock.now, self.clock.wall)
        self.release()
        part = self.jobs_part
        if part is not None:
            part.begin_turn()
        replies = [reply for reply in [command() for command in commands] if reply is not None]
        if part is not None:
            part.lent.turn()
        broker.seal()
        broker.serve()
        broker.tick()
        broker.serve()
        replies += [reply for one in self.consumers if (reply := one.take_reply()) is not None] + self.sent
        self.sent = []
        try:
            promises = broker.commit()
        except PowerCut:
            if part is not None:
                part.note_begun()
            raise
        self.replies += [([one for one in promises if one.mark in reply.marks], reply) for reply in replies]
        if part is not None:
            part.end_turn(promises)
        self.release()
        if part is not None:
            part.send_out()
        broker.fetch_changes()

    def when_sent(self, marks: tuple[Mark, ...], then: Callable[[], None]) -> None:
        """Call `then` when the marks have reached what the next turn publishes."""
        self.sent.append(Reply(marks, then, lambda: None))

    def release(self) -> None:
        waiting, self.replies = self.replies, []
        for promises, reply in waiting:
            if all(promise.is_kept for promise in promises):
                reply.report()
            elif any(promise.is_broken for promise in promises):
                reply.give_up()
            else:
                self.replies.append((promises, reply))

    def gone(self, link: Link) -> None:
        self.cluster.closed(link, self.clock.now)
        self.events()

    def make_topics(self) -> None:
        """Create the topics, with their channel. Their numbers differ from node to node."""
        wide, jobs = self.machine.run.wide, self.machine.run.jobs
        planned = self.machine.run.planned
        configs = self.machine.run.configs | wide.topics | jobs.topics | planned.topics
        names = list(configs)
        Random(self.number).shuffle(names)
        for name in names:
            config = configs[name]
            is_new = name not in self.broker.topics
            topic = self.broker.topic(name)
            if is_new and topic.config != config and name not in self.cluster.configs.known:
                topic.configure(config)
            if name != JOBS and name not in jobs.topics and name not in planned.topics:
                topic.channel(CHANNEL)
        wide.prepare(self)
        planned.prepare(self)
        jobs.prepare(self)

    def may_publish(self, topic: Topic, n: int) -> tuple[Mark, ...] | None:
        """Return the marks that a reply waits for, None if the publish is refused."""
        if self.broker.refusal or topic.shut:
            return None
        try:
            return topic.ask_for_copies(n)
        except TooFewCopies:
            return None

    def subscribe(self, name: str, ready: int) -> Consumer:
        consumer = Consumer(self, self.broker.topic(name).channel(CHANNEL), ready)
        self.consumers.append(consumer)
        return consumer

    def leave(self, consumer: Consumer) -> None:
        self.consumers.remove(consumer)
        if not consumer.gone:
            consumer.gone = True
            consumer.client.leave(self.broker)
