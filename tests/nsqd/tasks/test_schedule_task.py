"""The task of schedules: ticks are published as a second begins, and once over failovers: schedules move with the log."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from nsqd.core.broker import Broker
from nsqd.core.message.ids import NoIds
from nsqd.core.recovery import recover
from nsqd.core.scheduling.recurrence import Every
from nsqd.core.scheduling.schedules import Schedules
from nsqd.core.scheduling.table import Missed, Schedule
from nsqd.core.sequence.mark import Mark
from nsqd.core.shards import Attachment, promoted_broker
from nsqd.storage.log.opening import LogOptions, Simulated, open_log
from nsqd.storage.log.succession import succeed
from nsqd.tasks import schedule_task
from nsqd.tasks.schedule_task import AT_ONCE, ScheduleTask
from shared.topic_config import Durability
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


class Sent:
    """Calls that wait until messages are safe."""

    def __init__(self) -> None:
        self._waiting: list[Callable[[], None]] = []

    def __call__(self, marks: tuple[Mark, ...], then: Callable[[], None]) -> None:
        self._waiting.append(then)

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


def add(schedules: Schedules, name: str = "n") -> None:
    schedules.put(Schedule("t", name, Every(10, START), Missed.ONCE, b"x", (), START))


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


def test_a_tick_is_noted_when_its_message_is_safe(world: World) -> None:
    add(world.schedules)
    assert world.task.publish_batch(START + 10)
    assert world.schedules.noted == {("t", "n"): START}
    world.sent.arrive()
    assert world.schedules.noted == {("t", "n"): START + 10}


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


def with_schedule() -> tuple[SimNode, ScheduleTask, Sent]:
    """Return a node with a channel and a schedule, which are durable."""
    node, sent = SimNode(), Sent()
    task = ScheduleTask(node.broker, sent, lambda: None)
    node.turn(lambda: node.broker.topic("t").channel("c") and None)
    node.turn(lambda: add(node.broker.context.schedules))
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
    node.turn(lambda: Attachment(node.broker, broker).attach_batch(1 << 30) and None)
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
    sent.arrive()
    assert (list(own.known), list(source.known)) == ([("t", "n")], [])
    assert task.publish_batch(START + 20)
    node.turn()
    assert node.broker.topics["t"].intake.message_count == 1
    clock = node.clock.after(SECOND, 5 * SECOND, rebooted=False)
    assert SimNode(node.disk.kill(), clock=clock).broker.context.schedules.known == own.known


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
