"""A link over TLS: the node number in the certificate of the peer decides which node it may be."""

from nsqd.cluster.membership.cluster import Cluster
from nsqd.cluster.wire.frames import FrameKind
from nsqd.cluster.wire.link import Link
from shared.tls.node_certificates import node_uri
from tests.cases import each
from tests.nsqd.cluster.wire.test_link import NOW, cluster, dialed, frames, shake


def over_tls(to_dialer: list[str], to_acceptor: list[str]) -> tuple[Cluster, Cluster, Link, Link]:
    """Two nodes, 0 that dialed and 1, once they have said all; each was shown a certificate with these URIs by the other."""
    (own, link), peer = dialed(), cluster(1)
    other = peer.accepted(NOW)
    link.certify(to_dialer)
    other.certify(to_acceptor)
    shake(link, other)
    return own, peer, link, other


def test_nodes_that_their_certificates_name_are_admitted() -> None:
    own, peer, link, other = over_tls([node_uri(1)], [node_uri(0)])
    assert (own.links, peer.links) == ({1: link}, {0: other})


def test_a_node_with_another_s_certificate_is_refused_before_it_is_answered_or_proved() -> None:
    own, peer, link, other = over_tls([node_uri(1)], [node_uri(2)])
    assert other.closing == "the certificate is that of node 2, and the peer says that it is node 0"
    assert link.closing == f"the peer refuses: {other.closing}"
    assert (own.links, peer.links, sorted(peer.membership.records)) == ({}, {}, [1]), "nothing was learned from it"
    own, peer, link, other = over_tls([node_uri(2)], [node_uri(0)])
    assert link.closing == "the certificate is that of node 2, and the peer says that it is node 1"
    assert other.closing == f"the peer refuses: {link.closing}"
    assert (own.links, peer.links) == ({}, {})


@each("uris", [[], ["https://example.org"], [node_uri(1), node_uri(2)]])
def test_a_certificate_that_names_no_node_is_refused_at_once(uris: list[str]) -> None:
    own = cluster(0)
    link = own.accepted(NOW)
    link.certify(uris)
    assert link.closing.startswith("the certificate names no node")
    assert frames(link) == [(FrameKind.REFUSED, link.closing.encode())]


def test_such_bytes_within_a_frame_are_no_tls() -> None:
    link = cluster(0).accepted(NOW)
    for data in (b"\0\0\0\x08\x01", b"\x16\x03\x01"):
        link.receive(data, NOW)
        assert not link.closing
