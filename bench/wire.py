"""The bytes that loads send and expect, and blocking helpers for the time before the measurement."""

from __future__ import annotations

import json
import random
import socket
from struct import pack
from typing import Protocol

SIZE = 200  # bytes of a body
BATCH = 200  # messages of an MPUB
BODY = b"x" * SIZE
OK = b"\0\0\0\6\0\0\0\0OK"
HEARTBEAT = b"\0\0\0\x0f\0\0\0\0_heartbeat_"
FRAME = 34 + SIZE  # bytes of a message frame: size, type, timestamp, attempts, id, body
FRAME_HEAD = pack(">ii", FRAME - 4, 2)
TIMEOUT = 60.0  # s without a byte, after which the server counts as stuck
_SEND_BUFFER = 1 << 20  # bytes, so that a send does not wait for the server to read


class Wire(Protocol):
    """The part of a socket's interface that loads use.

    Receiving nothing means the end; BlockingIOError means that the arrived bytes contain no data.
    """

    def fileno(self) -> int: ...
    def recv(self, size: int, /) -> bytes: ...
    def recv_into(self, view: memoryview, /) -> int: ...
    def sendall(self, data: bytes | memoryview, /) -> None: ...


def sized(body: bytes) -> bytes:
    """Return the length and the body."""
    return pack(">i", len(body)) + body


MPUB_BODY = sized(BODY) * BATCH


def varied_body() -> bytes:
    """Return bodies like MPUB_BODY that all differ and compress to about half.

    Each has five fields, of 20 fixed and 20 random bytes.
    """
    source = random.Random(1)  # the same seed in every run
    fields = [b'"number_%d_of_five":"' % number for number in range(5)]
    bodies = [b"".join([field + source.randbytes(SIZE // 5 - len(field)) for field in fields]) for _ in range(BATCH)]
    return b"".join(map(sized, bodies))


def connect(host: str, port: int) -> socket.socket:
    """Open a blocking connection with TCP_NODELAY."""
    sock = socket.create_connection((host, port), timeout=TIMEOUT)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
    return sock


def greeting(**settings: int) -> bytes:
    """Return the magic and an IDENTIFY with these settings.

    The answer is OK, or JSON if the settings ask for feature_negotiation.
    """
    return b"  V2IDENTIFY\n" + sized(json.dumps(settings).encode())


def identify(sock: socket.socket, **settings: int) -> None:
    """Send the greeting and read the OK that answers it."""
    sock.sendall(greeting(**settings))
    expect_ok(sock)


def expect_ok(sock: Wire, times: int = 1) -> None:
    """Read `times` OKs. SystemExit if anything else comes."""
    data = read_exactly(sock, len(OK) * times)
    if data != OK * times:
        raise SystemExit(f"load: expected OK, got {data + sock.recv(200)!r}")


def read_exactly(sock: Wire, count: int) -> bytes:
    """Read `count` bytes. SystemExit if the peer closes before."""
    data = b""
    while len(data) < count:
        try:
            part = sock.recv(count - len(data))
        except BlockingIOError:
            continue
        if not part:
            raise SystemExit(f"load: the server closed the connection after {data!r}")
        data += part
    return data
