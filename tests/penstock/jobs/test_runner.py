"""AsyncJobs.run over a client that answers from a script: in virtual time, and on asyncio where the fault is asyncio's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

import anyio
import pytest
import trio
from trio.testing import MockClock

from penstock.jobs import AsyncJob, AsyncJobs, DeadlineSoon, Retries, runner
from penstock.jobs.calls import Call
from penstock.jobs.runner import Runner
from penstock.protocol.beanstalk import Reply
from tests.cases import each

T = TypeVar("T")
Handler = Callable[[AsyncJob], Awaitable[object]]
STATS = Reply("OK", body=b"---\nttr: 3\npri: 7\nreserves: 1\n")


class ScriptedJobs:
    """A client that reserves one job, then none. A reply of `replies` answers the command with its word."""

    address = "scripted:1"

    def __init__(self, **replies: Reply) -> None:
        self.replies = replies
        self.sent: list[str] = []
        self.is_reserved = False

    async def __aenter__(self) -> ScriptedJobs:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def reserve(self) -> AsyncJob:
        if self.is_reserved:
            await anyio.sleep_forever()
        self.is_reserved = True
        return AsyncJob(1, b"x", 1, cast(AsyncJobs, self))

    async def perform(self, call: Call[T]) -> T:
        word = call.command.split()[0].decode()
        self.sent.append(word)
        return call.decode(self.replies[word])


class HurriedJobs(ScriptedJobs):
    """A client whose server answers each reserve at once with DEADLINE_SOON."""

    async def reserve(self) -> AsyncJob:
        self.sent.append("reserve")
        if len(self.sent) > 100:
            raise AssertionError("a busy loop")
        raise DeadlineSoon(Reply("DEADLINE_SOON"))

    async def hang_up(self) -> None:
        self.sent.append("hang up")


async def work(jobs: ScriptedJobs, handler: Handler) -> None:
    await Runner(lambda: cast(AsyncJobs, jobs), handler, Retries(), grace_s=10).run(1)


def in_virtual_time(monkeypatch: pytest.MonkeyPatch, jobs: ScriptedJobs, handler: Handler, seconds: float) -> None:
    """Run for `seconds` of trio's clock, which jumps ahead whenever every task waits."""
    monkeypatch.setattr(runner, "monotonic", trio.current_time)

    async def main() -> None:
        with anyio.move_on_after(seconds):
            await work(jobs, handler)

    trio.run(main, clock=MockClock(autojump_threshold=0))


async def work_for_ten_seconds(_: AsyncJob) -> None:
    await anyio.sleep(10)


@each("word", ["INTERNAL_ERROR", "UNKNOWN_COMMAND", "NOT_FOUND", "OUT_OF_MEMORY"])
@each("command", ["touch", "stats-job"])
def test_a_refused_touch_does_not_end_the_run(monkeypatch: pytest.MonkeyPatch, command: str, word: str) -> None:
    replies = {"stats-job": STATS, "touch": Reply("TOUCHED"), "delete": Reply("DELETED"), command: Reply(word)}
    jobs = ScriptedJobs(**replies)
    in_virtual_time(monkeypatch, jobs, work_for_ten_seconds, 11)
    assert jobs.sent[-1] == "delete"
    tries = jobs.sent.count(command)
    may_pass = word in ("INTERNAL_ERROR", "OUT_OF_MEMORY")
    assert 7 <= tries <= 11 if may_pass else tries == 1  # about once a second


def test_a_run_pauses_after_deadline_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = HurriedJobs()
    in_virtual_time(monkeypatch, jobs, work_for_ten_seconds, 3.5)
    assert jobs.sent == ["reserve", "hang up"] * 4


def test_a_cancelled_task_that_the_handler_awaited_is_the_handlers_failure() -> None:
    jobs = ScriptedJobs(**{"stats-job": STATS, "release": Reply("RELEASED")})
    ended: list[str] = []

    async def handler(_: AsyncJob) -> None:
        task = asyncio.ensure_future(asyncio.Event().wait())
        task.cancel()
        await task

    async def run() -> None:
        await work(jobs, handler)
        ended.append("run")

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await anyio.wait_all_tasks_blocked()
            assert jobs.sent == ["stats-job", "release"]
            assert ended == []  # it still works
            group.cancel_scope.cancel()

    anyio.run(main, backend="asyncio")


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_cancelled_run_gives_its_job_back(backend: str) -> None:
    jobs = ScriptedJobs(**{"stats-job": STATS, "release": Reply("RELEASED")})

    async def handler(_: AsyncJob) -> None:
        await anyio.sleep_forever()

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(work, jobs, handler)
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()

    anyio.run(main, backend=backend)
    assert jobs.sent == ["stats-job", "release"]
