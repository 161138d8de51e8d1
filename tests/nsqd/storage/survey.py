"""What a node shows after a restart, found out as its clients would: by reading every message of every channel."""

from dataclasses import dataclass, field

from nsqd.core.channel.channel import Channel
from nsqd.core.channel.failures import LOWERED
from nsqd.core.message.attributes import NONE, Attributes
from nsqd.core.message.frame import HEADER_SIZE
from nsqd.core.retention.policy import TopicConfig
from nsqd.core.topic import Topic
from tests.nsqd.core.client import Client
from tests.nsqd.core.node import SECOND, Inbox
from tests.nsqd.storage.sim_node import SimNode

PRODUCER = "p"
PROBE = "probe"  # a channel that shows what a topic has given to none
LONG = 300 * SECOND  # beyond every delay
RDY = 1_000_000


@dataclass(slots=True)
class Arrival:
    attempts: int  # before it was delivered
    at: int  # ns since the epoch
    buried: str = ""


@dataclass(slots=True)
class SeenChannel:
    paused: bool
    arrivals: dict[bytes, Arrival] = field(default_factory=dict)


@dataclass(slots=True)
class SeenTopic:
    paused: bool
    config: TopicConfig
    keys: set[str] = field(default_factory=set)  # what it knows to have been published under
    last: int = -1  # likewise the producer's last number
    retained: list[bytes] | None = None  # what can be read again, in order; None: finished messages go
    backlog: dict[bytes, Arrival] = field(default_factory=dict)
    channels: dict[str, SeenChannel] = field(default_factory=dict)


def survey(node: SimNode, ids: dict[bytes, bytes]) -> dict[str, SeenTopic]:
    """Everything there is. Uses the node up. `ids`: by body, as far as they are known; it learns the rest."""
    found = {}
    for name, topic in node.broker.topics.items():
        channels = {channel.name: SeenChannel(bool(channel.paused)) for channel in topic.channels.values()}
        keys, last = set(topic.intake.dedup.keys), topic.intake.dedup.producers.get(PRODUCER, -1)
        found[name] = SeenTopic(bool(topic.paused), topic.config, keys, last, retained(node, topic), channels=channels)
    node.eager = True
    bodies = {message_id: body for body, message_id in ids.items()}
    readers = []
    for name, topic in list(node.broker.topics.items()):
        for channel in (*topic.channels.values(), topic.channel(PROBE)):
            inbox = Inbox(1 << 40)
            consumer = Client(channel, inbox, 2 * LONG, 0)
            consumer.set_ready(RDY)
            readers.append((name, consumer, inbox))
            _look_at_graves(found, name, channel, node, bodies)

    def after_serve() -> None:
        _collect(readers, found, ids, node.clock.true)
        _look_at_new_graves(readers, found, node, bodies)

    node.after_serve = after_serve
    for topic in node.broker.topics.values():
        for channel in topic.channels.values():
            node.broker.pause(channel, False)
        node.broker.pause(topic, False)
    node.turn()
    node.advance(LONG)
    node.broker.check()
    for topic in node.broker.topics.values():
        assert topic.depth == 0
        for channel in topic.channels.values():
            left = channel.depth + channel.deferred_count + channel.in_flight_count
            assert left == 0, f"{topic.name}/{channel.name} counts {left} messages that never come"
    for seen in found.values():  # what the topic had given to nobody came by every channel
        for one in seen.channels.values():
            for body in seen.backlog:
                assert body in one.arrivals, f"{body!r} came by the probe only"
                del one.arrivals[body]
    return found


def retained(node: SimNode, topic: Topic) -> list[bytes] | None:
    """The bodies of what can be read again, in order, as it is read back over HTTP; None: the topic retains nothing."""
    sequence = node.store.find_sequence(topic.number)
    if sequence is None or sequence.first is None:
        return None
    history = node.log.history()
    window = history.window(topic.number)
    assert window.first == sequence.first
    frames: list[bytes] = []
    at = window.first
    while at < window.next:
        batches, following = history.plan(topic.number, at, window.next, 1 + 7 * at % 900).read()
        assert batches, f"{topic.name} retains no message {at}"
        for batch in batches:
            assert batch.first == at, f"{topic.name}: {batch.first} follows upon {at}"
            new = [frame for _, frame in batch.messages()]
            for index, frame in enumerate(new):
                assert batch.attributes.behind(index) == attributes_in(frame[HEADER_SIZE:])
            frames += new
            at += batch.count
        assert at == following
    assert at == window.next
    whole, _ = history.plan(topic.number, window.first, window.next, 1 << 40).read()
    assert b"".join(batch.frames for batch in whole) == b"".join(frames)
    return [frame[HEADER_SIZE:] for frame in frames]


def attributes_in(body: bytes) -> Attributes:
    """What it was published with: its body says so."""
    number, kind, *_ = body.split(b".")
    if kind.startswith(b"k"):
        return Attributes(headers=(("n", number.decode()),), key=kind.decode())
    if kind.startswith(b"p"):
        return Attributes(producer=PRODUCER, sequence=int(kind[1:]))
    return NONE


def _look_at_graves(
    found: dict[str, SeenTopic], topic: str, channel: Channel, node: SimNode, bodies: dict[bytes, bytes]
) -> None:
    for message_id, grave in channel.buried.after(None, 1 << 30):
        arrival = Arrival(grave.attempts, node.clock.true, grave.reason)
        found[topic].channels[channel.name].arrivals[bodies[message_id]] = arrival


def _look_at_new_graves(
    readers: list[tuple[str, Client, Inbox]], found: dict[str, SeenTopic], node: SimNode, bodies: dict[bytes, bytes]
) -> None:
    """What had failed too often for a limit that was lowered is buried when its turn comes."""
    for topic, consumer, _ in readers:
        for message_id, grave in consumer.channel.buried.after(None, 1 << 30):
            arrivals = found[topic].channels[consumer.channel.name].arrivals
            if grave.reason == LOWERED and bodies[message_id] not in arrivals:
                arrivals[bodies[message_id]] = Arrival(grave.attempts, node.clock.true)


def _collect(
    readers: list[tuple[str, Client, Inbox]], found: dict[str, SeenTopic], ids: dict[bytes, bytes], wall: int
) -> None:
    for topic, consumer, inbox in readers:
        deliveries = inbox.take()
        if not deliveries:
            continue
        channel, seen = consumer.channel.name, found[topic]
        arrivals = seen.backlog if channel == PROBE else seen.channels[channel].arrivals
        for delivery in deliveries:
            assert delivery.body not in arrivals, f"{topic}/{channel} delivered {delivery.body!r} twice"
            arrivals[delivery.body] = Arrival(delivery.attempts - 1, wall)
            assert ids.setdefault(delivery.body, delivery.id) == delivery.id, f"{delivery.body!r} has another id"
        failed = consumer.finish(b"".join(delivery.id for delivery in deliveries))
        assert not failed, f"{topic}/{channel} did not know what it delivered: {failed}"
