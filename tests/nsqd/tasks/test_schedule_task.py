"""The task of schedules: ticks are published as a second begins, and once over failovers: schedules move with the log."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from nsqd.core.broker import Broker
from nsqd.core.message.attributes import Attributes
from nsqd.core.message.ids import NoIds
from nsqd.core.recovery import recover
from nsqd.core.scheduling.recurrence import At, Cron, Every, Recurrence
from nsqd.core.scheduling.schedules import Schedules
from nsqd.core.scheduling.table import Missed, Schedule
from nsqd.core.sequence.mark import Mark
from nsqd.core.shards import Attachment, promoted_broker
from nsqd.storage.log.opening import LogOptions, Simulated, open_log
from nsqd.storage.log.succession import succeed
from nsqd.tasks import schedule_task
from nsqd.tasks.batch_task import BatchTask
from nsqd.tasks.schedule_task import AT_ONCE, ScheduleTask
from shared.topic_config import Durability, TopicConfig
from tests.nsqd.core.node import SECOND, Node
from tests.nsqd.storage.sim_disk import SimDisk
from tests.nsqd.storage.sim_node import (
    NODE,
    SYNC_EVERY,
    SimNode,
    SteppedCache,
    SteppedCleaner,
    SteppedSpare,
    SteppedSyncer,
)

START = 1_800_000_000  # s since the epoch
EVERY = Every(10, START)


class Sent:
    """Calls that wait until messages are safe."""

    def __init__(self) -> None:
        self._waiting: list[Callable[[], None]] = []
        self.marks: list[tuple[Mark, ...]] = []  # of all calls

    def __call__(self, marks: tuple[Mark, ...], then: Callable[[], None]) -> None:
        self._waiting.append(then)
        self.marks.append(marks)

    def arrive(self) -> None:
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then()


class World:
    def __init__(self) -> None:
        self.node, self.wakes, self.sent = Node(), 0, Sent()
        self.schedules = self.node.broker.context.schedules
        self.task = ScheduleTask(self.node.broker, self.sent, self._wake)

    def _wake(self) -> None:
        self.wakes += 1


def add(schedules: Schedules, name: str = "n", recurrence: Recurrence = EVERY) -> None:
    schedules.put(Schedule("t", name, recurrence, Missed.ONCE, b"x", (), START))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    clock: Any = type("Clock", (), {"time": staticmethod(lambda: START + 0.25 + trio.current_time())})
    monkeypatch.setattr(schedule_task, "time", clock)
    return World()


async def test_what_is_due_is_published_as_a_second_begins(world: World, autojump_clock: MockClock) -> None:
    for number in range(50):
        add(world.schedules, f"n{number}")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.task.publish)
        await trio.sleep(9.5)
        assert (world.wakes, world.node.broker.topics) == (0, {})
        await trio.sleep(0.3)
        assert world.node.broker.topics["t"].intake.message_count == 50
        assert world.wakes == 50 // AT_ONCE
        nursery.cancel_scope.cancel()


def test_a_tick_is_noted_behind_its_message(world: World) -> None:
    add(world.schedules)
    assert world.task.publish_batch(START + 10)
    assert world.schedules.noted == {("t", "n"): START}
    world.sent.arrive()
    assert world.schedules.noted == {("t", "n"): START + 10}


def test_missed_times_are_made_up_for_though_the_first_of_them_was_published_before_a_crash(world: World) -> None:
    add(world.schedules)
    topic = world.node.broker.topic("t")
    topic.intake.publish_with([b"x"], world.schedules.known["t", "n"].attributes(START + 10))
    while world.task.publish_batch(START + 45):
        world.sent.arrive()
    assert (topic.intake.message_count, topic.intake.duplicate_count) == (2, 1)
    assert world.schedules.noted == {("t", "n"): START + 45}


def test_nothing_is_published_while_the_log_may_have_another_leader_or_after_the_end(world: World) -> None:
    add(world.schedules)
    world.node.broker.agenda.is_held = True
    assert not world.task.publish_batch(START + 10)
    world.node.broker.agenda.is_held = False
    assert world.task.publish_batch(START + 10)
    world.task.stop_publishing()
    world.sent.arrive()
    assert world.schedules.noted == {("t", "n"): START}
    assert not world.task.publish_batch(START + 20)


def with_schedule(recurrence: Recurrence = EVERY) -> tuple[SimNode, ScheduleTask, Sent]:
    """Return a node with a channel and a schedule, which are durable."""
    node, sent = SimNode(), Sent()
    task = ScheduleTask(node.broker, sent, lambda: None)
    node.turn(lambda: node.broker.topic("t").channel("c") and None)
    node.turn(lambda: add(node.broker.context.schedules, recurrence=recurrence))
    return node, task, sent


def promote(node: SimNode, disk: SimDisk) -> Broker:
    """Return the broker of another node's log, which is attached to the node."""
    parts = Simulated(node.clock.clocks(), 4096, SteppedSyncer, SteppedCache, SteppedCleaner, SteppedSpare)
    opened = open_log(disk, LogOptions(1, Durability.ALWAYS, SYNC_EVERY, 1 << 30), lambda: None, parts)
    opened.syncer.random = Random(1)
    broker, snapshot = promoted_broker(node.broker, opened.store, NoIds(NODE, 1 << 20)), opened.take_snapshot()
    assert snapshot is not None
    recover(broker, snapshot, node.clock.now)
    opened.serve(broker)
    attachment = Attachment(node.broker, broker)
    while attachment.attach_batch(1):
        node.turn()
    node.turn()
    return broker


@pytest.mark.parametrize("is_noted", [False, True])
def test_a_node_that_promotes_a_log_publishes_by_its_schedules_behind_the_last_tick(is_noted: bool) -> None:
    leader, task, sent = with_schedule()
    assert task.publish_batch(START + 10)
    leader.turn()
    if is_noted:
        sent.arrive()
        leader.turn()
    node, sent = SimNode(), Sent()
    task = ScheduleTask(node.broker, sent, lambda: None)
    promoted = promote(node, leader.disk.kill())
    own, source = node.broker.context.schedules, promoted.context.schedules
    assert task.publish_batch(START + 10)
    node.turn()
    assert (own.noted, source.noted) == ({("t", "n"): START + 10}, {("t", "n"): START + 10 * is_noted})
    assert not task.publish_batch(START + 10)
    assert list(source.known) == [("t", "n")]
    sent.arrive()
    assert (list(own.known), list(source.known)) == ([("t", "n")], [])
    assert task.publish_batch(START + 20)
    node.turn()
    assert node.broker.topics["t"].intake.message_count == 1
    clock = node.clock.after(SECOND, 5 * SECOND, rebooted=False)
    assert SimNode(node.disk.kill(), clock=clock).broker.context.schedules.known == own.known


def test_a_tick_that_another_promoted_log_has_is_not_published() -> None:
    leader, _, _ = with_schedule()
    other, node, sent = SimNode(), SimNode(), Sent()
    attributes = leader.broker.context.schedules.known["t", "n"].attributes(START + 10)
    other.broker.topic("t").publish_with([b"x"], attributes)
    other.turn()
    task = ScheduleTask(node.broker, sent, lambda: None)
    for one in (leader, other):
        promote(node, one.disk.kill())
    while task.publish_batch(START + 15):
        node.turn()
        sent.arrive()
    assert node.broker.topics["t"].intake.message_count == 0
    assert node.broker.context.schedules.noted == {("t", "n"): START + 10}


def test_what_leaves_a_promoted_log_waits_for_its_copies_however_late_they_come() -> None:
    leader, _, _ = with_schedule()
    for body, header in ((b"member", "batch"), (b"bye", "after")):
        leader.broker.topic("t").publish_with([body], Attributes(((header, "b"),)))
    consumer, inbox = leader.subscribe("t", "c")
    leader.turn(lambda: leader.broker.context.batches.close("b", START))
    consumer.finish(inbox.take()[0].id)
    leader.turn()
    node, sent = SimNode(), Sent()
    node.turn(lambda: node.broker.topic("t").channel("c") and None)
    copies = node.log.store.copies
    promote(node, leader.disk.kill())
    schedules, batches = ScheduleTask(node.broker, sent, lambda: None), BatchTask(node.broker, sent, lambda: None)
    for count in (2, 3):
        node.broker.set_copies(count)
        node.broker.topic("t").configure(TopicConfig(replicate=count))  # when this changes, other copies are waited for
        sent.marks.clear()
        for _ in range(4):  # it finds that the batch is done
            schedules.publish_batch(START)
            batches.step(START)
            node.turn()
        assert [copies.copied(count, True, has_limit=True) in marks for marks in sent.marks] == [True, True]
        assert not any(copies.copied(count, True) in marks for marks in sent.marks)
    sent.arrive()
    batches.step(START)
    assert not batches._awaited


def test_no_more_schedules_move_at_a_time_than_a_turn_can_look_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule_task, "MOST_MOVING", 1)
    monkeypatch.setattr(schedule_task, "AT_ONCE", 1)
    leader, _, _ = with_schedule()
    leader.turn(lambda: add(leader.broker.context.schedules, "other"))
    node, sent = SimNode(), Sent()
    promoted = promote(node, leader.disk.kill())
    task = ScheduleTask(node.broker, sent, lambda: None)
    for left in (1, 0):
        assert [task.publish_batch(START), task.publish_batch(START)] == [True, False]
        sent.arrive()
        assert len(promoted.context.schedules.known) == left


@pytest.mark.parametrize("is_new", [False, True])
def test_a_node_that_lost_its_log_keeps_only_schedules_that_the_new_leader_lacks(is_new: bool) -> None:
    node, _, _ = with_schedule()
    common, target = node.log.writer.written.position, SimDisk()
    node.turn(lambda: node.broker.topic("t").publish([b"not copied"], 10))
    if is_new:
        node.turn(lambda: add(node.broker.context.schedules))
    node.checkpoint()
    clock = node.clock.after(SECOND, 5 * SECOND, rebooted=False)
    succeed(node.disk.kill(), target, lambda epochs, end: common, 1 << 30, 0, Simulated(clock.clocks()))
    assert bool(SimNode(target, clock=clock).broker.context.schedules.known) == is_new


def test_a_schedule_whose_only_message_is_in_the_promoted_log_is_not_taken_over() -> None:
    leader, task, _ = with_schedule(At(START + 10))
    assert task.publish_batch(START + 10)
    leader.turn()
    node = SimNode()
    promoted = promote(node, leader.disk.kill())
    assert promoted.context.schedules.known
    assert ScheduleTask(node.broker, Sent(), lambda: None).publish_batch(START + 10)
    assert not promoted.context.schedules.known
    assert not node.broker.context.schedules.known


def test_a_time_zone_that_a_node_does_not_know_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    leader, _, _ = with_schedule(Cron("0 0 * * *", "Mars", None))
    node = SimNode()
    promote(node, leader.disk.kill())
    task = ScheduleTask(node.broker, Sent(), lambda: None)
    assert task.publish_batch(START)
    ScheduleTask(node.broker, Sent(), lambda: None)  # a restart
    assert caplog.messages.count("SCHEDULE: n of t is never due: no time zone Mars is known here") == 2
