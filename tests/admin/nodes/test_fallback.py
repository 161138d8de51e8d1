"""A node that hangs or goes down makes no page wait twice; its last answer stands, with its age."""

import asyncio
import ssl
import time
from typing import Any

import pytest

from admin.nodes import answer_budget, fallback
from admin.nodes.fallback import LARGEST, MOST, FallbackUpstreams
from admin.nodes.upstreams import Refused, Times, UpstreamError, Upstreams
from tests.admin.asking import Clock
from tests.async_tests import on_asyncio


class Node:
    """Whom a FallbackUpstreams asks: it answers {"size": size, "at": now}, fails, or hangs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(fallback, "PATIENCE", 0.02)
        monkeypatch.setattr(fallback, "FAILING_PATIENCE", 0.001)
        self.clock, self.size, self.asked = Clock(), 0, 0
        self.failure: Exception | None = None
        self.goes = asyncio.Event()
        self.goes.set()

        async def get_object(own: Upstreams, address: str, path: str, arguments: object) -> answer_budget.Answer:
            self.asked += 1
            await self.goes.wait()
            if self.failure:
                raise self.failure
            return answer_budget.Answer({"size": self.size, "at": self.clock.now}, self.size)

        monkeypatch.setattr(Upstreams, "get_object", get_object)
        budget = answer_budget.AnswerBudget(1024 * 1024)
        self.waits = FallbackUpstreams(Times(1, 1), ssl.create_default_context(), budget, clock=self.clock)

    async def ask(self, path: str, after: float = 0.0) -> Any:
        """Ask `after` seconds later, and return the time of the answer."""
        self.clock.now += after
        return (await self.waits.get_object("n:1", path))["at"]


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(monkeypatch)


@on_asyncio
async def test_the_last_answer_stands_while_a_node_hangs(node: Node) -> None:
    waits = node.waits
    assert await node.ask("/a") == 0.0
    node.goes.clear()
    assert await node.ask("/a", after=12.0) == 0.0
    assert waits.stale() == {"n:1": 0.0}  # it was not asked before, so the time is unknown
    assert waits.data_age("n:1") == 12.0
    node.clock.now = 15.0
    assert waits.stale() == {"n:1": 3.0}
    began = time.monotonic()
    for _ in range(10):
        assert await node.ask("/a") == 0.0
    for _ in range(5):
        with pytest.raises(UpstreamError, match="has not answered yet"):
            await node.ask("/b")  # of which nothing is known
    assert time.monotonic() - began < 10  # and not fifteen times PATIENCE: see the number below
    assert (len(waits._asked), node.asked) == (2, 3), "one request is in progress at a time"
    node.goes.set()
    await asyncio.sleep(0.01)
    assert waits.data_age("n:1") == 15.0, "pages may still show the old answer"
    assert await node.ask("/a") == 15.0
    assert waits.stale() == {}


@on_asyncio
async def test_the_age_is_that_of_the_oldest_answer_that_is_shown(node: Node) -> None:
    waits = node.waits
    await node.ask("/a")
    await node.ask("/b", after=300)
    node.failure = UpstreamError("refused")
    await node.ask("/b", after=5)
    assert waits.data_age("n:1") == 5.0
    await node.ask("/a")
    assert waits.data_age("n:1") == 305.0, "and not that of the node's last answer"
    await node.ask("/b")
    assert waits.data_age("n:1") == 305.0
    node.failure = None
    await node.ask("/b", after=1)
    assert (waits.stale(), waits.data_age("n:1")) == ({"n:1": 1.0}, 306.0), "a page still shows the old /a"
    await node.ask("/a")
    assert (waits.stale(), waits.data_age("n:1")) == ({}, 0.0)


@on_asyncio
async def test_an_old_answer_that_no_page_shows_has_no_age(node: Node) -> None:
    await node.ask("/a")
    node.failure = UpstreamError("refused")
    await node.ask("/a", after=5)
    node.failure = None
    await node.ask("/b", after=1)
    assert node.waits.data_age("n:1") == 6.0
    node.clock.now += fallback.IN_USE
    assert (node.waits.stale(), node.waits.data_age("n:1")) == ({}, 0.0)
    node.failure = UpstreamError("refused")
    await node.ask("/a")
    node.failure = Refused("404", 404)
    with pytest.raises(Refused):
        await node.ask("/a")
    assert node.waits.data_age("n:1") == 0.0, "a refusal is an answer"


@on_asyncio
async def test_a_refusal_is_an_answer_and_a_failure_is_not(node: Node) -> None:
    await node.ask("/a")
    node.failure = Refused("404", 404)
    with pytest.raises(Refused):
        await node.ask("/a")
    assert node.waits.stale() == {}
    node.failure = UpstreamError("refused")
    assert await node.ask("/a", after=5) == 0.0
    assert (node.waits.stale(), node.waits.data_age("n:1")) == ({"n:1": 0.0}, 5.0)
    with pytest.raises(UpstreamError, match="refused"):
        await node.ask("/a", after=fallback.FORGOTTEN)


@on_asyncio
async def test_answers_are_bounded_large_ones_are_not_remembered_and_old_ones_are_forgotten(node: Node) -> None:
    node.size = LARGEST + 1
    assert await node.ask("/large") == 0.0
    node.size = 1
    await node.ask("/small")
    node.failure = UpstreamError("gone")
    with pytest.raises(UpstreamError):
        await node.ask("/large")
    assert await node.ask("/small") == 0.0
    node.clock.now += fallback.FORGOTTEN + 1
    node.waits.stale()
    assert [key[1] for key in node.waits._asked] == ["/large"]  # of which there is nothing but the key
    node.failure = None
    for number in range(MOST + 10):
        await node.ask(f"/{number}")
    assert len(node.waits._asked) == MOST
