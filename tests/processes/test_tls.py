"""TLS of a real nsqd, on both of its ports: old versions, clients' certificates, downgrades, plaintext ahead of the upgrade.

tests/nsqd/net/test_layers.py and tests/shared/http/test_secure.py test handshakes that stall, and
tests/processes/test_nsqd.py tests the reload.
"""

from __future__ import annotations

import json
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import trustme

from tests.admin.conftest import nsqadmin
from tests.certificates import Authority, only
from tests.daemons import ERROR, OK, Conversation, Daemon, nsqd, run, sized
from tests.weak_certificates import WeakAuthority

pytestmark = pytest.mark.process

V1_0, V1_1, V1_2, V1_3 = (getattr(ssl.TLSVersion, name) for name in ("TLSv1", "TLSv1_1", "TLSv1_2", "TLSv1_3"))
IDENTIFY = b"IDENTIFY\n" + sized(b'{"feature_negotiation":true,"tls_v1":true}')
PING = b"GET /ping HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


@dataclass(frozen=True)
class Node:
    """A running nsqd with a certificate of its authority."""

    daemon: Daemon
    authority: Authority


def secured(directory: Path, *flags: str) -> tuple[Authority, Daemon]:
    authority = Authority(directory / "tls")
    listens = ("TCP", "HTTP", "HTTPS")
    return authority, nsqd(
        directory / "data", *authority.flags(), "-https-address", "127.0.0.1:0", *flags, listens=listens
    )


def node_with(directory: Path, *flags: str) -> Iterator[Node]:
    authority, daemon = secured(directory, *flags)
    with daemon:
        yield Node(daemon, authority)


@pytest.fixture(scope="module")
def lenient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """TLS is offered, and asked for in its oldest version."""
    yield from node_with(tmp_path_factory.mktemp("lenient"), "-tls-min-version", "tls1.0")


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """Start an nsqd that requires TLS of every client."""
    yield from node_with(tmp_path_factory.mktemp("strict"), "-tls-required")


@pytest.fixture(scope="module", params=["require", "require-verify"])
def mutual(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """Clients must show certificates: the parameter says which."""
    directory = tmp_path_factory.mktemp("mutual")
    root = str(directory / "tls" / "ca.pem")
    yield from node_with(directory, "-tls-client-auth-policy", request.param, "-tls-root-ca-file", root)


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("stranger"))


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
    """What comes until `size` bytes or the end, which is an error if there was nothing."""
    received = b""
    while len(received) < size and (data := connection.recv(size - len(received))):
        received += data
    if not received:
        raise ConnectionResetError("closed without a word")
    return received


Ask = Callable[[Node, ssl.SSLContext], str]
both_ports = pytest.mark.parametrize("ask", [over_tcp, over_https], ids=["TCP", "HTTPS"])


# Versions


@both_ports
@pytest.mark.parametrize("version", [V1_0, V1_1])
def test_old_versions_are_refused(lenient: Node, ask: Ask, version: ssl.TLSVersion) -> None:
    with pytest.raises(OSError):
        ask(lenient, only(lenient.authority.client(), version))
    assert sum("tls-min-version tls1.0" in line for line in lenient.daemon.lines) == 1


@both_ports
@pytest.mark.parametrize(("version", "name"), [(V1_2, "TLSv1.2"), (V1_3, "TLSv1.3")])
def test_current_versions_are_spoken(lenient: Node, ask: Ask, version: ssl.TLSVersion, name: str) -> None:
    assert ask(lenient, only(lenient.authority.client(), version)) == name


# Clients' certificates


@both_ports
@pytest.mark.parametrize("version", [V1_2, V1_3])
@pytest.mark.parametrize("shown", ["none", "foreign", "expired", "good"])
def test_clients_certificates(
    mutual: Node, stranger: Authority, request: pytest.FixtureRequest, ask: Ask, version: ssl.TLSVersion, shown: str
) -> None:
    certificates: dict[str, Callable[[], trustme.LeafCert | None]] = {
        "none": lambda: None,
        "foreign": lambda: stranger.issue("foreign"),
        "expired": lambda: mutual.authority.issue_expired("expired"),
        "good": lambda: mutual.authority.issue("good"),
    }
    context = only(mutual.authority.client(certificates[shown]()), version)
    verified = request.node.callspec.params["mutual"] == "require-verify"
    if shown == "good" or (shown != "none" and not verified):
        ask(mutual, context)
    else:
        with pytest.raises(OSError):
            ask(mutual, context)


def test_a_policy_about_certificates_requires_tls(mutual: Node) -> None:
    with Conversation(mutual.daemon, b"  V2NOP\n") as client:
        assert client.frame() == (ERROR, b"E_INVALID cannot NOP in current state (TLS required)")
    assert httpx.get(f"http://{mutual.daemon.http}/ping").status_code == 403


# Downgrades

PUB = b"PUB t\n" + sized(b"x")


@pytest.mark.parametrize("identified", [b"", b'{"tls_v1":true}'])
def test_no_command_goes_without_tls(strict: Node, identified: bytes) -> None:
    hello = b"IDENTIFY\n" + sized(identified) if identified else b""
    with Conversation(strict.daemon, b"  V2" + hello + PUB) as client:
        if identified:
            assert client.frame() is not None
        assert client.frame() == (ERROR, b"E_INVALID cannot PUB in current state (TLS required)")
        assert client.frame() is None
    assert topics(strict) == []


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/ping"), ("POST", "/pub?topic=t"), ("PUT", "/config/log_level"), ("OPTIONS", "/x")]
)
def test_no_request_goes_without_tls(strict: Node, method: str, path: str) -> None:
    answer = httpx.request(method, f"http://{strict.daemon.http}{path}", content=b"x")
    port = strict.daemon.addresses["HTTPS"].rpartition(":")[2]
    assert answer.status_code == 403
    assert answer.text == f'{{"message": "TLS_REQUIRED", "https_port": {port}}}'
    assert answer.headers["content-type"] == "application/json; charset=utf-8"
    assert answer.headers["x-nsq-content-type"] == "nsq; version=1.0"
    assert topics(strict) == []


def topics(node: Node) -> list[str]:
    """Return the names of the topics, asked over HTTPS."""
    answer = httpx.get(f"https://{node.daemon.addresses['HTTPS']}/stats?format=json", verify=node.authority.client())
    return [topic["topic_name"] for topic in answer.json()["topics"]]


@both_ports
def test_with_tls_all_goes(strict: Node, ask: Ask) -> None:
    ask(strict, strict.authority.client())


def test_http_may_stay_open(tmp_path: Path) -> None:
    authority, daemon = secured(tmp_path, "-tls-required=tcp-https")
    with daemon:
        assert httpx.get(f"http://{daemon.http}/ping").text == "OK"
        over_https(Node(daemon, authority), authority.client())
        with Conversation(daemon, b"  V2NOP\n") as client:
            assert client.frame() == (ERROR, b"E_INVALID cannot NOP in current state (TLS required)")


# Plaintext ahead of the upgrade


@pytest.mark.parametrize("injected", [PUB, b"SUB t c\n", b"NOP\n" * 1000, b"PUB t\n" + sized(b"x" * 100_000)[:50_000]])
def test_plaintext_ahead_of_the_upgrade_is_discarded(lenient: Node, injected: bytes) -> None:
    with Conversation(lenient.daemon, b"  V2" + IDENTIFY + injected) as client:
        answer = client.frame()
        assert answer is not None
        assert json.loads(answer[1])["tls_v1"] is True
        context = lenient.authority.client()
        with context.wrap_socket(client.socket, server_hostname="localhost") as secure:
            secure.sendall(PUB.replace(b"PUB t", b"PUB mine"))
            reply = struct.pack(">ii", 6, 0) + OK[1]
            assert all_of(secure, 20) == reply * 2  # of the upgrade, and of the PUB inside
    assert topics(lenient) == ["mine"]


# Stats


def test_stats_tell_of_the_connection(lenient: Node) -> None:
    context = only(lenient.authority.client(), V1_2)
    context.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")
    with Conversation(lenient.daemon, b"  V2" + IDENTIFY) as client:
        assert client.frame() is not None
        with context.wrap_socket(client.socket, server_hostname="localhost") as secure:
            secure.sendall(b"SUB mine c#ephemeral\n")
            assert len(all_of(secure, 20)) == 20
            stats = httpx.get(f"http://{lenient.daemon.http}/stats?format=json&topic=mine").json()
            told = stats["topics"][0]["channels"][0]["clients"][0]
    assert {key: value for key, value in told.items() if key.startswith("tls")} == {
        "tls": True,
        "tls_cipher_suite": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        "tls_version": "TLS1.2",
        "tls_negotiated_protocol": "",
        "tls_negotiated_protocol_is_mutual": True,
    }


# Files that cannot be used


@pytest.mark.parametrize("spoiled", ["cert", "key", "root"])
def test_without_its_files_it_does_not_start(tmp_path: Path, spoiled: str) -> None:
    authority = Authority(tmp_path / "tls")
    path = Path(getattr(authority, spoiled))
    path.unlink()
    addresses = ("-tcp-address", "127.0.0.1:0", "-http-address", "127.0.0.1:0", "-https-address", "127.0.0.1:0")
    flags = (*authority.flags(), "-tls-root-ca-file", authority.root, "-data-path", str(tmp_path), *addresses)
    ended = run("nsqd", *flags)
    assert ended.returncode == 1
    said = f"failed to build TLS config - open {path}: no such file or directory"
    assert ended.stderr.splitlines()[-1].endswith(said)
    assert " FATAL: " in ended.stderr


def test_a_weak_certificate_stops_the_daemon_unless_its_level_is_given(tmp_path: Path) -> None:
    weak = WeakAuthority(tmp_path / "weak", 1024, sha1=False)
    done = run("nsqd", "-data-path", str(tmp_path), "-tcp-address=127.0.0.1:0", "-http-address=", *weak.flags())
    assert done.returncode == 1
    assert (
        "ee key too small (below OpenSSL's security level; -tls-security-level=1 admits RSA keys of 1024 bits or more, "
        in done.stderr
    )
    flags = (*weak.flags(), "-https-address=127.0.0.1:0", "-tls-security-level=1")
    with nsqd(tmp_path, *flags, listens=["TCP", "HTTP", "HTTPS"]) as daemon:
        node = Node(daemon, Authority(tmp_path / "unused"))
        assert over_tcp(node, weak.client()) == "TLSv1.3"
        assert over_https(node, weak.client()) == "TLSv1.3"


def test_nsqadmin_names_its_own_flag(tmp_path: Path) -> None:
    weak = WeakAuthority(tmp_path, 1024, sha1=False)
    shown = ("-http-client-tls-cert", weak.cert, "-http-client-tls-key", weak.key)
    done = run("nsqadmin", "-http-address=127.0.0.1:0", "-lookupd-http-address=127.0.0.1:1", *shown)
    assert done.returncode == 1
    assert "-http-client-tls-security-level=1 admits RSA keys" in done.stderr
    with nsqadmin("-lookupd-http-address=127.0.0.1:1", *shown, "-http-client-tls-security-level=1"):
        pass
