"""One run of a node through several lives, chosen by a seed: commands, crashes, and what must be there afterwards."""

from random import Random

from nsqd.core.limits import Limits
from nsqd.core.message import ids
from nsqd.core.retention.policy import Durability
from nsqd.core.sequence.dedup import DedupLimits
from nsqd.core.story import Story
from nsqd.storage.log import checkpoint, tidying
from nsqd.storage.log.tidying import Census
from tests.nsqd.core.node import MS, SECOND
from tests.nsqd.storage.history import History, judge
from tests.nsqd.storage.sim_disk import PowerCut, SimDisk
from tests.nsqd.storage.sim_node import Clock, SimNode
from tests.nsqd.storage.stories import told_of
from tests.nsqd.storage.survey import survey
from tests.nsqd.storage.users import Users

LIVES = 4
LARGEST_TURN = 25_000  # bytes, about, that a turn may write: commands, and messages that time out together


def assert_bounded(node: SimNode, more: int) -> None:
    """The log takes no more than twice what is owed and retained, its two checkpoints, and `more` bytes.

    Of a segment that was cleaned a census tells less than is wanted: all of it was when it was cleaned.
    """
    segments, checkpoints = node.log.tidying, node.log.upkeep.checkpoints
    census = Census(node.store.logged(), frozenset(segments.segments), 0)
    for topic in census.topics:
        sequence = node.store.find_sequence(topic)
        if sequence is not None:
            census.ask(topic, sequence)
    cleaned = {base: part for base, part in segments._dense.items() if part > 0}
    wanted = sum(share / cleaned.get(base, 1) for base, share in census.share.items())
    most = 2 * wanted + checkpoints._own_bytes + more
    assert segments.size <= most, f"the log has {segments.size} bytes, which may be {most}: {wanted} are wanted"


class CrashRun:
    """One run of a node through several lives, all of it chosen by a seed."""

    def __init__(self, seed: int, durability: Durability) -> None:
        self.random = Random(seed)
        self.durability = durability
        self.history = History()
        self.story = Story(keeps_bodies=True)
        self.clock = Clock()
        self.limits = Limits(
            mem_queue_size=self.random.choice((0, 2, 10, 1000)), max_attempts={"u": self.random.choice((1, 2, 3))},
            requeue_on_disconnect=self.random.random() < 0.3, dedup=DedupLimits(window=86_400 * SECOND),
        )  # fmt: skip
        self.segment_size = self.random.choice((500, 2000, 10_000))
        self.budget = self.random.choice((0, 2000, 1 << 30))
        self.tail_records = self.random.choice((10, 50, 1 << 30))
        self.tail_bytes = self.random.choice((1000, 20_000, 1 << 40))
        self.slice = self.random.choice((0, 1000 * SECOND))  # a topic a turn, or all of them
        self.disk = SimDisk(self.random, self.random.choice((512, 4096)))
        self.disk.cached = self.random.choice((0, 0.5, 1))
        # the wall clock is set now and then, and the machine never started anew
        self.jumps = self.random.random() < 0.3
        self.node: SimNode | None = None
        self.written = 0  # where the log ends for all that a kill may do
        self.safe = 0  # the log must not end before this, whatever happens

    def run(self) -> None:
        before = ids.LEASE, checkpoint.SLICE, tidying.SLICE
        ids.LEASE, checkpoint.SLICE, tidying.SLICE = 64, self.slice, self.slice
        try:
            with told_of(self.story):
                for _ in range(LIVES):
                    self._live()
        finally:
            ids.LEASE, checkpoint.SLICE, tidying.SLICE = before

    def _live(self) -> None:
        random = self.random
        self.node = None
        try:
            self.disk.cut_in = random.randrange(8) if random.random() < 0.2 else None  # in the middle of the restart
            self.node = node = self._open(self.disk, self.clock)
            self.disk.cut_in = None
            node.broker.check()
            assert not any(name.endswith(".tmp") for name in self.disk.names()), "what was half cleaned is still there"
            assert self.disk.open_files <= 1, f"{self.disk.open_files} files are open"
            users = Users(node, self.history, random)
            node.after_commit = self._committed
            steps = random.choice((3, 20, 60, 200))
            self.disk.cut_in = random.randrange(2 * steps) if random.random() < 0.5 else None
            self.disk.cut_write_in = random.randrange(steps) if random.random() < 0.5 else None
            for _ in range(steps):
                self._step(node, users)
            node.broker.check()
            if random.random() < 0.3:
                node.log.close()
                self.written = node.log.writer.written.position
        except PowerCut:
            self.history.cut()
        self._crash()

    def _open(self, disk: SimDisk, clock: Clock) -> SimNode:
        return SimNode(
            disk, self.durability, clock, self.random, self.limits, self.segment_size, self.budget, self.tail_records,
            self.tail_bytes, self.story,
        )  # fmt: skip

    def _committed(self, position: int) -> None:
        self.history.sealed(position)
        self.written = position

    def _step(self, node: SimNode, users: Users) -> None:
        random = self.random
        node.turn(*users.commands())
        if random.random() < 0.3:
            node.advance(random.choice((1, 20, 300, 2500)) * MS)
        for _ in range(random.randrange(3)):
            node.syncer.step()
        if random.random() < 0.1:
            node.syncer.timer()
        if random.random() < 0.7:
            node.cache.step()
        if random.random() < 0.3:
            node.cleaner.step()
        if random.random() < 0.3:
            node.spare.step()
        if random.random() < 0.005:
            self._idle(node)
        if self.jumps and random.random() < 0.05:
            self.clock.wall = self.clock.true + random.choice((0, -1, 1, 24, 720)) * 3600 * SECOND

    def _idle(self, node: SimNode) -> None:
        """Nobody does anything for a minute, while threads do what they have to: what is finished goes from the disk."""
        for _ in range(60):
            node.advance(SECOND)
            node.log.timer()
            for _ in range(4):
                while node.syncer.job is not None:  # messages that time out may fill more segments a second than four
                    node.syncer.step()
                node.cleaner.step()
                node.turn()
        if self.tail_bytes < 1 << 40:
            # behind each of two checkpoints
            assert_bounded(node, 2 * (self.tail_bytes + self.segment_size + LARGEST_TURN))

    def _crash(self) -> None:
        random = self.random
        if self.node is not None:
            self.safe = max(self.safe, self.node.log.writer.durable.position)
            self.safe = max(self.safe, self.node.store.durable.position)  # replies may have left
        cut = not self.jumps and random.random() < 0.7
        self.disk = self.disk.crash(random) if cut else self.disk.kill()
        away = random.choice((0, 1, 300, 5000)) * MS
        self.clock = self.clock.after(away, random.choice((5, 1000, 10**6)) * SECOND, rebooted=cut)
        self._look(self.safe if cut else self.written)

    def _look(self, least: int) -> None:
        """See what is there, with a copy of the disk. The log must not end before `least`."""
        node = self._open(self.disk.kill(), self.clock.after(0, self.clock.now, rebooted=False))
        assert not node.log.start_results.damage.spots, (
            f"a crash looks like damage: {node.log.start_results.damage.spots}"
        )
        assert node.end >= least, f"the log ends at {node.end}, but everything up to {least} was promised"
        node.broker.check()
        seen = judge(self.history, node.end, self.clock.true, survey(node, self.history.ids))
        self.history.restart(node.end, seen)
        self.written = node.end
