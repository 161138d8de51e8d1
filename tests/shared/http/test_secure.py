"""HTTPS and plain HTTP in one thread: handshakes of strangers, limits, reload, and connections that leave nothing behind."""

import asyncio
import gc
import logging
import socket
import ssl
import struct
import time
from asyncio.selector_events import _SelectorSocketTransport  # type: ignore[attr-defined]
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import Response
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from shared.connection_limiter import ConnectionLimiter, ConnectionLimits
from shared.foreign import Foreign
from shared.http import guard, secure
from shared.http.api import Api, read_body
from shared.http.bridge import Bridge
from shared.http.errors import HttpError
from shared.http.hosts import Hosts
from shared.http.proof import Proof, proof_in
from shared.http.secure import PLAIN_HTTP, SecureProtocol
from shared.http.server import Https, HttpServer
from shared.process.listen import Listener
from shared.tls.certificates import Certificates, TlsFiles
from tests.cases import each
from tests.certificates import Authority, only
from tests.daemons import eventually
from tests.shared.http.serving import all_of

pytestmark = pytest.mark.process

GOOD = b"GET /good HTTP/1.1\r\nHost: localhost\r\n\r\n"
BAD = b"GET /bad HTTP/1.1\r\nHost: localhost\r\n\r\n"
LAST = b"GET /good HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
MUCH = 8_000_000  # bytes: more than all buffers on the way


class Site:
    def __init__(self, directory: Path, policy: str = "", max_connections: int = 1000, max_per_ip: int = 0) -> None:
        self.authority = Authority(directory)
        self.bugs: list[BaseException] = []
        self.bridge = Bridge(lambda: self.bridge.deliver(self.bridge.serve()))
        self.proofs: list[Proof] = []  # of the connections on which requests came
        authority = self.authority
        self.certificates = Certificates(TlsFiles(authority.cert, authority.key, policy, authority.root))
        routes = {
            "/good": {"GET": self._good, "POST": self._good},
            "/bad": {"GET": self._bad},
            "/much": {"GET": self._much},
        }
        self._plain, self._tls = (socket.create_server(("127.0.0.1", 0)) for _ in range(2))
        self.plain_address, self.tls_address = self._plain.getsockname(), self._tls.getsockname()
        app = Api(routes, Hosts([]), self.bugs.append)
        https = Https(app, Listener(self._tls, "127.0.0.1", 443), self.certificates, is_required=True)
        self.limiter = ConnectionLimiter("HTTP", ConnectionLimits(max_connections, max_per_ip), Counter())
        self.server = HttpServer(app, [self._plain], self.bugs.append, https=https, limiter=self.limiter)
        self.server.start()

    async def _good(self, request: Request) -> Response:
        self.proofs.append(proof_in(request.scope))
        return Response(b"fine" + await read_body(request, MUCH, "TOO_BIG"))

    async def _bad(self, request: Request) -> Response:
        def fail() -> str:
            raise HttpError(404, "NOT_THERE")

        return Response(await self.bridge.call(fail))

    async def _much(self, request: Request) -> Response:
        return Response(bytes(MUCH))

    def plain(self) -> socket.socket:
        return socket.create_connection(self.plain_address, timeout=10)

    def raw(self) -> socket.socket:
        """At the HTTPS port, without TLS."""
        return socket.create_connection(self.tls_address, timeout=10)

    def secure(self, context: ssl.SSLContext | None = None) -> ssl.SSLSocket:
        context = context or self.authority.client()
        return context.wrap_socket(self.raw(), server_hostname="localhost", suppress_ragged_eofs=False)

    def close(self) -> None:
        self.server.stop()
        assert self.bugs == []


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """For tests that only talk to it."""
    site = Site(tmp_path_factory.mktemp("site"))
    yield site
    site.close()


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Site]:
    """For tests that count, or stop it."""
    site = Site(tmp_path)
    yield site
    site.close()


def ask(connection: socket.socket, request: bytes = GOOD) -> bytes:
    connection.sendall(request)
    return connection.recv(65536)


def test_a_body_and_an_answer_larger_than_all_buffers(site: Site) -> None:
    head = LAST.replace(b"GET", b"POST").replace(b"\r\n\r\n", b"\r\nContent-Length: %d\r\n\r\n" % MUCH)
    with site.secure() as connection:
        connection.sendall(head + bytes(MUCH))
        assert all_of(connection).endswith(b"\r\n\r\nfine" + bytes(MUCH))
    with site.secure() as connection:
        connection.sendall(LAST.replace(b"/good", b"/much") + GOOD)
        assert len(all_of(connection).partition(b"\r\n\r\n")[2]) == MUCH


@each("path", [b"/ping", b"/good", b"/nothing", b"/pub?topic=.."])
@each("method", [b"GET", b"POST", b"OPTIONS", b"DELETE"])
def test_plain_http_where_tls_is_required(site: Site, method: bytes, path: bytes) -> None:
    request = method + b" " + path + b" HTTP/1.1\r\nHost: anybody.test\r\nContent-Length: 1\r\n\r\nx"
    with site.plain() as connection:
        for _ in range(2):
            head, _, body = ask(connection, request).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 403 Forbidden\r\n")
            assert b"\r\nx-nsq-content-type: nsq; version=1.0" in head
            assert b"\r\ncontent-type: application/json; charset=utf-8" in head
            assert body == b'{"message": "TLS_REQUIRED", "https_port": 443}'


# Strangers


def test_strangers_at_both_ports(site: Site) -> None:
    with site.raw() as connection:
        connection.sendall(GOOD)
        assert all_of(connection) == PLAIN_HTTP
    with site.plain() as connection:
        connection.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500))
        assert all_of(connection).startswith(b"HTTP/1.1 400 ")
    for version in (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1):
        with pytest.raises(ssl.SSLError, match="ALERT"):
            site.secure(only(site.authority.client(), version))


HELLO = b"\x16\x03\x01\x00\xa5\x01\x00"  # the beginning of one


def test_a_client_that_stalls_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secure, "HANDSHAKE_TIMEOUT", 0.1)
    monkeypatch.setattr(guard, "HEADER_TIMEOUT", 0.1)
    site = Site(tmp_path)
    for said in (b"", HELLO):
        with site.raw() as stranger:
            stranger.sendall(said)
            assert all_of(stranger) == b""
    monkeypatch.setattr(secure, "HANDSHAKE_TIMEOUT", 60.0)
    with site.secure() as connection:
        connection.sendall(GOOD[:9])
        assert all_of(connection) == b""
    site.close()


def from_server(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name in ("penstock", "asyncio")]


def test_failed_handshakes_are_counted_and_logged(fresh: Site, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for said in (b"NOP\n" * 9, GOOD, b"\x16\x03\x01\xff\xff" * 20, HELLO):
        with fresh.raw() as connection:
            connection.sendall(said)
            connection.shutdown(socket.SHUT_WR)
            all_of(connection)
    with pytest.raises(ssl.SSLError):
        fresh.secure(only(fresh.authority.client(), ssl.TLSVersion.TLSv1_1))
    eventually(lambda: len(from_server(caplog)) == 5)  # it counts first, then logs
    assert fresh.limiter.refused["tls_handshake"] == 5
    lines = from_server(caplog)
    (foreign,) = (line.getMessage() for line in lines if line.levelno == logging.WARNING)
    assert foreign == f"HTTPS: closed 127.0.0.1, which sent {Foreign.HTTP}"
    others = [line.getMessage() for line in lines if line.levelno < logging.WARNING]
    assert all(text.startswith("HTTPS: handshake with 127.0.0.1 failed: ") for text in others)
    assert not any(line.exc_info for line in lines)
    with fresh.secure() as connection:
        assert ask(connection).endswith(b"fine")


# Limits


def test_strangers_in_a_handshake_count_and_make_room(tmp_path: Path) -> None:
    site = Site(tmp_path, max_connections=3)
    with site.raw() as first, site.plain() as second, site.secure() as third:
        assert ask(second).startswith(b"HTTP/1.1 403 ")
        with site.raw():
            assert all_of(first) == b""
            assert ask(second).startswith(b"HTTP/1.1 403 ")
            assert ask(third).endswith(b"fine")
            assert site.limiter.refused["displaced"] == 1
    eventually(lambda: site.server._limiter._open == 0)
    assert not site.server._limiter._oldest
    site.close()


# Ends


def test_stopping_does_not_wait_for_an_idle_client(fresh: Site, caplog: pytest.LogCaptureFixture) -> None:
    with fresh.secure() as connection:
        assert ask(connection).endswith(b"fine")
        fresh.server.stop()
        assert all_of(connection) == b""
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.parametrize("policy", ["", "require"])
def test_connections_are_freed_without_the_collector(tmp_path: Path, policy: str) -> None:
    site = Site(tmp_path, policy)
    kinds = (SecureProtocol, _SelectorSocketTransport, guard.GuardedProtocol, HttpToolsProtocol, asyncio.Task)
    context = site.authority.client(site.authority.issue("me"))

    def objects() -> int:
        return sum(issubclass(type(thing), kinds) for thing in gc.get_objects())  # type: a lazy object is not made

    def visit() -> None:
        with site.secure(context) as connection:
            assert ask(connection).endswith(b"fine")
            assert b" 404 " in ask(connection, BAD)
        with site.secure(context) as connection:
            connection.sendall(LAST)
            assert all_of(connection).endswith(b"fine")
        with site.secure(context) as connection:
            connection.sendall(b"nonsense\r\n\r\n")
            assert b" 400 " in all_of(connection)
        for is_reset in (False, True):
            with site.plain() as plain:
                plain.sendall(GOOD * 100)
                assert plain.recv(13) == b"HTTP/1.1 403 "
                if is_reset:
                    plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close by RST
        for said in (b"NOP\n" * 9, GOOD, HELLO, b""):
            with site.raw() as stranger:
                stranger.sendall(said)
                stranger.shutdown(socket.SHUT_WR)
                all_of(stranger)

    visit()
    gc.collect()
    before = objects()
    gc.disable()
    try:
        for _ in range(10):
            visit()
        deadline = time.monotonic() + 20
        while objects() > before + 5 and time.monotonic() < deadline:  # the loop may hold the last ones it served
            with site.plain() as plain:
                ask(plain)
        assert objects() <= before + 5
    finally:
        gc.enable()
    site.close()


def test_who_does_not_read_is_cut_off(fresh: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "WRITE_TIMEOUT", 0.3)
    connection = fresh.secure()
    connection.sendall(b"GET /much HTTP/1.1\r\nHost: localhost\r\n\r\n" * 3)
    eventually(lambda: fresh.server._limiter._open == 0)
    connection.close()
