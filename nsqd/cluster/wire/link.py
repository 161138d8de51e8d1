"""One connection to another node: handshake, heartbeats, and what both know of the members. Bytes in, bytes out.

See docs/contributing/design/cluster-protocol.md#connections.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from struct import Struct
from typing import Any, Protocol

import msgpack

from nsqd.cluster.wire.fields import checked_list, unpack_message
from nsqd.cluster.wire.frames import AFTER_PROOF, HANDSHAKE, OF_LOGS, VISIT, FrameKind, FrameReader, PeerError, encode
from nsqd.cluster.wire.handshake import Credentials, Handshake, refusal
from nsqd.cluster.wire.node_identity import Member, NodeIdentity, Standing, pack, unpack
from nsqd.core.message.ids import MOST_LEASE
from shared.foreign import Foreign, recognize
from shared.tls.node_certificates import certified_number

HEARTBEAT_EVERY = 1_000_000_000  # ns
HANDSHAKE_WITHIN = 5_000_000_000  # ns
VISIT_IDLE = 30_000_000_000  # ns without a request, after which a visit ends
MOST_OUTPUT = 64 << 20  # bytes that the peer may leave unread; one group of a log may have nearly as many
MOST_GRACE = 600_000  # ms
_BEAT = Struct(">Q?Q")  # lease, no space for another replica, the sender's monotonic clock in ns
_GRACE = Struct(">I")  # ms
BEATS = 30  # heartbeats by which the clock of the peer is known
_MS = 1_000_000  # ns


class Superseded(PeerError):
    """The peer is refused because of a later record of its node number, which is sent to it."""

    def __init__(self, reason: str, record: Member) -> None:
        super().__init__(reason)
        self.record = record


class Listener(Protocol):
    """The owner of the link: it handles incoming frames, and provides the outgoing ones."""

    lease: int  # message ids of this node below it may be issued
    is_full: bool  # this node has no space for another replica

    def members(self) -> list[Member]:
        """Return all that this node knows of nodes."""

    def proved(self, link: Link, peer: NodeIdentity, now: int) -> None:
        """Handle the proved identity of the peer. Raises PeerError to refuse it."""

    def receive_members(self, link: Link, records: list[Member], now: int) -> None:
        """Merge the peer's member records into those that this node knows."""

    def receive(self, link: Link, kind: FrameKind, content: bytes, now: int) -> None:
        """Take any other frame. Raises PeerError."""

    def admitted(self, link: Link) -> None:
        """Send the peer everything else that this node knows: it is proved, and has the member records."""

    def note_space(self, link: Link, is_full: bool) -> None:
        """Record whether the peer has no space for another replica."""

    def note_contact(self, link: Link, lease: int | None, back_by: int | None, now: int) -> None:
        """Record that bytes of the peer came, its lease, and when it will be back from a restart. None if not sent."""


@dataclass(slots=True)
class Link:
    """A connection to a node. `peer` is None until it is proved, and on a visit.

    `drain` returns everything that is to be sent.
    """

    listener: Listener
    handshake: Handshake
    is_dialer: bool
    begun: int  # monotonic ns
    received_at: int  # when bytes came last
    output: bytearray
    reader: FrameReader
    peer: NodeIdentity | None = None
    closing: str = ""  # why the connection is to be closed when the output is sent; "": it stays open
    is_dead: bool = False  # the network takes nothing more: `closing` does not wait until the output is sent
    beat_due: int = 0  # when the next heartbeat is due
    queued: int = 0  # bytes of the frames that `send` was given
    unsent: int = 0  # bytes that `drain` returned and that the network has not accepted
    _frames: list[bytes] = field(default_factory=list)
    has_received: bool = False  # bytes have come
    # of the latest heartbeats: by how much this node's monotonic clock was ahead of the peer's when it came, in ns
    clocks: deque[int] = field(default_factory=lambda: deque(maxlen=BEATS))
    is_visit: bool = False  # one side has not read its log: see visit.py
    is_answering: bool = False  # the reply to a visitor is being read in a thread
    certified: int | None = None  # the node number in the peer's certificate; None: the connection has no TLS
    # the id of the log that the latest frame LOG has named, of those sent and of those received; b"": there was none
    log_sent: bytes = b""
    log_received: bytes = b""

    @property
    def node(self) -> NodeIdentity:
        """Return the identity of the peer, which is proved: frames of other peers reach no part."""
        assert self.peer is not None
        return self.peer

    def certify(self, uris: Iterable[str]) -> None:
        """Set the URIs of the peer's certificate, before any frame. The peer must be the node that they name."""
        self.certified = certified_number(uris)
        if self.certified is None:
            self.refuse(PeerError("the certificate names no node: it needs one URI such as penstock:node:7"))

    def receive(self, data: bytes, now: int) -> None:
        """Read the frames in bytes that have come, and act on them."""
        if self.closing:
            return
        is_first, self.has_received, self.received_at = not self.has_received, True, now
        try:
            if self.peer is not None:
                self.listener.note_contact(self, None, None, now)
            elif is_first:
                _check_protocol(data)
            for kind, content in self.reader.feed(data):
                self._receive(kind, content, now)
        except PeerError as error:
            self.refuse(error)

    def _receive(self, kind: FrameKind, content: bytes, now: int) -> None:
        if self.peer is not None and kind in OF_LOGS:  # nearly always
            self.listener.receive(self, kind, content, now)
        elif not self.handshake.is_done:
            answer = self.handshake.receive(kind, content)
            self._check_certificate()
            if self.handshake.is_done:
                self._admit(answer, now)
            else:
                self.output += answer
        elif kind is FrameKind.REFUSED:
            self.handshake.receive(kind, content)  # it raises the reason
        elif self.is_visit:
            if kind not in VISIT:
                raise PeerError(f"{kind.name} is not allowed on a visit")
            self.listener.receive(self, kind, content, now)
        elif kind is FrameKind.HEARTBEAT and len(content) == _BEAT.size:
            lease, is_full, sent = _BEAT.unpack(content)
            if lease > MOST_LEASE:
                raise PeerError("a lease of message ids is beyond all ids")
            self.listener.note_contact(self, lease, None, now)
            self.listener.note_space(self, is_full)
            self.clocks.append(now - sent)
        elif kind is FrameKind.MEMBERS:
            self.listener.receive_members(self, _unpack_members(content), now)
        elif kind is FrameKind.RESTARTS and len(content) == _GRACE.size:
            self.listener.note_contact(self, None, now + min(_GRACE.unpack(content)[0], MOST_GRACE) * _MS, now)
        elif kind in HANDSHAKE or kind in VISIT:
            raise PeerError(f"{kind.name} is not allowed here")
        else:
            self.listener.receive(self, kind, content, now)

    def _check_certificate(self) -> None:
        """Raise PeerError if the peer says that it is another node than its certificate names."""
        peer = self.handshake.peer
        if self.certified is not None and peer is not None and peer.number != self.certified:
            raise PeerError(
                f"the certificate is that of node {self.certified}, and the peer says that it is node {peer.number}"
            )

    def _admit(self, answer: bytes, now: int) -> None:
        """End the handshake with `answer`, unless the peer is refused."""
        assert self.handshake.peer is not None
        if self.handshake.is_visit:
            self.is_visit = True
            self.output += answer
            if self.is_dialer:
                self.reader.limit = AFTER_PROOF  # of replies: requests are short
            return
        try:
            self.listener.proved(self, self.handshake.peer, now)
        except Superseded as error:
            self.output += answer
            self.send_members([error.record])
            raise
        self.reader.limit = AFTER_PROOF
        self.peer = self.handshake.peer
        self.output += answer
        self.send_members(self.listener.members())
        self.listener.admitted(self)
        self.tick(now)  # the first heartbeat has the lease

    def send_members(self, records: list[Member]) -> None:
        """Send member records to the peer; none, if the list is empty."""
        if records:
            content = msgpack.packb([[*pack(record.node), record.standing] for record in records])
            self.send_first(encode(FrameKind.MEMBERS, content))

    def announce_restart(self, grace: int) -> None:
        """Say that this node stops and will be back within `grace` ms, MOST_GRACE at most."""
        self.send_first(encode(FrameKind.RESTARTS, _GRACE.pack(min(grace, MOST_GRACE))))

    def send_first(self, frame: bytes) -> None:
        """Send a frame before those by which logs are copied."""
        self.output += frame
        if self.backlog > MOST_OUTPUT:
            self.give_up("the peer reads nothing")

    def tick(self, now: int) -> None:
        """Send a heartbeat if one is due; end a handshake that takes too long."""
        if self.closing:
            return
        if self.is_visit:
            if now - self.received_at > VISIT_IDLE:
                self.give_up("a visit without a request")
        elif self.peer is None:
            if now - self.begun > HANDSHAKE_WITHIN:
                self.refuse(PeerError("the handshake took too long"))
        elif now >= self.beat_due:
            self.beat_due = now + HEARTBEAT_EVERY
            self.send_first(encode(FrameKind.HEARTBEAT, _BEAT.pack(self.listener.lease, self.listener.is_full, now)))

    def age(self, sent: int, now: int) -> int:
        """Return the ns since the peer's monotonic clock was `sent`, less the shortest time of a frame. 0 if unknown."""
        return now - sent - min(self.clocks) if self.clocks else 0

    @property
    def backlog(self) -> int:
        """Return the number of bytes that wait to be sent."""
        return len(self.output) + self.queued + self.unsent

    def send(self, frame: bytes) -> None:
        """Send a frame by which a log is copied. A caller that sends many checks `backlog`."""
        self._frames.append(frame)
        self.queued += len(frame)

    def send_of(self, log_id: bytes, usual: bytes, frame: bytes) -> None:
        """Send a frame by which the log `log_id` is copied; `usual`: the log that its leader publishes into."""
        if log_id != (self.log_sent or usual):
            self.log_sent = log_id
            self.send(encode(FrameKind.LOG, log_id))
        self.send(frame)

    def drain(self) -> list[bytes]:
        """Return everything that is to be sent, and forget it."""
        taken, self._frames, self.queued = self._frames, [], 0
        if self.output:
            taken.insert(0, bytes(self.output))
            self.output.clear()
        return taken

    def refuse(self, error: PeerError) -> None:
        """Send the peer the reason, and close."""
        self.output += refusal(error)
        self.closing = str(error)

    def give_up(self, why: str) -> None:
        """Close without waiting until the output is sent."""
        self.closing = self.closing or why
        self.is_dead = True


def make_link(listener: Listener, credentials: Credentials, nonce: bytes, is_dialer: bool, now: int) -> Link:
    """Return a link over a new connection. `nonce`: random bytes, as for Handshake."""
    handshake = Handshake(credentials, nonce, is_dialer)
    return Link(listener, handshake, is_dialer, now, now, bytearray(handshake.begin()), FrameReader())


def _check_protocol(data: bytes) -> None:
    """Raise PeerError if the first bytes belong to another protocol. No frame begins so: it would be too long."""
    found = recognize(data)
    if found is Foreign.TLS:
        raise PeerError("the peer uses TLS, and this node does not: it needs -cluster-tls-cert, -key and -ca")
    if found is not None and found is not Foreign.CLUSTER:
        raise PeerError(f"the peer sent {found}")


def _unpack_members(content: bytes) -> list[Member]:
    return [_unpack_member(record) for record in checked_list(unpack_message(content))]


def _unpack_member(record: Any) -> Member:
    if not checked_list(record) or type(record[-1]) is not int or record[-1] not in list(Standing):
        raise PeerError("a member record has no standing")
    return Member(unpack(record[:-1]), Standing(record[-1]))
