"""One exchange: what it sends on, and its line in the log. No socket."""

import asyncio
import logging

import pytest
from starlette.types import Message, Scope

from shared.budget import FREE, Budget
from shared.http.answer_log import go_duration
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
        for message in messages:
            await exchange.send(message)
        exchange.end()

    asyncio.run(converse())
    assert budget.figures().used == 0
    return sent


def test_a_small_answer_passes_as_it_is() -> None:
    budget = Budget(FREE)
    assert answered(budget, start(5), body(b"hello")) == [start(5), body(b"hello")]
    assert budget.figures().peak == 0


@pytest.mark.parametrize("size", [PIECE + 1, 3 * PIECE, 3 * PIECE + 7])
def test_a_large_answer_leaves_in_pieces(size: int) -> None:
    budget, content = Budget(100 * PIECE), bytes(range(256)) * (size // 256 + 1)
    first, *rest = answered(budget, start(size), body(content[:size]))
    assert first == start(size)
    assert b"".join(message["body"] for message in rest) == content[:size]
    assert max(len(message["body"]) for message in rest) == PIECE
    assert [message["more_body"] for message in rest] == [True] * (len(rest) - 1) + [False]
    assert budget.figures().peak == size


def test_an_answer_beyond_the_budget_becomes_503() -> None:
    budget = Budget(FREE)
    budget.charge(1, "10.0.0.1")
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def converse() -> None:
        exchange = Exchange(scope(), send, budget, lambda: None)
        await exchange.send(start(2 * FREE))
        assert sent == []
        await exchange.send(body(bytes(2 * FREE)))
        exchange.end()

    asyncio.run(converse())
    assert [message.get("status") for message in sent] == [503, None]
    assert budget.figures().used == 1


def test_a_stream_with_a_length_is_not_in_memory_and_not_counted() -> None:
    budget = Budget(FREE)
    sent = answered(budget, start(10 * FREE), body(bytes(FREE), more=True), body(bytes(9 * FREE)))
    assert sum(len(message.get("body", b"")) for message in sent) == 10 * FREE
    assert budget.figures().peak == 0


class Lines(logging.Handler):
    """A handler that keeps the lines that were logged."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.levelname} {record.getMessage()}")


@pytest.mark.parametrize(
    ("client", "told"), [(("127.0.0.1", 4711), "127.0.0.1:4711"), (("::1", 4711), "[::1]:4711"), (None, "@")]
)
def test_a_request_is_a_line_at_info(client: tuple[str, int] | None, told: str) -> None:
    lines, level = Lines(), log.level
    log.addHandler(lines)
    log.setLevel(logging.INFO)
    try:
        answered(Budget(), start(2), body(b"OK"), where=scope(client))
        log.setLevel(logging.WARNING)
        answered(Budget(), start(2), body(b"OK"), where=scope(client))
    finally:
        log.removeHandler(lines)
        log.setLevel(level)
    (line,) = lines.lines
    assert line.startswith(f"INFO 200 GET /%69nf?a=b%20c ({told}) ")
    assert line.endswith(("ns", "µs", "ms"))


@each(
    "ns, text",
    [(999, "999ns"), (12_300, "12.3µs"), (999_999, "999.999µs"), (1_000_000, "1ms"), (2_345_678, "2.345678ms")]
    + [(59_000_000_000, "59s"), (60_500_000_000, "1m0.5s"), (7_203_000_000_001, "2h0m3.000000001s")],
)
def test_durations_are_told_as_by_go(ns: int, text: str) -> None:
    assert go_duration(ns) == text


@each(
    "method, path, headers, routine",
    [
        ("GET", "/ping", {}, True),
        ("HEAD", "/readyz", {}, True),
        ("GET", "/metrics", {}, True),
        ("GET", "/stats", {}, False),
        ("GET", "/stats", {"x-nsq-extensions": "true"}, True),  # nsqadmin
        ("POST", "/topic/pause", {"x-nsq-extensions": "true"}, False),
        ("GET", "/", {"sec-fetch-dest": "document"}, False),
        ("GET", "/", {"sec-fetch-dest": "empty"}, True),  # a page of nsqadmin fetches what has changed
        ("GET", "/", {"hx-request": "true"}, True),
    ],
)
def test_what_programs_repeat_is_a_line_at_debug(
    method: str, path: str, headers: dict[str, str], routine: bool
) -> None:
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    where = {**scope(), "method": method, "path": path, "headers": raw}
    lines, level = Lines(), log.level
    log.addHandler(lines)
    log.setLevel(logging.DEBUG)
    try:
        answered(Budget(), start(2), body(b"OK"), where=where)
    finally:
        log.removeHandler(lines)
        log.setLevel(level)
    assert lines.lines[0].startswith("DEBUG " if routine else "INFO ")
