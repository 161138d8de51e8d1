"""A load's connection behind TLS, snappy or deflate, which offers the part of a socket's interface that loads use.

Invariant: no sent bytes refer to bytes sent before. So the result of one `pack_for` is valid on every connection, again and
again, and the load costs little; only TLS has to be done live. The deflate of real clients refers back to earlier
messages; here it would find the same request again, and the server would unpack next to nothing.
"""

from __future__ import annotations

import json
import zlib
from typing import Protocol

from OpenSSL import SSL

from bench.wire import Wire, connect, expect_ok, greeting, identify, read_exactly
from penstock.protocol.compression import Deflate, Snappy

UPGRADES = {"tls": "tls_v1", "snappy": "snappy", "deflate": "deflate"}  # the upgrades, and how IDENTIFY asks for them

_READ = 128 * 1024  # bytes from the network at a time
_RECORD = 16 * 1024  # bytes of plain text in a TLS record
_BITE = 1 << 20  # bytes of plain text from one step of decompression
_SNAPPY_BEGIN = b"\xff\x06\x00\x00sNaPpY"  # sent once, before the first chunk
# This is what Go's clients choose. By default OpenSSL would take AES-256 with one server and AES-128 with the other.
_TLS_SUITE = b"TLS_AES_128_GCM_SHA256"


def introduce(host: str, port: int, upgrade: str, heartbeat_interval: int) -> Wire:
    """Return a connection after IDENTIFY, through the upgrade unless that is "".

    SystemExit if the server does not grant the upgrade.
    """
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
    """Pack plain bytes for `sendall`, so that they are complete in themselves."""
    if upgrade == "snappy":
        return Snappy().compress(data).removeprefix(_SNAPPY_BEGIN)
    if upgrade == "deflate":
        deflate = zlib.compressobj(wbits=-zlib.MAX_WBITS)  # level 6, as in NSQ's clients
        return deflate.compress(data) + deflate.flush(zlib.Z_FULL_FLUSH)
    return data


class Upgraded:
    """A Wire through an upgrade. No received data waits in it, so epoll reports all that can be read."""

    def __init__(self, sock: Wire, upgrade: str) -> None:
        """Begin the upgrade; the server's answer to IDENTIFY must have been read."""
        self._socket = sock
        self._layer: _Layer = _Tls(sock) if upgrade == "tls" else _Compressed(upgrade)
        expect_ok(self)
        if upgrade == "snappy":
            sock.sendall(_SNAPPY_BEGIN)

    def fileno(self) -> int:
        """Return the socket's file descriptor, for epoll."""
        return self._socket.fileno()

    def recv(self, size: int, /) -> bytes:
        """Return all plain bytes that have arrived, whatever `size` is.

        BlockingIOError, as in Wire, if the bytes contain no data, such as a flush of deflate.
        """
        data = self._socket.recv(_READ)
        plain = self._layer.open(data) if data else b""
        if data and not plain:
            raise BlockingIOError
        return plain

    def recv_into(self, view: memoryview, /) -> int:
        """Receive as `recv` does, into the view. ValueError if the view has no room for all bytes."""
        plain = self.recv(len(view))
        view[: len(plain)] = plain
        return len(plain)

    def sendall(self, data: bytes | memoryview, /) -> None:
        """Send what `pack_for` made, through TLS if that is the upgrade."""
        self._socket.sendall(self._layer.seal(data))


class _Layer(Protocol):
    """The layer between the network and the bytes that loads send and receive."""

    def seal(self, data: bytes | memoryview) -> bytes | memoryview:
        """Return packed bytes in the form that the network gets."""

    def open(self, data: bytes) -> bytes:
        """Return all plain bytes that the network's bytes complete."""


class _Compressed:
    """The receiving half of a compression; the sending half is done ahead by `pack_for`."""

    def __init__(self, upgrade: str) -> None:
        self._codec = Snappy() if upgrade == "snappy" else Deflate()

    def seal(self, data: bytes | memoryview) -> bytes | memoryview:
        """Return the data itself, which is compressed already."""
        return data

    def open(self, data: bytes) -> bytes:
        """Return all plain bytes that `data` completes."""
        self._codec.feed(data)
        parts = []
        while self._codec.has_more:
            parts.append(self._codec.read(_BITE))
        return b"".join(parts)


class _Tls:
    """The client's side of TLS. It uses pyOpenSSL, because the ssl module cannot choose TLS 1.3's cipher suite."""

    def __init__(self, sock: Wire) -> None:
        """Do the handshake; SystemExit if the server closes the connection."""
        context = SSL.Context(SSL.TLS_CLIENT_METHOD)  # accepts any certificate
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
        """Return the data in TLS records."""
        self._connection.sendall(data)
        return self._outgoing()

    def open(self, data: bytes) -> bytes:
        """Return the plain bytes of all complete records."""
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
