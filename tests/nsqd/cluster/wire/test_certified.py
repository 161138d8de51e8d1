"""A link over TLS: the node number in the certificate of the peer decides which node it may be."""

from __future__ import annotations

import pytest

from nsqd.cluster.membership.cluster import Cluster
from nsqd.cluster.wire.frames import FrameKind
from nsqd.cluster.wire.link import Link
from shared.node_certificates import node_uri
from tests.nsqd.cluster.wire.test_link import NOW, cluster, frames


def over_tls(to_dialer: list[str], to_acceptor: list[str]) -> tuple[Cluster, Cluster, Link, Link]:
    """Two nodes, 0 that dialed and 1, once they have said all; each was shown a certificate with these URIs by the other."""
    ours, theirs = cluster(0), cluster(1)
    address = ours.take_due(NOW)
    assert address is not None
    link, other = ours.dialed(address, NOW), theirs.accepted(NOW)
    assert other is not None
    link.certify(to_dialer)
    other.certify(to_acceptor)
    while link.output or other.output:
        for one, two in ((link, other), (other, link)):
            data = bytes(one.output)
            one.output.clear()
            two.receive(data, NOW)
    return ours, theirs, link, other


def test_nodes_that_their_certificates_name_are_admitted() -> None:
    ours, theirs, link, other = over_tls([node_uri(1)], [node_uri(0)])
    assert (ours.links, theirs.links) == ({1: link}, {0: other})


def test_a_node_that_dialed_with_another_s_certificate_is_refused_before_it_is_answered() -> None:
    ours, theirs, link, other = over_tls([node_uri(1)], [node_uri(2)])
    assert other.closing == "the certificate is that of node 2, and the peer says that it is node 0"
    assert link.closing == f"the peer refuses: {other.closing}"
    assert (ours.links, theirs.links) == ({}, {})
    assert sorted(theirs.membership.words) == [1]  # nothing was learned from it


def test_a_node_that_accepted_with_another_s_certificate_gets_no_proof() -> None:
    ours, theirs, link, other = over_tls([node_uri(2)], [node_uri(0)])
    assert link.closing == "the certificate is that of node 2, and the peer says that it is node 1"
    assert other.closing == f"the peer refuses: {link.closing}"
    assert (ours.links, theirs.links) == ({}, {})


@pytest.mark.parametrize("uris", [[], ["https://example.org"], [node_uri(1), node_uri(2)]])
def test_a_certificate_that_names_no_node_is_refused_at_once(uris: list[str]) -> None:
    ours = cluster(0)
    link = ours.accepted(NOW)
    assert link is not None
    link.certify(uris)
    assert link.closing.startswith("the certificate names no node")
    assert frames(link) == [(FrameKind.REFUSED, link.closing.encode())]


@pytest.mark.parametrize("data", [b"\x16\x03\x01\x02\x00\x01", b"\x15\x03\x03\x00\x02"])
def test_a_peer_that_begins_tls_where_there_is_none_is_told_why(data: bytes) -> None:
    link = cluster(0).accepted(NOW)
    assert link is not None
    link.receive(data, NOW)
    assert link.closing.startswith("the peer uses TLS")
    assert frames(link) == [(FrameKind.REFUSED, link.closing.encode())]


def test_such_bytes_within_a_frame_are_no_tls() -> None:
    link = cluster(0).accepted(NOW)
    assert link is not None
    for data in (b"\0\0\0\x08\x01", b"\x16\x03\x01"):
        link.receive(data, NOW)
        assert not link.closing
