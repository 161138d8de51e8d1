"""Tokens in odd forms, on every port of real daemons: they are refused, and cost no memory.

Those who guess again and again are in tests/nsqd/protocols/rights/test_guessing.py, odd auth files in
tests/shared/auth/test_keyring.py.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path

import pytest

from shared.auth.tokens import digest
from tests.daemons import Daemon, nsqd, sized
from tests.processes.test_beanstalkd import beanstalk
from tests.processes.test_nsqd_hostile import rss

pytestmark = pytest.mark.process

RIGHT = b"pst_" + b"right".ljust(43, b"x")
HUGE = 16 * 1024 * 1024  # bytes
MOST_GROWTH = 80 * 1024 * 1024  # bytes: far less than one huge token for each port
TEXT = f"""
[[role]]
name = "all"
rules = [{{ verbs = ["publish", "consume", "stats", "register"] }}]

[[token]]
name = "n"
sha256 = "{digest(RIGHT)}"
roles = ["all"]
"""
ODD = {
    "truncated": RIGHT[:-1],
    "twice": RIGHT * 2,
    "with a NUL": RIGHT + b"\0",
    "with a NUL within": RIGHT[:20] + b"\0" + RIGHT[20:],
    "with an odd byte": b"\xff" + RIGHT[1:],
    "surrogates": b"\xed\xa0\x80" + RIGHT[3:],
    "upper case": RIGHT.upper(),
    "empty": b"",
    "giant": RIGHT * (HUGE // len(RIGHT)),
}
HEAD = b"GET /stats HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer "
IDENTIFY = b'{"broadcast_address":"a","tcp_port":1,"http_port":1,"version":"1","auth_token":"%b"}'
# by port: how a token is shown, and the answer to a right one
PORTS = {
    "TCP": (lambda secret: b"  V2AUTH\n" + sized(secret), b'"identity"'),
    "BEANSTALK": (lambda secret: b"auth %b\r\n" % secret, b"\nAUTHORIZED"),
    "DISQUE": (lambda secret: b"*2\r\n$4\r\nAUTH\r\n$%d\r\n%b\r\n" % (len(secret), secret), b"+OK"),
    "HTTP": (lambda secret: HEAD + secret + b"\r\n\r\n", b"HTTP/1.1 200 "),
    "lookup": (lambda secret: b"  V1IDENTIFY\n" + sized(IDENTIFY % secret), b'"version"'),
}


def say(address: tuple[str, int], data: bytes, ends: bool, source: str) -> bytes:
    """Send bytes from an address, and perhaps an end, and return what comes."""

    def send() -> None:
        with contextlib.suppress(OSError):  # the daemon has closed
            sock.sendall(data)
            if ends:
                sock.shutdown(socket.SHUT_WR)

    with socket.create_connection(address, 30, (source, 0)) as sock:
        sender = threading.Thread(target=send)  # the daemon may answer before all is sent
        sender.start()
        said = b""
        with contextlib.suppress(ConnectionError):
            while part := sock.recv(65536):
                said += part
        sock.close()
        sender.join()
    return said


def test_odd_tokens_are_refused_and_cost_no_memory(tmp_path: Path) -> None:
    file = tmp_path / "auth.toml"
    file.write_text(TEXT)
    file.chmod(0o600)
    ports = ("-beanstalk-address", "127.0.0.1:0", "-disque-address", "127.0.0.1:0")
    with (
        nsqd(tmp_path / "data", "-auth-file", str(file), *ports, listens=("TCP", "HTTP", "DISQUE")) as node,
        Daemon("nsqlookupd", "-auth-file", str(file)) as lookupd,
    ):
        before = {daemon: rss(daemon) for daemon in (node, lookupd)}
        places = {name: beanstalk(node, name) for name in ("TCP", "BEANSTALK", "DISQUE", "HTTP")}
        places["lookup"] = beanstalk(lookupd, "TCP")
        for name, (shown, known) in PORTS.items():
            for form, secret in ODD.items():  # from another address, because wrong ones are counted
                said = say(places[name], shown(secret), name != "HTTP", "127.0.0.2")
                assert known not in b"\n" + said, (name, form)
                assert said or (name, form) == ("HTTP", "giant"), (name, form)  # the reset may overtake the 400
            assert known in b"\n" + say(places[name], shown(RIGHT), name != "HTTP", "127.0.0.1"), name
        for daemon, size in before.items():
            assert rss(daemon) - size < MOST_GROWTH
