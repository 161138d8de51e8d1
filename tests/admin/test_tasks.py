"""Many messages, step by step: exact counts, a cancel that is heard, failures that are told, and bounds."""

from __future__ import annotations

import asyncio

import pytest

from admin.audit import Actor, Audit
from admin.tasks import LARGEST_STEP, MOST_KEPT, MOST_RUNNING, Tasks, TaskState, TooManyTasks
from admin.upstreams import UpstreamError
from tests.async_tests import on_asyncio

ANN = Actor("ann", "10.0.0.1:5", "agent", "http://x", "admin")
FAST = 50_000


def outcomes(audit: Audit) -> list[tuple[str, object]]:
    return [(one["outcome"], one["detail"]["count"]) for one in reversed(asyncio.run(audit.search("")))]


def test_all_that_was_wanted_and_no_more() -> None:
    asked: list[int] = []

    async def step(count: int) -> int:
        asked.append(count)
        return count

    async def work() -> None:
        tasks = Tasks(audit)
        task = tasks.begin("kick", "t", "buried of t/c", 2500, FAST, ANN, step)
        while task.state is TaskState.RUNNING:
            await asyncio.sleep(0.001)
        assert (task.done, task.state) == (2500, TaskState.DONE)
        assert tasks.all() == [task]

    audit = Audit("", None)
    asyncio.run(work())
    assert asked == [LARGEST_STEP, LARGEST_STEP, 500]
    assert outcomes(audit) == [("started", 2500), ("done", 2500)]


@on_asyncio
async def test_no_more_is_counted_than_was_asked_for() -> None:
    async def step(count: int) -> int:
        return 1_000_000

    task = Tasks(Audit("", None)).begin("kick", "t", "x", 5, FAST, ANN, step)
    while task.state is TaskState.RUNNING:
        await asyncio.sleep(0.001)
    assert (task.done, task.state) == (5, TaskState.DONE)


def test_one_that_is_stopped_with_nsqadmin_is_in_the_trail() -> None:
    async def forever(count: int) -> int:
        await asyncio.Event().wait()
        return 0

    async def work() -> None:
        Tasks(audit).begin("kick", "t", "x", 5, FAST, ANN, forever)
        await asyncio.sleep(0)

    audit = Audit("", None)
    asyncio.run(work())  # which cancels what is left
    assert outcomes(audit)[-1] == ("cancelled: nsqadmin was stopped", 0)


def test_others_were_faster() -> None:
    async def step(count: int) -> int:
        return left.pop()

    async def work() -> None:
        task = Tasks(Audit("", None)).begin("kick", "t", "x", 5000, FAST, ANN, step)
        while task.state is TaskState.RUNNING:
            await asyncio.sleep(0.001)
        assert (task.done, task.state) == (1010, TaskState.DONE)

    left = [0, 10, 1000]
    asyncio.run(work())


def test_a_cancel_is_heard_while_it_waits() -> None:
    async def step(count: int) -> int:
        return count

    async def work() -> None:
        tasks = Tasks(audit)
        task = tasks.begin("kick", "t", "x", 1_000_000, 10, ANN, step)
        await asyncio.sleep(0.01)
        tasks.cancel(task.number, ANN)
        tasks.cancel(99, ANN)
        while task.state is TaskState.RUNNING:
            await asyncio.sleep(0.001)
        assert (task.state, task.cancelled_by, task.done) == (TaskState.CANCELLED, "ann", 2)

    audit = Audit("", None)
    asyncio.run(work())
    assert outcomes(audit)[-1] == ("cancelled", 2)


@pytest.mark.parametrize(
    ("failure", "words"), [(UpstreamError("gone"), "gone"), (KeyError("x"), "internal error in nsqadmin")]
)
@on_asyncio
async def test_a_failure_is_told(failure: Exception, words: str) -> None:
    async def step(count: int) -> int:
        raise failure

    task = Tasks(Audit("", None)).begin("kick", "t", "x", 10, 10, ANN, step)
    while task.state is TaskState.RUNNING:
        await asyncio.sleep(0.001)
    assert task.state is TaskState.FAILED
    assert words in task.error


@on_asyncio
async def test_as_many_as_may_run_run_and_the_oldest_are_forgotten() -> None:
    async def forever(count: int) -> int:
        await asyncio.Event().wait()
        return 0

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
