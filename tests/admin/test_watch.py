"""Many look, the nodes are asked once; rates come from the time before."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from admin.response_cache import FORGOTTEN, FRESH, MOST, Watch


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_one_question_serves_all_who_look() -> None:
    clock, asked = Clock(), 0

    async def question() -> int:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0)
        return asked

    async def work() -> None:
        watch = Watch(clock)
        seen = await asyncio.gather(*(watch.ask("k", question) for _ in range(50)))
        assert {one.now for one in seen} == {1}
        assert seen[0].before is None
        clock.now = FRESH
        later = await watch.ask("k", question)
        assert (later.now, later.before, later.seconds) == (2, 1, FRESH)
        watch.forget()
        assert (await watch.ask("k", question)).now == 3
        clock.now += FORGOTTEN + FRESH
        assert (await watch.ask("k", question)).before is None
        for number in range(2 * MOST):
            await watch.ask(number, question)
        assert len(watch._slots) == MOST

    asyncio.run(work())


def test_what_takes_long_is_shown_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("admin.response_cache.SOON", 0.01)
    clock, answers = Clock(), count(1)
    goes = asyncio.Event()

    async def question() -> int:
        await goes.wait()
        return next(answers)

    async def work() -> None:
        watch = Watch(clock)
        assert await watch.soon("k", question) is None
        assert not watch.knows("k")
        goes.set()
        first = await watch.ask("k", question)
        assert first.now == 1  # it was asked on
        assert watch.knows("k")
        goes.clear()
        clock.now += FRESH
        assert await watch.soon("k", question) == first
        watch.forget()
        assert await watch.soon("k", question) is None  # what was so before a change is not shown
        goes.set()
        assert (await watch.ask("k", question)).now > 1
        clock.now += FORGOTTEN + FRESH
        goes.clear()
        assert await watch.soon("k", question) is None

    asyncio.run(work())


def test_a_question_that_fails_fails_for_all_and_is_asked_again() -> None:
    clock, asked = Clock(), 0

    async def fails() -> int:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0)
        raise OSError

    async def works() -> int:
        return 7

    async def work() -> None:
        watch = Watch(clock)
        found = await asyncio.gather(*(watch.ask("k", fails) for _ in range(50)), return_exceptions=True)
        assert {type(one) for one in found} == {OSError}
        assert asked == 1
        with pytest.raises(OSError):
            await watch.ask("k", works)
        clock.now = FRESH
        assert (await watch.ask("k", works)).now == 7

    asyncio.run(work())
