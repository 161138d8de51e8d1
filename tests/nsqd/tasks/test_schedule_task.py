"""The tasks of schedules: ticks are published as a second begins, requests wait for the files, and ticks share a write."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from nsqd.core.scheduling.recurrence import Every
from nsqd.core.scheduling.schedules import Missed, Schedule, Schedules
from nsqd.storage.log.opening import Simulated
from nsqd.storage.log.succession import succeed
from nsqd.storage.schedule_files import ScheduleFiles
from nsqd.tasks import schedule_task
from nsqd.tasks.schedule_task import AT_ONCE, RETRY, ScheduleTask
from tests.nsqd.core.node import SECOND, Node
from tests.nsqd.storage.sim_disk import SimDisk
from tests.nsqd.storage.sim_node import SimNode

START = 1_800_000_000  # s since the epoch


class Files(ScheduleFiles):
    """Files in memory, which may be full."""

    def __init__(self) -> None:
        super().__init__(Path())
        self.written: list[str] = []
        self.is_full = False

    def _write(self, name: str, content: bytes) -> None:
        if self.is_full:
            raise OSError("no space")
        self.written.append(name)


class World:
    def __init__(self) -> None:
        self.node, self.files, self.schedules, self.wakes = Node(), Files(), Schedules(), 0
        self.unsent: list[Callable[[], None]] = []
        self.task = ScheduleTask(
            self.node.broker, self.schedules, self.files, lambda marks, then: self.unsent.append(then), self._wake
        )
        self.results: list[bool] = []

    def _wake(self) -> None:
        self.wakes += 1

    def add(self, name: str) -> None:
        self.schedules.put(Schedule("t", name, Every(10, START), Missed.ONCE, b"x", (), START))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    clock: Any = type("Clock", (), {"time": staticmethod(lambda: START + 0.25 + trio.current_time())})
    monkeypatch.setattr(schedule_task, "time", clock)

    async def run_at_once(function: Callable[[], bool]) -> bool:
        return function()

    monkeypatch.setattr(trio.to_thread, "run_sync", run_at_once)
    return World()


async def test_what_is_due_is_published_as_a_second_begins(world: World, autojump_clock: MockClock) -> None:
    for number in range(50):
        world.add(f"n{number}")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.task.publish)
        await trio.sleep(9.5)
        assert (world.wakes, world.node.broker.topics) == (0, {})
        await trio.sleep(0.3)
        assert world.node.broker.topics["t"].intake.message_count == 50
        assert world.wakes == 50 // AT_ONCE
        nursery.cancel_scope.cancel()


def test_a_tick_is_noted_when_its_message_is_safe(world: World) -> None:
    world.add("n")
    assert world.task.publish_batch(START + 10)
    world.schedules.has_changed = False
    assert (world.task.write_now(), world.files.written) == (True, [])
    for then in world.unsent:
        then()
    assert (world.task.write_now(), world.files.written) == (True, ["schedule_ticks.json"])
    world.task.stop_publishing()
    assert not world.task.publish_batch(START + 20)


@pytest.mark.parametrize("is_copied", [False, True])
def test_a_tick_is_published_once_if_another_node_promotes_the_log_before_it_is_noted(is_copied: bool) -> None:
    def publish(node: SimNode) -> None:
        schedules = Schedules()
        schedules.restore([Schedule("t", "n", Every(10, START), Missed.ONCE, b"x", (), START)], {})
        task = ScheduleTask(node.broker, schedules, Files(), lambda marks, then: None, lambda: None)
        assert task.publish_batch(START + 10)
        node.turn()

    node = SimNode()
    node.turn(lambda: node.broker.topic("t").channel("c") and None)
    before = node.log.writer.written.position
    publish(node)
    common, target = node.log.writer.written.position if is_copied else before, SimDisk()
    clock = node.clock.after(SECOND, 5 * SECOND, rebooted=False)
    succeed(node.disk.kill(), target, lambda epochs, end: common, 1 << 30, 0, Simulated(clock.clocks()))
    again = SimNode(target, clock=clock)  # the log that the node begins
    publish(again)
    topic = again.broker.topics["t"]
    assert topic.intake.duplicate_count == 1
    assert topic.channels["c"].depth == (not is_copied)  # else the new leader delivers the message


async def test_requests_are_answered_when_the_file_is_written_and_a_full_disk_is_tried_again(
    world: World, autojump_clock: MockClock
) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.task.write)
        for is_full in (False, True):
            world.files.is_full = is_full
            world.add("n")
            world.task.keep(world.results.append)
            with trio.fail_after(RETRY / 2):
                while len(world.results) < 1 + is_full:
                    await trio.sleep(0.01)
        assert world.results == [True, False]
        world.files.is_full = False
        await trio.sleep(2 * RETRY)
        assert world.files.written[:1] == world.files.written[-2:-1] == ["schedules.json"]
        nursery.cancel_scope.cancel()
    world.add("n")
    world.task.close()
    assert world.files.written[-2:] == ["schedules.json", "schedule_ticks.json"]
