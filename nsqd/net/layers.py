"""Pass bytes through TLS and compression, between a socket and its peer, without a socket or a clock.

The peer's plain bytes pass through the compression, then through TLS. A layer is added once everything said before it has
been taken: the answer to IDENTIFY leaves as it is, then the client begins its handshake, and each layer's OK leaves through
that layer. A read limits how many bytes a decompression returns, so a decompression bomb costs one `READ_LIMIT` at a time,
and costs its sender its turn.

The layers are not a trio task each. In a measurement, 50 connections of trio.SSLStream took 51 us of CPU a request, and these
layers in the one epoll took 16 us; moreover, a task that the lingering epoll must wake waits for it.

See docs/contributing/design/nsq-protocol.md#tls-and-compression.
"""

import ssl
from collections.abc import Callable

from nsqd.protocols.conversation import Conversation
from nsqd.protocols.transport import Upgrade
from penstock.protocol.compression import CorruptStream, Deflate, Snappy, StreamEnded
from shared.foreign import Foreign, recognize
from shared.tls.certificates import TlsObject, describe, describe_failure

READ_LIMIT = 256 * 1024  # bytes of plain input for the peer in one turn; a read returns little more
_RECORD = 16 * 1024  # bytes of plain input in a TLS record

# Returns one side of a TLS connection over a buffer of input and one of output. A client's side has begun its handshake: the
# first message of it is in the output.
Wrap = Callable[[ssl.MemoryBIO, ssl.MemoryBIO], TlsObject]


class Broken(Exception):
    """The client's bytes are no valid TLS or compressed stream. A TLS alert still comes out of `encode_output`."""


class Layers:
    """The layers of one connection: `encode_output` encodes the peer's output, `receive` and `read` decode its input."""

    __slots__ = (
        "_arrived", "_codec", "_incoming", "_outgoing", "_tls", "_upgrade", "_wrap", "ended", "handshaking", "has_more",
    )  # fmt: skip

    def __init__(self, upgrade: Upgrade, wrap: Wrap) -> None:
        self._upgrade: Upgrade | None = upgrade  # the layers that are still to be added
        self._wrap = wrap
        self._tls: TlsObject | None = None
        self._codec: Snappy | Deflate | None = None
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._arrived = False  # True: TLS has input that has not been read from it yet
        self.handshaking = False  # True during the TLS handshake: the next input may cost a signature, a millisecond
        # the client has ended the stream, with TLS's close notification or at the end of its compressed stream
        self.ended = False
        self.has_more = False  # True: `read` may give more without new input

    # out

    def encode_output(self, peer: Conversation) -> list[bytes]:
        """Return the peer's output encoded for the network, and add each layer whose time has come."""
        output = self._encode(peer.take_output())
        while not peer.outbox.closing and self._add_layer():
            if not self.handshaking:
                peer.upgraded()
            output += self._encode(peer.take_output())
        return output

    def _encode(self, output: list[bytes]) -> list[bytes]:
        if self._tls is None and self._codec is None:
            return output
        data = b"".join(output)
        if self._codec is not None:
            data = self._codec.compress(data)
        if self._tls is None:
            return [data] if data else []
        if data and not self.handshaking:
            self._tls.write(data)
        return [self._outgoing.read()] if self._outgoing.pending else []

    def _add_layer(self) -> bool:
        """Add the next layer. Return True if it has output: the beginning of a handshake, or the peer's output."""
        upgrade = self._upgrade
        if upgrade is None or self.handshaking:
            return False
        if upgrade.tls and self._tls is None:
            self._tls = self._wrap(self._incoming, self._outgoing)
            self.handshaking = True
            return self._outgoing.pending > 0
        self._upgrade = None
        if upgrade.snappy:
            self._codec = Snappy()
        elif upgrade.deflate:
            self._codec = Deflate(upgrade.deflate_level)
        return self._codec is not None

    def goodbye(self) -> bytes:
        """Return the bytes with which TLS closes the connection; b"" without TLS, or before its handshake is done."""
        if self._tls is None or self.handshaking:
            return b""
        try:
            self._tls.unwrap()
        except ssl.SSLError:  # the client has not closed TLS yet, or never will; the daemon does not wait for it
            pass
        return self._outgoing.read()

    # in

    def receive(self, data: bytes, peer: Conversation) -> None:
        """Take bytes from the client, and notify the peer when a handshake is done. Raises Broken."""
        if self._tls is None:
            if self._codec is None:  # the client sent it before the answer to IDENTIFY, so it is discarded
                return
            self._codec.feed(data)
        else:
            self._incoming.write(data)
            self._arrived = True
            if self.handshaking and not self._handshake(peer, data):
                return
        self.has_more = True

    def _handshake(self, peer: Conversation, data: bytes) -> bool:
        assert self._tls is not None
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            found = recognize(data)
            sent = "" if found in (None, Foreign.TLS) else f" the peer sent {found}:"
            raise Broken(f"TLS handshake failed:{sent} {describe_failure(error)}") from None
        self.handshaking = False
        peer.upgraded(describe(self._tls))
        return True

    def read(self) -> bytes:
        """Return plain bytes for the peer, b"" if there are none yet. Raises Broken."""
        upgrade = self._upgrade
        try:
            if self._tls is None:
                return self._decompress()
            if self._codec is None:
                data = self._decipher()
                # sent ahead of the compression, so it is discarded
                return b"" if upgrade is not None and (upgrade.snappy or upgrade.deflate) else data
            if self._arrived:
                self._codec.feed(self._decipher())
            return self._decompress()
        except ssl.SSLError as error:
            raise Broken(f"TLS: {describe_failure(error)}") from None
        except CorruptStream as error:
            raise Broken(str(error)) from None

    def _decompress(self) -> bytes:
        assert self._codec is not None
        try:
            data = self._codec.read(READ_LIMIT)
        except StreamEnded:
            self.ended, self.has_more = True, False
            return b""
        self.has_more = self._codec.has_more
        return data

    def _decipher(self) -> bytes:
        """Return all input that TLS can decrypt: at most as much as was received from the network."""
        assert self._tls is not None
        parts = []
        self.has_more = self._arrived = False
        try:
            while part := self._tls.read(_RECORD):
                parts.append(part)
            self.ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.ended = True
        return b"".join(parts)
