"""Clients that send a whole request before they read: they get the answer that came meanwhile, and never a reset."""

import socket
from collections.abc import Iterator

import httpx
import pytest

from tests.cases import each
from tests.certificates import Authority
from tests.daemons import STOP_TIMEOUT, Daemon, nsqd

pytestmark = pytest.mark.process

SIZE = 20 << 20  # bytes: more than the buffers of both kernels
PIECE = bytes(1 << 16)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Daemon]:
    flags = ["-tls-cert", authority.cert, "-tls-key", authority.key, "-https-address=127.0.0.1:0"]
    with nsqd(tmp_path_factory.mktemp("node"), *flags, listens=["TCP", "HTTP", "HTTPS"]) as daemon:
        yield daemon


def answer(client: socket.socket, head: bytes, chunked: bool = False) -> bytes:
    """Send a head and a body, and return the response."""
    how = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % SIZE
    client.sendall(b"%s\r\nHost: localhost\r\n%s\r\n\r\n" % (head, how))
    for _ in range(SIZE // len(PIECE)):
        client.sendall(b"%x\r\n%b\r\n" % (len(PIECE), PIECE) if chunked else PIECE)
    if chunked:
        client.sendall(b"0\r\n\r\n")
    found = b""
    while not found.partition(b"\r\n\r\n")[2]:
        part = client.recv(65536)
        assert part, found
        found += part
    return found


@each(
    "transport, chunked, head, status, text",
    [
        ("HTTP", False, b"POST /pub?topic=t HTTP/1.1", b"413", b"MSG_TOO_BIG"),
        ("HTTP", True, b"POST /pub?topic=t HTTP/1.1", b"413", b"MSG_TOO_BIG"),
        ("HTTP", False, b"POST /pub?topic=t HTTP/1.0", b"413", b"MSG_TOO_BIG"),
        ("HTTP", False, b"PUT /config/log_level HTTP/1.1", b"413", b"INVALID_VALUE"),
        ("HTTP", True, b"POST /topic/pause?topic=nix HTTP/1.1", b"404", b"TOPIC_NOT_FOUND"),
        ("HTTP", False, b"POST /pub?topic=t&x=%zz HTTP/1.1", b"4", b""),
        ("HTTPS", False, b"POST /mpub?topic=t HTTP/1.1", b"413", b"BODY_TOO_BIG"),
        ("HTTPS", True, b"POST /nix HTTP/1.1", b"404", b"NOT_FOUND"),
    ],
)
def test_a_body_that_is_not_wanted(
    node: Daemon, authority: Authority, transport: str, chunked: bool, head: bytes, status: bytes, text: bytes
) -> None:
    with node.connect(transport) as plain:
        client: socket.socket = plain
        if transport == "HTTPS":
            client = authority.client().wrap_socket(plain, server_hostname="localhost")
        found = answer(client, head, chunked=chunked)
        assert found.split(b" ")[1].startswith(status), found
        assert text in found
        client.close()


def test_a_client_that_never_ends_is_cut_off(node: Daemon) -> None:
    with node.connect("HTTP") as client:
        client.settimeout(STOP_TIMEOUT)
        client.sendall(b"POST /pub?topic=t HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (1 << 40))
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            client.sendall(memoryview(bytes(1 << 30)))


def test_nsqlookupd_answers_as_well() -> None:
    with Daemon("nsqlookupd") as daemon, daemon.connect("HTTP") as client:
        assert b" 404 " in answer(client, b"POST /nix HTTP/1.1")
        assert httpx.get(f"http://{daemon.http}/ping").text == "OK"
