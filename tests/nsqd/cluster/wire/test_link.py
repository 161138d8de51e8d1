"""One link after the proof: valid frames of a peer are handled; anything else ends the connection and raises nothing."""

from random import Random

import msgpack
from hypothesis import given
from hypothesis import strategies as st

from nsqd.cluster.membership.cluster import Cluster
from nsqd.cluster.wire.fields import MOST_FIELDS
from nsqd.cluster.wire.frames import AFTER_PROOF, FrameKind, FrameReader, encode
from nsqd.cluster.wire.handshake import Credentials
from nsqd.cluster.wire.link import BEATS, Link
from nsqd.cluster.wire.node_identity import Member, Standing, pack
from shared.foreign import Foreign
from tests.cases import each
from tests.nsqd.cluster.wire.identities import node

MS, SECOND = 1_000_000, 1_000_000_000
NOW = SECOND


def cluster(number: int) -> Cluster:
    credentials = Credentials("c", b"the secret of this cluster", node(number))
    return Cluster(credentials, ["node1:4152"], 5 * SECOND, Random(number).randbytes)


def dialed() -> tuple[Cluster, Link]:
    """A cluster that has dialed node 1."""
    own = cluster(0)
    return own, own.dialed(own.take_due(NOW), NOW)


def shake(link: Link, other: Link) -> None:
    """Let two ends of a connection say all."""
    while link.output or other.output:
        for one, two in ((link, other), (other, link)):
            data = bytes(one.output)
            one.output.clear()
            two.receive(data, NOW)


def linked() -> tuple[Cluster, Link]:
    """A cluster with a proved link to node 1, whose other end is gone."""
    own, link = dialed()
    shake(link, cluster(1).accepted(NOW))
    assert own.links == {1: link}
    assert link.peer == node(1)
    return own, link


def frames(link: Link) -> list[tuple[FrameKind, bytes]]:
    reader = FrameReader()
    reader.limit = AFTER_PROOF
    found = list(reader.feed(bytes(link.output)))
    link.output.clear()
    return found


def words(*members: Member) -> bytes:
    return msgpack.packb([[*pack(member.node), member.standing] for member in members])


def test_a_heartbeat_goes_each_second() -> None:
    own, link = linked()
    own.lease = 77
    link.tick(NOW + SECOND - 1)
    assert frames(link) == []
    link.send_members([Member(node(2))])  # it does not take the place of one: it reports no lease
    link.tick(NOW + SECOND)
    assert [kind for kind, _ in frames(link)] == [FrameKind.MEMBERS, FrameKind.HEARTBEAT]
    link.tick(NOW + 2 * SECOND)
    assert frames(link) == [(FrameKind.HEARTBEAT, (77).to_bytes(8) + b"\0" + (NOW + 2 * SECOND).to_bytes(8))]


def test_records_of_a_peer_are_merged_and_forwarded_to_others_only() -> None:
    own, link = linked()
    link.receive(encode(FrameKind.MEMBERS, words(Member(node(2)), Member(node(3), Standing.LEFT))), NOW)
    assert [one.number for one in own.membership.members] == [0, 1, 2]
    assert frames(link) == []
    assert own.take_due(NOW) == "node2:4152"
    link.receive(encode(FrameKind.HEARTBEAT, (5).to_bytes(8) + b"\1" + bytes(8)), NOW)
    assert own.full == {1}
    link.receive(encode(FrameKind.HEARTBEAT, (4).to_bytes(8) + b"\0" + bytes(8)), NOW)
    assert (own.full, own.leases) == (set(), {1: 5})


def test_heartbeats_show_how_old_a_frame_is() -> None:
    _, link = linked()
    link.clocks.clear()
    assert link.age(0, NOW) == 0  # nothing is known yet
    for late in (3, 2, 40):  # ms that each has needed
        link.receive(encode(FrameKind.HEARTBEAT, bytes(9) + (1000 * MS).to_bytes(8)), NOW + (1000 + late) * MS)
    assert link.age(1500 * MS, NOW + 1502 * MS) == 0  # as fast as the fastest
    assert link.age(1500 * MS, NOW + 3302 * MS) == 1800 * MS
    for _ in range(BEATS):  # the clocks drift apart
        link.receive(encode(FrameKind.HEARTBEAT, bytes(9) + (1000 * MS).to_bytes(8)), NOW + 2000 * MS)
    assert link.age(1000 * MS, NOW + 2000 * MS) == 0


@each("kind, content", [
    (FrameKind.HELLO, b""), (FrameKind.WELCOME, b""), (FrameKind.PROOF, bytes(32)), (FrameKind.HEARTBEAT, b""),
    (FrameKind.HEARTBEAT, bytes(8)), (FrameKind.HEARTBEAT, bytes(10)), (FrameKind.HEARTBEAT, bytes(18)),
    (FrameKind.HEARTBEAT, b"\xff" * 8 + bytes(9)), (FrameKind.RESTARTS, bytes(3)), (FrameKind.MEMBERS, b""),
    (FrameKind.MEMBERS, b"\xc1"), (FrameKind.MEMBERS, msgpack.packb({})), (FrameKind.MEMBERS, msgpack.packb([[]])),
    (FrameKind.MEMBERS, msgpack.packb([[*pack(node(2)), 3]])), (FrameKind.MEMBERS, msgpack.packb([[*pack(node(2)), True]])),
    (FrameKind.MEMBERS, msgpack.packb([[*pack(node(2))]])), (FrameKind.MEMBERS, msgpack.packb([None] * (MOST_FIELDS + 1))),
])  # fmt: skip
def test_a_frame_that_is_not_allowed_ends_the_link_with_the_reason(kind: FrameKind, content: bytes) -> None:
    own, link = linked()
    link.receive(encode(kind, content), NOW)
    assert link.closing
    assert frames(link) == [(FrameKind.REFUSED, link.closing.encode())]
    link.receive(encode(FrameKind.MEMBERS, words(Member(node(2)))), NOW)  # later frames are not read
    own.closed(link, NOW)
    assert (own.links, sorted(own.membership.records)) == ({}, [0, 1])


@each("sent, why", [
    (b"GET / HTTP/1.1\r\n\r\n", f"the peer sent {Foreign.HTTP}"),
    (b"*1\r\n$4\r\nPING\r\n", f"the peer sent {Foreign.RESP}"),
    (b"\x16\x03\x01\x02\x00", "the peer uses TLS, and this node does not: it needs -cluster-tls-cert, -key and -ca"),
    (b"\x15\x03\x03\x00\x02", "the peer uses TLS, and this node does not: it needs -cluster-tls-cert, -key and -ca"),
    (b"\xff\xff\xff\xff", "a frame of 4294967295 bytes is not allowed here"),
])  # fmt: skip
def test_another_protocol_ends_the_link_by_its_first_bytes(sent: bytes, why: str) -> None:
    link = cluster(0).accepted(NOW)
    link.receive(sent, NOW)
    assert link.closing == why
    assert frames(link) == [(FrameKind.REFUSED, why.encode())]


def test_a_frame_that_is_too_long_ends_the_link_before_it_is_kept() -> None:
    _, link = linked()
    link.receive((AFTER_PROOF + 1).to_bytes(4), NOW)
    assert f"a frame of {AFTER_PROOF + 1} bytes" in link.closing


def test_a_refusal_has_a_reason_and_is_not_answered_by_another_link() -> None:
    own, link = linked()
    link.receive(encode(FrameKind.REFUSED, b"another connection"), NOW)
    assert link.closing == "the peer refuses: another connection"
    own.closed(link, NOW)
    assert own.take_due(NOW) is None  # a pause first
    assert own.take_due(NOW + SECOND) is not None


def test_a_word_that_this_node_is_gone_is_noted_and_not_believed() -> None:
    own, link = linked()
    link.receive(encode(FrameKind.MEMBERS, words(Member(node(0), Standing.FORGOTTEN))), NOW)
    assert "node 0 was forgotten" in own.refused_itself
    assert own.membership.records[0] == Member(node(0))
    assert not link.closing


@given(
    st.lists(st.tuples(st.sampled_from(list(FrameKind)), st.binary(max_size=80)), max_size=5), st.binary(max_size=20)
)
def test_any_bytes_of_a_peer_that_is_proved_raise_nothing(sent: list[tuple[FrameKind, bytes]], rest: bytes) -> None:
    own, link = linked()
    link.receive(b"".join(encode(*frame) for frame in sent) + rest, NOW)
    own.tick(NOW + SECOND)
    if link.closing:
        own.closed(link, NOW)
        assert own.links == {}
