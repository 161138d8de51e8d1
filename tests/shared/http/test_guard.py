"""A guard passes on one good request after another, each once the one before is answered, however they were cut.

No socket is opened: the transport and the protocol behind the guard are the test's own.
"""

import asyncio
import functools
import inspect
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from httptools import HttpRequestParser
from hypothesis import example, given
from hypothesis import strategies as st
from starlette.types import Receive, Scope, Send

from shared.budget import Budget
from shared.foreign import Foreign
from shared.http.guard import MAX_PIPELINED, GuardedProtocol, guarded
from tests.cases import each

Seen = tuple[bytes, bytes, tuple[tuple[bytes, bytes], ...], bytes]  # method, target, headers without framing, body

GET = b"GET /ping HTTP/1.1\r\nHost: a\r\n\r\n"
CHUNKED = b"POST /pub HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nHost: b\r\n\r\n"
UPGRADE = b"POST /pub HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\nhi"


class Wire(asyncio.Transport):
    """The network's side: the bytes written to it, and whether it is read from."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closing = False
        self.reading = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: Any) -> None:
        self.written += data

    def close(self) -> None:
        self.closing = True

    abort = close

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.closing = True

    def is_closing(self) -> bool:
        return self.closing

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


class Behind(asyncio.Protocol):
    """A protocol behind a guard. It runs the guard's application when a request is complete, and answers when told to."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.state = state
        self.seen: list[Seen] = []
        self.raw = b""
        self.most = 0  # requests at a time
        self.running: list[asyncio.Future[None]] = []
        self._parser: Any = HttpRequestParser(self)
        self.ended = False

    def data_received(self, data: bytes) -> None:
        assert not self.ended
        self.raw += data
        self._parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended = True

    def on_message_begin(self) -> None:
        self._url, self._body = b"", b""
        self._headers: list[tuple[bytes, bytes]] = []

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() not in (b"transfer-encoding", b"content-length"):
            self._headers.append((name, value))

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        self.seen.append((self._parser.get_method(), self._url, tuple(self._headers), self._body))
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.running.append(answer)
        self.most = max(self.most, len(self.running))

        async def application(scope: Scope, receive: Receive, send: Send) -> None:
            await answer
            self.running.remove(answer)

        scope: Scope = {"state": dict(self.state), "client": None, "method": "", "raw_path": b"", "query_string": b""}
        self._task = asyncio.ensure_future(guarded(application)(scope, _receive, _send))


async def _receive() -> Any:
    raise AssertionError


async def _send(message: Any) -> None:
    raise AssertionError


class Bench:
    """A guard between a wire and a protocol."""

    def __init__(self) -> None:
        self.wire = Wire()
        self.behind: Behind
        self.guard = GuardedProtocol(self._make, Budget())
        self.guard.connection_made(self.wire)

    def _make(self, state: dict[str, Any]) -> Behind:
        self.behind = Behind(state)
        return self.behind

    async def answer(self) -> None:
        """Answer all requests that are answered one after another."""
        while self.behind.running:
            self.behind.running[0].set_result(None)
            for _ in range(5):
                await asyncio.sleep(0)

    async def end(self) -> None:
        await self.answer()
        self.guard.connection_lost(None)


def on_a_bench(test: Callable[..., Any]) -> Callable[..., None]:
    """Make a test of an async function that takes a bench."""

    @functools.wraps(test)
    def runs(*values: Any, **more: Any) -> None:
        async def main() -> None:
            bench = Bench()
            await test(bench, *values, **more)
            await bench.end()

        asyncio.run(main())

    signature = inspect.signature(test)
    runs.__signature__ = signature.replace(parameters=[*signature.parameters.values()][1:])  # type: ignore[attr-defined]
    return runs


@on_a_bench
async def test_a_request_waits_for_the_answer_to_the_one_before(bench: Bench) -> None:
    bench.guard.data_received(GET * 3 + CHUNKED[:-9])
    assert len(bench.behind.seen) == 1
    assert not bench.wire.reading
    await bench.answer()
    assert [seen[0] for seen in bench.behind.seen] == [b"GET"] * 3
    assert bench.wire.reading  # for the rest of the last one
    bench.guard.data_received(CHUNKED[-9:])
    assert bench.behind.seen[3] == (b"POST", b"/pub", ((b"Host", b"a"),), b"abcde")
    assert bench.behind.most == 1


@each("sent, kind", [
    (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Foreign.HTTP2), (b"\x16\x03\x01\x02\x00\x01", Foreign.TLS),
    (b"*1\r\n$4\r\nPING\r\n", Foreign.RESP), (b"  V2SUB t c\n", Foreign.NSQ), (b"put 0 0 9 1\r\nx\r\n", Foreign.JOB),
    (b"GET / HTTP/3.0\r\n\r\n", None), (b"nonsense", None),
])  # fmt: skip
@on_a_bench
async def test_other_protocols_are_refused_and_the_log_says_which(
    bench: Bench, caplog: pytest.LogCaptureFixture, sent: bytes, kind: Foreign | None
) -> None:
    caplog.clear()
    bench.guard.data_received(sent)
    assert bench.behind.seen == []
    await asyncio.sleep(0)
    assert bench.wire.written.startswith(b"HTTP/1.1 400 ")
    assert bench.wire.closing
    assert caplog.messages == ([f"HTTP: closed :, which sent {kind}"] if kind is not None else [])


@on_a_bench
async def test_framing_and_trailers_are_written_anew_and_an_upgrade_is_not_passed_on(bench: Bench) -> None:
    bench.guard.data_received(CHUNKED)
    await bench.answer()
    bench.guard.data_received(UPGRADE)
    assert bench.behind.raw == (
        b"POST /pub HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
        b"POST /pub HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nContent-Length: 2\r\n\r\nhi"
    )


@each("good", [0, 1, 3])
@each("bad", [b"nonsense\r\n\r\n", CHUNKED.replace(b"\r\n2\r\nde", b"\r\nXX"), b"GET x HTTP/1.1\r\n\r\n"])
@on_a_bench
async def test_a_bad_request_is_refused_behind_the_answers_and_never_passed_on(
    bench: Bench, good: int, bad: bytes
) -> None:
    bench.guard.data_received(GET * good + bad + GET)
    assert len(bench.behind.seen) == min(good, 1)
    await bench.answer()
    assert bench.behind.raw == GET * good
    assert bench.wire.written.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert bench.wire.closing


@on_a_bench
async def test_requests_that_wait_are_bounded(bench: Bench) -> None:
    bench.guard.data_received(GET * 1000)
    await bench.answer()
    assert len(bench.behind.seen) == 1 + MAX_PIPELINED
    assert b" 400 " in bench.wire.written


@on_a_bench
async def test_nothing_is_passed_on_after_the_protocol_behind_has_closed(bench: Bench) -> None:
    bench.guard.data_received(GET * 2)
    bench.guard._answers.close()
    await bench.answer()
    bench.guard.data_received(GET)
    assert len(bench.behind.seen) == 1


REQUESTS = st.lists(st.sampled_from([GET, CHUNKED, UPGRADE]), max_size=5)


IN_A_CHUNK = CHUNKED.index(b"de") + 1


@example(
    requests=[CHUNKED], cuts=[IN_A_CHUNK, IN_A_CHUNK], early=True
)  # the parser is given nothing, and reports nothing
@given(requests=REQUESTS, cuts=st.lists(st.integers(0, 600), max_size=6), early=st.booleans())
@on_a_bench
async def test_requests_are_the_same_however_they_are_cut(
    bench: Bench, requests: list[bytes], cuts: list[int], early: bool
) -> None:
    data = b"".join(requests)
    expected = {
        GET: (b"GET", b"/ping", ((b"Host", b"a"),), b""),
        CHUNKED: (b"POST", b"/pub", ((b"Host", b"a"),), b"abcde"),
        UPGRADE: (b"POST", b"/pub", ((b"Host", b"a"), (b"Connection", b"Upgrade")), b"hi"),
    }
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for start, end in pairwise(places):
        bench.guard.data_received(data[start:end])
        if early:
            await bench.answer()
    await bench.answer()
    assert bench.behind.seen == [expected[request] for request in requests]
    assert bench.behind.most <= 1
    assert bench.wire.written == b""
