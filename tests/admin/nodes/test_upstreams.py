"""Answers of nodes are bounded in bytes and memory, alone and together, and shared by concurrent callers."""

import asyncio
import gc
import gzip
import socket
import ssl
import threading
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager

import pytest

from admin.nodes.answer_budget import AT_ONCE, MEMORY_PER_BYTE, SHARES, AnswerBudget
from admin.nodes.cluster import MOST_OF_A_NODE, Cluster, Producer
from admin.nodes.upstreams import AT_ONCE as AT_ONCE_ALL
from admin.nodes.upstreams import EACH, Times, UpstreamError, Upstreams
from tests.admin.conftest import json_answer
from tests.admin.near_nodes import near
from tests.async_tests import on_asyncio
from tests.cases import each

SMALL = 128 * 1024  # bytes of an answer, for tests


@asynccontextmanager
async def asking(most: int = SMALL, connect: float = 30, request: float = 30) -> AsyncIterator[Upstreams]:
    upstreams = Upstreams(Times(connect, request), ssl.create_default_context(), AnswerBudget(most))
    async with upstreams._client:
        yield upstreams


MORE_MEMORY = b'{"topics":[' + b"[]," * (SMALL * MEMORY_PER_BYTE // 240) + b"[]]}"
MORE_BYTES = b'{"topics":[' + b"[]," * (SMALL // 3) + b"[]]}"


@each("content", [MORE_BYTES, MORE_MEMORY, b'{"a":' * 40 + b"1" + b"}" * 40, b"[]", b"{"])
@on_asyncio
async def test_a_lie_is_one_line_and_holds_nothing(content: bytes) -> None:
    with near(lambda path: (200, content)) as node:
        async with asking() as upstreams:
            with pytest.raises(UpstreamError) as failure:
                await upstreams.get_object(node, "/stats")
            line = str(failure.value)
            assert line.startswith((node, f"http://{node}"))
            assert "\n" not in line
            assert upstreams.answer_budget.held == 0


@on_asyncio
async def test_nothing_packed_is_asked_for_nor_taken() -> None:
    asked: list[str | None] = []
    packed = 200, gzip.compress(b'{"topics":[]}')
    on_request = lambda request: asked.append(request.headers["Accept-Encoding"])  # noqa: E731
    with near(lambda path: packed, {"Content-Encoding": "gzip"}, on_request) as node:
        async with asking() as upstreams:
            with pytest.raises(UpstreamError, match="Content-Encoding"):
                await upstreams.get_object(node, "/stats")
    assert asked == ["identity"]


@on_asyncio
async def test_what_an_answer_holds_is_charged_while_it_is_kept() -> None:
    with near(lambda path: json_answer({"topics": ["t"] * 1000})) as node:
        async with asking() as upstreams:
            kept = await upstreams.get_object(node, "/stats")
            assert kept.memory == upstreams.answer_budget.held > 8000
            del kept
            await asyncio.sleep(0)  # the loop forgets whom it called last
            gc.collect()
            assert upstreams.answer_budget.held == 0


@on_asyncio
async def test_all_answers_together_are_bounded() -> None:
    kept = []
    with near(lambda path: (200, b'{"a":["' + b"x" * 100_000 + b'"]}')) as node:
        async with asking() as upstreams:
            for number in range(100):
                more = await upstreams.all_of([node], lambda one, at=number: upstreams.get_object(one, f"/{at}"))  # type: ignore[misc]
                if more.errors:
                    break
                kept.append(more.answers[node])
            (line,) = more.errors
            assert upstreams.answer_budget.held <= SHARES * SMALL
    assert "others hold" in line
    assert "-max-upstream-response" in line


class Slow:
    """Answers, with their number, that wait until the test says so."""

    def __init__(self, first_only: bool = False) -> None:
        self.asked: list[str] = []
        self.goes = asyncio.Event()
        self.first_only = first_only

    async def answer(self, path: str) -> tuple[int, bytes]:
        if path != "/topic/create?topic=t":
            self.asked.append(path)
            if not self.first_only or len(self.asked) == 1:
                await self.goes.wait()
        return json_answer({"number": len(self.asked)})

    async def until(self, count: int) -> None:
        while len(self.asked) < count:
            await asyncio.sleep(0)


@on_asyncio
async def test_who_asks_meanwhile_shares_the_answer() -> None:
    slow = Slow()
    with near(slow.answer) as node:
        async with asking() as upstreams:
            tasks = [asyncio.create_task(upstreams.get_object(node, "/stats", {"a": "b"})) for _ in range(20)]
            await slow.until(1)
            tasks[0].cancel()  # does not take it from the others
            slow.goes.set()
            with pytest.raises(asyncio.CancelledError):
                await tasks[0]
            assert [(await task)["number"] for task in tasks[1:]] == [1] * 19
            assert (await upstreams.get_object(node, "/stats", {"a": "b"}))["number"] == 2


@on_asyncio
async def test_an_answer_of_before_a_change_does_not_serve_who_asks_after_it() -> None:
    slow = Slow(first_only=True)
    with near(slow.answer) as node:
        async with asking() as upstreams:
            before = asyncio.create_task(upstreams.get_object(node, "/stats"))
            await slow.until(1)
            await upstreams.post(node, "/topic/create", {"topic": "t"})
            assert (await upstreams.get_object(node, "/stats"))["number"] == 2
            slow.goes.set()
            await before


@on_asyncio
async def test_a_node_that_hangs_leaves_the_others_their_connections() -> None:
    slow = Slow()
    with near(slow.answer) as hangs, near(lambda path: json_answer({"a": 1})) as well:
        async with asking() as upstreams:  # 200 requests wait for a few connections
            hanging = [asyncio.create_task(upstreams.get_object(hangs, f"/{number}")) for number in range(200)]
            await slow.until(EACH)
            assert await upstreams.get_object(well, "/stats") == {"a": 1}
            assert len(slow.asked) == EACH
            slow.goes.set()
            await asyncio.gather(*hanging)


@pytest.mark.process
@on_asyncio
async def test_hundreds_of_nodes_that_hang_do_not_keep_the_others_waiting() -> None:
    with ExitStack() as stack:
        servers = (stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(AT_ONCE_ALL + 50))
        silent = [f"127.0.0.1:{server.getsockname()[1]}" for server in servers]
        well = stack.enter_context(near(lambda path: json_answer({"a": 1})))
        async with asking(connect=4, request=4) as upstreams:
            for _ in range(3):  # the first times it is not known which ones hang
                found = await upstreams.all_of([*silent, well], lambda one: upstreams.get_object(one, "/stats"))
            assert found.answers == {well: {"a": 1}}
            assert len(found.errors) == len(silent)


@on_asyncio
async def test_large_answers_are_parsed_in_another_thread() -> None:
    bounds = AnswerBudget(32 * 1024 * 1024)
    own = threading.get_ident()
    assert await bounds.run_in_thread(AT_ONCE, threading.get_ident) == own
    assert await bounds.run_in_thread(AT_ONCE + 1, threading.get_ident) != own
    bounds._thread.shutdown()


@on_asyncio
async def test_a_node_that_lists_too_much_is_an_error_and_the_others_are_shown() -> None:
    many = b'{"topics":[' + b",".join(b'{"topic_name":"t%d"}' % number for number in range(MOST_OF_A_NODE + 1)) + b"]}"
    one = json_answer({"topics": [{"topic_name": "t"}]})
    with near(lambda path: (200, many)) as liar, near(lambda path: one) as well:
        async with asking(32 * 1024 * 1024) as upstreams:
            hosts = [address.rpartition(":") for address in (liar, well)]
            producers = [Producer("h", host, 1, int(port), "1.3.0") for host, _, port in hosts]
            found = await Cluster(upstreams, lambda: (), (liar, well)).stats(producers)
    assert [topic["topic_name"] for topic in found.topics] == ["t"]
    (line,) = found.errors
    assert line.startswith(liar)
