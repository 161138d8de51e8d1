"""TLS and compression between the socket and the frames: sans-IO, bytes in and bytes out, in both directions.

`decode` returns everything that its input holds, so that nothing waits here while the socket is silent. A decompression bomb
expands to 1,032 times the 65,536 bytes of a read at most (deflate).
"""

import ssl
from contextlib import suppress
from typing import Protocol

from penstock.protocol.compression import Deflate, Snappy

_RECORD = 16_384  # bytes of plain text in a TLS record
_BITE = 1 << 20  # bytes of plain text from one step of decompression


class Layer(Protocol):
    """A layer that `Layers` stacks: TLS or a compression."""

    def encode(self, data: bytes) -> bytes:
        """Encode `data` on its way to the socket; for b"", return the bytes that the layer sends on its own, if any."""

    def decode(self, data: bytes) -> bytes:
        """Decode `data` on its way from the socket. Raises ssl.SSLError or CorruptStream, after which it is of no use."""

    def end(self) -> bytes:
        """Return the layer's closing bytes, to be sent last."""


class Layers:
    """The layers of one connection, outermost (next to the socket) first; a new connection has none."""

    __slots__ = ("_layers",)

    def __init__(self) -> None:
        self._layers: list[Layer] = []

    def push(self, layer: Layer) -> None:
        """Add a new innermost layer, next to the frames."""
        self._layers.append(layer)

    def encode(self, data: bytes) -> bytes:
        """Encode plain bytes for the socket; for b"", return the bytes that the layers have to send on their own."""
        for layer in reversed(self._layers):
            data = layer.encode(data)
        return data

    def decode(self, data: bytes) -> bytes:
        """Decode the socket's bytes into plain bytes. Raises ssl.SSLError or CorruptStream."""
        for layer in self._layers:
            data = layer.decode(data)
        return data

    def end(self) -> bytes:
        """Return the closing bytes of all layers: nothing follows."""
        return b"".join([layer.end() for layer in self._layers])


class Compression:
    """Snappy or deflate as a layer."""

    __slots__ = ("_codec", "encode")

    def __init__(self, codec: Snappy | Deflate) -> None:
        self._codec = codec
        self.encode = codec.compress

    def decode(self, data: bytes) -> bytes:
        """Return all plain bytes that `data` completes. Raises CorruptStream."""
        self._codec.feed(data)
        plain = [self._codec.read(_BITE)]
        while self._codec.has_more:
            plain.append(self._codec.read(_BITE))
        return b"".join(plain)

    def end(self) -> bytes:
        """Return b"": the streams need no closing bytes, since each `encode` ends with complete data."""
        return b""


class Tls:
    """The client's side of one TLS connection. Nothing plain may be encoded before the handshake is done."""

    def __init__(self, context: ssl.SSLContext, server_name: str) -> None:
        """Begin the handshake; its first bytes are what `encode` returns next.

        Raises ValueError for a server name that no certificate can have.
        """
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_name)
        self._is_established = False
        self._shake_hands()

    def encode(self, data: bytes) -> bytes:
        """Encrypt `data`; for b"", return the pending bytes of the handshake, or the alert after an error."""
        if data:
            self._tls.write(data)
        return self._outgoing.read()

    def decode(self, data: bytes) -> bytes:
        """Decrypt `data` as Layer.decode does; after the server's close_notify, return b""."""
        self._incoming.write(data)
        if not self._is_established:
            self._shake_hands()
        plain: list[bytes] = []
        with suppress(ssl.SSLWantReadError, ssl.SSLZeroReturnError):  # an incomplete record, or the end of TLS
            while self._is_established and (record := self._tls.read(_RECORD)):
                plain.append(record)
        return b"".join(plain)

    def end(self) -> bytes:
        """Return close_notify, without which the server must think that the stream was cut."""
        with suppress(ssl.SSLError):  # the server has not sent its own yet, or the handshake was not finished
            self._tls.unwrap()
        return self._outgoing.read()

    def _shake_hands(self) -> None:
        with suppress(ssl.SSLWantReadError):
            self._tls.do_handshake()
            self._is_established = True
