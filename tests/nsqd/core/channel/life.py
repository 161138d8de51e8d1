"""Random clients of a channel whose node is killed now and then: the part that has nothing to do with the order of delivery."""

from collections.abc import Callable, Collection
from random import Random

from shared.topic_config import Durability, TopicConfig
from tests.nsqd.core.client import Client
from tests.nsqd.core.node import MS, SECOND, Delivery, Inbox
from tests.nsqd.storage.sim_disk import SimDisk
from tests.nsqd.storage.sim_node import Clock, SimNode

TIMEOUT = 2 * SECOND
Act = Callable[[], None]


class Life:
    """Random clients of channel `c` of topic `t`. A subclass publishes and answers, and compares deliveries with a model."""

    most_clients = 3
    kill_rate = 0.3  # of the acts `kill`, those that kill the node

    def __init__(self, seed: int) -> None:
        self.random, self.seed = Random(seed), seed
        self.disk, self.clock = SimDisk(), Clock()
        self.ended: set[bytes] = set()
        self.config = self.choose_config()
        self.start()
        topic = self.node.broker.topic("t")
        topic.channel("c")
        topic.configure(self.config)
        self.node.turn()

    def choose_config(self) -> TopicConfig:
        raise NotImplementedError

    def all(self) -> Collection[bytes]:
        """Return the bodies of all messages that were published."""
        raise NotImplementedError

    def look(self) -> None:
        """Compare new deliveries with the model, and add them to `taken`."""
        raise NotImplementedError

    def start(self) -> None:
        self.node = SimNode(self.disk, Durability.ALWAYS, self.clock, Random(self.seed))
        self.node.eager = True
        self.clients: list[tuple[Client, Inbox]] = []
        self.taken: list[tuple[Client, Delivery]] = []

    def live(self, steps: int, *acts: Act) -> None:
        for _ in range(steps):
            self.random.choice(acts)()
            self.look()

    def end(self, *acts: Act) -> None:
        """Have every message finished. `acts` may be needed for that."""
        for _ in range(3000):
            if self.ended.issuperset(self.all()):
                break
            self.live(1, self.subscribe, self.finish_all, self.finish_all, self.wait, *acts)
        assert self.ended.issuperset(self.all()), self.config
        self.node.broker.check()

    # acts

    def subscribe(self) -> None:
        if len(self.clients) < self.most_clients:
            self.clients.append(self.node.subscribe("t", "c", self.random.choice((1, 4, 50)), TIMEOUT))
            self.node.advance(0)

    def leave(self) -> None:
        """Close the connection of a client."""
        if self.clients:
            left, _ = self.clients.pop()
            left.leave(self.node.broker)
            self.taken = [(client, one) for client, one in self.taken if client is not left]

    def answer(self) -> None:
        """Finish or requeue messages that were delivered, in any order."""
        for _ in range(self.random.choice((1, 1, 30))):
            if self.taken:
                client, one = self.taken.pop(self.random.randrange(len(self.taken)))
                if self.random.random() < 0.6:
                    self.finish(client, one)
                else:
                    client.requeue(one.id, self.random.choice((0, SECOND)), self.clock.now)
        self.node.turn()

    def finish(self, client: Client, one: Delivery) -> None:
        if not client.finish(one.id):
            self.ended.add(one.body)

    def finish_all(self) -> None:
        while self.taken:
            self.finish(*self.taken.pop())
        self.node.turn()

    def wait(self) -> None:
        self.node.advance(self.random.choice((MS, SECOND, 3 * SECOND)))

    def kill(self) -> None:
        if self.random.random() < self.kill_rate:
            if self.random.random() < 0.5:
                self.node.checkpoint()
            self.restart()

    def restart(self) -> None:
        self.disk = self.node.disk.kill()
        self.clock = self.clock.after(self.random.choice((0, SECOND)), 5 * SECOND, rebooted=False)
        self.start()
