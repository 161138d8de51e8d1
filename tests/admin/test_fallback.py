"""A node that hangs, dies or talks nonsense does not make a page wait twice; what it told last stands, with its age."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from admin import answer_budget, fallback
from admin.fallback import LARGEST, MOST, FallbackUpstreams
from admin.upstreams import Refused, Times, UpstreamError, Upstreams
from tests.async_tests import on_asyncio

Answer = Callable[[str], Awaitable[dict[str, Any]]]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Callable[[Answer], tuple[FallbackUpstreams, Clock]]:
    """A FallbackUpstreams over somebody who answers so."""
    monkeypatch.setattr(fallback, "PATIENCE", 0.02)
    monkeypatch.setattr(fallback, "FAILING_PATIENCE", 0.001)

    def make(answer: Answer) -> tuple[FallbackUpstreams, Clock]:
        async def get_object(self: Upstreams, address: str, path: str, arguments: object) -> answer_budget.Answer:
            told = await answer(address)
            return answer_budget.Answer(told, told.get("size", 0))

        monkeypatch.setattr(Upstreams, "get_object", get_object)
        clock = Clock()
        return FallbackUpstreams(
            Times(1, 1), ssl.create_default_context(), answer_budget.AnswerBudget(1024 * 1024), clock
        ), clock

    return make


@on_asyncio
async def test_the_last_answer_stands_while_a_node_hangs(made: Any) -> None:
    hangs = asyncio.Event()
    hangs.set()

    async def answer(address: str) -> dict[str, Any]:
        await hangs.wait()
        return {"at": asked.clock.now}

    class asked:
        clock: Clock

    waits, asked.clock = made(answer)
    assert await waits.get_object("n:1", "/a") == {"at": 0.0}
    hangs.clear()
    asked.clock.now = 12.0
    assert await waits.get_object("n:1", "/a") == {"at": 0.0}
    assert waits.stale() == {"n:1": 0.0}  # it was not asked before, so nobody knows since when it hangs
    assert waits.data_age("n:1") == 12.0
    asked.clock.now = 15.0
    assert waits.stale() == {"n:1": 3.0}
    began = time.monotonic()
    for _ in range(10):
        assert await waits.get_object("n:1", "/a") == {"at": 0.0}
    with pytest.raises(UpstreamError, match="has not answered yet"):
        await waits.get_object("n:1", "/b")  # of which nothing is known
    assert time.monotonic() - began < 10  # and not eleven times PATIENCE: see the number below
    assert len(waits._asked) == 2
    hangs.set()
    await asyncio.sleep(0.01)
    assert waits.stale() == {}
    assert await waits.get_object("n:1", "/a") == {"at": 15.0}


@on_asyncio
async def test_one_question_is_under_way_at_a_time(made: Any) -> None:
    count = 0

    async def answer(address: str) -> dict[str, Any]:
        nonlocal count
        count += 1
        await asyncio.Event().wait()
        return {}

    waits, _ = made(answer)
    for _ in range(5):
        with pytest.raises(UpstreamError):
            await waits.get_object("n:1", "/a")
    assert count == 1


@on_asyncio
async def test_the_age_is_that_of_the_oldest_answer_that_is_shown(made: Any) -> None:
    failure: Exception | None = None

    async def answer(address: str) -> dict[str, Any]:
        if failure:
            raise failure
        return {"a": 1}

    waits, clock = made(answer)
    await waits.get_object("n:1", "/a")
    clock.now += 300
    await waits.get_object("n:1", "/b")
    failure = UpstreamError("refused")
    clock.now += 5
    await waits.get_object("n:1", "/b")
    assert waits.data_age("n:1") == 5.0
    await waits.get_object("n:1", "/a")
    assert waits.data_age("n:1") == 305.0, "and not that of the node's last answer"
    failure = None
    await waits.get_object("n:1", "/b")
    assert (waits.stale(), waits.data_age("n:1")) == ({}, 0.0)


@on_asyncio
async def test_a_refusal_is_an_answer_and_a_failure_is_not(made: Any) -> None:
    failure: Exception | None = None

    async def answer(address: str) -> dict[str, Any]:
        if failure:
            raise failure
        return {"a": 1}

    waits, clock = made(answer)
    await waits.get_object("n:1", "/a")
    failure = Refused("404", 404)
    with pytest.raises(Refused):
        await waits.get_object("n:1", "/a")
    assert waits.stale() == {}
    failure = UpstreamError("refused")
    clock.now += 5
    assert await waits.get_object("n:1", "/a") == {"a": 1}
    assert waits.stale() == {"n:1": 0.0}
    assert waits.data_age("n:1") == 5.0
    clock.now += fallback.FORGOTTEN
    with pytest.raises(UpstreamError, match="refused"):
        await waits.get_object("n:1", "/a")


@on_asyncio
async def test_large_answers_are_not_remembered_and_old_ones_are_forgotten(made: Any) -> None:
    size = LARGEST + 1

    async def answer(address: str) -> dict[str, Any]:
        if size < 0:
            raise UpstreamError("gone")
        return {"size": size}

    waits, clock = made(answer)
    assert await waits.get_object("n:1", "/large") == {"size": size}
    size = 1
    await waits.get_object("n:1", "/small")
    size = -1
    with pytest.raises(UpstreamError):
        await waits.get_object("n:1", "/large")
    assert await waits.get_object("n:1", "/small") == {"size": 1}
    clock.now += fallback.FORGOTTEN + 1
    waits.stale()
    assert [key[1] for key in waits._asked] == ["/large"]  # of which there is nothing but the key


@on_asyncio
async def test_answers_are_bounded(made: Any) -> None:
    async def answer(address: str) -> dict[str, Any]:
        return {}

    waits, _ = made(answer)
    for number in range(MOST + 10):
        await waits.get_object("n:1", f"/{number}")
    assert len(waits._asked) == MOST
