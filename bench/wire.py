"""The bytes that loads send and expect, and blocking helpers for what comes before the measured time."""

from __future__ import annotations

import json
import socket
from struct import pack

SIZE = 200  # bytes of a body
BATCH = 200  # messages of an MPUB
BODY = b"x" * SIZE
OK = b"\0\0\0\6\0\0\0\0OK"
HEARTBEAT = b"\0\0\0\x0f\0\0\0\0_heartbeat_"
FRAME = 34 + SIZE  # bytes of a message frame: size, type, timestamp, attempts, id, body
FRAME_HEAD = pack(">ii", FRAME - 4, 2)
TIMEOUT = 60.0  # s without a byte: the server is stuck, say so
_SEND_BUFFER = 1 << 20  # bytes: a send need not wait for the server to read


def sized(body: bytes) -> bytes:
    """The body after its length."""
    return pack(">i", len(body)) + body


MPUB_BODY = sized(BODY) * BATCH


def connect(host: str, port: int) -> socket.socket:
    """A blocking connection."""
    sock = socket.create_connection((host, port), timeout=TIMEOUT)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
    return sock


def greeting(**settings: int) -> bytes:
    """The magic, and an IDENTIFY that is answered by OK."""
    return b"  V2IDENTIFY\n" + sized(json.dumps(settings).encode())


def identify(sock: socket.socket, **settings: int) -> None:
    """Send the greeting and read its answer."""
    sock.sendall(greeting(**settings))
    expect_ok(sock)


def expect_ok(sock: socket.socket, times: int = 1) -> None:
    """Read so many OKs. SystemExit if something else comes."""
    data = read_exactly(sock, len(OK) * times)
    if data != OK * times:
        raise SystemExit(f"load: expected OK, got {data + sock.recv(200)!r}")


def read_exactly(sock: socket.socket, count: int) -> bytes:
    """So many bytes. SystemExit if the peer closes before."""
    data = b""
    while len(data) < count:
        part = sock.recv(count - len(data))
        if not part:
            raise SystemExit(f"load: the server closed the connection after {data!r}")
        data += part
    return data
