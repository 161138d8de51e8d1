"""The handshake between two nodes: each sends its identity, and proves that it knows the cluster's secret.

    dialer    HELLO      [lowest version, highest version, cluster name, identity, nonce]
    acceptor  CHALLENGE  [version, cluster name, identity, nonce], then a proof of PROOF_SIZE bytes
    dialer    PROOF      a proof of PROOF_SIZE bytes
    acceptor  WELCOME

A proof is an HMAC-SHA-256 with the SHA-256 of the secret as its key, over the prover's role, the content of HELLO, and the
content of CHALLENGE before its proof. So it holds for these two nodes, these two nonces and this direction only: a proof
that is replayed, or reflected to the node that made it, is wrong. Both sides know after it that nothing of the two messages was
changed.

See docs/contributing/design/cluster-protocol.md#handshake.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import msgpack

from nsqd.cluster.wire.fields import unpack_message
from nsqd.cluster.wire.frames import FrameKind, PeerError, encode
from nsqd.cluster.wire.node_identity import NodeIdentity, pack, unpack

VERSION = 1  # of the protocol between nodes
NONCE_SIZE = 32  # bytes, random for each connection
PROOF_SIZE = 32  # bytes
LEAST_SECRET = 16  # bytes
MOST_REASON = 500  # bytes of a refusal


@dataclass(frozen=True, slots=True)
class Credentials:
    """The settings of a node for all handshakes."""

    cluster: str  # name of the cluster
    secret: bytes  # at least LEAST_SECRET bytes: a shorter one could be found from a proof
    own: NodeIdentity

    def __post_init__(self) -> None:
        """Raise ValueError if the secret is too short."""
        if len(self.secret) < LEAST_SECRET:
            raise ValueError(f"the secret has {len(self.secret)} bytes; it must have at least {LEAST_SECRET}")


class Handshake:
    """One side of the handshake on one connection. Give it each frame until `is_done`; then `peer` is proved."""

    def __init__(self, credentials: Credentials, nonce: bytes, is_dialer: bool) -> None:
        """`nonce`: NONCE_SIZE random bytes that are used once."""
        self.peer: NodeIdentity | None = None  # the peer's identity; proved when `is_done`
        self.is_done = False
        self.has_proof = False  # the peer knows the secret, so its identity is proved
        self._credentials = credentials
        self.nonce = nonce
        self.peer_nonce = b""  # of the peer, as soon as its identity is known
        self._expected = FrameKind.CHALLENGE if is_dialer else FrameKind.HELLO
        self.hello = self._packed(VERSION, VERSION) if is_dialer else b""  # content of HELLO, the same on both sides
        self._challenge = b""

    def begin(self) -> bytes:
        """Return the bytes to send first: none, if the peer has dialed."""
        return encode(FrameKind.HELLO, self.hello) if self.hello else b""

    def receive(self, kind: FrameKind, content: bytes) -> bytes:
        """Return the bytes to send in answer to a frame. Raises PeerError: send `refusal` of it, and close."""
        if kind is FrameKind.REFUSED:
            reason = content[:MOST_REASON].decode(errors="replace")
            raise PeerError(f"the peer refuses: {''.join(filter(str.isprintable, reason))}")
        if kind is not self._expected:
            raise PeerError(f"{kind.name} came instead of {self._expected.name}")
        if kind is FrameKind.HELLO:
            return self._answer_hello(content)
        if kind is FrameKind.CHALLENGE:
            return self._answer_challenge(content)
        if kind is FrameKind.PROOF:
            self._check_proof(content, b"dialer")
            self.is_done = True
            return encode(FrameKind.WELCOME)
        if content:
            raise PeerError("WELCOME has no content")
        self.is_done = True
        return b""

    def _answer_hello(self, content: bytes) -> bytes:
        lowest, highest, *rest = self._fields(content, 2)
        if type(lowest) is not int or type(highest) is not int or not lowest <= VERSION <= highest:
            raise PeerError(f"the versions of the protocol have nothing in common: this node has {VERSION}")
        peer = self._note_peer(rest[:3])
        if self._credentials.own.is_visitor and not peer.is_visitor:
            raise PeerError("this node has not read its log yet")
        self.hello, self._challenge = content, self._packed(VERSION)
        self._expected = FrameKind.PROOF
        return encode(FrameKind.CHALLENGE, self._challenge + self._proof(b"acceptor"))

    def _answer_challenge(self, content: bytes) -> bytes:
        self._challenge, proof = content[:-PROOF_SIZE], content[-PROOF_SIZE:]
        version, *rest = self._fields(self._challenge, 1)
        if type(version) is not int or version != VERSION:
            raise PeerError(f"the peer chose a version of the protocol that is not {VERSION}")
        self._note_peer(rest[:3])
        self._check_proof(proof, b"acceptor")
        self._expected = FrameKind.WELCOME
        return encode(FrameKind.PROOF, self._proof(b"dialer"))

    @property
    def is_visit(self) -> bool:
        """Return True if one side has not read its log: it does not take part in the cluster by this connection."""
        return self._credentials.own.is_visitor or (self.peer is not None and self.peer.is_visitor)

    def _note_peer(self, fields: list[Any]) -> NodeIdentity:
        """Return the peer's identity, by what both messages say of it. Raises PeerError."""
        if len(fields) < 3:
            raise PeerError("the message has too few fields")
        name, identity, nonce = fields
        own = self._credentials.own
        if type(name) is not str or name != self._credentials.cluster:
            raise PeerError(f"this node is of the cluster {self._credentials.cluster!r}")
        if type(nonce) is not bytes or len(nonce) != NONCE_SIZE:
            raise PeerError("the nonce is not one")
        self.peer_nonce = nonce
        peer = unpack(identity)
        if peer.number == own.number:
            raise PeerError(f"node number {own.number} is this node's: give each node a -node-id of its own")
        if peer.log_id == own.log_id and not peer.is_visitor:
            raise PeerError("this node has the same log: one data directory is a copy of the other")
        self.peer = peer
        return peer

    def _packed(self, *versions: int) -> bytes:
        credentials = self._credentials
        fields = [*versions, credentials.cluster, pack(credentials.own), self.nonce]
        packed: bytes = msgpack.packb(fields)
        return packed

    def _fields(self, content: bytes, least: int) -> list[Any]:
        """Return the fields of a message. A later version may add some behind those that are known here."""
        fields = unpack_message(content)
        if not isinstance(fields, list) or len(fields) < least:
            raise PeerError("the message has too few fields")
        return fields

    def _proof(self, role: bytes) -> bytes:
        parts = [role, self.hello, self._challenge]
        proved = b"".join([len(part).to_bytes(4, "big") + part for part in parts])
        key = sha256(b"penstock cluster" + self._credentials.secret).digest()
        return hmac.digest(key, proved, "sha256")

    def _check_proof(self, proof: bytes, role: bytes) -> None:
        if not hmac.compare_digest(proof, self._proof(role)):
            raise PeerError("the proof is wrong: the nodes have different secrets")
        self.has_proof = True


def refusal(error: PeerError) -> bytes:
    """Return the frame with the reason why the peer is refused."""
    return encode(FrameKind.REFUSED, str(error).encode()[:MOST_REASON])
