"""Spans: which messages have them, when they begin and end, and their parents."""

from collections import Counter
from random import Random
from typing import Any

import pytest

from nsqd.core import spans as spans_module
from nsqd.core.limits import Limits
from nsqd.core.message.attributes import Attributes
from nsqd.core.message.ids import NoIds
from nsqd.core.recovery import recover
from nsqd.core.sequence.mark import Mark, Promise
from nsqd.core.sequence.put_batch import JobOptions
from nsqd.core.shards import Attachment, promoted_broker
from nsqd.core.spanned_store import spanned_store
from nsqd.core.spans import MOST_OF_BATCH, Span, Spans
from nsqd.core.work_queue.job import Job
from nsqd.core.work_queue.tube import Tube
from nsqd.core.work_queue.waiters import Reading
from nsqd.core.work_queue.worker import Worker
from nsqd.storage.log.opening import LogOptions, Simulated, open_log
from nsqd.storage.memory import MemoryStore, MemoryTopic
from shared.topic_config import Durability, OnBury, Ordering, Overflow, TopicConfig
from tests.cases import each
from tests.effort import seeds
from tests.nsqd.core.node import SECOND, Inbox, Node
from tests.nsqd.storage.sim_disk import SimDisk
from tests.nsqd.storage.sim_node import (
    NODE,
    Clock,
    SimNode,
    Sink,
    SteppedCache,
    SteppedCleaner,
    SteppedSpare,
    SteppedSyncer,
)

TRACE, ABOVE = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED = f"00-{TRACE}-{ABOVE}-01"


class Spanned(Node):
    """A node with spans. The clock that ends publishes shows `ended_at`."""

    def __init__(self, every: int = 0, limits: Limits | None = None, store: MemoryStore | None = None) -> None:
        self.ended_at = 0
        self.spans = Spans(lambda: self.ended_at, every)
        super().__init__(limits, lambda: spanned_store(store or MemoryStore(lambda ceiling: True), self.spans))

    def send(self, topic: str, *bodies: bytes, traceparent: str = SAMPLED, delay: int = 0) -> None:
        """Publish messages with the header `traceparent`."""
        attributes = Attributes((("traceparent", traceparent),))
        self.broker.topic(topic).intake.publish_with(list(bodies), attributes, delay and self.now + delay)
        self.turn()

    def take(self) -> list[Span]:
        return self.spans.take(1000)

    def deliveries(self) -> list[tuple[Any, ...]]:
        """Return attempts, outcome, seconds and error of the deliveries that have ended."""
        return [
            (
                span.attributes["penstock.attempts"],
                span.attributes["penstock.outcome"],
                (span.end - span.start) // SECOND,
                span.error,
            )
            for span in self.take()
            if span.name.startswith("deliver ")
        ]


def with_consumer(node: Node) -> tuple[Any, Inbox]:
    node.channel("t", "c")
    return node.subscribe("t", "c", 10)


def test_publish_and_delivery_are_children_of_the_message_s_context() -> None:
    node = Spanned()
    client, inbox = with_consumer(node)
    node.ended_at = node.broker.wall + 5
    node.send("t", b"body")
    (message,) = inbox.take()
    node.advance(2 * SECOND)
    client.finish(message.id)
    node.turn()
    publish, delivery = node.take()
    assert (publish.name, publish.trace, publish.parent, publish.kind) == ("publish t", TRACE, ABOVE, 2)
    assert (publish.end - publish.start, publish.error) == (5, "")
    assert publish.attributes == {
        "messaging.system": "nsq",
        "messaging.operation.name": "publish",
        "messaging.operation.type": "send",
        "messaging.destination.name": "t",
        "messaging.message.id": message.id.decode(),
        "messaging.message.body.size": 4,
    }
    assert (delivery.name, delivery.trace, delivery.parent, delivery.kind) == ("deliver t", TRACE, ABOVE, 1)
    assert delivery.end - delivery.start == 2 * SECOND
    assert delivery.attributes == {
        "messaging.system": "nsq",
        "messaging.operation.name": "deliver",
        "messaging.operation.type": "receive",
        "messaging.destination.name": "t",
        "messaging.consumer.group.name": "c",
        "messaging.message.id": message.id.decode(),
        "penstock.attempts": 1,
        "penstock.outcome": "finished",
    }
    assert publish.id != delivery.id
    assert node.spans.held == 0


def test_each_delivery_is_a_span_until_the_message_comes_back_or_is_buried() -> None:
    node = Spanned(limits=Limits(max_attempts={"": 2}))
    client, inbox = with_consumer(node)
    node.send("t", b"x")
    (message,) = inbox.take()
    node.advance(SECOND)
    client.requeue(message.id, 10 * SECOND, node.now)
    node.advance(71 * SECOND)  # delivered again after 10 s, and timed out after 60
    ids = {span.id for span in node.spans._ended}
    assert node.deliveries() == [(1, "requeued", 1, ""), (2, "buried", 60, "timed out")]
    assert len(ids) == 3
    node.channel("t", "c").empty()
    node.turn()
    assert (node.deliveries(), node.spans.held) == ([], 0)


def test_the_deliveries_of_a_deleted_or_emptied_channel_end() -> None:
    node = Spanned()
    _, inbox = with_consumer(node)
    node.send("t", b"x", b"y")
    assert len(inbox.take()) == 2
    node.channel("t", "c").empty()
    node.turn()
    assert node.deliveries() == [(1, "dropped", 0, "")] * 2
    node.send("t", b"z")
    node.broker.delete_topic("t")
    node.turn()
    assert (node.deliveries(), node.spans.held) == ([(1, "dropped", 0, "")], 0)


def test_a_message_that_waits_is_delivered_when_it_is_due() -> None:
    node = Spanned()
    client, inbox = with_consumer(node)
    node.send("t", b"later", delay=30 * SECOND)
    node.send("t", b"now")
    for message in inbox.take():
        client.finish(message.id)
    node.advance(31 * SECOND)
    (late,) = inbox.take()
    assert late.body == b"later"
    client.finish(late.id)
    node.turn()
    assert node.deliveries() == [(1, "finished", 0, ""), (1, "finished", 1, "")]


def test_a_message_for_one_channel_is_delivered_by_that_one() -> None:
    node = Spanned(every=1)
    client, inbox = with_consumer(node)
    other, its_inbox = node.subscribe("t", "other", 10)
    node.broker.topics["t"].publish_to(node.channel("t", "other"), [b"x"], Attributes())
    node.turn()
    (message,) = its_inbox.take()
    other.finish(message.id)
    node.publish("t", b"for both")  # the cursor of the first channel passes the first message
    client.finish(inbox.take()[0].id)
    other.finish(its_inbox.take()[0].id)
    node.turn()
    assert (node.deliveries(), node.spans.held) == ([(1, "finished", 0, "")] * 3, 0)


def test_messages_that_a_channel_drops_undelivered_have_no_delivery() -> None:
    node = Spanned(limits=Limits(mem_queue_size=1))
    channel: Any = node.channel("t", "c#ephemeral")
    for body in (b"kept", b"dropped", b"dropped"):
        node.send("t", body)
    assert channel.journal._dropped == [(1, 3)], "one range"
    client, inbox = node.subscribe("t", "c#ephemeral", 10)
    (message,) = inbox.take()
    client.finish(message.id)
    node.send("t", b"next")
    assert [message.body for message in inbox.take()] == [b"next"]
    assert (node.deliveries(), node.spans.held) == ([(1, "finished", 0, "")], 1)


@each(
    "traceparent",
    [f"00-{TRACE}-{ABOVE}-00", f"ff-{TRACE}-{ABOVE}-01", f"00-{'0' * 32}-{ABOVE}-01", f"00-{TRACE}-{'0' * 16}-01",
     f"00-{TRACE.upper()}-{ABOVE}-01", f"00-{TRACE}-{ABOVE}-01x", "", "x" * 8000],
)  # fmt: skip
def test_a_context_that_is_not_sampled_or_not_valid_has_no_spans(traceparent: str) -> None:
    node = Spanned()
    with_consumer(node)
    node.send("t", b"x", traceparent=traceparent)
    assert (node.take(), node.spans.held) == ([], 0)


def test_a_later_version_s_context_is_understood() -> None:
    node = Spanned()
    node.send("t", b"x", traceparent=f"01-{TRACE}-{ABOVE}-03-more")
    assert [span.trace for span in node.take()] == [TRACE]


def test_every_nth_message_without_a_context_begins_a_trace() -> None:
    node = Spanned(every=3)
    client, inbox = with_consumer(node)
    for count in (1, 1, 3, 1, 1):
        node.publish("t", *[b"x"] * count)
    node.send("t", b"x", traceparent=f"00-{TRACE}-{ABOVE}-00")
    messages = inbox.take()
    for message in messages:
        client.finish(message.id)
    node.turn()
    spans = node.take()
    published = [span for span in spans if span.name == "publish t"]
    delivered = [span for span in spans if span.name == "deliver t"]
    expected = [messages[2].id.decode(), messages[5].id.decode()]
    assert [span.attributes["messaging.message.id"] for span in published] == expected
    assert [span.attributes["messaging.message.id"] for span in delivered] == expected
    assert [(span.trace, span.parent) for span in delivered] == [(span.trace, span.id) for span in published]
    assert len({span.trace for span in published}) == 2
    assert all(len(span.trace) == 32 and span.parent == "" for span in published)


def test_messages_published_together_have_one_span() -> None:
    node = Spanned(every=1)
    client, inbox = with_consumer(node)
    client.set_ready(1000)
    node.send("t", *[b"x"] * (MOST_OF_BATCH + 10))
    (publish,) = node.take()
    assert publish.attributes["messaging.batch.message_count"] == MOST_OF_BATCH + 10
    assert len(inbox.take()) == MOST_OF_BATCH + 10
    assert node.spans.held == MOST_OF_BATCH
    node.publish("t", *[b"x"] * (MOST_OF_BATCH + 10))
    assert len(node.take()) == MOST_OF_BATCH


def tube_and_worker(node: Node | SimNode) -> tuple[Tube, Worker]:
    """Return the tube `q`, with a worker."""
    worker = Worker(Sink())
    node.broker.tubes.join(worker)
    return node.broker.tubes.made("q"), worker


def reserve(node: Node, tube: Tube, worker: Worker) -> Job:
    job = tube.next_ready()
    assert job is not None
    tube.reserve(job, worker, node.now)
    node.advance(SECOND)
    return job


def test_each_reservation_of_a_job_is_a_span() -> None:
    node = Spanned(every=1)
    tube, worker = tube_and_worker(node)
    node.broker.tubes.put_to("q", b"job", JobOptions(1, 10, 0, 0, True))
    node.turn()
    (publish,) = node.take()
    assert (publish.name, publish.kind, publish.parent) == ("publish q", 2, "")
    job = reserve(node, tube, worker)
    tube.touch(job, worker, node.now)
    node.advance(11 * SECOND)  # the time to run began again, and is over
    job = reserve(node, tube, worker)
    tube.bury(job, 1)
    tube.kick(job)
    tube.hand_back(reserve(node, tube, worker), 1, 5, node.now)
    node.advance(6 * SECOND)
    tube.finish(reserve(node, tube, worker))
    node.turn()
    delivery = node.spans._ended[0]
    assert (delivery.name, delivery.trace, delivery.parent) == ("deliver q", publish.trace, publish.id)
    assert delivery.attributes == {
        "messaging.system": "beanstalkd",
        "messaging.operation.name": "deliver",
        "messaging.operation.type": "receive",
        "messaging.destination.name": "q",
        "messaging.message.id": publish.attributes["messaging.message.id"],
        "penstock.attempts": 1,
        "penstock.outcome": "requeued",
    }
    assert publish.attributes["messaging.system"] == "beanstalkd"
    assert node.deliveries() == [
        (1, "requeued", 11, ""),
        (2, "buried", 1, ""),
        (3, "requeued", 1, ""),
        (4, "finished", 1, ""),
    ]
    assert node.spans.held == 0


def test_a_message_that_becomes_a_job_has_the_context_of_its_headers_and_a_deleted_job_no_delivery() -> None:
    node = Spanned()
    tube, worker = tube_and_worker(node)
    node.send("q", b"reserved")
    node.send("q", b"deleted")
    node.send("q", b"not sampled", traceparent="")
    tube.finish(reserve(node, tube, worker))
    for _ in range(2):
        job = tube.next_ready()
        assert job is not None
        tube.finish(job)
    node.turn()
    assert [(span.name, span.trace, span.parent) for span in node.take()] == [
        ("publish q", TRACE, ABOVE),
        ("publish q", TRACE, ABOVE),
        ("deliver q", TRACE, ABOVE),
    ]
    assert node.spans.held == 0


def promote(node: Spanned, disk: SimDisk) -> Attachment:
    """Attach another node's log to the node."""
    parts = Simulated(Clock(node.now).clocks(), 4096, SteppedSyncer, SteppedCache, SteppedCleaner, SteppedSpare)
    opened = open_log(disk, LogOptions(1, Durability.ALWAYS, 1, 1 << 30), lambda: None, parts)
    opened.syncer.random = Random(1)  # type: ignore[attr-defined]
    broker = promoted_broker(node.broker, spanned_store(opened.store, node.spans, is_own=False), NoIds(NODE, 1 << 20))
    snapshot = opened.take_snapshot()
    assert snapshot is not None
    recover(broker, snapshot, node.now)
    opened.serve(broker)
    attachment = Attachment(node.broker, broker)
    assert not attachment.attach_batch(100)
    node.after_turn = lambda: opened.cache.step() and node.turn()  # type: ignore[attr-defined]
    node.turn()
    return attachment


@each("finishes", [False, True])
def test_messages_of_a_promoted_log_have_deliveries_by_the_context_in_their_headers(finishes: bool) -> None:
    leader = SimNode()
    consumer, inbox = leader.subscribe("t", "c", 0)
    topic = leader.broker.topics["t"]
    topic.channel("other")
    tube_and_worker(leader)

    def publish(name: str, traceparent: str, *bodies: bytes, delay: int = 0) -> None:
        attributes = Attributes((("traceparent", traceparent),))
        leader.broker.topics[name].intake.publish_with(list(bodies), attributes, delay and leader.clock.now + delay)
        leader.turn()

    publish("t", SAMPLED, b"finished", b"in flight", b"ready", b"ready")
    publish("t", f"00-{TRACE}-{ABOVE}-00", b"ready, not sampled")
    publish("t", SAMPLED, b"deferred", delay=5 * SECOND)
    topic.publish_to(topic.channels["other"], [b"other's"], Attributes((("traceparent", SAMPLED),)))
    publish("q", SAMPLED, b"job")
    consumer.set_ready(2)
    leader.turn()
    consumer.finish(inbox.take()[0].id)
    leader.turn()

    node = Spanned(every=1)
    client, inbox = with_consumer(node)
    attachment = promote(node, leader.disk.kill())
    node.advance(6 * SECOND)
    messages = inbox.take()
    bodies = [b"in flight", b"ready", b"ready", b"ready, not sampled", b"deferred"]
    assert [message.body for message in messages] == bodies
    shard = node.broker.tubes.made("q").shards[1]
    _, worker = tube_and_worker(node)
    job = reserve(node, shard, worker)
    assert node.spans.held == 4
    shard.unreserve(job)
    with pytest.raises(Reading):  # the disk was not read for a span
        shard.body(job)
    node.turn()
    job = reserve(node, shard, worker)
    assert node.spans.held == 5
    if not finishes:
        while attachment.detach_batch(1):
            pass
        outcome = "moved"
    else:
        for message in messages:
            client.finish(message.id)
        shard.finish(job)
        outcome = "finished"
    node.turn()
    spans = node.take()
    assert {(span.trace, span.parent) for span in spans} == {(TRACE, ABOVE)}
    found = Counter(
        (span.name, span.attributes["penstock.attempts"], span.attributes["penstock.outcome"]) for span in spans
    )
    assert found == {("deliver t", 2, outcome): 2, ("deliver t", 1, outcome): 2, ("deliver q", 2, outcome): 1}
    assert {span.attributes["messaging.message.id"] for span in spans} == {
        *(message.id.decode() for message in messages if message.body != bodies[3]),
        f"{job.id:016x}",
    }
    assert node.spans.held == 0


@pytest.mark.parametrize(
    "config",
    [
        TopicConfig(),
        TopicConfig(ordering=Ordering.GROUP, max_attempts=3, on_bury=OnBury.SKIP),
        TopicConfig(ordering=Ordering.PRIORITY),
        TopicConfig(ttl=20 * SECOND, max_length=5, overflow=Overflow.DROP_OLDEST),
    ],
)
def test_each_delivery_of_random_lives_is_one_span(config: TopicConfig) -> None:
    for seed in seeds(10):
        _live(config, seed)


def _live(config: TopicConfig, seed: int) -> None:
    random, node = Random(seed), Spanned(every=1)
    node.broker.topic("t").configure(config)
    channel, delivered = node.channel("t", "c"), []
    clients = [node.subscribe("t", "c", 3, timeout=10 * SECOND) for _ in range(2)]
    for _ in range(60):
        client, inbox = random.choice(clients)
        headers = (("group", random.choice("ab")), ("priority", random.choice("059")))
        delay = random.choice((0, 0, 0, node.now + 5 * SECOND))
        node.broker.topic("t").intake.publish_with([b"x"] * random.randrange(1, 4), Attributes(headers), delay)
        node.advance(random.choice((0, SECOND, 4 * SECOND)))
        for message in inbox.take():
            delivered.append((message.id.decode(), message.attempts))
            answer = random.random()
            if answer < 0.5:
                client.finish(message.id)
            elif answer < 0.8:
                client.requeue(message.id, random.choice((0, 3 * SECOND)), node.now)
    channel.empty()
    node.turn()
    delivered += [(one.id.decode(), one.attempts) for _, inbox in clients for one in inbox.take()]
    made = [span for span in node.spans.take(10_000) if span.name == "deliver t"]
    found = [(span.attributes["messaging.message.id"], span.attributes["penstock.attempts"]) for span in made]
    assert Counter(found) - Counter(delivered) == Counter() == Counter(delivered) - Counter(found), seed
    assert len({span.id for span in made}) == len(made) > 20
    assert (node.spans.held, node.spans.lost) == (0, 0)


class SlowTopic(MemoryTopic):
    marks: tuple[Mark, ...] = ()

    def set_policy(self, policy: Any) -> tuple[Mark, ...]:
        return self.marks


class SlowStore(MemoryStore):
    """A store whose replies wait for a mark, and in each turn somebody's for another one."""

    def __init__(self) -> None:
        super().__init__(lambda ceiling: True)
        self.durable, self.copied = Mark("durable"), Mark("copied")

    def topic(self, number: int, name: str) -> MemoryTopic:
        topic = SlowTopic(super().topic(number, name).sequence)
        topic.marks = (self.durable,)
        return topic

    def commit(self) -> list[Promise]:
        return [Promise(self.durable, 10), Promise(self.copied, 10)]


@each("is_broken", [False, True])
def test_a_publish_ends_when_its_reply_may_leave(is_broken: bool) -> None:
    store = SlowStore()
    node = Spanned(store=store)
    node.send("t", b"x")
    node.turn()
    assert (node.take(), node.spans.held) == ([], 1)
    node.ended_at, store.durable.position, store.durable.broken = 7, 9 if is_broken else 10, is_broken
    node.turn()
    assert [(span.end, span.error) for span in node.take()] == [(7, "not durable" if is_broken else "")]
    assert node.spans.held == 0


def test_spans_without_room_are_counted_and_the_oldest_samples_go(monkeypatch: Any) -> None:
    for name, most in (("MOST_ENDED", 2), ("MOST_HELD", 3), ("MOST_SAMPLED", 2)):
        monkeypatch.setattr(spans_module, name, most)
    node = Spanned()
    client, inbox = with_consumer(node)
    for _ in range(4):
        node.send("t", b"x")
    # 4 publishes, of which 2 wait for the export; 2 deliveries are held, 2 found no room
    assert (len(node.take()), node.spans.lost, node.spans.held) == (2, 4, 2)
    for message in inbox.take():
        client.finish(message.id)
    node.turn()
    assert (len(node.deliveries()), node.spans.held) == (2, 0)
    client.set_ready(0)
    node.turn()
    for _ in range(3):
        node.send("t", b"x")
    client.set_ready(10)
    node.turn()
    assert len(inbox.take()) == 3
    assert node.spans.held == 2, "the first of them is not sampled any longer"
