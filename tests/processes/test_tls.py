"""TLS of a real nsqd, on both of its ports: old versions, clients' certificates, clear text.

tests/nsqd/net/test_layers.py and tests/shared/http/test_secure.py test what is sent around the handshake, and
tests/processes/test_nsqd.py tests the reload.
"""

import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import httpx
import pytest

from tests.certificates import Authority, only
from tests.daemons import ERROR, Conversation, Daemon, nsqd, sized

pytestmark = pytest.mark.process

V1_0, V1_1, V1_2, V1_3 = (getattr(ssl.TLSVersion, name) for name in ("TLSv1", "TLSv1_1", "TLSv1_2", "TLSv1_3"))
IDENTIFY = b"IDENTIFY\n" + sized(b'{"feature_negotiation":true,"tls_v1":true}')
PING = b"GET /ping HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


@dataclass(frozen=True)
class Node:
    """A running nsqd with a certificate of its authority."""

    daemon: Daemon
    authority: Authority


@contextmanager
def secured(directory: Path, *flags: str) -> Iterator[Node]:
    authority = Authority(directory / "tls")
    more = (*authority.flags(), "-https-address", "127.0.0.1:0", *flags)
    with nsqd(directory / "data", *more, listens=("TCP", "HTTP", "HTTPS")) as daemon:
        yield Node(daemon, authority)


def over_tcp(node: Node, context: ssl.SSLContext) -> str:
    """The version of TLS that the NSQ protocol was upgraded to. Raises OSError if it was not."""
    with Conversation(node.daemon, b"  V2" + IDENTIFY) as client:
        assert client.frame() is not None
        with context.wrap_socket(client.socket, server_hostname="localhost") as secure:
            secure.settimeout(10)
            assert all_of(secure, 10) == struct.pack(">ii", 6, 0) + b"OK"
            return secure.version() or ""


def over_https(node: Node, context: ssl.SSLContext) -> str:
    """The version of TLS that /ping was answered in. Raises OSError if it was not."""
    with context.wrap_socket(node.daemon.connect("HTTPS"), server_hostname="localhost") as secure:
        secure.sendall(PING)
        assert all_of(secure).endswith(b"\r\n\r\nOK")
        return secure.version() or ""


def all_of(connection: socket.socket, size: int = 1 << 20) -> bytes:
    """Return the input up to `size` bytes or the end, which is an error if there was nothing."""
    received = b""
    while len(received) < size and (data := connection.recv(size - len(received))):
        received += data
    if not received:
        raise ConnectionResetError("closed without a word")
    return received


ASKS = (over_tcp, over_https)


def test_versions(tmp_path: Path) -> None:
    with secured(tmp_path, "-tls-min-version", "tls1.0") as node:
        for ask in ASKS:
            for version in (V1_0, V1_1):
                with pytest.raises(OSError):
                    ask(node, only(node.authority.client(), version))
            assert ask(node, only(node.authority.client(), V1_2)) == "TLSv1.2"
            assert ask(node, only(node.authority.client(), V1_3)) == "TLSv1.3"
        assert sum("tls-min-version tls1.0" in line for line in node.daemon.lines) == 1


def test_clients_certificates(tmp_path: Path) -> None:
    """The other policies are tested in tests/nsqd/net/test_layers.py and tests/shared/http/test_secure.py."""
    root = str(tmp_path / "tls" / "ca.pem")
    with secured(tmp_path, "-tls-client-auth-policy", "require-verify", "-tls-root-ca-file", root) as node:
        shown = {
            "none": None,
            "foreign": Authority(tmp_path / "stranger").issue("foreign"),
            "expired": node.authority.issue_expired("expired"),
            "good": node.authority.issue("good"),
        }
        for ask, version, (name, certificate) in product(ASKS, (V1_2, V1_3), shown.items()):
            context = only(node.authority.client(certificate), version)
            if name == "good":
                ask(node, context)
            else:
                with pytest.raises(OSError):
                    ask(node, context)
        refuses_clear_text(node)


def refuses_clear_text(node: Node, *, http: int = 403) -> None:
    with Conversation(node.daemon, b"  V2PUB t\n" + sized(b"x")) as client:
        assert client.frames() == [(ERROR, b"E_INVALID cannot PUB in current state (TLS required)")]
    assert httpx.get(f"http://{node.daemon.http}/ping").status_code == http


def test_with_tls_required_all_goes_by_tls_and_nothing_without(tmp_path: Path) -> None:
    with secured(tmp_path / "strict", "-tls-required") as node:
        refuses_clear_text(node)
        for ask in ASKS:
            ask(node, node.authority.client())
    with secured(tmp_path / "open", "-tls-required=tcp-https") as node:
        refuses_clear_text(node, http=200)
        over_https(node, node.authority.client())
