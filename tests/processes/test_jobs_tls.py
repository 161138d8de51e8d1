"""Clients of beanstalkd and of Disque over TLS are known by their certificate, and others are refused."""

import socket
import ssl
from pathlib import Path

import pytest

from tests.certificates import Authority
from tests.daemons import Daemon, nsqd
from tests.processes.test_beanstalkd import beanstalk

pytestmark = pytest.mark.process

AUTH_FILE = """
[[certificate]]
name = "billing"
subject = "CN=billing*,OU=*,O=*"
roles = ["producer"]
"""
PORTS = ("-beanstalk-tls-address", "127.0.0.1:0", "-disque-tls-address", "127.0.0.1:0")


def command(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def secured(node: Daemon, name: str, context: ssl.SSLContext) -> ssl.SSLSocket:
    """Connect to one of the ports for jobs."""
    plain = socket.create_connection(beanstalk(node, f"{name} TLS"), 10)
    return context.wrap_socket(plain, server_hostname="localhost")


def test_a_certificate_says_who_a_client_is(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "tls")
    auth_file = tmp_path / "auth.toml"
    auth_file.write_text(AUTH_FILE)
    auth_file.chmod(0o600)
    flags = (*PORTS, "-auth-file", str(auth_file), *authority.flags())
    flags += ("-tls-root-ca-file", authority.root, "-tls-client-auth-policy", "require-verify")
    with nsqd(tmp_path / "data", *flags) as node:
        for name, added, asked in (("billing-1", b"+D-", b"-NOPERM"), ("other", b"-NOAUTH", b"-NOAUTH")):
            context = authority.client(authority.issue(name))
            with secured(node, "DISQUE", context) as sock:
                for said, answer in ((command(b"ADDJOB", b"q", b"x", b"0"), added), (command(b"QLEN", b"q"), asked)):
                    sock.sendall(said)
                    assert sock.recv(4096).startswith(answer), name
            with secured(node, "BEANSTALK", context) as sock:
                sock.sendall(b"put 0 0 9 1\r\nx\r\n")
                assert sock.recv(100).startswith(b"INSERTED" if added == b"+D-" else b"UNAUTHORIZED")
        for own in (authority.issue_expired("billing-1"), None):
            assert is_refused(node, authority.client(own))


def is_refused(node: Daemon, context: ssl.SSLContext) -> bool:
    try:
        with secured(node, "BEANSTALK", context) as sock:
            return sock.recv(100) == b""
    except OSError:
        return True
