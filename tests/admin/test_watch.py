"""Many look, the nodes are asked once; rates come from the time before."""

from __future__ import annotations

import asyncio

import pytest

from admin.watch import FORGOTTEN, FRESH, MOST, Watch


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
