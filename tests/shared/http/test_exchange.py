"""One exchange: what it sends on, and its line in the log. No socket."""

import asyncio
import logging

from starlette.types import Message, Scope

from shared.budget import FREE, Budget
from shared.http.exchange import PIECE, Exchange
from shared.log import log
from tests.cases import each


def scope(client: tuple[str, int] | None = ("127.0.0.1", 4711)) -> Scope:
    target = {"path": "/inf", "raw_path": b"/%69nf", "query_string": b"a=b%20c"}
    return {"client": client, "method": "GET", "headers": [], **target}


def start(size: int) -> Message:
    return {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % size)]}


def body(content: bytes, more: bool = False) -> Message:
    return {"type": "http.response.body", "body": content, "more_body": more}


def answered(budget: Budget, *messages: Message, where: Scope | None = None) -> list[Message]:
    """What of an answer reaches the connection."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def converse() -> None:
        exchange = Exchange(where or scope(), send, budget, lambda: None)
        for number, message in enumerate(messages):
            assert number or not sent
            await exchange.send(message)
        exchange.end()

    before = budget.figures().used
    asyncio.run(converse())
    assert budget.figures().used == before
    return sent


def test_a_small_answer_passes_a_stream_is_not_counted_and_what_is_beyond_the_budget_becomes_503() -> None:
    budget = Budget(FREE)
    assert answered(budget, start(5), body(b"hello")) == [start(5), body(b"hello")]
    sent = answered(budget, start(10 * FREE), body(bytes(FREE), more=True), body(bytes(9 * FREE)))
    assert sum(len(message.get("body", b"")) for message in sent) == 10 * FREE
    assert budget.figures().peak == 0
    budget = Budget(FREE)
    budget.charge(1, "10.0.0.1")
    sent = answered(budget, start(2 * FREE), body(bytes(2 * FREE)))
    assert [message.get("status") for message in sent] == [503, None]


@each("size", [PIECE + 1, 3 * PIECE, 3 * PIECE + 7])
def test_a_large_answer_leaves_in_pieces(size: int) -> None:
    budget, content = Budget(100 * PIECE), bytes(range(256)) * (size // 256 + 1)
    first, *rest = answered(budget, start(size), body(content[:size]))
    assert first == start(size)
    assert b"".join(message["body"] for message in rest) == content[:size]
    assert max(len(message["body"]) for message in rest) == PIECE
    assert [message["more_body"] for message in rest] == [True] * (len(rest) - 1) + [False]
    assert budget.figures().peak == size


def logged(level: int, where: Scope) -> list[str]:
    """Return the lines, each with its level, that a short answer makes when the log is at this level."""
    lines, before, handler = list[str](), log.level, logging.Handler()
    handler.emit = lambda record: lines.append(f"{record.levelname} {record.getMessage()}")  # type: ignore[method-assign]
    log.addHandler(handler)
    log.setLevel(level)
    try:
        answered(Budget(), start(2), body(b"OK"), where=where)
    finally:
        log.removeHandler(handler)
        log.setLevel(before)
    return lines


@each("client, shown", [(("127.0.0.1", 4711), "127.0.0.1:4711"), (("::1", 4711), "[::1]:4711"), (None, "@")])
def test_a_request_is_a_line_at_info(client: tuple[str, int] | None, shown: str) -> None:
    (line,) = logged(logging.INFO, scope(client))
    assert line.startswith(f"INFO 200 GET /%69nf?a=b%20c ({shown}) ")
    assert line.endswith(("ns", "µs", "ms"))
    assert logged(logging.WARNING, scope(client)) == []


@each("method, path, headers, routine", [
    ("GET", "/ping", {}, True), ("HEAD", "/readyz", {}, True), ("GET", "/metrics", {}, True), ("GET", "/stats", {}, False),
    ("GET", "/stats", {"x-nsq-extensions": "true"}, True),  # nsqadmin
    ("POST", "/topic/pause", {"x-nsq-extensions": "true"}, False), ("GET", "/", {"sec-fetch-dest": "document"}, False),
    ("POST", "/pub", {}, True), ("POST", "/mpub", {}, True),
    ("GET", "/", {"sec-fetch-dest": "empty"}, True),  # a page of nsqadmin fetches what has changed
    ("GET", "/", {"hx-request": "true"}, True),
])  # fmt: skip
def test_routine_requests_are_at_debug(method: str, path: str, headers: dict[str, str], routine: bool) -> None:
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    (line,) = logged(logging.DEBUG, {**scope(), "method": method, "path": path, "headers": raw})
    assert line.startswith("DEBUG " if routine else "INFO ")
