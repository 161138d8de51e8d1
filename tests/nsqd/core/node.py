"""A broker with its clocks and an honest sink, for tests of the core: no socket, no sleep."""

from collections.abc import Callable
from itertools import count
from random import Random

from nsqd.core.broker import Broker
from nsqd.core.channel.channel import Channel
from nsqd.core.limits import Limits
from nsqd.core.message.ids import IdSource
from nsqd.core.sequence.store import Store
from nsqd.storage.memory import MemoryStore, MemoryTopic
from tests.nsqd.core.client import Client

MOST_PASSES = 100_000  # in one turn
MS = 1_000_000
SECOND = 1_000_000_000


_deliveries = count()


class Inbox:
    """A consumer's connection: it remembers what it was given."""

    def __init__(self, room: int = 1 << 20) -> None:
        self.frames: list[bytes] = []
        self.numbers: list[int] = []  # of the frames, over all inboxes
        self.space = room
        self.flushes = 0
        self.gone = False

    def deliver(self, frames: list[bytes], size: int, now: int) -> None:
        assert size == sum(map(len, frames))
        self.frames += frames
        self.numbers += [next(_deliveries) for _ in frames]

    def room(self) -> int:
        return self.space

    def flush(self) -> None:
        self.flushes += 1

    def evicted(self) -> None:
        self.gone = True

    def take(self) -> list["Delivery"]:
        """What came since the last call."""
        frames, self.frames = self.frames, []
        numbers, self.numbers = self.numbers, []
        return [Delivery(frame, number) for frame, number in zip(frames, numbers, strict=True)]


class Delivery:
    """The fields of a message frame that a consumer received."""

    def __init__(self, frame: bytes, number: int) -> None:
        self.number = number  # in the order of all deliveries
        assert len(frame) == int.from_bytes(frame[:4], "big") + 4
        assert frame[4:8] == b"\0\0\0\2"
        self.timestamp = int.from_bytes(frame[8:16], "big")
        self.attempts = int.from_bytes(frame[16:18], "big")
        self.id = frame[18:34]
        self.body = frame[34:]

    def __repr__(self) -> str:
        return f"<{self.body!r} attempt {self.attempts}>"


class Node:
    """A broker in a world where time moves when the test says so."""

    def __init__(self, limits: Limits | None = None, store: Callable[[], Store] | None = None, seed: int = 1) -> None:
        self.store = store() if store else MemoryStore(lambda ceiling: True)
        random = Random(seed)
        self.broker = Broker(limits or Limits(), self.store, IdSource(7, 1, lambda ceiling: True), random.randrange)
        self.now = 1000 * SECOND
        self.after_turn: Callable[[], None] = lambda: None
        self.broker.begin(self.now, 1_800_000_000 * SECOND)

    def publish(self, topic: str, *bodies: bytes) -> None:
        self.broker.topic(topic).publish(list(bodies), sum(map(len, bodies)))
        self.turn()

    def publish_deferred(self, topic: str, body: bytes, delay: int) -> None:
        self.broker.topic(topic).intake.publish_with([body], due=self.now + delay)
        self.turn()

    def channel(self, topic: str, name: str) -> Channel:
        return self.broker.topic(topic).channel(name)

    def subscribe(self, topic: str, channel: str, ready: int = 0, timeout: int = 60 * SECOND) -> tuple[Client, Inbox]:
        inbox = Inbox()
        consumer = Client(self.channel(topic, channel), inbox, timeout, 0)
        consumer.set_ready(ready)
        self.turn()
        return consumer, inbox

    def turn(self) -> None:
        """One pass, as the reactor makes it, until nothing more is to be done now."""
        for _ in range(MOST_PASSES):
            self.broker.begin(self.now, 1_800_000_000 * SECOND + self.now)
            self.broker.seal()
            self.broker.serve()
            self.broker.tick()
            self.broker.serve()
            self.broker.commit()
            due = self.broker.scan.next_turn()
            if not self.broker.agenda.awake and (due is None or due > self.now):
                self.after_turn()
                return
        raise AssertionError("there is always something more to be done now")

    def advance(self, ns: int) -> None:
        """Let time pass, with a turn whenever something is due."""
        end = self.now + ns
        while True:
            due = self.broker.scan.next_turn()
            self.now = end if due is None else min(end, max(due, self.now))
            self.turn()
            if self.now == end:
                return

    def held(self) -> int:
        """Messages whose frames are in memory."""
        topics = [topic.journal for topic in self.broker.topics.values()]
        extents = [held.extent for topic in topics if isinstance(topic, MemoryTopic) for held in topic.sequence.extents]
        return sum(bool(frame) for extent in extents if extent is not None for frame in extent.frames)


def bodies(deliveries: list[Delivery]) -> list[bytes]:
    return [delivery.body for delivery in deliveries]


def ids(deliveries: list[Delivery]) -> bytes:
    return b"".join(delivery.id for delivery in deliveries)
