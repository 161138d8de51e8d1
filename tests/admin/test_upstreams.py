"""What nodes answer, who may lie: bounded in bytes and memory, alone and together; asked once for all who ask at a time."""

from __future__ import annotations

import asyncio
import gc
import gzip
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import TypeVar

import pytest

from admin.answer_budget import AT_ONCE, MEMORY_PER_BYTE, SHARES, AnswerBudget
from admin.cluster import MOST_OF_A_NODE, Cluster, Producer
from admin.response_cache import ResponseCache
from admin.upstreams import AT_ONCE as AT_ONCE_ALL
from admin.upstreams import EACH, Times, UpstreamError, Upstreams
from shared.http.bounded import AnswerError
from tests.admin.asking import OURS, browser, make
from tests.admin.conftest import told, upstream
from tests.async_tests import on_asyncio

pytestmark = pytest.mark.process

SMALL = 128 * 1024  # bytes of an answer, for tests
T = TypeVar("T")


def asking(work: Callable[[Upstreams], Awaitable[T]], most: int = SMALL, request: float = 5) -> T:
    async def run() -> T:
        upstreams = Upstreams(Times(1, request), ssl.create_default_context(), AnswerBudget(most))
        try:
            return await work(upstreams)
        finally:
            await upstreams.close()

    return asyncio.run(run())


LIES = {
    "more bytes": b'{"topics":[' + b"[]," * (SMALL // 3) + b"[]]}",
    "more memory": b'{"topics":[' + b"[]," * (SMALL * MEMORY_PER_BYTE // 240) + b"[]]}",
    "nested": b'{"a":' * 40 + b"1" + b"}" * 40,
    "no object": b"[]",
    "no JSON": b"{",
}


@pytest.mark.parametrize("content", LIES.values(), ids=LIES)
def test_a_lie_is_one_line_and_holds_nothing(content: bytes) -> None:
    async def work(upstreams: Upstreams) -> tuple[str, int]:
        with pytest.raises(UpstreamError) as failure:
            await upstreams.get_object(node, "/stats")
        return str(failure.value), upstreams.answer_budget.held

    with upstream(lambda path: (200, content)) as node:
        line, held = asking(work)
    assert line.startswith((node, f"http://{node}"))
    assert "\n" not in line
    assert held == 0


def test_nothing_packed_is_asked_for_nor_taken() -> None:
    asked: list[str | None] = []

    def answer(path: str) -> tuple[int, bytes]:
        return 200, gzip.compress(b'{"topics":[]}')

    async def work(upstreams: Upstreams) -> None:
        with pytest.raises(UpstreamError, match="Content-Encoding"):
            await upstreams.get_object(node, "/stats")

    with upstream(
        answer, {"Content-Encoding": "gzip"}, lambda headers: asked.append(headers["Accept-Encoding"])
    ) as node:
        asking(work)
    assert asked == ["identity"]


def test_what_an_answer_holds_is_charged_while_it_is_kept() -> None:
    async def work(upstreams: Upstreams) -> list[int]:
        kept = await upstreams.get_object(node, "/stats")
        found = [kept.memory, upstreams.answer_budget.held]
        del kept
        await asyncio.sleep(0)  # the loop forgets whom it called last
        gc.collect()
        return [*found, upstreams.answer_budget.held]

    with upstream(lambda path: told({"topics": ["t"] * 1000})) as node:
        memory, held, after = asking(work)
    assert memory == held > 8000
    assert after == 0


def test_all_answers_together_are_bounded() -> None:
    async def work(upstreams: Upstreams) -> list[str]:
        kept = await upstreams.all_of([f"{node}"], lambda one: upstreams.get_object(one, "/0"))
        for number in range(1, 100):
            more = await upstreams.all_of([node], lambda one, path=f"/{number}": upstreams.get_object(one, path))  # type: ignore[misc]
            if more.errors:
                assert upstreams.answer_budget.held <= SHARES * SMALL
                return more.errors
            kept.answers[str(number)] = more.answers[node]
        return []

    with upstream(lambda path: (200, b'{"a":["' + b"x" * 100_000 + b'"]}')) as node:
        (line,) = asking(work)
    assert "others hold" in line
    assert "-max-upstream-response" in line


def test_a_budget_that_is_spent_is_given_back() -> None:
    bounds = AnswerBudget(1000)
    bounds.charge(SHARES * 1000)
    with pytest.raises(AnswerError):
        bounds.charge(1)
    bounds.release(1)
    bounds.charge(1)
    assert bounds.held == bounds.most_held


def test_who_asks_meanwhile_shares_the_answer() -> None:
    asked: list[str] = []
    goes = threading.Event()

    def answer(path: str) -> tuple[int, bytes]:
        asked.append(path)
        goes.wait(20)
        return told({"number": len(asked)})

    async def work(upstreams: Upstreams) -> None:
        tasks = [asyncio.create_task(upstreams.get_object(node, "/stats", {"a": "b"})) for _ in range(20)]
        while not asked:
            await asyncio.sleep(0.001)
        tasks[0].cancel()  # does not take it from the others
        goes.set()
        with pytest.raises(asyncio.CancelledError):
            await tasks[0]
        assert [(await task)["number"] for task in tasks[1:]] == [1] * 19
        assert (await upstreams.get_object(node, "/stats", {"a": "b"}))["number"] == 2

    with upstream(answer) as node:
        asking(work)


def test_an_answer_of_before_a_change_does_not_serve_who_asks_after_it() -> None:
    asked: list[str] = []
    goes = threading.Event()

    def answer(path: str) -> tuple[int, bytes]:
        if path == "/stats":
            asked.append(path)
            if len(asked) == 1:
                goes.wait(20)
        return told({"number": len(asked)})

    async def work(upstreams: Upstreams) -> None:
        before = asyncio.create_task(upstreams.get_object(node, "/stats"))
        while not asked:
            await asyncio.sleep(0.001)
        await upstreams.post(node, "/topic/create", {"topic": "t"})
        assert (await upstreams.get_object(node, "/stats"))["number"] == 2
        goes.set()
        await before

    with upstream(answer) as node:
        asking(work)


def test_a_node_that_hangs_leaves_the_others_their_connections() -> None:
    asked: list[str] = []
    goes = threading.Event()

    def hang(path: str) -> tuple[int, bytes]:
        asked.append(path)
        goes.wait(20)
        return told({})

    async def work(upstreams: Upstreams) -> None:
        hanging = [asyncio.create_task(upstreams.get_object(hangs, f"/{number}")) for number in range(200)]
        while len(asked) < EACH:
            await asyncio.sleep(0.001)
        assert await upstreams.get_object(well, "/stats") == {"a": 1}
        assert len(asked) == EACH
        goes.set()
        await asyncio.gather(*hanging)

    with upstream(hang) as hangs, upstream(lambda path: told({"a": 1})) as well:
        asking(work, request=60)  # 200 questions wait for a few connections, which takes time on a busy machine


@on_asyncio
async def test_hundreds_of_nodes_that_hang_do_not_keep_the_others_waiting() -> None:
    """Whoever reaches nsqlookupd registers as many nodes as it lets him."""
    with ExitStack() as stack:
        silent = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
            for _ in range(AT_ONCE_ALL + 50)
        ]
        well = stack.enter_context(upstream(lambda path: told({"a": 1})))
        nodes = [*(f"127.0.0.1:{port}" for port in silent), well]
        upstreams = Upstreams(Times(4, 4), ssl.create_default_context(), AnswerBudget(SMALL))
        for _ in range(2):  # the first time nobody knows which ones they are
            await upstreams.all_of(nodes, lambda one: upstreams.get_object(one, "/stats"))
        found = await upstreams.all_of(nodes, lambda one: upstreams.get_object(one, "/stats"))
        assert found.answers == {well: {"a": 1}}
        assert len(found.errors) == len(silent)
        await upstreams.close()


@on_asyncio
async def test_large_answers_are_parsed_in_another_thread() -> None:
    bounds = AnswerBudget(32 * 1024 * 1024)
    ours = threading.get_ident()
    assert await bounds.run_in_thread(AT_ONCE, threading.get_ident) == ours
    assert await bounds.run_in_thread(AT_ONCE + 1, threading.get_ident) != ours
    bounds.close()


def test_a_node_that_tells_of_too_much_is_an_error_and_the_others_are_shown() -> None:
    many = b'{"topics":[' + b",".join(b'{"topic_name":"t%d"}' % number for number in range(MOST_OF_A_NODE + 1)) + b"]}"

    async def work(upstreams: Upstreams) -> tuple[list[str], list[str]]:
        cluster = Cluster(upstreams, lambda: (), (liar, well))
        hosts = [address.rpartition(":") for address in (liar, well)]
        producers = [Producer("h", host, 1, int(port), "1.3.0") for host, _, port in hosts]
        found = await cluster.stats(producers)
        return [topic["topic_name"] for topic in found.topics], found.errors

    with (
        upstream(lambda path: (200, many)) as liar,
        upstream(lambda path: told({"topics": [{"topic_name": "t"}]})) as well,
    ):
        names, (line,) = asking(work, 32 * 1024 * 1024)
    assert names == ["t"]
    assert line.startswith(liar)


def test_a_rogue_node_among_others_is_told_of_on_the_pages() -> None:
    """Its /stats was 48 MB of lists: nsqadmin went from 58 MB to 10.4 GB, and answered nobody."""

    def answer(path: str) -> tuple[int, bytes]:
        if path.startswith("/info"):
            return told({"broadcast_address": "127.0.0.1", "http_port": port, "hostname": "rogue"})
        return (200, LIES["more memory"]) if path.startswith("/stats") else (404, b"{}")

    async def work() -> tuple[int, str]:
        async with browser(make(nsqd_http_address=(node,), max_upstream_response=SMALL), **OURS) as client:
            found = await client.get("/api/topics")
            for page in ("/", "/nodes", "/topics/t", "/api/counter"):
                assert (await client.get(page)).status_code == 502
            return found.status_code, found.text

    with upstream(answer) as node:
        port = int(node.rpartition(":")[2])
        status, text = asyncio.run(work())
    assert status == 502
    assert "bytes of memory" in text


@on_asyncio
async def test_answers_that_are_remembered_hold_a_bounded_memory() -> None:
    class Large:
        memory = 40

    async def question() -> Large:
        return Large()

    watch = ResponseCache(lambda: 0.0, most_memory=100)
    for key in range(5):
        await watch.get(key, question)
    assert [watch.has_answer(key) for key in range(5)] == [False, False, False, True, True]
