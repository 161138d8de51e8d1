"""Tasks step by step: exact counts, cancels, failures and bounds."""

import asyncio
from collections.abc import Callable

import pytest

from admin.messages.tasks import LARGEST_STEP, MOST_KEPT, MOST_RUNNING, Task, Tasks, TaskState, TooManyTasks
from admin.nodes.upstreams import UpstreamError
from admin.users.audit import Actor, Audit
from tests.async_tests import on_asyncio

ANN = Actor("ann", "10.0.0.1:5", "agent", "http://x", "admin")
FAST = 50_000


async def outcomes(audit: Audit) -> list[tuple[str, object]]:
    return [(one["outcome"], one["detail"]["count"]) for one in reversed(await audit.search(""))]


async def forever(count: int) -> int:
    await asyncio.Event().wait()
    return 0


async def ran(step: Callable[[int], int], count: int, audit: Audit | None = None) -> Task:
    """Return a task of `count` messages after it has ended."""

    async def take(wanted: int) -> int:
        return step(wanted)

    tasks = Tasks(audit or Audit("", None))
    task = tasks.begin("kick", "t", "x", count, FAST, ANN, take)
    assert tasks.all() == [task]
    while task.state is TaskState.RUNNING:
        await asyncio.sleep(0)
    return task


@on_asyncio
async def test_all_that_was_wanted_and_no_more() -> None:
    asked: list[int] = []
    audit = Audit("", None)
    task = await ran(lambda count: asked.append(count) or count, 2500, audit)
    assert (task.done, task.state) == (2500, TaskState.DONE)
    assert asked == [LARGEST_STEP, LARGEST_STEP, 500]
    assert await outcomes(audit) == [("started", 2500), ("done", 2500)]
    task = await ran(lambda count: 1_000_000, 5)
    assert (task.done, task.state) == (5, TaskState.DONE), "no more is counted than was asked for"
    left = [0, 10, 1000]
    task = await ran(lambda count: left.pop(), 5000)
    assert (task.done, task.state) == (1010, TaskState.DONE), "others were faster"


def test_one_that_is_stopped_with_nsqadmin_is_in_the_trail() -> None:
    async def work() -> None:
        Tasks(audit).begin("kick", "t", "x", 5, FAST, ANN, forever)
        await asyncio.sleep(0)

    audit = Audit("", None)
    asyncio.run(work())  # which cancels what is left
    assert asyncio.run(outcomes(audit))[-1] == ("cancelled: nsqadmin was stopped", 0)


@on_asyncio
async def test_a_task_is_cancelled_while_it_waits() -> None:
    async def step(count: int) -> int:
        return count

    audit = Audit("", None)
    tasks = Tasks(audit)
    task = tasks.begin("kick", "t", "x", 1_000_000, 10, ANN, step)
    await asyncio.sleep(0.01)
    tasks.cancel(task.number, ANN)
    tasks.cancel(99, ANN)
    while task.state is TaskState.RUNNING:
        await asyncio.sleep(0.001)
    assert (task.state, task.cancelled_by, task.done) == (TaskState.CANCELLED, "ann", 2)
    assert (await outcomes(audit))[-1] == ("cancelled", 2)


@on_asyncio
async def test_a_failure_is_reported() -> None:
    for failure, words in ((UpstreamError("gone"), "gone"), (KeyError("x"), "internal error in nsqadmin")):

        def fail(count: int, failure: Exception = failure) -> int:
            raise failure

        task = await ran(fail, 10)
        assert task.state is TaskState.FAILED
        assert words in task.error


@on_asyncio
async def test_as_many_as_may_run_run_and_the_oldest_are_forgotten() -> None:
    async def nothing(count: int) -> int:
        return 0

    tasks = Tasks(Audit("", None))
    first = tasks.begin("kick", "t", "x", 1, 1, ANN, forever)
    for _ in range(MOST_KEPT + 10):
        task = tasks.begin("kick", "t", "x", 1, 1, ANN, nothing)
        while task.state is TaskState.RUNNING:
            await asyncio.sleep(0)
    assert len(tasks.all()) == MOST_KEPT
    assert tasks.find(first.number) is first
    assert tasks.find(2) is None
    for _ in range(MOST_RUNNING - 1):
        tasks.begin("kick", "t", "x", 1, 1, ANN, forever)
    with pytest.raises(TooManyTasks):
        tasks.begin("kick", "t", "x", 1, 1, ANN, forever)
