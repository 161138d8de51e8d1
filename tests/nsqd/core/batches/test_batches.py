"""Batches: what their members' states mean for them, what follows them, and what is refused."""

from collections.abc import Callable

import pytest

from nsqd.core.batches import batches as batches_module
from nsqd.core.batches.batches import KEPT, MOST_OPEN, Batches, BatchRefused, MemberState
from nsqd.core.batches.table import NamedBatch, totals
from nsqd.core.channel import actions
from nsqd.core.message.attributes import Attributes
from nsqd.core.sequence.mark import Mark
from nsqd.core.work_queue.worker import Worker
from nsqd.tasks.batch_task import BatchTask
from shared.topic_config import TopicConfig
from tests.cases import each
from tests.nsqd.core.client import Client
from tests.nsqd.core.node import Inbox, Node, bodies, ids
from tests.nsqd.core.promoted import PromotedLog
from tests.nsqd.storage.sim_node import Sink

WALL = 1_800_001_000  # s since the epoch


class World:
    """A node with a channel `c` of topic `t`, and what follows batches in `done`."""

    def __init__(self, node: Node) -> None:
        self.node, self.batches, self.wall = node, node.broker.context.batches, WALL
        self.late: list[Callable[[], None]] | None = None  # calls whose copies have not come; None: all come at once
        self.task = BatchTask(node.broker, self._when_sent, lambda: None)
        self.consumer, self.inbox = node.subscribe("t", "c", ready=100)
        _, self.after = node.subscribe("done", "c", ready=100)

    def _when_sent(self, marks: tuple[Mark, ...], then: Callable[[], None]) -> None:
        then() if self.late is None else self.late.append(then)

    def publish(self, body: str = "x", topic: str = "t", **headers: str) -> int:
        attributes = Attributes(tuple(headers.items()))
        found = self.node.broker.topic(topic).publish_with([body.encode()], attributes)
        self.node.turn()
        return found

    def close(self, *names: str) -> None:
        for name in names:
            self.batches.close(name, self.wall)

    def finish(self, inbox: Inbox | None = None, consumer: Client | None = None) -> None:
        (consumer or self.consumer).finish(ids((inbox or self.inbox).take()))

    def done(self) -> list[bytes]:
        """Let the task work. Return the follow-ups that were published."""
        for _ in range(4):
            self.task.step(self.wall)
            self.node.turn()
        return bodies(self.after.take())

    def state(self, name: str = "b") -> tuple[str, int, int]:
        (batch,) = self.batches.parts(name)
        return batch.state.name, batch.count, batch.buried


@pytest.fixture
def world(node: Node) -> World:
    return World(node)


def test_a_batch_is_done_when_it_is_closed_and_its_members_are_finished(world: World) -> None:
    world.publish("1", batch="b")
    world.publish("2")  # is no member
    world.publish("3", batch="b")
    world.publish("bye", "done", after="b")
    world.finish()
    assert (world.done(), world.state()) == ([], ("OPEN", 2, 0))
    world.publish("4", batch="b")
    world.close("b")
    world.publish("5", batch="b")  # a closed batch takes members until it is done
    assert world.done() == []
    world.finish()
    assert (world.done(), world.done(), world.state()) == ([b"bye"], [], ("DONE", 4, 0))
    with pytest.raises(BatchRefused, match="BATCH_DONE"):
        world.publish(batch="b")
    assert world.publish("late", "done", after="b") == 0
    assert world.done() == [b"late"]


def test_every_channel_has_to_finish_a_member(world: World) -> None:
    other, inbox = world.node.subscribe("t", "other", ready=100)
    world.publish("1", batch="b")
    world.close("b")
    world.finish()
    world.done()
    assert world.state()[0] == "CLOSED"
    world.finish(inbox, other)
    world.done()
    assert world.state() == ("DONE", 1, 0)


@pytest.mark.parametrize("is_kicked", [False, True])
def test_buried_members_are_counted_unless_they_are_kicked_before_the_batch_is_done(
    world: World, is_kicked: bool
) -> None:
    for body in "12":
        world.publish(body, batch="b")
    buried, pending = world.inbox.take()
    channel = world.consumer.channel
    chosen = actions.ChosenMessage(0, buried.id)
    actions.bury(world.node.broker.topics["t"].distribution, channel, [chosen], "by hand")
    world.close("b")
    world.publish("bye", "done", after="b")
    assert world.done() == []
    if is_kicked:
        actions.kick(channel, [buried.id])
        world.node.turn()
        assert world.done() == []
        world.finish()
    world.consumer.finish(pending.id)
    assert (world.done(), world.state()) == ([b"bye"], ("DONE", 2, 0 if is_kicked else 1))
    actions.kick(channel, [buried.id])
    world.node.turn()
    assert (world.done(), world.state()) == ([], ("DONE", 2, 0 if is_kicked else 1))


@pytest.mark.parametrize("sources", [["t"], ["t", "t,dead"], ["t", "t"]], ids=["once", "twice", "by two channels"])
def test_a_member_that_moves_to_dead_letter_topics_counts_as_buried(world: World, sources: list[str]) -> None:
    world.publish(batch="b")
    for source in sources:
        forwarded = Attributes((("batch", "b"), ("dead-letter-topic", source)))
        world.node.broker.topic("dead").intake.publish_with([b"x"], forwarded)
    world.finish()
    world.close("b")
    world.done()
    assert totals(world.batches.parts("b")) == (1, 1)


@pytest.mark.parametrize("how", ["delete", "empty", "drop"])
def test_members_that_are_dropped_are_pending_no_longer(world: World, how: str) -> None:
    world.publish(batch="b")
    world.close("b")
    world.done()
    assert world.state()[0] == "CLOSED"
    if how == "delete":
        world.node.broker.delete_topic("t")
    elif how == "empty":
        world.consumer.channel.empty()
    else:
        world.node.broker.directory.delete_channel(world.node.broker.topics["t"], "c")
    world.node.turn()
    world.done()
    assert world.state() == ("DONE", 1, 0)


def test_a_member_without_a_channel_is_pending(world: World) -> None:
    world.publish(topic="new", batch="b")
    world.close("b")
    world.done()
    assert world.state()[0] == "CLOSED"
    consumer, inbox = world.node.subscribe("new", "c", ready=1)
    world.finish(inbox, consumer)
    world.done()
    assert world.state()[0] == "DONE"


def test_jobs_are_members_too(world: World) -> None:
    tubes, worker = world.node.broker.tubes, Worker(Sink())
    tubes.join(worker)
    tubes.watch(worker, "t2")
    world.publish("1", "t2", batch="b")
    world.publish("2", "t2", batch="b")
    tube = tubes.made("t2")
    first, second = (tube.jobs.get(ordinal) for ordinal in (0, 1))
    assert first is not None
    assert second is not None
    world.close("b")
    tube.reserve(first, worker, world.node.now)
    tube.bury(tube.jobs.get(0), 1)
    world.done()
    assert world.state()[0] == "CLOSED"
    tube.finish(second)
    world.done()
    assert world.state() == ("DONE", 2, 1)


def test_many_members_are_looked_at_in_parts_without_a_pause_and_none_is_looked_at_twice(world: World) -> None:
    for _ in range(10):
        world.publish(batch="b")
    world.close("b")
    assert not world.batches.find_done(WALL, 1)  # a round begins
    world.consumer.finish(ids(world.inbox.take()[:7]))
    assert [world.batches.find_done(WALL, 3) for _ in range(4)] == [True, True, False, False]
    world.consumer.channel.empty()
    assert [world.batches.find_done(WALL, 3) for _ in range(3)][-1] is False
    assert world.state() == ("DONE", 10, 0)


def test_an_empty_batch_is_done_when_it_is_closed(world: World) -> None:
    world.close("b")
    world.publish("bye", "done", after="b")
    assert (world.done(), world.state()) == ([b"bye"], ("DONE", 0, 0))


def test_batches_follow_each_other_and_never_themselves(world: World) -> None:
    for name in "abc":
        world.publish(name, batch=name)
    world.publish("b2", batch="b", after="a")
    world.publish("c2", batch="c", after="b")
    for batch, after in ("aa", "ab", "ac", "bc"):
        with pytest.raises(BatchRefused, match="BATCH_CYCLE"):
            world.publish(batch=batch, after=after)
    world.publish("end", "done", after="c")
    world.close("a", "b", "c")
    came = []
    while not (ended := world.done()):
        came.append(sorted(bodies(world.inbox.frames and world.inbox.take())))
        world.consumer.finish(
            b"".join(run for one in world.consumer.channel.in_flight.runs() for run in one.members(99))
        )
    assert (came, ended) == ([[b"a", b"b", b"c"], [b"b2"], [b"c2"]], [b"end"])
    assert [world.state(name) for name in "abc"] == [("DONE", 1, 0), ("DONE", 2, 0), ("DONE", 2, 0)]


def test_a_follow_up_with_the_key_of_another_is_a_duplicate(world: World) -> None:
    world.close("b")
    topic, keyed = world.node.broker.topic("done"), Attributes((("after", "b"),), key="k")
    assert [topic.publish_with([b"1", b"2"], keyed) for _ in "12"] == [0, 2]
    assert world.done() == [b"1", b"2"]


@each(
    "headers, error",
    [
        ({"batch": "a b"}, "INVALID_BATCH"),
        ({"batch": "b" * 65}, "INVALID_BATCH"),
        ({"after": "ü"}, "INVALID_BATCH"),
        ({"after": "none"}, "BATCH_NOT_FOUND"),
        ({"after": "b", **{f"h{number}": "" for number in range(30)}}, "TOO_MANY_HEADERS"),
    ],
)
def test_what_is_refused(world: World, headers: dict[str, str], error: str) -> None:
    world.close("b")
    with pytest.raises(BatchRefused, match=error):
        world.publish(**headers)
    assert world.node.broker.topics["t"].offsets.end == 0


def test_a_follow_up_has_no_delay_and_no_channel_of_its_own(world: World) -> None:
    world.close("b")
    topic, after = world.node.broker.topic("t"), Attributes((("after", "b"),))
    for publish in (
        lambda: topic.publish_with([b""], after, 1),
        lambda: topic.publish_to(topic.channels["c"], [b""], after),
    ):
        with pytest.raises(BatchRefused, match="INVALID_AFTER"):
            publish()


def test_the_limits(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MOST_BATCHES", "MOST_SPANS_OF_ONE", "MOST_FOLLOW_UPS"):
        monkeypatch.setattr(batches_module, name, 2)
    for batch in "abab":
        world.publish(batch=batch)
    for refused, error in (({"batch": "a"}, "BATCH_TOO_LARGE"), ({"batch": "c"}, "TOO_MANY_BATCHES")):
        with pytest.raises(BatchRefused, match=error):
            world.publish(**refused)
    for _ in "12":
        world.publish(after="a")
    with pytest.raises(BatchRefused, match="TOO_MANY_FOLLOW_UPS"):
        world.publish(after="a")
    world.close("b")
    world.finish()
    world.done()
    world.publish(batch="c")  # in place of `b`, which is done
    assert world.batches.parts("b") == []


def test_the_search_for_cycles_ends_however_often_batches_follow_each_other(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches_module, "MOST_CHAIN", 6)  # those of `d`
    for name in "abcde":
        world.publish(batch=name)
    for batch, after in ("ba", "ca", "cb", "da", "db", "dc"):
        world.publish(batch=batch, after=after)
    world.publish(batch="e", after="d")
    with pytest.raises(BatchRefused, match="BATCH_CYCLE"):
        world.publish(batch="f", after="e")


def test_follow_ups_are_bounded_with_their_headers(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches_module, "MOST_FOLLOW_UP_BYTES", 2 * len("x" + "after" + "b"))
    world.close("b")
    topic, after = world.node.broker.topic("t"), Attributes((("after", "b"),))
    with pytest.raises(BatchRefused, match="TOO_MANY_FOLLOW_UPS"):
        topic.publish_with([b"x"] * 3, after)
    assert topic.publish_with([b"x"] * 2, after) == 0


def test_an_open_batch_is_closed_after_a_week_and_a_done_one_is_forgotten_after_a_day(world: World) -> None:
    world.publish(batch="b")
    world.publish("bye", "done", after="b")
    world.finish()
    world.wall += MOST_OPEN
    assert world.done() == []
    world.wall += 2
    assert world.done() == [b"bye"]
    world.wall += KEPT
    world.done()
    assert world.state()[0] == "DONE"
    world.wall += 1
    world.done()
    assert world.batches.known == {}


def test_a_topic_that_takes_nothing_holds_only_its_own_follow_ups(world: World) -> None:
    world.close("b")
    for topic in ("no", "done"):
        world.publish(topic, topic, after="b")
    full = world.node.broker.topics["no"]
    world.node.publish("no", b"1")
    full.configure(TopicConfig(max_length=1))
    assert world.done() == [b"done"]
    assert [one.topic for one in world.batches.known["b"].follow_ups.values()] == ["no"]
    full.configure(TopicConfig())
    world.done()
    assert world.batches.known["b"].follow_ups == {}


def test_a_promoted_log_has_its_part_of_a_batch(node: Node) -> None:
    log = PromotedLog(node, 9)
    promoted = log.broker.context.batches
    log.channels("t", "c")
    log.broker.begin(node.now, WALL)
    log.broker.topic("t").publish_with([b"old"], Attributes((("batch", "b"),)))
    log.broker.topic("done").publish_with([b"old bye"], Attributes((("after", "b"),)))
    log.broker.commit()
    log.attach()
    world = World(node)
    world.late = late = []
    world.publish("new", batch="b")
    world.publish("bye", "done", after="b")
    world.close("b")
    old, new = sorted(world.inbox.take(), key=lambda one: one.body, reverse=True)
    world.consumer.finish(new.id)
    assert world.done() == []
    world.consumer.finish(old.id)
    assert sorted(world.done()) == [b"bye", b"old bye"]
    assert promoted.known["b"].follow_ups
    assert world.done() == []  # copies that are late are waited for
    world.late = None
    for then in late:
        then()
    assert [len(table.known["b"].follow_ups) for table in (world.batches, promoted)] == [0, 0]
    assert [table.known["b"].count for table in (world.batches, promoted)] == [1, 1]
    log.detach()
    assert world.batches.shards == [world.batches]


def test_a_walk_over_members_skips_none_when_a_promoted_log_goes() -> None:
    own, other, *holders = tables = [Batches(lambda kind, content: ()) for _ in range(4)]
    own.shards = tables
    for table in holders:
        table.known["b"] = NamedBatch("b", WALL, WALL)
        table.known["b"].add(1, 0, 1)
    walk = own.members("b")
    assert next(walk) == (holders[0], 1, 0)
    own.shards.remove(other)
    assert list(walk) == [(holders[1], 1, 0)]


def test_the_states_of_a_message(world: World) -> None:
    topic = world.node.broker.topics["t"]
    world.publish()
    assert [topic.outcome(ordinal) for ordinal in (0, 1)] == [MemberState.PENDING, MemberState.FINISHED]


def test_a_name_without_batches_costs_nothing() -> None:
    assert Batches(lambda kind, content: None).ready(10) == []
