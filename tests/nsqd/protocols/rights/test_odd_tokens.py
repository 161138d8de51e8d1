"""Tokens in odd forms, on every port of a node: they are refused, and the right one still counts.

Those who guess again and again are in test_guessing.py, odd auth files in tests/shared/auth/test_keyring.py.
"""

import contextlib
import socket
from collections.abc import Callable
from pathlib import Path

from tests.auth_files import token, write
from tests.cases import each
from tests.daemons import sized
from tests.local_node import LocalNode

RIGHT = token("viewer").encode()
ODD = (
    RIGHT[:-1], RIGHT * 2, RIGHT + b"\0", RIGHT[:20] + b"\0" + RIGHT[20:], b"\xff" + RIGHT[1:], b"\xed\xa0\x80" + RIGHT[3:],
    RIGHT.upper(), b"", RIGHT * 50_000,
)  # fmt: skip
HEAD = b"GET /stats HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer "


def say(node: LocalNode, port: str, data: bytes) -> bytes:
    """Send bytes, and an end except to HTTP, and return what comes until the node closes."""
    said = b""
    with node.connect(port) as client, contextlib.suppress(OSError):
        with contextlib.suppress(OSError):  # the node has closed
            client.sendall(data)
            if port != "HTTP":
                client.shutdown(socket.SHUT_WR)
        while part := client.recv(65536):
            said += part
    return said


@each("port, shown, known", [
    ("TCP", lambda secret: b"  V2AUTH\n" + sized(secret), b'"identity"'),
    ("BEANSTALK", lambda secret: b"auth %b\r\n" % secret, b"\nAUTHORIZED"),
    ("DISQUE", lambda secret: b"*2\r\n$4\r\nAUTH\r\n$%d\r\n%b\r\n" % (len(secret), secret), b"+OK"),
    ("HTTP", lambda secret: HEAD + secret + b"\r\n\r\n", b"HTTP/1.1 200 "),
])  # fmt: skip
def test_odd_tokens_are_refused(port: str, shown: Callable[[bytes], bytes], known: bytes, tmp_path: Path) -> None:
    write(tmp_path / "auth.toml", "viewer")
    node = LocalNode("-auth-file", str(tmp_path / "auth.toml"))
    node.network.client = "127.0.0.2"  # of wrong tokens an address may show only a few
    for secret in ODD:
        said = say(node, port, shown(secret))
        assert said
        assert known not in b"\n" + said
    node.network.client = "127.0.0.1"
    assert known in b"\n" + say(node, port, shown(RIGHT))
