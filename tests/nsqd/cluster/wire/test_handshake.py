"""The handshake: it succeeds between two nodes with one secret, and only then, whatever stands between them."""

from dataclasses import replace
from random import Random

import msgpack
import pytest
from hypothesis import given

from nsqd.cluster.wire.frames import BEFORE_PROOF, FrameKind, FrameReader, PeerError
from nsqd.cluster.wire.handshake import MOST_REASON, NONCE_SIZE, Credentials, Handshake, refusal
from nsqd.cluster.wire.node_identity import MOST_ADDRESS, MOST_ZONE, NodeIdentity
from nsqd.core.message.id_ranges import MOST_RANGES, NO_END, IdRange
from nsqd.option_values import MOST_CLUSTER_NAME
from tests.cases import each
from tests.nsqd.cluster.wire.identities import NODES, node

SECRET = b"a secret of the cluster"
RANDOM = Random(1)


def side(own: NodeIdentity, is_dialer: bool, secret: bytes = SECRET, cluster: str = "c") -> Handshake:
    return Handshake(Credentials(cluster, secret, own), RANDOM.randbytes(NONCE_SIZE), is_dialer)


def frame(data: bytes) -> tuple[FrameKind, bytes]:
    (only,) = FrameReader().feed(data)
    return only


def shaken(dialer: Handshake, acceptor: Handshake) -> None:
    """Carry the frames between the two until both are done. Raises PeerError."""
    sent, sender, receiver = dialer.begin(), dialer, acceptor
    while sent:
        sent, sender, receiver = receiver.receive(*frame(sent)), receiver, sender


@given(NODES, NODES)
def test_two_nodes_of_a_cluster_know_each_other_after_it(one: NodeIdentity, other: NodeIdentity) -> None:
    if one.number == other.number or one.log_id == other.log_id:
        return
    dialer, acceptor = side(one, True), side(other, False)
    shaken(dialer, acceptor)
    assert (dialer.is_done, acceptor.is_done) == (True, True)
    assert (dialer.peer, acceptor.peer) == (other, one)


def test_the_longest_messages_fit_into_what_is_allowed_before_the_proof() -> None:
    address, ids = "x" * (MOST_ADDRESS - 5) + ":4152", (IdRange(1023, NO_END - 1, NO_END),) * MOST_RANGES
    long = replace(node(1023, 2**63 - 1), address=address, http=address, zone="z" * MOST_ZONE, ids=ids)
    dialer = side(long, True, cluster="c" * MOST_CLUSTER_NAME)
    acceptor = side(replace(long, number=1022, log_id=bytes(16)), False, cluster="c" * MOST_CLUSTER_NAME)
    hello = dialer.begin()
    assert max(len(hello), len(acceptor.receive(*frame(hello)))) <= BEFORE_PROOF


@each("own, secret, cluster, why", [
    (node(2), b"the secret of another cluster", "c", "different secrets"),
    (node(2), SECRET, "other", "this node is of the cluster"),
    (node(1, log=2), SECRET, "c", "node number 1 is this node's"),
    (node(1), SECRET, "c", "node number 1 is this node's"), (node(2, log=1), SECRET, "c", "a copy of the other"),
])  # fmt: skip
@each("dials", [True, False])
def test_a_foreign_node_is_refused_with_the_reason(
    own: NodeIdentity, secret: bytes, cluster: str, why: str, dials: bool
) -> None:
    dialing, listener = side(node(1), not dials), side(own, dials, secret, cluster)
    dialer, acceptor = (listener, dialing) if dials else (dialing, listener)
    with pytest.raises(PeerError) as raised:
        shaken(dialer, acceptor)
    assert (dialer.is_done, acceptor.is_done) == (False, False)
    reason = refusal(raised.value)
    with pytest.raises(PeerError, match="the peer refuses: "):
        dialing.receive(*frame(reason))
    assert len(reason) <= MOST_REASON + 5
    assert why in str(raised.value)


def test_a_proof_is_of_no_use_in_another_handshake() -> None:
    """Neither one that was recorded, nor one that is reflected to the node that made it."""
    dialer, acceptor = side(node(1), True), side(node(2), False)
    hello = frame(dialer.begin())
    challenge = frame(acceptor.receive(*hello))
    proof = frame(dialer.receive(*challenge))
    again = side(node(2), False)
    again.receive(*hello)
    with pytest.raises(
        PeerError, match="the proof is wrong"
    ):  # a stranger replays bytes that it has seen: the nonce is new
        again.receive(*proof)
    with pytest.raises(PeerError, match="the proof is wrong"):
        side(node(1), True).receive(*challenge)
    with pytest.raises(PeerError, match="the proof is wrong"):  # its own proof comes back to the acceptor
        acceptor.receive(FrameKind.PROOF, challenge[1][-32:])


def test_frames_out_of_order_are_refused() -> None:
    dialer, acceptor = side(node(1), True), side(node(2), False)
    hello = frame(dialer.begin())
    for kind in FrameKind:
        for one, awaited in ((side(node(1), True), FrameKind.CHALLENGE), (side(node(2), False), FrameKind.HELLO)):
            if kind is not awaited:
                with pytest.raises(PeerError):
                    one.receive(kind, b"")
    challenge = frame(acceptor.receive(*hello))
    with pytest.raises(PeerError, match="HELLO came instead of PROOF"):
        acceptor.receive(*hello)
    dialer.receive(*challenge)
    with pytest.raises(PeerError, match="CHALLENGE came instead of WELCOME"):
        dialer.receive(*challenge)
    with pytest.raises(PeerError, match="WELCOME has no content"):
        dialer.receive(FrameKind.WELCOME, b"x")


@each("versions", [(0, 0), (2, 9), ("1", 1), (1, None), (True, False)])
def test_other_versions_of_the_protocol_are_refused(versions: tuple[object, object]) -> None:
    _, content = frame(side(node(1), True).begin())
    fields = [*versions, *msgpack.unpackb(content)[2:]]
    with pytest.raises(PeerError, match="versions of the protocol have nothing in common"):
        side(node(2), False).receive(FrameKind.HELLO, msgpack.packb(fields))
