"""TLS and compression between the socket and the frames: sans-IO, bytes in and bytes out, both ways.

Law: `decode` gives everything that its input holds, so that nothing waits here while the socket is silent. A server
that sends a bomb gets 65,536 bytes at a time through, blown up 1,032 times at most (deflate).
"""

import ssl
from typing import Protocol

from penstock.protocol.compression import Deflate, Snappy

_RECORD = 16_384  # bytes of plain text in a TLS record
_BITE = 1 << 20  # bytes of plain text from one step of decompression


class Layer(Protocol):
    """What `Layers` stacks."""

    def encode(self, data: bytes) -> bytes:
        """On the way to the socket. For b"": what has to be sent unasked, most often nothing."""

    def decode(self, data: bytes) -> bytes:
        """On the way from the socket. Raises ssl.SSLError or CorruptStream; the layer is done for then."""

    def end(self) -> bytes:
        """The goodbye, to be sent behind everything else."""


class Layers:
    """One connection's, from the socket inwards; none to begin with."""

    __slots__ = ("_layers",)

    def __init__(self) -> None:
        self._layers: list[Layer] = []

    def push(self, layer: Layer) -> None:
        """A new innermost layer."""
        self._layers.append(layer)

    def encode(self, data: bytes) -> bytes:
        """Plain bytes, or b"", as the socket is to have them."""
        for layer in reversed(self._layers):
            data = layer.encode(data)
        return data

    def decode(self, data: bytes) -> bytes:
        """The socket's bytes, made plain. Raises ssl.SSLError or CorruptStream."""
        for layer in self._layers:
            data = layer.decode(data)
        return data

    def end(self) -> bytes:
        """What tells the server, in every layer that can, that nothing follows."""
        return b"".join([layer.end() for layer in self._layers])


class Compression:
    """Snappy or deflate as a layer."""

    __slots__ = ("_codec", "encode")

    def __init__(self, codec: Snappy | Deflate) -> None:
        self._codec = codec
        self.encode = codec.compress

    def decode(self, data: bytes) -> bytes:
        """All of it. Raises CorruptStream."""
        self._codec.feed(data)
        plain = [self._codec.read(_BITE)]
        while self._codec.has_more:
            plain.append(self._codec.read(_BITE))
        return b"".join(plain)

    def end(self) -> bytes:
        """Nothing: what was sent is complete."""
        return b""


class Tls:
    """The client's side of one TLS connection. Nothing plain may be encoded before the handshake is done."""

    def __init__(self, context: ssl.SSLContext, server_name: str) -> None:
        """Raises ValueError for a name that no certificate can have. `encode` has the first words."""
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_name)
        self._is_established = False
        self._shake_hands()

    def encode(self, data: bytes) -> bytes:
        """See Layer; b"" gives the words of the handshake, and the alert behind an error."""
        if data:
            self._tls.write(data)
        return self._outgoing.read()

    def decode(self, data: bytes) -> bytes:
        """See Layer. Behind the server's goodbye there is nothing more."""
        self._incoming.write(data)
        if not self._is_established:
            self._shake_hands()
        plain: list[bytes] = []
        try:
            while self._is_established:
                record = self._tls.read(_RECORD)
                if not record:
                    break
                plain.append(record)
        except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            pass  # the rest of a record is on its way; or the socket's end is
        return b"".join(plain)

    def end(self) -> bytes:
        """close_notify: without it the server must think that the stream was cut."""
        try:
            self._tls.unwrap()
        except ssl.SSLError:  # the server has not said its own yet; or there was no handshake to take back
            pass
        return self._outgoing.read()

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return
        self._is_established = True
