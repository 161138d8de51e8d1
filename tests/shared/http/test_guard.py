"""A guard passes on one good request after another, each once the one before is answered; and its deadlines."""

from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.responses import Response

from shared.foreign import Foreign
from shared.http import guard
from shared.http.api import read_body
from tests.cases import each
from tests.shared.http.serving import LocalServing, all_of

GET = b"GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST /pub HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
CHUNKED = (
    b"POST /pub HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: Chunked\r\n\r\n"
    b"3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nHost: b\r\n\r\n"
)
UPGRADE = POST[:-4] % 2 + b"\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\nhi"


class Site(LocalServing):
    def __init__(self) -> None:
        self.seen: list[tuple[str, bytes]] = []  # method and body of each request
        self.at_once = self.most_at_once = 0
        super().__init__({"/ping": {"GET": self._see}, "/pub": {"POST": self._see}})

    async def _see(self, request: Request) -> Response:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        assert "upgrade" not in request.headers
        self.seen.append((request.method, await read_body(request, 1000, "TOO_BIG")))
        self.at_once -= 1
        return Response(b"seen")


@pytest.fixture(scope="module")
def server() -> Iterator[Site]:
    site = Site()
    yield site
    site.close()


@pytest.fixture
def site(server: Site) -> Site:
    server.seen.clear()
    return server


IN_A_CHUNK = CHUNKED.index(b"de") + 1


@example(requests=[CHUNKED], cuts=[IN_A_CHUNK], waits=True)
@given(
    requests=st.lists(st.sampled_from([GET, CHUNKED, UPGRADE]), max_size=5),
    cuts=st.lists(st.integers(0, 600), max_size=6),
    waits=st.booleans(),
)
def test_requests_cut_anywhere(server: Site, requests: list[bytes], cuts: list[int], waits: bool) -> None:
    server.seen.clear()
    data, answers = b"".join(requests), b""
    with server.connect() as client:
        for start, end in pairwise([0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]):
            client.sendall(data[start:end])
            if waits:
                server.node.advance(10_000_000)
        while answers.count(b"seen") < len(requests):
            answers += client.recv(65536)
    expected = {GET: ("GET", b""), CHUNKED: ("POST", b"abcde"), UPGRADE: ("POST", b"hi")}
    assert server.seen == [expected[request] for request in requests]
    assert server.most_at_once <= 1


def test_no_bytes_do_not_end_a_chunked_body(site: Site) -> None:
    with site.connect() as client:
        client.sendall(CHUNKED[:IN_A_CHUNK])
        site.node.advance(10_000_000)
        site.node.loop._transports[-1]._protocol.data_received(b"")
        client.sendall(CHUNKED[IN_A_CHUNK:])
        assert site.node.wait(lambda: site.seen)
    assert site.seen == [("POST", b"abcde")]


def test_requests_that_wait_are_bounded(site: Site) -> None:
    with site.connect(begins_with=GET * 1000) as client:
        answers = all_of(client)
    assert answers.count(b"HTTP/1.1 200 ") == len(site.seen) == 1 + guard.MAX_PIPELINED
    assert answers.endswith(b"400 Bad Request")


@each("sent, kind", [
    (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Foreign.HTTP2), (b"\x16\x03\x01\x02\x00\x01", Foreign.TLS),
    (b"*1\r\n$4\r\nPING\r\n", Foreign.RESP), (b"  V2SUB t c\n", Foreign.NSQ), (b"put 0 0 9 1\r\nx\r\n", Foreign.JOB),
    (b"GET / HTTP/3.0\r\n\r\n", None), (b"nonsense", None),
])  # fmt: skip
def test_foreign_protocols(site: Site, caplog: pytest.LogCaptureFixture, sent: bytes, kind: Foreign | None) -> None:
    caplog.clear()
    with site.connect(begins_with=sent) as client:
        assert all_of(client).startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert site.seen == []
    assert caplog.messages == ([f"HTTP: closed 127.0.0.1:1000, which sent {kind}"] if kind is not None else [])


# Deadlines


@each("sent, status, seconds", [
    (b"", b"", guard.HEADER_TIMEOUT), (GET[:9], b"", guard.HEADER_TIMEOUT), (GET, b" 200 ", guard.KEEP_ALIVE),
    (POST % 5 + b"x", b"", guard.BODY_TIMEOUT),
    ((POST % 5).replace(b"/pub", b"/ping") + b"x", b" 405 ", guard.BODY_TIMEOUT),  # answered before its body has come
])  # fmt: skip
def test_a_client_that_stops_or_is_idle_is_closed(site: Site, sent: bytes, status: bytes, seconds: float) -> None:
    began = site.now
    with site.connect() as client:
        client.sendall(sent)
        assert status in all_of(client)
    assert site.now - began == pytest.approx(seconds, abs=0.1)


def test_a_body_that_drips_is_cut_off(site: Site) -> None:
    with site.connect() as client:
        client.sendall(POST % 100)
        for _ in range(4):
            site.node.advance(29_000_000_000)
            client.sendall(b"x")
        began = site.now
        assert all_of(client) == b""
    assert site.now - began == pytest.approx(guard.WHOLE_BODY_TIMEOUT - 4 * 29, abs=0.1)


@each("rest", [b"", GET[20:]])
def test_a_header_that_was_half_read_elsewhere_has_only_the_time_that_is_left(site: Site, rest: bytes) -> None:
    began = site.now
    with site.connect(begins_with=GET[:20], header_within=5.0) as client:
        client.sendall(rest)
        assert all_of(client).endswith(b"seen" if rest else b"")
    assert site.now - began == pytest.approx(guard.KEEP_ALIVE if rest else 5.0, abs=0.1)
