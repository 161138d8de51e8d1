"""A connection with a node that is cut off: it is silent in both directions, and ends as one that the network has cut does."""

from nsqd.cluster.membership.cluster import Cluster
from nsqd.cluster.wire.cut import CUT_OFF, UNTIL_HEALED, Cuts
from nsqd.cluster.wire.frames import FrameKind, encode
from nsqd.cluster.wire.link import Link
from nsqd.cluster.wire.node_identity import Member
from nsqd.cluster.wire.peer import ClusterPeer
from tests.nsqd.cluster.wire.identities import node
from tests.nsqd.cluster.wire.test_link import NOW, SECOND, cluster, linked
from tests.nsqd.cluster.wire.test_peer import FakeTransport

BEAT = encode(FrameKind.HEARTBEAT, (5).to_bytes(8) + b"\0" + NOW.to_bytes(8))


def peer(link: Link | None, cuts: Cuts) -> tuple[ClusterPeer, FakeTransport]:
    transport = FakeTransport()
    made = ClusterPeer(link, transport, "127.0.0.1", "1", lambda: None, lambda peer: None, False, cuts)
    return made, transport


def cut_link() -> tuple[Cluster, Link, ClusterPeer, FakeTransport, Cuts]:
    """Return a connection with node 1, which is cut off."""
    own, link = linked()
    cuts = Cuts()
    made, transport = peer(link, cuts)
    cuts.begin(1, UNTIL_HEALED)
    return own, link, made, transport, cuts


def test_what_comes_is_dropped_unread_and_nothing_is_sent() -> None:
    own, link, made, _, _ = cut_link()
    made.receive(b"no frame at all" + BEAT, NOW + SECOND)
    link.send_members([Member(node(2))])
    link.send(b"a frame of the log")
    made.flush()
    assert (own.leases, link.received_at, link.closing) == ({1: 0}, NOW, "")
    assert (made.take_output(), link.backlog) == ([], 0)
    assert not made.outbox.closing


def test_the_node_is_suspected_for_its_silence_and_the_connection_given_up_without_a_word() -> None:
    own, link, made, transport, _ = cut_link()
    for at in range(1, 6):
        made.receive(BEAT, NOW + at * SECOND - 1)
        assert own.tick(NOW + at * SECOND) == ([1] if at == 5 else [])
        made.flush()
        assert transport.is_abandoned is (at == 5)
    assert (link.closing, made.take_output()) == ("no heartbeat from the node", [])


def test_another_node_stays_in_contact() -> None:
    own, link, made, _, cuts = cut_link()
    cuts.end([1])
    cuts.begin(2, UNTIL_HEALED)
    made.receive(BEAT, NOW + SECOND)
    link.send_members([Member(node(3))])
    made.flush()
    assert own.leases == {1: 5}
    assert len(made.take_output()) == 1


def test_a_new_connection_is_silent_as_soon_as_the_other_node_says_who_it_is() -> None:
    other, own = cluster(2), cluster(0)
    link = own.accepted(NOW)
    cuts = Cuts()
    cuts.begin(2, UNTIL_HEALED)
    made, _ = peer(link, cuts)
    made.receive(bytes(other.dialed(other.take_due(NOW), NOW).output), NOW)
    made.flush()
    assert made.take_output() == []
    made.receive(encode(FrameKind.REFUSED, b"why"), NOW)
    assert (link.closing, made.outbox.closing) == ("", False)


def test_a_stranger_that_has_said_nothing_is_not_cut_off() -> None:
    own = cluster(0)
    cuts = Cuts()
    cuts.begin(1, UNTIL_HEALED)
    made, _ = peer(own.dialed(own.take_due(NOW), NOW), cuts)
    assert len(made.take_output()) == 1


def test_that_the_other_side_has_given_up_is_not_taken_for_its_end() -> None:
    """A node that has closed its connection may come back as another run; one that is cut off may not."""
    own, link, made, _, _ = cut_link()
    made.receive_eof()
    assert (link.closing, made.outbox.closing) == (CUT_OFF, True)
    own.closed(link, NOW)
    assert 1 not in own._reports._ended


def test_a_connection_too_many_is_closed() -> None:
    made, _ = peer(None, Cuts())
    made.receive(BEAT, NOW)
    made.receive_eof()
    assert made.outbox.closing


def test_cuts_end_at_their_time_or_when_they_are_healed() -> None:
    cuts = Cuts()
    cuts.begin(3, NOW + 5)
    cuts.begin(1, UNTIL_HEALED)
    cuts.begin(2, NOW + 9)
    cuts.begin(2, NOW + 6)
    assert cuts.numbers == [1, 2, 3]
    assert (cuts.over(NOW + 4), cuts.over(NOW + 5), cuts.over(NOW + 6)) == ([], [3], [3, 2])
    cuts.end([3, 7])
    assert cuts.numbers == [1, 2]
