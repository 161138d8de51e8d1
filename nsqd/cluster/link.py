"""One connection to another node: handshake, heartbeats, and what both know of the members. Bytes in, bytes out.

See docs/design/cluster.md#connections.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Any, Protocol

import msgpack

from nsqd.cluster.membership import Member, Standing
from nsqd.protocols.peer.frames import AFTER_PROOF, FrameKind, FrameReader, PeerError, encode
from nsqd.protocols.peer.handshake import Credentials, Handshake, refusal
from nsqd.protocols.peer.node_identity import NodeIdentity, pack, unpack, unpack_message

HEARTBEAT_EVERY = 1_000_000_000  # ns without another frame
HANDSHAKE_WITHIN = 5_000_000_000  # ns
MOST_WORDS = 2048  # about nodes in a frame: their numbers go up to 1,023
_LEASE, _GRACE = Struct(">Q"), Struct(">I")
_MS = 1_000_000  # ns


class Listener(Protocol):
    """Who owns the link. It is told what comes, and asked what to send."""

    lease: int  # message ids of this node below it may be issued

    def words(self) -> list[Member]:
        """Return all that this node knows of nodes."""

    def proved(self, link: Link, peer: NodeIdentity, now: int) -> None:
        """Take note that the peer is who it says. Raises PeerError if it is not wanted."""

    def receive_words(self, link: Link, words: list[Member], now: int) -> None:
        """Take over what the peer knows of nodes. Raises PeerError if the peer must not be believed."""

    def heard(self, link: Link, lease: int | None, back_by: int | None, now: int) -> None:
        """Take note that bytes of the peer came, its lease, and until when it is back if it restarts; None: not told."""


@dataclass(slots=True)
class Link:
    """A connection to a node. `peer` is None until it is proved. Everything to be sent is in `output`."""

    listener: Listener
    handshake: Handshake
    is_dialer: bool
    begun: int  # monotonic ns
    output: bytearray
    reader: FrameReader
    peer: NodeIdentity | None = None
    closing: str = ""  # why the connection is to be closed when the output is sent; "": it goes on
    sent_at: int = 0  # when the last frame was sent, monotonic ns

    def receive(self, data: bytes, now: int) -> None:
        """Take bytes that have come."""
        if self.closing:
            return
        try:
            if self.peer is not None:
                self.listener.heard(self, None, None, now)
            for kind, content in self.reader.feed(data):
                self._receive(kind, content, now)
        except PeerError as error:
            self.refuse(error)

    def _receive(self, kind: FrameKind, content: bytes, now: int) -> None:
        if not self.handshake.is_done:
            self.send(self.handshake.receive(kind, content), now)
            if self.handshake.is_done:
                assert self.handshake.peer is not None
                self.reader.limit = AFTER_PROOF
                self.listener.proved(self, self.handshake.peer, now)
                self.peer = self.handshake.peer
                self.send_words(self.listener.words(), now)
        elif kind is FrameKind.HEARTBEAT and len(content) == _LEASE.size:
            self.listener.heard(self, _LEASE.unpack(content)[0], None, now)
        elif kind is FrameKind.MEMBERS:
            self.listener.receive_words(self, _unpack_words(content), now)
        elif kind is FrameKind.RESTARTS and len(content) == _GRACE.size:
            self.listener.heard(self, None, now + _GRACE.unpack(content)[0] * _MS, now)
        elif kind is FrameKind.REFUSED:
            self.handshake.receive(kind, content)  # it raises the reason
        else:
            raise PeerError(f"{kind.name} is not allowed here")

    def send(self, data: bytes, now: int) -> None:
        """Add bytes to the output."""
        if data:
            self.output += data
            self.sent_at = now

    def send_words(self, words: list[Member], now: int) -> None:
        """Send what is known of some nodes."""
        if words:
            content = msgpack.packb([[*pack(word.node), word.standing] for word in words])
            self.send(encode(FrameKind.MEMBERS, content), now)

    def announce_restart(self, grace: int, now: int) -> None:
        """Say that this node stops and will be back within `grace` ms."""
        self.send(encode(FrameKind.RESTARTS, _GRACE.pack(grace)), now)

    def tick(self, now: int) -> None:
        """Send a heartbeat if one is due; give up a handshake that takes too long."""
        if self.closing:
            return
        if self.peer is None:
            if now - self.begun > HANDSHAKE_WITHIN:
                self.refuse(PeerError("the handshake took too long"))
        elif now - self.sent_at >= HEARTBEAT_EVERY:
            self.send(encode(FrameKind.HEARTBEAT, _LEASE.pack(self.listener.lease)), now)

    def refuse(self, error: PeerError) -> None:
        """Tell the peer why, and close."""
        self.output += refusal(error)
        self.closing = str(error)


def make_link(listener: Listener, credentials: Credentials, nonce: bytes, is_dialer: bool, now: int) -> Link:
    """Return a link over a new connection. `nonce`: random bytes, as for Handshake."""
    handshake = Handshake(credentials, nonce, is_dialer)
    return Link(listener, handshake, is_dialer, now, bytearray(handshake.begin()), FrameReader(), sent_at=now)


def _unpack_words(content: bytes) -> list[Member]:
    fields = unpack_message(content)
    if not isinstance(fields, list) or len(fields) > MOST_WORDS:
        raise PeerError("MEMBERS is not a list, or it is too long")
    return [_unpack_word(word) for word in fields]


def _unpack_word(word: Any) -> Member:
    if not isinstance(word, list) or not word or type(word[-1]) is not int or word[-1] not in list(Standing):
        raise PeerError("a word about a node has no standing")
    return Member(unpack(word[:-1]), Standing(word[-1]))
