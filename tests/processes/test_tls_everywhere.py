"""A whole set that speaks nothing but TLS: nsqlookupd, nsqd and nsqadmin, with certificates of one authority, and tokens."""

from __future__ import annotations

import signal
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import trustme

from penstock.client import Consumer, Producer, Settings
from shared.auth.tokens import digest
from tests.admin.conftest import nsqadmin
from tests.certificates import NAMES, Authority
from tests.daemons import Daemon, eventually, nsqd

pytestmark = pytest.mark.process

ALL = ("TCP", "HTTP", "HTTPS")


def token(name: str) -> str:
    return "pst_" + name.ljust(43, "_")


def write_private(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o600)
    return str(path)


def save(certificate: trustme.LeafCert, directory: Path, name: str) -> tuple[str, str]:
    cert, key = directory / f"{name}.pem", directory / f"{name}-key.pem"
    cert.write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
    certificate.private_key_pem.write_to_path(str(key))
    return str(cert), str(key)


@dataclass(frozen=True)
class Secure:
    """The set, and the files with which clients come in."""

    authority: Authority
    lookupd: Daemon
    node: Daemon
    admin: Daemon
    cert: str
    key: str

    def client(self, *, certificate: bool = True) -> httpx.Client:
        context = self.authority.client()
        if certificate:
            context.load_cert_chain(self.cert, self.key)
        return httpx.Client(verify=context, headers={"Authorization": f"Bearer {token('admin')}"})

    def settings(self) -> Settings:
        files = {"tls_root_ca_file": self.authority.root, "tls_cert": self.cert, "tls_key": self.key}
        return Settings(tls_v1=True, auth_secret=token("admin"), lookupd_poll_interval_s=1, **files)  # type: ignore[arg-type]

    def words(self, flag: str) -> list[str]:
        """Return the same settings as flags of a program."""
        words = ["tls_v1", f"tls_root_ca_file,{self.authority.root}", f"tls_cert,{self.cert}", f"tls_key,{self.key}"]
        return [f"-{flag}={word}" for word in [*words, f"auth_secret,{token('admin')}"]]


def server_flags(authority: Authority) -> tuple[str, ...]:
    """Flags of any of the three daemons: TLS only, for clients with a certificate."""
    policy = ("-tls-client-auth-policy", "require-verify", "-tls-root-ca-file", authority.root)
    return (*authority.flags(), *policy, "-https-address", "127.0.0.1:0")


def lookupd_flags(lookupd: Daemon, authority: Authority, own: Authority) -> tuple[str, ...]:
    """Flags by which an nsqd with the certificate of `own` finds an nsqlookupd of `authority`."""
    tls = ("-lookupd-tls-root-ca-file", authority.root, "-lookupd-tls-cert", own.cert, "-lookupd-tls-key", own.key)
    return ("-lookupd-tcp-address", lookupd.tcp, *tls)


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    path = tmp_path_factory.mktemp("secure")
    authority = Authority(path / "tls")
    cert, key = save(authority.issue("ann"), path, "client")
    entries = [
        f'[[token]]\nname = "{one}"\nsha256 = "{digest(token(one).encode())}"\nroles = ["{one}"]\n'
        for one in ("admin", "node")
    ]
    auth = write_private(path / "auth.toml", "".join(entries))
    own, shown = (write_private(path / name, token(name)) for name in ("node", "admin"))
    with ExitStack() as stack:
        flags = (*server_flags(authority), "-auth-file", auth)
        lookupd = stack.enter_context(Daemon("nsqlookupd", *flags, listens=ALL))
        response = lookupd_flags(lookupd, authority, authority)
        node = stack.enter_context(nsqd(path / "data", *flags, *response, "-auth-token-file", own, listens=ALL))
        asks = (
            "-http-client-tls-root-ca-file",
            authority.root,
            "-http-client-tls-cert",
            cert,
            "-http-client-tls-key",
            key,
        )
        found = ("-lookupd-http-address", f"https://{lookupd.addresses['HTTPS']}", "-nsqd-https")
        shows = ("-auth-token-file", shown, "-auth-token-for", node.addresses["HTTPS"])
        admin = stack.enter_context(nsqadmin(*server_flags(authority), *found, *asks, *shows))
        admin.wait_for_line("HTTPS: listening on")
        node.wait_for_line("connected, its HTTP API is at https://")
        yield Secure(authority, lookupd, node, admin, cert, key)


# The whole set


def test_a_message_goes_through_and_nsqadmin_shows_its_topic(secure: Secure) -> None:
    settings, places = secure.settings(), [f"https://{secure.lookupd.addresses['HTTPS']}"]
    with Producer([secure.node.tcp], settings=settings) as producer:
        producer.publish("orders", b"one")
    with Consumer("orders", "api", lookupd_addresses=places, settings=settings) as consumer:
        message = next(iter(consumer))
        assert message.body == b"one"
        message.finish()
    with secure.client() as client:
        admin = f"https://{secure.admin.addresses['HTTPS']}"
        eventually(lambda: client.get(f"{admin}/api/topics/orders").json()["channels"])
        assert client.get(f"{admin}/api/topics/orders").json()["message_count"] == 1
        (one,) = client.get(f"{admin}/api/nodes").json()["nodes"]
        found = client.get(places[0] + "/nodes", headers={"X-Nsq-Extensions": "true"}).json()["producers"]
    assert one["topics"] == [{"topic": "orders", "tombstoned": False}]
    assert secure.node.http.endswith(f":{one['http_port']}")
    assert [one["https_port"] for one in found] == [int(secure.node.addresses["HTTPS"].rpartition(":")[2])]


# Refusals


def test_clear_text_over_http_and_a_client_without_a_certificate_are_refused(secure: Secure) -> None:
    for daemon in (secure.lookupd, secure.node, secure.admin):
        place = daemon.addresses["HTTPS"]
        for path in ("/ping", "/topics", "/"):
            answer = httpx.get(f"http://{daemon.http}{path}", trust_env=False)
            response = {"message": "TLS_REQUIRED", "https_port": int(place.rpartition(":")[2])}
            assert (answer.status_code, answer.json()) == (403, response)
            assert "strict-transport-security" not in answer.headers
        with secure.client(certificate=False) as client, pytest.raises(httpx.TransportError):
            client.get(f"https://{place}/ping")
    # browsers are to ask nsqadmin by HTTPS only
    with secure.client() as client:
        for daemon, wanted in ((secure.admin, "max-age=31536000"), (secure.node, None), (secure.lookupd, None)):
            for path in ("/ping", "/no-such-page"):
                answer = client.get(f"https://{daemon.addresses['HTTPS']}{path}")
                assert answer.headers.get("strict-transport-security") == wanted


def first_reply(sock: socket.socket) -> bytes:
    with sock, sock.makefile("rb") as file:
        size = file.read(4)
        return file.read(struct.unpack(">i", size)[0]) if size else b""


def test_clear_text_at_the_tcp_port_of_nsqlookupd_is_refused(secure: Secure) -> None:
    for first in (b"  V1PING\n", b"GET / HTTP/1.0\r\n\r\n"):
        peer = secure.lookupd.connect()
        peer.sendall(first)
        assert first_reply(peer).startswith(b"E_TLS_REQUIRED ")
    with secure.client() as client:
        metrics = client.get(f"https://{secure.lookupd.addresses['HTTPS']}/metrics").text
    assert 'nsqlookupd_refused_total{reason="clear_text"} 2.0' in metrics


# Alone


def test_an_expired_certificate_of_nsqlookupd_is_refused_until_it_is_renewed(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "tls")
    expired = save(authority.issue_expired("old", *NAMES), tmp_path, "old")
    Path(authority.cert).write_bytes(Path(expired[0]).read_bytes())
    Path(authority.key).write_bytes(Path(expired[1]).read_bytes())
    tls = (*authority.flags(), "-https-address", "127.0.0.1:0")
    with ExitStack() as stack:
        lookupd = stack.enter_context(Daemon("nsqlookupd", *tls, listens=ALL))
        node = stack.enter_context(nsqd(tmp_path / "data", *lookupd_flags(lookupd, authority, authority)[:4]))
        line = node.wait_for_line("ERROR: LOOKUPD(")
        assert "certificate has expired; renew its certificate, and send it SIGHUP" in line
        authority.renew()
        lookupd.process.send_signal(signal.SIGHUP)
        lookupd.wait_for_line("SIGHUP: reloaded the certificates")
        node.wait_for_line("connected, its HTTP API is at https://")


@pytest.mark.parametrize("program", ["nsqlookupd", "nsqadmin"])
def test_a_reload_gives_new_connections_the_new_certificate(program: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    tls = (*authority.flags(), "-https-address", "127.0.0.1:0")
    daemon = (
        Daemon(program, *tls) if program == "nsqlookupd" else nsqadmin(*tls, "-lookupd-http-address", "127.0.0.1:1")
    )
    with daemon:
        daemon.wait_for_line("HTTPS: listening on")
        before = serial(daemon, authority)
        authority.renew()
        daemon.process.send_signal(signal.SIGHUP)
        daemon.wait_for_line("SIGHUP: reloaded the certificates")
        assert serial(daemon, authority) != before
        Path(authority.cert).write_text("nothing")
        daemon.process.send_signal(signal.SIGHUP)
        daemon.wait_for_line("SIGHUP: cannot reload the certificates, the current ones stay in use")
        assert httpx.get(f"http://{daemon.http}/ping").text == "OK"  # clear text is not refused here


def serial(daemon: Daemon, authority: Authority) -> object:
    with daemon.connect("HTTPS") as sock, authority.client().wrap_socket(sock, server_hostname="127.0.0.1") as tls:
        return (tls.getpeercert() or {})["serialNumber"]


def test_a_node_without_https_is_not_asked_in_clear_text(tmp_path: Path) -> None:
    with ExitStack() as stack:
        lookupd = stack.enter_context(Daemon("nsqlookupd"))
        node = stack.enter_context(nsqd(tmp_path, "-lookupd-tcp-address", lookupd.tcp))
        admin = stack.enter_context(nsqadmin("-lookupd-http-address", lookupd.http, "-nsqd-https"))
        eventually(lambda: httpx.get(f"http://{lookupd.http}/nodes").json()["producers"])
        answer = httpx.get(f"http://{admin.http}/api/nodes/{node.http}")
        assert answer.status_code == 502
        assert "registers no HTTPS port, and -nsqd-https is on" in answer.text


def test_nodes_that_are_given_with_https_are_asked_there(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "tls")
    tls = (*authority.flags(), "-https-address", "127.0.0.1:0", "-tls-required")
    with nsqd(tmp_path / "data", *tls, listens=ALL) as node:
        given = ("-nsqd-http-address", f"https://{node.addresses['HTTPS']}")
        with nsqadmin(*given, "-http-client-tls-root-ca-file", authority.root) as admin:
            answer = httpx.get(f"http://{admin.http}/api/nodes/{node.http}")
            assert (answer.status_code, answer.json()["node"]) == (200, node.http)
        with nsqadmin(*given) as admin:
            answer = httpx.get(f"http://{admin.http}/api/nodes")
            assert "-http-client-tls-root-ca-file must name the authority" in answer.text
