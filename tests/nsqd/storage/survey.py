"""The state of a node after a restart, as its clients see it: by reading every message of every channel."""

from dataclasses import dataclass, field

from nsqd.core.message.frame import HEADER_SIZE
from nsqd.core.topic import Topic
from tests.nsqd.core.client import Client
from tests.nsqd.core.node import SECOND, Inbox
from tests.nsqd.storage.sim_node import SimNode

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
    """A channel after a restart."""

    arrivals: dict[bytes, Arrival] = field(default_factory=dict)


@dataclass(slots=True)
class SeenTopic:
    """A topic after a restart."""

    keys: set[str]  # what it knows to have been published under
    backlog: dict[bytes, Arrival] = field(default_factory=dict)
    channels: dict[str, SeenChannel] = field(default_factory=dict)


def survey(node: SimNode, ids: dict[bytes, bytes]) -> dict[str, SeenTopic]:
    """Everything there is. Uses the node up. `ids`: by body, as far as they are known; it learns the rest."""
    found = {}
    for name, topic in node.broker.topics.items():
        found[name] = SeenTopic(set(topic.intake.dedup.keys), channels={one: SeenChannel() for one in topic.channels})
    node.eager = True
    bodies = {message_id: body for body, message_id in ids.items()}
    readers = []
    for name, topic in list(node.broker.topics.items()):
        for channel in (*topic.channels.values(), topic.channel(PROBE)):
            inbox = Inbox(1 << 40)
            consumer = Client(channel, inbox, 2 * LONG, 0)
            consumer.set_ready(RDY)
            readers.append((name, consumer, inbox))
            for message_id, grave in channel.buried.after(None, 1 << 30):
                arrival = Arrival(grave.attempts, node.clock.true, grave.reason)
                found[name].channels[channel.name].arrivals[bodies[message_id]] = arrival

    node.after_serve = lambda: _collect(readers, found, ids, node.clock.true)
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
    for seen in found.values():  # undistributed messages came by every channel
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
            frames += [frame for _, frame in batch.messages()]
            at += batch.count
        assert at == following
    assert at == window.next
    whole, _ = history.plan(topic.number, window.first, window.next, 1 << 40).read()
    assert b"".join(batch.frames for batch in whole) == b"".join(frames)
    return [frame[HEADER_SIZE:] for frame in frames]


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
