"""A request ends when its sender loses the right to it, and not before."""

import asyncio
import gc

from shared.http.under_way import UnderWay
from tests.async_tests import on_asyncio


class Request:
    """The exchange of a request; `may`: whether its sender still has the right to it."""

    def __init__(self) -> None:
        self.may, self.aborted, self.asked = True, False, 0

    def abort(self) -> None:
        self.aborted = True

    def still_may(self) -> bool:
        self.asked += 1
        return self.may


class World:
    def __init__(self) -> None:
        self.epoch = 1  # of the rights
        self.under_way = UnderWay(lambda: self.epoch)


@on_asyncio
async def test_only_requests_whose_right_has_ended_end() -> None:
    world, kept, ended = World(), Request(), Request()
    world.under_way.add(kept, kept.still_may)
    world.under_way.add(ended, ended.still_may)
    ended.may = False
    world.under_way.look()
    assert not ended.aborted  # no rights have changed
    world.epoch = 2
    world.under_way.look()
    assert (kept.aborted, ended.aborted) == (False, True)


@on_asyncio
async def test_a_request_that_is_over_is_forgotten() -> None:
    world, request = World(), Request()
    asked: list[bool] = []
    world.under_way.add(request, lambda: bool(asked.append(True)))
    del request
    gc.collect()
    world.epoch = 2
    world.under_way.look()
    assert asked == []


@on_asyncio
async def test_it_looks_by_itself_only_while_there_are_requests() -> None:
    loop = asyncio.get_running_loop()
    world, request = World(), Request()
    timers: list[object] = []

    def call_later(seconds: float, call: object) -> object:
        timers.append(call)
        return call

    loop.call_later = call_later  # type: ignore[method-assign,assignment]
    world.under_way.add(request, lambda: False)
    world.under_way.add(Request(), lambda: True)
    assert len(timers) == 1
    world.epoch = 2
    timers[0]()  # type: ignore[operator]
    assert request.aborted
    assert len(timers) == 2  # the request is still there
    del request
    gc.collect()
    timers[1]()  # type: ignore[operator]
    assert len(timers) == 2


@on_asyncio
async def test_a_change_before_the_first_request_does_not_count() -> None:
    world, request = World(), Request()
    world.epoch = 2
    world.under_way.add(request, request.still_may)
    world.under_way.look()
    assert request.asked == 0
