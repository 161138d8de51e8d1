"""Expensive answers are made one at a time, and no request gets one that was begun before it came."""

import asyncio
from typing import Any, cast

from nsqd.http.coalescing import Coalescing
from nsqd.http.metrics import MetricsRoute
from tests.async_tests import on_asyncio


class Workshop:
    def __init__(self) -> None:
        self.begun: list[str] = []
        self.under_way = 0
        self.gates: list[asyncio.Future[str]] = []

    async def make(self, what: str) -> str:
        self.begun.append(what)
        self.under_way += 1
        assert self.under_way == 1
        gate: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.gates.append(gate)
        try:
            return await gate
        finally:
            self.under_way -= 1


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@on_asyncio
async def test_requests_that_come_meanwhile_share_the_next() -> None:
    coalescing: Coalescing[str] = Coalescing()
    workshop = Workshop()
    first = asyncio.create_task(coalescing.get("a", lambda: workshop.make("first")))
    await settle()
    later = [asyncio.create_task(coalescing.get("a", lambda: workshop.make("second"))) for _ in range(5)]
    other = asyncio.create_task(coalescing.get("b", lambda: workshop.make("other")))
    await settle()
    assert workshop.begun == ["first"]
    workshop.gates[0].set_result("old")
    await settle()
    assert workshop.begun == ["first", "second"]
    later[0].cancel()  # one goes away: the others do not notice
    workshop.gates[1].set_result("new")
    await settle()
    assert (first.result(), [task.result() for task in later[1:]]) == ("old", ["new"] * 4)
    assert workshop.begun == ["first", "second", "other"]
    workshop.gates[2].set_result("b")
    assert await other == "b"


@on_asyncio
async def test_metrics_that_took_long_serve_for_as_long_again_and_show_their_age() -> None:
    route, made = MetricsRoute(cast(Any, None)), 0

    async def write() -> bytes:
        nonlocal made
        made += 1
        return b"%d" % made

    route._write, request = write, cast(Any, None)
    assert (await route.metrics(request)).body == b"1"
    assert (await route.metrics(request)).body == b"2"  # it is quick: each is a new one
    now = asyncio.get_running_loop().time()
    route._made, route._took = now - 3.5, 5.0
    old = await route.metrics(request)
    assert (old.body, old.headers["age"]) == (b"2", "3")
    route._made = now - 6
    new = await route.metrics(request)
    assert new.body == b"3"
    assert "age" not in new.headers
