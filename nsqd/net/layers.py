"""TLS and compression between a socket and its peer: bytes both ways, no socket, no clock.

The peer's plain bytes pass through the compression, then through TLS. A layer is added when what was said before it has been
taken: the answer to IDENTIFY leaves as it is, then the client begins its handshake (specs/nsq.md a8), and each layer's OK
leaves through it. What comes out of a decompression is bounded by what was asked for, so a bomb costs one `READ_LIMIT` at a
time, and its sender its turn.

Not a trio task each: measured, 50 connections of trio.SSLStream took 51 us of CPU a request, these layers in the one epoll
16 us; and a task that the lingering epoll must wake waits for it.
"""

import ssl
from collections.abc import Callable

from nsqd.protocols.conversation import Conversation
from nsqd.protocols.transport import Upgrade
from penstock.protocol.compression import CorruptStream, Deflate, Snappy, StreamEnded
from shared.tls import TlsObject, describe, describe_failure

READ_LIMIT = 256 * 1024  # bytes of plain input for the peer in one turn, and little more
_RECORD = 16 * 1024  # bytes of plain input in a TLS record

Wrap = Callable[[ssl.MemoryBIO, ssl.MemoryBIO], TlsObject]


class Broken(Exception):
    """The client's bytes are no TLS, or no compressed stream. What is left to send, an alert, is in `encode`."""


class Layers:
    """See above. `encode` is called with everything the peer says; `feed` and `read` with what the client says."""

    __slots__ = (
        "_arrived",
        "_codec",
        "_incoming",
        "_outgoing",
        "_tls",
        "_upgrade",
        "_wrap",
        "ended",
        "handshaking",
        "has_more",
    )

    def __init__(self, upgrade: Upgrade, wrap: Wrap) -> None:
        self._upgrade: Upgrade | None = upgrade  # what is still to be added
        self._wrap = wrap
        self._tls: TlsObject | None = None
        self._codec: Snappy | Deflate | None = None
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._arrived = False  # True: TLS has input that it was not asked for yet
        self.handshaking = False  # what is received now may cost a signature, a millisecond
        self.ended = False  # the client has said goodbye: in TLS, or by the end of its compressed stream
        self.has_more = False  # True: `read` may give more without new input

    # out

    def take(self, peer: Conversation) -> list[bytes]:
        """The peer's output as it goes to the network. Adds the layer whose time has come."""
        output = self._encode(peer.take_output())
        while not peer.outbox.closing and self._add_layer():
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
        """Add what comes next. True if it stands at once, and the client is to be told."""
        upgrade = self._upgrade
        if upgrade is None or self.handshaking:
            return False
        if upgrade.tls and self._tls is None:
            self._tls = self._wrap(self._incoming, self._outgoing)
            self.handshaking = True
            return False
        self._upgrade = None
        if upgrade.snappy:
            self._codec = Snappy()
        elif upgrade.deflate:
            self._codec = Deflate(upgrade.deflate_level)
        return self._codec is not None

    def goodbye(self) -> bytes:
        """What TLS says at the end."""
        if self._tls is None or self.handshaking:
            return b""
        try:
            self._tls.unwrap()
        except ssl.SSLError:  # the client has not said it yet, or will not: nobody waits for that
            pass
        return self._outgoing.read()

    # in

    def receive(self, data: bytes, peer: Conversation) -> None:
        """Bytes came from the client. The peer is told of a handshake that is done. Raises Broken."""
        if self._tls is None:
            if self._codec is None:  # sent before the answer to IDENTIFY: it is not believed
                return
            self._codec.feed(data)
        else:
            self._incoming.write(data)
            self._arrived = True
            if self.handshaking and not self._handshake(peer):
                return
        self.has_more = True

    def _handshake(self, peer: Conversation) -> bool:
        assert self._tls is not None
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            raise Broken(f"TLS handshake failed: {describe_failure(error)}") from None
        self.handshaking = False
        peer.upgraded(describe(self._tls))
        return True

    def read(self) -> bytes:
        """Plain bytes for the peer. Raises Broken."""
        try:
            if self._tls is None:
                return self._decompress()
            if self._codec is None:
                data = self._decipher()
                return b"" if self._awaits_codec else data  # sent ahead of the compression: it is not believed
            if self._arrived:
                self._codec.feed(self._decipher())
            return self._decompress()
        except ssl.SSLError as error:
            raise Broken(f"TLS: {describe_failure(error)}") from None
        except CorruptStream as error:
            raise Broken(str(error)) from None

    @property
    def _awaits_codec(self) -> bool:
        return self._upgrade is not None and (self._upgrade.snappy or self._upgrade.deflate)

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
        """All that has arrived: as much as was received from the network, at most."""
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
