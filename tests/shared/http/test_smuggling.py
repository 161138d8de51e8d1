"""Requests that two servers in a row might read differently: alone we answer 400 and close; behind nginx nothing slips through.

One request in is one request seen: what hides in another's body never reaches a handler.
"""

import socket
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import Response

from shared.http.api import read_body
from tests.cases import each
from tests.daemons import eventually
from tests.local_node import MemorySocket
from tests.requirements import nginx, require
from tests.shared.http.serving import LocalServing, Routes, Serving, all_of

POST = b"POST /pub HTTP/1.1\r\nHost: localhost\r\n"
GET = b"GET /ping HTTP/1.1\r\nHost: localhost\r\n"
HIDDEN = b"GET /hidden HTTP/1.1\r\nHost: localhost\r\n\r\n"
UPGRADE = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAA\r\n"  # as Java's client
CHUNKED = b"Transfer-Encoding: chunked\r\n"

LOCAL = b" HTTP/1.1\r\nHost: localhost\r\n\r\n"
ENDLESS = GET + b"X-A: y\r\n" * 9 + b"X-B: " + b"y" * 100_000  # it ends at its deadline
BAD = [
    # two ideas of where the body ends
    *(POST + headers + b"\r\n\r\nhello" + HIDDEN for headers in (
        b"Content-Length: 0\r\nContent-Length: 46", b"Content-Length: 5\r\nContent-Length: 5", b"Content-Length: 5, 5",
        b"Content-Length: +5", b"Content-Length: -1", b"Content-Length: 0x5", b"Content-Length: 5 5", b"Content-Length : 5",
        b"Content-Length: 18446744073709551621", b"X-A: b\nContent-Length: 5", b"X-A: b\r\n Content-Length: 5",
    )),
    *(POST + headers + b"\r\n\r\n0\r\n\r\n" + HIDDEN for headers in (
        b"Content-Length: 6\r\nTransfer-Encoding: chunked", b"Transfer-Encoding: chunked\r\nContent-Length: 6",
        b"Transfer-Encoding: xchunked", b"Transfer-Encoding: chunked, identity", b"Transfer-Encoding: identity, chunked",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", b"Transfer-Encoding: gzip, chunked",
        b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked", b"Transfer-Encoding : chunked",
        b"Transfer-Encoding: \x0bchunked", b"Transfer-Encoding:\r\n chunked",
    )),
    POST.replace(b"/1.1", b"/1.0") + CHUNKED + b"\r\n0\r\n\r\n" + HIDDEN,
    # ends of lines, NUL, and a space before the first header
    *(head + HIDDEN for head in (
        b"GET /ping HTTP/1.1\nHost: localhost\r\n\r\n", GET + b"X-A: b\r\n\n", b"GET /ping HTTP/1.1\nHost: localhost\n\n",
        GET + b"X-A: b\rX-B: c\r\n\r\n", b"GET /ping HTTP/1.1\r\n Host: localhost\r\n\r\n", GET + b"X-A: a\0b\r\n\r\n",
        GET + b"X\0A: b\r\n\r\n", b"GET /pi\0ng" + LOCAL, b"GE\0T /ping" + LOCAL,
    )),
    # chunks
    *(POST + CHUNKED + b"\r\n" + chunks + b"0\r\n\r\n" + HIDDEN for chunks in (
        b"5\r\nhelloXX", b"5\r\nhello\n", b"5\nhello\r\n", b"5;a\nhello\r\n", b"0x5\r\nhello\r\n", b"-5\r\nhello\r\n",
        b"\r\nhello\r\n", b"10000000000000005\r\nhello\r\n",
    )),
    *(POST + CHUNKED + b"\r\n5" + endless + b"a" * 300_000 for endless in (b";", b"\r\nhello\r\n0\r\nX: ")),
    # sizes
    GET + b"".join(b"X-%d: y\r\n" % i for i in range(1_000)) + b"\r\n", GET + b"X-A: " + b"y" * 65_536 + b"\r\n\r\n", ENDLESS,
    GET + b"X" * 65_536 + b": y\r\n\r\n", b"GET /" + b"y" * 65_536 + LOCAL,
    # whose request it is
    b"GET http://localhost/ping" + LOCAL, b"GET http://other/ping" + LOCAL, b"CONNECT /ping" + LOCAL + HIDDEN,
    b"CONNECT other:80 HTTP/1.1\r\nHost: other:80\r\n\r\n" + HIDDEN, b"CONNECT /ping HTTP/1.0\r\n\r\n" + HIDDEN,
    b"GET ping" + LOCAL + HIDDEN, b"GET /ping HTTP/1.1\r\n\r\n",
    *(b"GET /ping HTTP/1.1\r\nHost: %b\r\n\r\n" % host for host in (
        b"localhost#@evil.com", b"evil.com@localhost", b"localhost/evil.com", b"evil\xffcom", b"localhost\r\nHost: other",
    )),
    # versions
    b"GET /ping\r\n" + HIDDEN, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + HIDDEN,
    *(b"GET /ping HTTP/%b\r\nHost: localhost\r\n\r\n" % version + HIDDEN for version in (b"2.0", b"0.9", b"1.10")),
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(32),
]  # fmt: skip

GOOD = [  # one request each, and the body it has
    (POST + CHUNKED + b"\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n", b"hello"),
    (POST + CHUNKED + b"\r\n5;a=b\r\nhello\r\n0\r\n\r\n", b"hello"),
    (POST + CHUNKED + b"\r\n5\r\nhello\r\n0\r\nHost: other\r\n\r\n", b"hello"),
    (POST + b"Content-Length: %d\r\n\r\n" % len(HIDDEN) + HIDDEN, HIDDEN),
    (POST + b"Transfer-Encoding: CHUNKED\r\n\r\n5\r\nhello\r\n0\r\n\r\n", b"hello"),
    (POST + b"Content-Length: 005\r\n\r\nhello", b"hello"),
    # an upgrade that is not offered
    (POST + UPGRADE + b"Content-Length: %d\r\n\r\n" % len(HIDDEN) + HIDDEN, HIDDEN), (POST + UPGRADE + b"\r\n", b""),
    (POST + UPGRADE + CHUNKED + b"\r\n5\r\nhello\r\n0\r\n\r\n", b"hello"),
]  # fmt: skip


Seen = list[tuple[str, bytes]]  # the path and the body of each request


def routes(seen: Seen) -> Routes:
    async def see(request: Request) -> Response:
        body = await read_body(request, 1_000_000, "TOO_BIG")
        seen.append((request.url.path, body))
        return Response(b"seen " + body)

    return {"/pub": {"POST": see}, "/ping": {"GET": see}, "/hidden": {"GET": see}}


class Site(LocalServing):
    def __init__(self) -> None:
        self.seen: Seen = []
        super().__init__(routes(self.seen))


@pytest.fixture(scope="module")
def server() -> Iterator[Site]:
    site = Site()
    yield site
    site.close()


@pytest.fixture
def site(server: Site) -> Site:
    server.seen.clear()
    return server


def say(connection: socket.socket | MemorySocket, data: bytes) -> None:
    with suppress(ConnectionResetError, BrokenPipeError):  # it has closed
        connection.sendall(data)


# Alone


@each("sent", BAD)
def test_alone_400_and_close(site: Site, sent: bytes) -> None:
    with site.connect() as connection:
        say(connection, sent)
        answer = all_of(connection)
    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n"), answer
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b"connection: close" in answer.lower()
    with site.connect() as connection:
        for at in range(min(len(sent), 400)):
            say(connection, sent[at : at + 1])
        say(connection, sent[400:])
        all_of(connection)
    assert site.seen == []


@each("sent", BAD)
def test_alone_behind_good_requests(site: Site, sent: bytes) -> None:
    site.seen.clear()
    good = b"".join(POST + b"Content-Length: 1\r\n\r\n%d" % i for i in range(3))
    with site.connect() as connection:
        say(connection, good + sent)
        answers = all_of(connection).split(b"HTTP/1.1 ")[1:]
    assert [answer[:3] for answer in answers] == [b"200", b"200", b"200", b"400"]
    assert site.seen == [("/pub", b"%d" % i) for i in range(3)]


def test_nothing_is_said_behind_an_answer_to_a_body_that_turns_out_bad(site: Site) -> None:
    with site.connect() as connection:
        say(connection, POST + CHUNKED + b"\r\n" + b"fffff\r\n" + b"x" * 0xFFFFF + b"\r\n")
        assert site.node.wait(lambda: connection._end.incoming.is_readable)
        say(connection, b"nonsense\r\n" * 10)
        answers = all_of(connection)
    assert (b" 413 " in answers, answers.count(b"HTTP/1.1 ")) == (True, 1)


@each("sent, body", GOOD)
def test_alone_one_request_is_one_request(site: Site, sent: bytes, body: bytes) -> None:
    site.seen.clear()
    with site.connect() as connection:
        for step in (len(sent), 1):
            for at in range(0, len(sent), step):
                connection.sendall(sent[at : at + step])
            answer = b""
            while not answer.endswith(b"\r\n\r\nseen " + body):
                answer += connection.recv(65536)
    assert site.seen == [("/pub", body)] * 2


def test_large_bodies_in_one_piece_are_no_large_headers(site: Site) -> None:
    body = b"x" * 50_000
    request = POST + b"Content-Length: 50000\r\n\r\n" + body
    with site.connect() as connection:
        connection.sendall(request * 3 + GET[:30])
        connection.sendall(GET[30:] + b"Connection: close\r\n\r\n")
        assert all_of(connection).count(b"HTTP/1.1 200 OK") == 4
    assert site.seen == [("/pub", body)] * 3 + [("/ping", b"")]


def test_nothing_is_served_after_a_request_that_closes(site: Site) -> None:
    with site.connect() as connection:
        connection.sendall(GET + b"Connection: close\r\n\r\n" + HIDDEN)
        assert all_of(connection).count(b"HTTP/1.1 ") == 1
    assert site.seen == [("/ping", b"")]


# Behind Debian's nginx, with connections to us that it keeps alive

CONFIGURATION = """
daemon off; master_process off; pid {home}/pid; error_log stderr crit;
events {{ worker_connections 256; }}
http {{
  log_format path '$uri $upstream_addr'; access_log {home}/log path;
  client_body_temp_path {home}/body; proxy_temp_path {home}/proxy;
  fastcgi_temp_path {home}/fastcgi; uwsgi_temp_path {home}/uwsgi; scgi_temp_path {home}/scgi;
  upstream nsqd {{ server {host}:{port}; keepalive 4; }}
  server {{
    listen unix:{home}/front;
    location / {{
      proxy_pass http://nsqd; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host $host;
      proxy_request_buffering {buffering};
    }}
  }}
}}
"""


class Front:
    def __init__(self, address: tuple[str, int], seen: Seen, home: str, buffering: str) -> None:
        self.seen = seen
        self._home = home
        host, port = address
        file = Path(home) / "nginx.conf"
        file.write_text(CONFIGURATION.format(home=home, host=host, port=port, buffering=buffering))
        self._process = subprocess.Popen([nginx(), "-p", home, "-e", "stderr", "-c", str(file)])
        eventually(self._accepts)

    def connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(10)
        connection.connect(f"{self._home}/front")
        return connection

    def forwarded(self) -> Counter[str]:
        """The paths of the requests that nginx itself has read and passed on."""
        lines = (Path(self._home) / "log").read_text().splitlines()
        return Counter(path for path, upstream in map(str.split, lines) if upstream != "-")

    def close(self) -> None:
        self._process.terminate()
        assert self._process.wait(60) == 0

    def _accepts(self) -> bool:
        assert self._process.poll() is None, "nginx has ended"
        try:
            self.connect().close()
        except OSError:
            return False
        return True


@pytest.fixture(scope="module", params=["on", "off"])  # whether nginx reads a body to its end before it passes it on
def front(request: pytest.FixtureRequest) -> Iterator[Front]:
    require("nginx")
    seen: Seen = []
    site = Serving(routes(seen))
    with tempfile.TemporaryDirectory() as home:  # a short name: it is a socket's
        front = Front(site.address, seen, home, request.param)
        yield front
        front.close()
    site.close()


@pytest.mark.process
@each("sent", BAD)
def test_behind_nginx_nothing_slips_through(front: Front, sent: bytes) -> None:
    with front.connect() as connection:
        say(connection, sent)
        connection.shutdown(socket.SHUT_WR)
        all_of(connection)
    eventually(lambda: not Counter(path for path, _ in front.seen) - front.forwarded())
    for i in range(4):  # on the same connections between nginx and us: each gets the answer to its own request
        with front.connect() as connection:
            connection.sendall(POST + b"Connection: close\r\nContent-Length: 6\r\n\r\nmark %d" % i)
            assert all_of(connection).endswith(b"seen mark %d" % i)


@pytest.mark.process
@each("sent, body", GOOD)
def test_behind_nginx_one_request_is_one_request(front: Front, sent: bytes, body: bytes) -> None:
    before = len(front.seen)
    with front.connect() as connection:
        for _ in range(2):
            connection.sendall(sent)
            assert connection.recv(65536).endswith(b"seen " + body)
    assert front.seen[before:] == [("/pub", body)] * 2
