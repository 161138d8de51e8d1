"""Live, replayed and loaded states are equal, field by field, for each kind of reader.

Random clients of NSQ and of beanstalkd and operators do what they like to a node over the simulated disk. In between, the state
of each topic is computed in every way: by the live topic, by the records alone, by the newest checkpoint and the records after
it, by the whole log, and by a checkpoint of states that were only applied. All must be equal.
"""

from collections.abc import Iterable
from dataclasses import replace
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nsqd.core import records
from nsqd.core.batches.table import BatchTable, NamedBatch
from nsqd.core.channel import actions
from nsqd.core.channel.actions import ChosenMessage
from nsqd.core.message.frame import message_id
from nsqd.core.records import RecordKind
from nsqd.storage.log.reader import LogRecords, Record
from nsqd.storage.log.reading import replayed
from nsqd.storage.log.replay import Replay
from nsqd.storage.log.sources import AppliedSource, LiveSource, StateSource, contents
from shared.topic_config import Durability, TopicConfig
from tests.cases import each
from tests.effort import tries
from tests.nsqd.core.node import MS, SECOND
from tests.nsqd.storage.anybody import Anybody, any_limits
from tests.nsqd.storage.normal import NormalTopic, normal
from tests.nsqd.storage.sim_disk import SimDisk
from tests.nsqd.storage.sim_node import Clock, SimNode

OF_CHECKPOINTS = (
    RecordKind.STATE, RecordKind.CHUNK, RecordKind.STATE_TOPIC, RecordKind.SEEN, RecordKind.JOBS,
    RecordKind.STATE_END,
)  # fmt: skip
WHOLE = 1 << 60  # ns: for as long as the test lasts


class Node:
    """A node, its users, and the ways to compute its state."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        limits = any_limits(random)
        clock, budget = Clock(), random.choice((2000, 1 << 30))
        self.node = SimNode(SimDisk(random), Durability.ALWAYS, clock, random, limits, 10_000, budget)
        self.node.log.tidying.hold_for("test", WHOLE)  # replay begins at the beginning, too
        self.users = Anybody(self.node, random)

    def step(self) -> None:
        """A turn, and what happens until the next."""
        random, node = self.random, self.node
        node.turn(*self.users.commands())
        if random.random() < 0.3:
            node.advance(random.choice((1, 20, 300, 2500, 100_000)) * MS)
        for step in (node.syncer.step, node.cache.step):
            if random.random() < 0.7:
                step()
        if random.random() < 0.1:
            self.checkpoint()

    def checkpoint(self) -> None:
        """Begin one; it is complete some turns later."""
        checkpoints = self.node.log.checkpoints
        if checkpoints._contents is None and not checkpoints._ended:
            checkpoints._begin()

    def compare(self) -> None:
        """Assert that the live, the replayed and the loaded states are equal."""
        node = self.node
        node.turn()
        node.broker.agenda.reclaimer.finish()  # messages that an emptied channel has not released yet are live only here
        node.broker.check()
        expected, reader = self._live(), LogRecords(node.disk.kill())
        written = list(reader.records())
        alone, whole = replay(one for one in written if one.kind not in OF_CHECKPOINTS), replay(written)
        newest, again = replayed(LogRecords(node.disk.kill()))[0], replay(written_by(AppliedSource(whole)))
        batches, schedules = batches_of(node.broker.context.batches), node.broker.context.schedules
        for name, found in {
            "records alone": alone,
            "whole log": whole,
            "newest checkpoint": newest,
            "applied": again,
        }.items():
            assert self._normal(found) == expected, name
            assert batches_of(found.batches) == batches, name
            assert (found.schedules.known, found.schedules.noted) == (schedules.known, schedules.noted), name

    def _live(self) -> dict[int, NormalTopic]:
        node = self.node
        loaded = replay(written_by(LiveSource(node.broker, node.store)))
        found = self._normal(loaded)
        for topic in node.broker.topics.values():  # the store's own extents, not those that were loaded
            sequence = node.store.find_sequence(topic.number)
            if sequence is not None:
                ephemeral = any(channel.ephemeral for channel in topic.channels.values())
                stored = normal(loaded.topics[topic.number], sequence, self._now, ephemeral)
                assert stored == found[topic.number], "it is loaded as it was dumped"
        return found

    def _normal(self, replay: Replay) -> dict[int, NormalTopic]:
        replay.conclude()
        ephemeral = {
            topic.number: any(channel.ephemeral for channel in topic.channels.values())
            for topic in self.node.broker.topics.values()
        }
        return {
            number: normal(state, replay.sequences[number], self._now, ephemeral.get(number, False))
            for number, state in replay.topics.items()
        }

    @property
    def _now(self) -> int:
        return self.node.clock.now + self.node.store.clock_offset


def replay(written: Iterable[Record]) -> Replay:
    """Apply the records to a new Replay, which must take every one."""
    replay = Replay()
    for record in written:
        assert replay.apply(record)
    return replay


def batches_of(table: BatchTable) -> dict[str, NamedBatch]:
    """Return the durable state of all batches."""
    return {name: replace(batch, sent=set()) for name, batch in table.known.items()}


def written_by(source: StateSource) -> list[Record]:
    """Return the records of a checkpoint of this source."""
    begin = Record(RecordKind.STATE, records.STATE.pack(source.highest, source.leased), 0, 0, 0)
    return [begin, *(Record(kind, content, 0, 0, 0) for kind, content in contents(source))]


@each("deed", ["bury", "requeue", "finish"])
@each("is_emptied", [False, True])
def test_a_delay_is_forgotten_when_no_reader_waits_for_it(deed: str, is_emptied: bool) -> None:
    """An operator takes a message out of the topic's delay queue; then its only channel drops it; another begins before it."""
    node = Node(1).node
    topic = node.broker.topic("t")
    topic.configure(TopicConfig(retention=86_400 * SECOND))
    channel, due = topic.channel("a"), node.clock.now + 60 * SECOND
    node.turn(lambda: topic.intake.publish_with([b"x"], due=due) or None)

    def act() -> None:
        frame = topic.journal.frame_in_memory(0)
        assert frame
        chosen = [ChosenMessage(0, message_id(frame))]
        if deed == "bury":
            actions.bury(topic.distribution, channel, chosen, "by hand")
        elif deed == "requeue":
            actions.requeue(topic.distribution, channel, chosen, due, node.clock.now)
        else:
            actions.finish(topic.distribution, channel, chosen)

    node.turn(act)
    if is_emptied:
        node.turn(channel.empty)
    new = topic.channel_from("b", 0, node.clock.now)
    node.turn()
    waits = not is_emptied and deed == "requeue"
    assert [one for one, _ in new.deferred.items()] == ([due] if waits else [])
    assert new.depth == (not waits)
    replay = replayed(LogRecords(node.disk.kill()))[0]
    replay.conclude()
    found = replay.topics[topic.number].readers[new.number].dues({0}, {})
    assert found == {0: due + node.store.clock_offset if waits else 0}


def test_a_delay_from_the_checkpoint_holds_for_a_channel_that_begins_in_the_past() -> None:
    """The only channel drops the message that waits in the topic's delay queue, after a checkpoint was complete."""
    whole = Node(1)
    node = whole.node
    topic = node.broker.topic("t")
    topic.configure(TopicConfig(retention=86_400 * SECOND))
    channel, due = topic.channel("a"), node.clock.now + 60 * SECOND
    node.turn(lambda: topic.intake.publish_with([b"x"], due=due) or None)
    whole.checkpoint()
    for _ in range(8):
        node.turn()
        node.syncer.step()
    node.turn(channel.empty)
    new = topic.channel_from("b", 0, node.clock.now)
    assert new.delayed == 1
    whole.compare()


@each("has_checkpoint", [False, True])
def test_a_delay_outlasts_a_restart_and_then_the_last_channel(has_checkpoint: bool) -> None:
    """Channels that begin in the past wait, whether the other one is deleted before or after the restart."""
    node = SimNode()
    topic = node.broker.topic("t")
    topic.configure(TopicConfig(retention=86_400 * SECOND))
    topic.channel("a")
    dues = [node.clock.now + seconds * SECOND for seconds in (30, 7200)]
    for due in dues:
        node.turn(lambda due=due: topic.intake.publish_with([b"x"], due=due) or None)
    for deleted, new, waiting in (("a", "b", 2), ("b", "c", 2), ("c", "d", 1)):
        node.broker.topics["t"].delete_channel(deleted)
        node.turn()
        if has_checkpoint:
            node.checkpoint()
        if waiting == 1:
            node.advance(40 * SECOND)
        for is_new in (True, False):
            node = SimNode(node.disk.kill(), clock=node.clock)
            topic = node.broker.topics["t"]
            channel = topic.channel_from(new, 0, node.clock.now) if is_new else topic.channels[new]
            assert sorted(due for due, _ in topic.offsets.delay_queue.waiting.items()) == dues[-waiting:]
            assert (channel.delayed, channel.deferred.count, channel.depth) == (waiting, 0, 2 - waiting)
            node.broker.check()
            node.turn()


def test_delays_that_no_channel_was_given_are_in_the_checkpoint() -> None:
    whole = Node(1)
    topic = whole.node.broker.topic("t")
    for seconds in (60, 50, 70):
        whole.node.turn(
            lambda due=seconds * SECOND: topic.intake.publish_with([b"x"], due=whole.node.clock.now + due) or None
        )
    whole.checkpoint()
    whole.compare()


@pytest.mark.long
@example(seed=126, steps=66)
@given(seed=st.integers(0, 1 << 32), steps=st.integers(20, 120))
@settings(max_examples=tries(8), deadline=None)
def test_every_way_gives_the_same_state(seed: int, steps: int) -> None:
    node = Node(seed)
    for step in range(steps):
        node.step()
        if step % 40 == 39:
            node.compare()
    node.compare()
