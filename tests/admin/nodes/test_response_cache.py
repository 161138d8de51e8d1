"""One query for all viewers, and the previous answer for rates."""

import asyncio
from itertools import count
from types import SimpleNamespace

import pytest

from admin.nodes.response_cache import FORGOTTEN, FRESH, MOST, ResponseCache
from tests.admin.asking import Clock
from tests.async_tests import on_asyncio


@on_asyncio
async def test_one_query_serves_all_viewers() -> None:
    clock, asked = Clock(), 0

    async def query() -> int:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0)
        return asked

    cache = ResponseCache(clock)
    cached = await asyncio.gather(*(cache.get("k", query) for _ in range(50)))
    assert {one.now for one in cached} == {1}
    assert cached[0].before is None
    clock.now = FRESH
    later = await cache.get("k", query)
    assert (later.now, later.before, later.seconds) == (2, 1, FRESH)
    cache.invalidate()
    assert (await cache.get("k", query)).now == 3
    clock.now += FORGOTTEN + FRESH
    assert (await cache.get("k", query)).before is None
    for number in range(2 * MOST):
        await cache.get(number, query)
    assert len(cache._entries) == MOST


@on_asyncio
async def test_an_answer_of_other_nodes_does_not_serve() -> None:
    clock, nodes, numbers = Clock(), ["a", "b"], count()

    async def query() -> int:
        return next(numbers)

    cache = ResponseCache(clock, nodes=lambda: tuple(nodes))
    assert [(await cache.get("k", query)).now for _ in range(2)] == [0, 0]
    nodes.pop()
    assert (await cache.get("k", query)).now == 1
    clock.now += 0.1
    assert [(await cache.get("k", query)).now for _ in range(2)] == [2, 2]


@on_asyncio
async def test_answers_that_are_remembered_hold_a_bounded_memory() -> None:
    async def query() -> SimpleNamespace:
        return SimpleNamespace(memory=40)

    cache = ResponseCache(Clock(), most_memory=100)
    for key in range(5):
        await cache.get(key, query)
    assert [cache.has_answer(key) for key in range(5)] == [False, False, False, True, True]


@on_asyncio
async def test_what_takes_long_is_shown_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("admin.nodes.response_cache.PAGE_WAIT", 0.01)
    clock, answers = Clock(), count(1)
    goes = asyncio.Event()

    async def query() -> int:
        await goes.wait()
        return next(answers)

    cache = ResponseCache(clock)
    assert await cache.get_or_stale("k", query) is None
    assert not cache.has_answer("k")
    goes.set()
    first = await cache.get("k", query)
    assert first.now == 1  # it was asked on
    assert cache.has_answer("k")
    goes.clear()
    clock.now += FRESH
    assert await cache.get_or_stale("k", query) == first
    cache.invalidate()
    assert await cache.get_or_stale("k", query) is None  # an answer from before a change is not shown
    goes.set()
    assert (await cache.get("k", query)).now > 1
    clock.now += FORGOTTEN + FRESH
    goes.clear()
    assert await cache.get_or_stale("k", query) is None


@on_asyncio
async def test_a_query_that_fails_fails_for_all_and_is_repeated() -> None:
    clock, asked = Clock(), 0

    async def fails() -> int:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0)
        raise OSError

    async def works() -> int:
        return 7

    cache = ResponseCache(clock)
    found = await asyncio.gather(*(cache.get("k", fails) for _ in range(50)), return_exceptions=True)
    assert {type(one) for one in found} == {OSError}
    assert asked == 1
    with pytest.raises(OSError):
        await cache.get("k", works)
    clock.now = FRESH
    assert (await cache.get("k", works)).now == 7
