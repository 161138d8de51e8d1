"""A load's connection behind TLS, snappy or deflate: like a socket, as far as loads use one.

Law: nothing that is sent refers to what was sent before. So bytes that `pack_for` made once are good on every connection, again
and again, and the load costs little; only TLS has to be done live. Real clients' deflate looks back at earlier messages; here
it would find the same request again, and the server would unpack next to nothing.
"""

from __future__ import annotations

import json
import zlib
from typing import Protocol

from OpenSSL import SSL

from bench.wire import Wire, connect, expect_ok, greeting, identify, read_exactly
from penstock.protocol.compression import Deflate, Snappy

UPGRADES = {"tls": "tls_v1", "snappy": "snappy", "deflate": "deflate"}  # and how IDENTIFY asks for them

_READ = 128 * 1024  # bytes from the network at a time
_RECORD = 16 * 1024  # bytes of plain text in a TLS record
_BITE = 1 << 20  # bytes of plain text from one step of decompression
_SNAPPY_BEGIN = b"\xff\x06\x00\x00sNaPpY"  # once, before the first chunk
# What Go's clients choose. Left alone, OpenSSL would take AES-256 with one server and AES-128 with the other.
_TLS_SUITE = b"TLS_AES_128_GCM_SHA256"


def introduce(host: str, port: int, upgrade: str, heartbeat_interval: int) -> Wire:
    """A connection after IDENTIFY, through the upgrade unless that is "". SystemExit if the server grants it not."""
    sock = connect(host, port)
    if not upgrade:
        identify(sock, heartbeat_interval=heartbeat_interval)
        return sock
    wish = UPGRADES[upgrade]
    sock.sendall(greeting(heartbeat_interval=heartbeat_interval, feature_negotiation=True, **{wish: True}))
    answer = read_exactly(sock, int.from_bytes(read_exactly(sock, 4)))
    if not json.loads(answer[4:])[wish]:
        raise SystemExit(f"load: the server does not grant {upgrade}: {answer!r}")
    return Upgraded(sock, upgrade)


def pack_for(upgrade: str, data: bytes) -> bytes:
    """What `sendall` wants for these plain bytes: complete in itself."""
    if upgrade == "snappy":
        return Snappy().compress(data).removeprefix(_SNAPPY_BEGIN)
    if upgrade == "deflate":
        deflate = zlib.compressobj(wbits=-zlib.MAX_WBITS)  # level 6, as NSQ's clients
        return deflate.compress(data) + deflate.flush(zlib.Z_FULL_FLUSH)
    return data


class Upgraded:
    """A Wire. Nothing that has arrived waits in here, so epoll tells the truth."""

    def __init__(self, sock: Wire, upgrade: str) -> None:
        """The server's answer to IDENTIFY has been read."""
        self._socket = sock
        self._layer: _Layer = _Tls(sock) if upgrade == "tls" else _Compressed(upgrade)
        expect_ok(self)
        if upgrade == "snappy":
            sock.sendall(_SNAPPY_BEGIN)

    def fileno(self) -> int:
        """The socket's."""
        return self._socket.fileno()

    def recv(self, size: int, /) -> bytes:
        """All that has come, whatever the size asked for. See Wire: deflate's flushes, for one, carry nothing."""
        data = self._socket.recv(_READ)
        plain = self._layer.open(data) if data else b""
        if data and not plain:
            raise BlockingIOError
        return plain

    def recv_into(self, view: memoryview, /) -> int:
        """The same. ValueError if there is no room for all of it."""
        plain = self.recv(len(view))
        view[: len(plain)] = plain
        return len(plain)

    def sendall(self, data: bytes | memoryview, /) -> None:
        """Send what `pack_for` made."""
        self._socket.sendall(self._layer.seal(data))


class _Layer(Protocol):
    """Between the network and what loads send and receive."""

    def seal(self, data: bytes | memoryview) -> bytes | memoryview:
        """What was packed, as the network gets it."""

    def open(self, data: bytes) -> bytes:
        """All that can be read of what the network brought."""


class _Compressed:
    """A compression's half that is not done ahead: receiving."""

    def __init__(self, upgrade: str) -> None:
        self._codec = Snappy() if upgrade == "snappy" else Deflate()

    def seal(self, data: bytes | memoryview) -> bytes | memoryview:
        """See _Layer: it is compressed already."""
        return data

    def open(self, data: bytes) -> bytes:
        """See _Layer."""
        self._codec.feed(data)
        parts = []
        while self._codec.has_more:
            parts.append(self._codec.read(_BITE))
        return b"".join(parts)


class _Tls:
    """The client's side. pyOpenSSL, because the ssl module cannot choose TLS 1.3's cipher suite."""

    def __init__(self, sock: Wire) -> None:
        """Shakes hands."""
        context = SSL.Context(SSL.TLS_CLIENT_METHOD)  # and trust whoever it is
        context.set_min_proto_version(SSL.TLS1_3_VERSION)
        context.set_tls13_ciphersuites(_TLS_SUITE)
        self._connection = SSL.Connection(context, None)
        self._connection.set_connect_state()
        while not self._shake_hands(sock):
            data = sock.recv(_READ)
            if not data:
                raise SystemExit("load: the server closed the connection during the TLS handshake")
            self._connection.bio_write(data)

    def _shake_hands(self, sock: Wire) -> bool:
        try:
            self._connection.do_handshake()
        except SSL.WantReadError:
            sock.sendall(self._outgoing())
            return False
        sock.sendall(self._outgoing())
        return True

    def seal(self, data: bytes | memoryview) -> bytes:
        """See _Layer: in records."""
        self._connection.sendall(data)
        return self._outgoing()

    def open(self, data: bytes) -> bytes:
        """See _Layer: of the records that are complete."""
        self._connection.bio_write(data)
        parts = []
        try:
            while True:
                parts.append(self._connection.recv(_RECORD))
        except SSL.WantReadError:
            return b"".join(parts)

    def _outgoing(self) -> bytes:
        parts = []
        try:
            while True:
                parts.append(self._connection.bio_read(_READ))
        except SSL.WantReadError:
            return b"".join(parts)
