"""An idle node: finished messages are removed from the disk within a minute, and then nothing happens."""

from random import Random

import pytest

from nsqd.core.limits import Limits
from nsqd.core.retention.policy import StoragePolicy
from nsqd.storage.log import tidying
from shared.topic_config import Durability
from tests.cases import each
from tests.effort import seeds
from tests.nsqd.core.client import Client
from tests.nsqd.core.node import MS, SECOND, Inbox
from tests.nsqd.storage.crash_run import assert_bounded
from tests.nsqd.storage.sim_disk import SimDisk
from tests.nsqd.storage.sim_node import Clock, SimNode

SEEDS = seeds(10)
CHEAP = 20_000  # bytes after which a checkpoint is written
SEGMENT = 20_000
BODY = 500


def new_node() -> SimNode:
    node = SimNode(durability=Durability.OS, segment_size=SEGMENT, tail_bytes=CHEAP)
    node.eager = True
    return node


def rest(node: SimNode, seconds: int) -> None:
    """Only the timer runs, every second, and the threads do their work."""
    for _ in range(seconds):
        node.advance(SECOND)
        node.log.timer()
        for _ in range(5):
            node.syncer.step()
            node.cleaner.step()
            node.turn()


def files(node: SimNode) -> int:
    return sum(node.disk.size(name) for name in node.disk.names())


class Backlog:
    """A topic with a channel that has all messages, and one consumer."""

    def __init__(self, node: SimNode, count: int) -> None:
        self.node, self.topic = node, node.broker.topic("t")
        self.topic.channel("a")
        for _ in range(0, count, 20):
            node.publish(20, body=b"x" * BODY)
            node.syncer.step()
        self.consumer, self.inbox = node.subscribe(ready=0, timeout=36_000 * SECOND)

    def finish(self, keep: int = 0) -> None:
        """Finish all, except for each `keep`th message; 0: all."""
        self.consumer.set_ready(100_000)
        self.node.advance(10 * MS)
        for number, message in enumerate(self.inbox.take()):
            if not keep or number % keep:
                self.consumer.finish(message.id)
        self.node.advance(10 * MS)


def test_a_finished_backlog_goes_though_nothing_is_written_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tidying, "SLICE", 0)  # a scan counts one topic a turn
    node = new_node()
    for number in range(200):  # two checkpoints of them are larger than CHEAP
        node.broker.topic(f"another{number}")
    backlog = Backlog(node, 1000)
    rest(node, 60)
    assert files(node) > 500_000
    before = node.checkpoints
    backlog.finish()
    rest(node, 60)
    assert files(node) < CHEAP + 2 * SEGMENT
    assert node.checkpoints == before + 1, "most of it was before the newest checkpoint already"


def test_what_is_left_of_it_here_and_there_is_written_together() -> None:
    node = new_node()
    backlog = Backlog(node, 1000)
    backlog.finish(keep=20)
    rest(node, 120)
    assert backlog.topic.channels["a"].in_flight_count == 50
    assert files(node) < 2 * 50 * (BODY + 100) + CHEAP + 3 * SEGMENT


class IdleRun:
    """Lives of a node, chosen by a seed: backlogs grow, much of them is finished, and then nothing happens for a while."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.cheap, self.segment = random.choice((2000, 10_000)), random.choice((1000, 5000))
        self.policy = random.choice((StoragePolicy(), StoragePolicy(), StoragePolicy(retention=5 * SECOND)))
        self.clock, self.disk = Clock(), SimDisk(random)
        self.inbox = Inbox(1 << 30)
        self.consumers: list[Client] = []

    def run(self) -> None:
        for _ in range(3):
            node = self._open()
            if self.random.random() < 0.8:
                for _ in range(self.random.choice((5, 30))):
                    self._burst(node)
            rest(node, 90)
            assert_bounded(node, self.cheap + 2 * self.segment + 2000)
            if not any(consumer.in_flight for consumer in self.consumers):
                before, written = node.checkpoints, node.log.writer.written.position
                rest(node, 90)
                assert (before, written) == (node.checkpoints, node.log.writer.written.position), "there is no rest"
            self._end(node)

    def _open(self) -> SimNode:
        limits = Limits(policy=self.policy)
        durability = self.random.choice(list(Durability))
        tail = 1 << 30, self.cheap
        node = SimNode(self.disk, durability, self.clock, self.random, limits, self.segment, 1 << 30, *tail)
        node.eager = True
        self.inbox, self.consumers = Inbox(1 << 30), []
        for name in ("t", "u"):
            for channel in ("a", "b"):
                self.consumers.append(Client(node.broker.topic(name).channel(channel), self.inbox, 90_000 * SECOND, 0))
        return node

    def _burst(self, node: SimNode) -> None:
        """Publish something, and finish some messages."""
        random = self.random
        topic = node.broker.topics[random.choice(("t", "u"))]
        bodies = [b"x" * random.choice((10, 200))] * random.choice((1, 20, 50))
        node.turn(lambda: topic.publish(bodies, sum(map(len, bodies))))
        for consumer in self.consumers:
            consumer.set_ready(random.choice((0, 0, 10, 1000)))
        node.advance(MS)
        part = random.choice((0, 0.5, 0.95, 1))
        ids = [message.id for message in self.inbox.take() if random.random() < part]
        for consumer in self.consumers:
            consumer.finish(b"".join(ids))
        if random.random() < 0.05:
            topic.channels[random.choice(("a", "b"))].empty()
        rest(node, random.choice((0, 0, 0, 1)))

    def _end(self, node: SimNode) -> None:
        end = self.random.choice(("stop", "kill", "cut"))
        if end == "stop":
            node.log.close()
        self.disk = self.disk.crash(self.random) if end == "cut" else self.disk.kill()
        self.clock = self.clock.after(SECOND, 5 * SECOND, rebooted=end == "cut")


@pytest.mark.long
@each("seed", SEEDS)
def test_whatever_was_done_an_idle_log_is_small_and_at_rest(seed: int) -> None:
    IdleRun(seed).run()
