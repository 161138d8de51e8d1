"""One run of a node through several lives, chosen by a seed: clients and operators, crashes, and the states after them.

After each group the state of the live node is noted, as in a checkpoint. After a crash the log gives the state after its last
whole group. If it ends within a group, messages that were unfinished before and after that group are unfinished, and no
finished message is redelivered.
"""

from bisect import bisect_right
from random import Random

from nsqd.core.batches.table import NamedBatch
from nsqd.core.message import ids
from nsqd.core.sequence.put_batch import JobOptions
from nsqd.core.work_queue.job import JobState
from nsqd.storage.log import checkpoint, tidying
from nsqd.storage.log.reader import Record
from nsqd.storage.log.reading import LogReading
from nsqd.storage.log.replay import Replay
from nsqd.storage.log.sources import LiveSource
from nsqd.storage.log.tidying import UsageScan
from shared.topic_config import Durability
from tests.nsqd.core.node import MS, SECOND
from tests.nsqd.storage.anybody import Anybody, any_limits
from tests.nsqd.storage.log.test_succession import Messages, log_content
from tests.nsqd.storage.normal import NormalChannel, NormalTopic, NormalTube, normal
from tests.nsqd.storage.sim_disk import PowerCut, SimDisk
from tests.nsqd.storage.sim_node import Clock, SimNode
from tests.nsqd.storage.test_one_state_machine import batches_of, replay, written_by

LIVES = 4
LARGEST_TURN = 25_000  # bytes, about, that a turn may write: commands, and messages that time out together
CUT = 1 << 62  # stands for the position of a group that was cut off
World = dict[int, NormalTopic]
Batches = dict[str, NamedBatch]
State = tuple[list[Record], int]  # the records of a checkpoint, and the log's time


def assert_bounded(node: SimNode, more: int) -> None:
    """The log takes at most twice the live bytes, its two checkpoints, and `more` bytes. A cleaned segment counts as live."""
    segments, checkpoints = node.log.tidying, node.log.checkpoints
    scan = UsageScan(node.store.logged(), frozenset(segments.segments), 0)
    for topic in scan.topics:
        sequence = node.store.find_sequence(topic)
        if sequence is not None:
            scan.count(topic, sequence)
    cleaned = {base: part for base, part in segments._dense.items() if part > 0}
    live = sum(share / cleaned.get(base, 1) for base, share in scan.share.items())
    most = 2 * live + checkpoints._own_bytes + more
    assert segments.size <= most, f"the log has {segments.size} bytes, which may be {most}: {live} are live"


def world(found: Replay, now: int) -> World:
    """Return the state of each topic, at a time of the log's clock. No job is reserved: a start ends all reservations."""
    found.conclude()
    topics = {number: normal(state, found.sequences[number], now, True) for number, state in found.topics.items()}
    for tube in (one for topic in topics.values() for one in topic.readers.values() if isinstance(one, NormalTube)):
        for job in [*tube.jobs.values()]:
            if job.state is JobState.RESERVED:
                job.state, job.due = JobState.READY, 0
            counts = job.reserves, job.timeouts, job.releases, job.buries, job.kicks
            if job.state is not JobState.BURIED and not any(counts):  # as a job that was not read from the disk yet
                due = job.due if job.state is JobState.DELAYED else 0
                # no put has a ttl here, and that of a message is in its headers until it becomes a job
                tube.coming[job.ordinal] = JobOptions(job.priority, job.ttr, job.delay, due, False, 0, job.copies)
                del tube.jobs[job.ordinal]
    return topics


def unfinished(reader: NormalChannel | NormalTube) -> set[int]:
    if isinstance(reader, NormalTube):
        return reader.jobs.keys() | reader.coming.keys()
    return {*reader.ready, *reader.waiting, *(grave.ordinal for _, grave in reader.buried)}


def judge_torn(before: World, after: World, seen: World) -> None:
    """Of a log that ends within a group, by the states before and after it."""
    for number in before.keys() & after.keys():
        assert number in seen, f"topic {number} was lost"
        old, new, there = before[number], after[number], seen[number]
        assert there.end >= old.end, f"topic {old.name} lost messages"
        assert all(one in (old.config, new.config, old.paused, new.paused) for one in (there.config, there.paused))
        for reader in old.readers.keys() & new.readers.keys():
            assert reader in there.readers, f"{old.name} lost the reader {reader}"
            was, becomes, found = (unfinished(one.readers[reader]) for one in (old, new, there))
            assert was & becomes <= found, f"{old.name}/{reader} lost {was & becomes - found}"
            done = {one for one in found - was - becomes if one < old.distributed}
            assert not done, f"{old.name}/{reader} has {done} again"


def judge_torn_batches(before: Batches, after: Batches, seen: Batches) -> None:
    """Of a log that ends within a group, by the batches before and after it."""
    for name in before.keys() & after.keys():
        if before[name].created == after[name].created:
            assert name in seen, f"the batch {name} was lost"
            assert before[name].state <= seen[name].state <= after[name].state, f"the state of {name!r} is lost"
            kept = before[name].follow_ups.keys() & after[name].follow_ups.keys()
            assert kept <= seen[name].follow_ups.keys(), f"the batch {name} lost follow-ups"


class CrashRun:
    """One run of a node through several lives, all of it chosen by a seed."""

    def __init__(self, seed: int, durability: Durability) -> None:
        self.random = random = Random(seed)
        self.durability, self.clock = durability, Clock()
        self.limits = any_limits(random)
        self.sizes = random.choice((500, 2000, 10_000)), random.choice((0, 2000, 1 << 30))  # segments, memory
        self.tail = random.choice((10, 50, 1 << 30)), random.choice((1000, 20_000, 1 << 40))  # records, bytes
        self.slice = random.choice((0, 1000 * SECOND))  # a topic a turn, or all of them
        self.disk = SimDisk(random, random.choice((512, 4096)))
        self.disk.cached = random.choice((0, 0.5, 1))
        # the wall clock is set now and then, and the machine never restarted
        self.jumps = random.random() < 0.3
        self.node: SimNode | None = None
        self.written = 0  # where the log ends for all that a kill may do
        self.safe = 0  # the log must not end before this, whatever happens
        self.noted: dict[int, State] = {0: ([], 0)}  # by position of the log

    def run(self) -> None:
        before = ids.LEASE, checkpoint.SLICE, tidying.SLICE
        ids.LEASE, checkpoint.SLICE, tidying.SLICE = 64, self.slice, self.slice
        try:
            for _ in range(LIVES):
                self._live()
        finally:
            ids.LEASE, checkpoint.SLICE, tidying.SLICE = before

    def _live(self) -> None:
        random, self.node = self.random, None
        try:
            self.disk.cut_in = random.randrange(8) if random.random() < 0.2 else None  # in the middle of the restart
            self.node = node = self._open(self.disk, self.clock)
            self.disk.cut_in = None
            node.broker.check()
            assert not any(name.endswith(".tmp") for name in self.disk.names()), "a half cleaned segment is still there"
            assert self.disk.open_files <= 1, f"{self.disk.open_files} files are open"
            self._note(node.log.writer.written.position)
            node.after_commit, users = self._note, Anybody(node, random)
            steps = random.choice((3, 20, 60, 120))
            self.disk.cut_in = random.randrange(2 * steps) if random.random() < 0.5 else None
            self.disk.cut_write_in = random.randrange(steps) if random.random() < 0.5 else None
            for _ in range(steps):
                self._step(node, users)
            node.broker.check()
            if random.random() < 0.3:
                node.log.close()
                self._note(node.log.writer.written.position)
        except PowerCut:
            if self.node is not None:
                self.noted[CUT] = self._state()  # a part of it may be in the log
        self._crash()

    def _open(self, disk: SimDisk, clock: Clock) -> SimNode:
        return SimNode(disk, self.durability, clock, self.random, self.limits, *self.sizes, *self.tail)

    def _note(self, position: int) -> None:
        self.noted[position] = self._state()
        self.written = position

    def _state(self) -> State:
        node = self.node
        records = [one._replace(content=bytes(one.content)) for one in written_by(LiveSource(node.broker, node.store))]
        return records, node.clock.now + node.store.clock_offset

    def _step(self, node: SimNode, users: Anybody) -> None:
        random = self.random
        node.turn(*users.commands())
        if random.random() < 0.3:
            node.advance(random.choice((1, 20, 300, 2500)) * MS)
        for _ in range(random.randrange(3)):
            node.syncer.step()
        for step, share in (
            (node.syncer.timer, 0.1), (node.cache.step, 0.7), (node.cleaner.step, 0.3), (node.spare.step, 0.3),
        ):  # fmt: skip
            if random.random() < share:
                step()
        if random.random() < 0.005:
            self._idle(node)
        if self.jumps and random.random() < 0.05:
            self.clock.wall = self.clock.true + random.choice((0, -1, 1, 24, 720)) * 3600 * SECOND

    def _idle(self, node: SimNode) -> None:
        """Let a minute pass without clients, while threads do their work: finished messages are removed from the disk."""
        for _ in range(60):
            node.advance(SECOND)
            node.log.timer()
            for _ in range(4):
                while node.syncer.job is not None:  # messages that time out may fill more segments a second than four
                    node.syncer.step()
                node.cleaner.step()
                node.turn()
        if self.tail[1] < 1 << 40:  # after each of two checkpoints
            assert_bounded(node, 2 * (self.tail[1] + self.sizes[0] + LARGEST_TURN))

    def _crash(self) -> None:
        random = self.random
        if self.node is not None:
            self.safe = max(self.safe, self.node.log.writer.durable.position)
            self.safe = max(self.safe, self.node.store.durable.position)  # replies may have left
        whole = log_content(self.disk.kill())[1]
        cut = not self.jumps and random.random() < 0.7
        self.disk = self.disk.crash(random) if cut else self.disk.kill()
        away = random.choice((0, 1, 300, 5000)) * MS
        self.clock = self.clock.after(away, random.choice((5, 1000, 10**6)) * SECOND, rebooted=cut)
        self._look(self.safe if cut else self.written, whole)

    def _look(self, least: int, whole: Messages) -> None:
        """Check copies of the disk. The log must not end before `least`."""
        reading = LogReading(self.disk.kill())
        spots, end = reading.log_records.damage.spots, reading.log_records.end
        assert not spots, f"the log looks corrupt after a crash: {spots}"
        assert end >= least, f"the log ends at {end}, but everything up to {least} was promised"
        positions = sorted(self.noted)
        place = bisect_right(positions, end) - 1
        records, now = self.noted[positions[place]]
        before, seen = world(replay(records), now), world(reading.replay, now)
        if positions[place] == end or positions[place] == positions[-1]:
            assert seen == before, "something was lost, or came back"
            assert batches_of(reading.replay.batches) == batches_of(replay(records).batches), (
                "a batch was lost, or came back"
            )
        else:
            after = replay(self.noted[positions[place + 1]][0])
            judge_torn(before, world(after, now), seen)
            judge_torn_batches(replay(records).batches.known, after.batches.known, reading.replay.batches.known)
        for topic, frames in log_content(self.disk.kill())[1].items():  # all of them can be read
            for ordinal, frame in frames.items():
                assert whole.get(topic, {}).get(ordinal, frame) == frame, f"message {ordinal} of {topic} is another"
        clock = self.clock.after(0, self.clock.now, rebooted=False)
        self.node = node = self._open(self.disk.kill(), clock)
        self.noted = {position: state for position, state in self.noted.items() if position < end}
        self._note(end)
        records, now = self.noted[end]
        if positions[place] == end:  # messages of a part of a group are given to their readers only now
            assert world(replay(records), now) == world(LogReading(self.disk.kill()).replay, now), (
                "a start lost something"
            )
        node.broker.check()
