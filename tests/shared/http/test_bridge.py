"""Calls from HTTP into the daemon: what promises something waits until `deliver`, and what only looks waits for nothing."""

import asyncio
from collections.abc import Iterator

import pytest

from shared.http.api import live
from shared.http.bridge import Bridge
from shared.http.errors import HttpError
from tests.async_tests import on_asyncio


@on_asyncio
async def test_what_only_looks_is_answered_before_the_promises_of_others_are_kept() -> None:
    bridge = Bridge(lambda: None)
    publish = asyncio.ensure_future(bridge.call(lambda: "OK"))
    look = asyncio.ensure_future(bridge.observe(lambda: "figures"))
    await asyncio.sleep(0)
    served = bridge.serve()
    assert await look == "figures"
    assert not publish.done()
    bridge.refuse(served, "NOREPL_MAY_BE_DELIVERED")
    with pytest.raises(HttpError, match="NOREPL_MAY_BE_DELIVERED"):
        await publish


@on_asyncio
async def test_what_only_looks_gets_its_own_errors() -> None:
    bridge = Bridge(lambda: bridge.serve())

    def fail() -> None:
        raise HttpError(404, "NO_CLUSTER")

    with pytest.raises(HttpError, match="NO_CLUSTER"):
        await bridge.observe(fail)


@on_asyncio
async def test_a_daemon_that_waits_for_copies_is_alive() -> None:
    bridge = Bridge(lambda: bridge.serve())  # nothing is delivered
    assert (await live(bridge)).status_code == 200


@on_asyncio
async def test_a_bridge_that_is_closed_refuses_what_waits_and_what_comes() -> None:
    bridge = Bridge(lambda: None)
    waiting = asyncio.ensure_future(bridge.call(lambda: "OK"))
    await asyncio.sleep(0)
    bridge.close()
    with pytest.raises(HttpError, match="EXITING"):
        await waiting
    with pytest.raises(HttpError, match="EXITING"):
        await bridge.observe(lambda: "figures")
    assert bridge.serve() == []


@on_asyncio
async def test_what_a_callback_is_called_with_is_waited_for() -> None:
    bridge = Bridge(lambda: bridge.deliver(bridge.serve()))
    assert await bridge.wait(lambda done: done()) is True
    assert await bridge.wait(lambda done: done(False)) is False


@on_asyncio
async def test_steps_run_in_turns_of_their_own_and_are_answered_together() -> None:
    bridge, served = Bridge(lambda: served.extend(bridge.serve())), []
    answer = asyncio.ensure_future(bridge.call_each(iter("ab")))
    while len(served) < 3:  # two steps, and the end
        await asyncio.sleep(0)
    bridge.deliver(served[1:])
    await asyncio.sleep(0)
    assert not answer.done()
    bridge.deliver(served[:1])
    assert await answer == ["a", "b"]


@on_asyncio
async def test_a_step_that_fails_is_the_last_one() -> None:
    def steps() -> Iterator[int]:
        yield 1
        raise HttpError(429, "TOPIC_FULL")

    bridge = Bridge(lambda: bridge.deliver(bridge.serve()))
    with pytest.raises(HttpError, match="TOPIC_FULL"):
        await bridge.call_each(steps())
    bridge.close()
    with pytest.raises(HttpError, match="EXITING"):
        await bridge.call_each(steps())
