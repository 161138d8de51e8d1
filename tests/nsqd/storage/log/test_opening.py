"""Two logs are open in one process, each with a broker of its own: none shares anything with the other."""

import threading
import time
from pathlib import Path
from random import Random

from nsqd.core.broker import Broker
from nsqd.core.limits import Limits
from nsqd.core.message.ids import IdSource
from nsqd.core.recovery import recover
from nsqd.core.retention.policy import StoragePolicy
from nsqd.storage.log.disk import RealDisk
from nsqd.storage.log.opening import LogOptions, open_log
from shared.topic_config import Durability
from tests.nsqd.core.client import Client
from tests.nsqd.core.node import SECOND, Inbox

BODIES = 200  # of each round
SIZE = 4000  # bytes of a body
BUDGET = 200_000  # bytes of messages in memory: less than a round, so most are read back from the disk
ROUNDS = 5


class Life:
    """A broker over a log in a real directory, from its opening to `stop`; its log's threads are real."""

    def __init__(self, path: Path, node: int) -> None:
        self.woken = threading.Event()
        self.log = open_log(RealDisk(path), LogOptions(node, Durability.ALWAYS, 1, BUDGET), self.woken.set)
        ids = IdSource(node, max(1, self.log.start_results.lease), self.log.store.lease)
        limits = Limits(policy=StoragePolicy(Durability.ALWAYS))
        self.broker = Broker(limits, self.log.store, ids, Random(node).randrange)
        self._begin()
        picture = self.log.take_snapshot()
        if picture is not None:
            recover(self.broker, picture, time.monotonic_ns())
        self.broker.commit()
        self.log.serve(self.broker)

    def _begin(self) -> None:
        self.broker.begin(time.monotonic_ns(), time.time_ns())

    def publish(self, name: str, round_: int) -> None:
        """A turn that publishes a round, and makes the channel if it is not there."""
        self._begin()
        topic = self.broker.topic("t")
        topic.channel("c")
        bodies = [f"{name} {round_} {number} ".encode().ljust(SIZE, b".") for number in range(BODIES)]
        topic.publish(bodies, BODIES * SIZE)
        self.broker.seal()
        self.broker.commit()

    def consume(self) -> list[str]:
        """Take and finish what the channel has; turns continue while the log is read. Returns the beginnings of the bodies."""
        inbox = Inbox()
        self._begin()
        channel = self.broker.topic("t").channel("c")
        wanted = channel.depth
        consumer = Client(channel, inbox, 60 * SECOND)
        consumer.set_ready(BODIES)
        found: list[str] = []
        while len(found) < wanted:
            self.broker.serve()
            self.broker.commit()
            self.broker.fetch_changes()
            got = inbox.take()
            found += [delivery.body.rstrip(b".").decode().strip() for delivery in got]
            consumer.finish(b"".join(delivery.id for delivery in got))
            if not got:
                assert self.woken.wait(60), "nothing was read back"
                self.woken.clear()
            self._begin()
        self.broker.commit()
        return found

    def stop(self) -> None:
        self.broker.commit()
        self.log.close()


def test_each_log_finds_its_own_again(tmp_path: Path) -> None:
    names = ("first", "second")
    lives = {name: Life(tmp_path / name, node) for node, name in enumerate(names, 1)}
    for round_ in range(ROUNDS):
        for name, life in lives.items():
            life.publish(name, round_)
    identities = [life.log.identity.log_id for life in lives.values()]
    assert len(set(identities)) == len(names)
    for life in lives.values():
        life.stop()

    lives = {name: Life(tmp_path / name, node) for node, name in enumerate(names, 1)}
    assert [life.log.identity.log_id for life in lives.values()] == identities
    for name, life in lives.items():
        expected = [f"{name} {round_} {number}" for round_ in range(ROUNDS) for number in range(BODIES)]
        assert life.consume() == expected
    for life in lives.values():
        life.stop()
