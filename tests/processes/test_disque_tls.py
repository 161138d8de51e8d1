"""Clients of Disque over TLS: they are served, known by their certificate, and nobody is served in clear."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.certificates import Authority
from tests.daemons import Daemon, nsqd
from tests.processes.test_beanstalkd import beanstalk, until_closed

pytestmark = pytest.mark.process

AUTH_FILE = """
[[certificate]]
name = "billing"
subject = "CN=billing*,OU=*,O=*"
roles = ["producer"]
"""


def address_of(node: Daemon) -> tuple[str, int]:
    return beanstalk(node, "DISQUE TLS")


def command(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def test_clients_of_disque_may_speak_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "tls")
    with nsqd(tmp_path, "-disque-tls-address", "127.0.0.1:0", *authority.flags()) as node:
        address = address_of(node)
        with (
            socket.create_connection(address, 10) as plain,
            authority.client().wrap_socket(plain, server_hostname="localhost") as sock,
        ):
            sock.sendall(command(b"ADDJOB", b"q", b"x" * 100, b"0") + command(b"QLEN", b"q"))
            said = b""
            while not said.endswith(b":1\r\n"):
                part = sock.recv(4096)
                assert part, said
                said += part
            assert said.startswith(b"+D-")
        with socket.create_connection(address, 10) as stranger:
            stranger.sendall(command(b"QLEN", b"q") * 100)
            assert b":1" not in until_closed(stranger)


def test_a_certificate_says_who_a_client_of_disque_is(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "tls")
    auth_file = tmp_path / "auth.toml"
    auth_file.write_text(AUTH_FILE)
    auth_file.chmod(0o600)
    flags = ("-disque-tls-address", "127.0.0.1:0", "-auth-file", str(auth_file), *authority.flags())
    flags += ("-tls-root-ca-file", authority.root, "-tls-client-auth-policy", "require-verify")
    with nsqd(tmp_path / "data", *flags) as node:
        for name, answer in (("billing-1", b"+D-"), ("other", b"-NOAUTH")):
            context = authority.client(authority.issue(name))
            with (
                socket.create_connection(address_of(node), 10) as plain,
                context.wrap_socket(plain, server_hostname="localhost") as sock,
            ):
                sock.sendall(command(b"ADDJOB", b"q", b"x", b"0"))
                assert sock.recv(4096).startswith(answer), name
                sock.sendall(command(b"QLEN", b"q"))
                assert sock.recv(4096).startswith((b"-NOPERM", b"-NOAUTH"))
