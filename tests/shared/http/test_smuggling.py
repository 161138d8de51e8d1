"""Requests that two servers in a row might read differently: alone we answer 400 and close; behind nginx nothing slips through.

One request in is one request seen: what hides in another's body never reaches a handler.
"""

import socket
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import Response

from shared.http.api import Api, read_body
from shared.http.hosts import Hosts
from shared.http.server import HttpServer
from tests.cases import each
from tests.daemons import eventually
from tests.requirements import nginx, require

pytestmark = pytest.mark.process

POST = b"POST /pub HTTP/1.1\r\nHost: localhost\r\n"
GET = b"GET /ping HTTP/1.1\r\nHost: localhost\r\n"
HIDDEN = b"GET /hidden HTTP/1.1\r\nHost: localhost\r\n\r\n"
UPGRADE = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAA\r\n"  # as Java's client
CHUNKED = b"Transfer-Encoding: chunked\r\n"

BAD = {
    # Two ideas of where the body ends
    "CL and TE": POST + b"Content-Length: 6\r\n" + CHUNKED + b"\r\n0\r\n\r\n" + HIDDEN,
    "TE and CL": POST + CHUNKED + b"Content-Length: 6\r\n\r\n0\r\n\r\n" + HIDDEN,
    "two CLs": POST + b"Content-Length: 0\r\nContent-Length: 41\r\n\r\n" + HIDDEN,
    "two CLs alike": POST + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello" + HIDDEN,
    "a list of CLs": POST + b"Content-Length: 5, 5\r\n\r\nhello" + HIDDEN,
    "CL with a sign": POST + b"Content-Length: +5\r\n\r\nhello" + HIDDEN,
    "CL below zero": POST + b"Content-Length: -1\r\n\r\n" + HIDDEN,
    "CL in hexadecimal": POST + b"Content-Length: 0x5\r\n\r\nhello" + HIDDEN,
    "CL in two parts": POST + b"Content-Length: 5 5\r\n\r\nhello" + HIDDEN,
    "CL beyond 64 bits": POST + b"Content-Length: 18446744073709551621\r\n\r\nhello" + HIDDEN,
    "CL with a space before the colon": POST + b"Content-Length : 5\r\n\r\nhello" + HIDDEN,
    "xchunked": POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + HIDDEN,
    "chunked, not last": POST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + HIDDEN,
    "chunked twice": POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" + HIDDEN,
    "identity, chunked": POST + b"Transfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n" + HIDDEN,
    "gzip, chunked": POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n" + HIDDEN,
    "TE in two lines": POST + b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + HIDDEN,
    "TE in HTTP/1.0": b"POST /pub HTTP/1.0\r\nHost: localhost\r\n" + CHUNKED + b"\r\n0\r\n\r\n" + HIDDEN,
    "TE with a space before the colon": POST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + HIDDEN,
    "TE with a vertical tab": POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n" + HIDDEN,
    # Line ends
    "bare LF after the first line": b"GET /ping HTTP/1.1\nHost: localhost\r\n\r\n" + HIDDEN,
    "bare LF after a header": POST + b"X-A: b\nContent-Length: 5\r\n\r\nhello" + HIDDEN,
    "bare LF at the end of the header": GET + b"X-A: b\r\n\n" + HIDDEN,
    "bare LF everywhere": b"GET /ping HTTP/1.1\nHost: localhost\n\n" + HIDDEN,
    "bare CR": GET + b"X-A: b\rX-B: c\r\n\r\n" + HIDDEN,
    "obs-fold": POST + b"X-A: b\r\n Content-Length: 5\r\n\r\nhello" + HIDDEN,
    "obs-fold of TE": POST + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n" + HIDDEN,
    "a space before the first header": b"GET /ping HTTP/1.1\r\n Host: localhost\r\n\r\n" + HIDDEN,
    # Chunks
    "a chunk that ends in something else": POST + CHUNKED + b"\r\n5\r\nhelloXX0\r\n\r\n" + HIDDEN,
    "a chunk that ends in LF": POST + CHUNKED + b"\r\n5\r\nhello\n0\r\n\r\n" + HIDDEN,
    "a size that ends in LF": POST + CHUNKED + b"\r\n5\nhello\r\n0\r\n\r\n" + HIDDEN,
    "an extension that ends in LF": POST + CHUNKED + b"\r\n5;a\nhello\r\n0\r\n\r\n" + HIDDEN,
    "a size with 0x": POST + CHUNKED + b"\r\n0x5\r\nhello\r\n0\r\n\r\n" + HIDDEN,
    "a size below zero": POST + CHUNKED + b"\r\n-5\r\nhello\r\n0\r\n\r\n" + HIDDEN,
    "no size": POST + CHUNKED + b"\r\n\r\nhello\r\n0\r\n\r\n" + HIDDEN,
    "a size beyond 64 bits": POST + CHUNKED + b"\r\n10000000000000005\r\nhello\r\n0\r\n\r\n" + HIDDEN,
    "an extension without end": POST + CHUNKED + b"\r\n5;" + b"a" * 300_000,
    "a trailer without end": POST + CHUNKED + b"\r\n5\r\nhello\r\n0\r\nX: " + b"a" * 300_000,
    # Sizes
    "1,000 headers": GET + b"".join(b"X-%d: y\r\n" % i for i in range(1_000)) + b"\r\n",
    "a header of 64 KB": GET + b"X-A: " + b"y" * 65_536 + b"\r\n\r\n",
    "a header without end": GET + b"X-A: y\r\n" * 9 + b"X-B: " + b"y" * 100_000,
    "a header name of 64 KB": GET + b"X" * 65_536 + b": y\r\n\r\n",
    "a path of 64 KB": b"GET /" + b"y" * 65_536 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    # NUL
    "NUL in a header": GET + b"X-A: a\0b\r\n\r\n" + HIDDEN,
    "NUL in a header's name": GET + b"X\0A: b\r\n\r\n" + HIDDEN,
    "NUL in the path": b"GET /pi\0ng HTTP/1.1\r\nHost: localhost\r\n\r\n" + HIDDEN,
    "NUL in the method": b"GE\0T /ping HTTP/1.1\r\nHost: localhost\r\n\r\n" + HIDDEN,
    # Whose request it is
    "absolute-form": b"GET http://localhost/ping HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "absolute-form, Host mismatch": b"GET http://other/ping HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "authority-form": b"CONNECT other:80 HTTP/1.1\r\nHost: other:80\r\n\r\n" + HIDDEN,
    "CONNECT to a path": b"CONNECT /ping HTTP/1.1\r\nHost: localhost\r\n\r\n" + HIDDEN,
    "CONNECT in HTTP/1.0": b"CONNECT /ping HTTP/1.0\r\n\r\n" + HIDDEN,
    "no form": b"GET ping HTTP/1.1\r\nHost: localhost\r\n\r\n" + HIDDEN,
    "Host with a fragment": b"GET /ping HTTP/1.1\r\nHost: localhost#@evil.com\r\n\r\n",
    "Host with a user": b"GET /ping HTTP/1.1\r\nHost: evil.com@localhost\r\n\r\n",
    "Host with a path": b"GET /ping HTTP/1.1\r\nHost: localhost/evil.com\r\n\r\n",
    "Host with a byte above 0x7f": b"GET /ping HTTP/1.1\r\nHost: evil\xffcom\r\n\r\n",
    "two Hosts": b"GET /ping HTTP/1.1\r\nHost: localhost\r\nHost: other\r\n\r\n",
    "no Host": b"GET /ping HTTP/1.1\r\n\r\n",
    # Versions
    "HTTP/0.9": b"GET /ping\r\n" + HIDDEN,
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + HIDDEN,
    "a request line of HTTP/2.0": b"GET /ping HTTP/2.0\r\nHost: localhost\r\n\r\n" + HIDDEN,
    "a request line of HTTP/0.9": b"GET /ping HTTP/0.9\r\nHost: localhost\r\n\r\n" + HIDDEN,
    "HTTP/1.10": b"GET /ping HTTP/1.10\r\nHost: localhost\r\n\r\n" + HIDDEN,
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(32),
}

GOOD = {  # one request each, and the body it has
    "chunked in pieces": (POST + CHUNKED + b"\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n", b"hello"),
    "chunked with an extension": (POST + CHUNKED + b"\r\n5;a=b\r\nhello\r\n0\r\n\r\n", b"hello"),
    "chunked with a trailer": (POST + CHUNKED + b"\r\n5\r\nhello\r\n0\r\nHost: other\r\n\r\n", b"hello"),
    "a request as the body": (POST + b"Content-Length: %d\r\n\r\n" % len(HIDDEN) + HIDDEN, HIDDEN),
    "TE in capitals": (POST + b"Transfer-Encoding: CHUNKED\r\n\r\n5\r\nhello\r\n0\r\n\r\n", b"hello"),
    "CL with zeros": (POST + b"Content-Length: 005\r\n\r\nhello", b"hello"),
    "an upgrade nobody offers": (POST + UPGRADE + b"Content-Length: %d\r\n\r\n" % len(HIDDEN) + HIDDEN, HIDDEN),
    "an upgrade nobody offers, chunked": (POST + UPGRADE + CHUNKED + b"\r\n5\r\nhello\r\n0\r\n\r\n", b"hello"),
    "an upgrade without a body": (POST + UPGRADE + b"\r\n", b""),
}


class Site:
    """A server that remembers what it has seen: the path and the body of each request."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, bytes]] = []
        self.bugs: list[BaseException] = []
        routes = {"/pub": {"POST": self._see}, "/ping": {"GET": self._see}, "/hidden": {"GET": self._see}}
        listener = socket.create_server(("127.0.0.1", 0))
        self.address = listener.getsockname()
        self._server = HttpServer(Api(routes, Hosts([]), self.bugs.append), [listener], self.bugs.append)
        self._server.start()

    async def _see(self, request: Request) -> Response:
        body = await read_body(request, 1_000_000, "TOO_BIG")
        self.seen.append((request.url.path, body))
        return Response(b"seen " + body)

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=10)

    def close(self) -> None:
        self._server.stop()
        assert self.bugs == []


@pytest.fixture(scope="module")
def server() -> Iterator[Site]:
    site = Site()
    yield site
    site.close()


@pytest.fixture
def site(server: Site) -> Site:
    server.seen.clear()
    return server


def all_of(connection: socket.socket) -> bytes:
    """What comes until the peer closes."""
    received = b""
    try:
        while data := connection.recv(65536):
            received += data
    except ConnectionResetError:  # it closed before it had read all that we sent
        pass
    return received


def say(connection: socket.socket, data: bytes) -> None:
    try:
        connection.sendall(data)
    except (ConnectionResetError, BrokenPipeError):  # it has heard enough
        pass


# Alone


@each("name", BAD)
def test_alone_400_and_close(site: Site, name: str) -> None:
    with site.connect() as connection:
        say(connection, BAD[name])
        answer = all_of(connection)
    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n"), answer
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b"connection: close" in answer.lower()
    with site.connect() as connection:
        for at in range(min(len(BAD[name]), 400)):
            say(connection, BAD[name][at : at + 1])
        say(connection, BAD[name][400:])
        all_of(connection)
    assert site.seen == []


@each("name", [name for name in BAD if name != "a header without end"])  # that: at its deadline
def test_alone_behind_good_requests(site: Site, name: str) -> None:
    site.seen.clear()
    good = b"".join(POST + b"Content-Length: 1\r\n\r\n%d" % i for i in range(3))
    with site.connect() as connection:
        say(connection, good + BAD[name])
        answers = all_of(connection).split(b"HTTP/1.1 ")[1:]
    if len(BAD[name]) < 200_000:  # what we have not read makes the kernel send a reset, which overtakes the answers
        assert [answer[:3] for answer in answers] == [b"200", b"200", b"200", b"400"]
    assert site.seen == [("/pub", b"%d" % i) for i in range(3)]


def test_nothing_is_said_behind_an_answer_to_a_body_that_turns_out_bad(site: Site) -> None:
    with site.connect() as connection:
        connection.sendall(POST + CHUNKED + b"\r\n" + b"fffff\r\n" + b"x" * 0xFFFFF + b"\r\n")
        answer = connection.recv(65536)
        assert b" 413 " in answer
        say(connection, b"nonsense\r\n" * 10)
        assert b"HTTP/1.1 " not in all_of(connection)


@each("name", GOOD)
def test_alone_one_request_is_one_request(site: Site, name: str) -> None:
    site.seen.clear()
    request, body = GOOD[name]
    with site.connect() as connection:
        for step in (len(request), 1):
            for at in range(0, len(request), step):
                connection.sendall(request[at : at + step])
            assert connection.recv(65536).endswith(b"\r\n\r\nseen " + body)
    assert site.seen == [("/pub", body)] * 2


def test_large_bodies_in_one_piece_are_no_large_headers(site: Site) -> None:
    body = b"x" * 50_000
    request = POST + b"Content-Length: 50000\r\n\r\n" + body
    with site.connect() as connection:
        connection.sendall(request * 3 + GET[:30])
        connection.sendall(GET[30:] + b"Connection: close\r\n\r\n")
        assert all_of(connection).count(b"HTTP/1.1 200 OK") == 4
    assert site.seen == [("/pub", body)] * 3 + [("/ping", b"")]


def test_nothing_is_served_after_a_request_that_closes_and_requests_are_answered_in_order(site: Site) -> None:
    with site.connect() as connection:
        connection.sendall(GET + b"Connection: close\r\n\r\n" + HIDDEN)
        assert all_of(connection).count(b"HTTP/1.1 ") == 1
    assert site.seen == [("/ping", b"")]
    site.seen.clear()
    requests = b"".join(POST + UPGRADE * (i % 2) + b"Content-Length: 1\r\n\r\n%d" % i for i in range(9))
    with site.connect() as connection:
        connection.sendall(requests + POST + b"Connection: close\r\nContent-Length: 1\r\n\r\n9")
        answers = all_of(connection).split(b"HTTP/1.1 ")[1:]
    assert [answer.partition(b"seen ")[2][:1] for answer in answers] == [b"%d" % i for i in range(10)]
    assert site.seen == [("/pub", b"%d" % i) for i in range(10)]


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
    """A running nginx, as a proxy in front of the site."""

    def __init__(self, site: Site, home: str, buffering: str) -> None:
        self.site = site
        self._home = home
        host, port = site.address
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
        assert self._process.wait(10) == 0

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
    site = Site()
    with tempfile.TemporaryDirectory() as home:  # a short name: it is a socket's
        front = Front(site, home, request.param)
        yield front
        front.close()
    site.close()


@each("name", BAD)
def test_behind_nginx_nothing_slips_through(front: Front, name: str) -> None:
    with front.connect() as connection:
        say(connection, BAD[name])
        connection.shutdown(socket.SHUT_WR)
        all_of(connection)
    eventually(lambda: not Counter(path for path, _ in front.site.seen) - front.forwarded())
    for i in range(4):  # on the same connections between nginx and us: each gets the answer to its own question
        with front.connect() as connection:
            connection.sendall(POST + b"Connection: close\r\nContent-Length: 6\r\n\r\nmark %d" % i)
            assert all_of(connection).endswith(b"seen mark %d" % i)


@each("name", GOOD)
def test_behind_nginx_one_request_is_one_request(front: Front, name: str) -> None:
    request, body = GOOD[name]
    before = len(front.site.seen)
    with front.connect() as connection:
        for _ in range(2):
            connection.sendall(request)
            assert connection.recv(65536).endswith(b"seen " + body)
    assert front.site.seen[before:] == [("/pub", body)] * 2
