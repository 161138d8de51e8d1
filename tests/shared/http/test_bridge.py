"""Calls from HTTP into the daemon: what promises something waits until `deliver`, and what only looks waits for nothing."""

import asyncio

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
