"""The end of a connection between nodes: what leaves before and after the handshake of TLS, and why it ended."""

from nsqd.cluster.wire.frames import PeerError
from nsqd.cluster.wire.link import Link
from nsqd.cluster.wire.peer import ClusterPeer
from nsqd.protocols.transport import NEVER, Upgrade
from shared.tls.info import TlsInfo
from shared.tls.node_certificates import node_uri
from tests.cases import each
from tests.nsqd.cluster.wire.test_link import NOW, SECOND, cluster, dialed, frames, linked
from tests.nsqd.protocols.transport import StillTransport


class FakeTransport(StillTransport):
    """Notes what the peer asks of it."""

    def __init__(self) -> None:
        super().__init__()
        self.upgrades: list[Upgrade] = []
        self.is_ready = False
        self.is_abandoned = False

    def output_ready(self) -> None:
        self.is_ready = True

    def abandon(self) -> None:
        self.is_abandoned = True

    def upgrade(self, upgrade: Upgrade) -> None:
        self.upgrades.append(upgrade)


def shown(*uris: str) -> TlsInfo:
    return TlsInfo("TLS1.3", "", "", True, "", uris)


def peer(link: Link | None, has_tls: bool) -> tuple[ClusterPeer, FakeTransport]:
    transport = FakeTransport()
    return ClusterPeer(link, transport, "127.0.0.1", "1", lambda: None, lambda peer: None, has_tls), transport


def test_without_tls_hello_leaves_at_once() -> None:
    _, link = dialed()
    hello = bytes(link.output)
    made, transport = peer(link, False)
    assert (made.take_output(), transport.upgrades) == ([hello], [])


def test_with_tls_hello_leaves_when_the_handshake_is_done() -> None:
    _, link = dialed()
    hello = bytes(link.output)
    made, transport = peer(link, True)
    assert (transport.upgrades, transport.is_ready) == ([Upgrade(tls=True)], True)
    made.flush()
    assert made.take_output() == []
    made.upgraded(shown(node_uri(1)))
    assert made.take_output() == [hello]
    assert link.certified == 1
    assert not made.outbox.closing


def test_a_certificate_without_a_node_ends_the_connection_with_the_reason() -> None:
    _, link = dialed()
    link.output.clear()
    made, _ = peer(link, True)
    made.upgraded(shown("https://example.org"))
    link.output += b"".join(made.take_output())
    assert frames(link)[0][1].startswith(b"the certificate names no node")
    assert made.outbox.closing


def test_a_handshake_of_tls_that_takes_too_long_ends_the_connection_without_a_word() -> None:
    _, link = dialed()
    made, _ = peer(link, True)
    link.tick(NOW + 6 * SECOND)
    made.flush()
    assert made.take_output() == []
    assert made.outbox.closing
    assert link.closing == "the handshake took too long"


def test_a_silent_peer_is_not_waited_for_until_it_reads() -> None:
    own, link = linked()
    made, transport = peer(link, False)
    made.outbox.unsent = 1
    own.tick(NOW + 6 * SECOND)
    made.flush()
    assert (link.closing, transport.is_abandoned) == ("no heartbeat from the node", True)


def test_a_refused_peer_gets_the_reason_before_the_connection_ends() -> None:
    _, link = dialed()
    made, transport = peer(link, False)
    link.refuse(PeerError("why"))
    made.flush()
    assert (made.outbox.closing, transport.is_abandoned) == (True, False)


def test_one_connection_too_many_is_closed_before_any_handshake() -> None:
    made, transport = peer(None, True)
    assert made.outbox.closing
    assert transport.upgrades == []
    made.break_off("no TLS")


@each("why, reason", [
    ("TLS: tlsv1 alert unknown ca", "TLS: tlsv1 alert unknown ca"),
    ("TLS handshake failed: wrong version number", "TLS handshake failed: wrong version number; the peer does not use TLS"),
])  # fmt: skip
def test_what_is_wrong_with_the_layers_is_the_reason_of_the_end(why: str, reason: str) -> None:
    _, link = dialed()
    made, _ = peer(link, True)
    made.break_off(why)
    assert (link.closing, made.outbox.closing, made.take_output()) == (reason, True, [])
    made.break_off("another failure")
    assert link.closing == reason


@each("has_tls", [False, True])
def test_a_peer_that_hangs_up_during_the_handshake_is_noted_by_the_node_that_dialed(has_tls: bool) -> None:
    _, link = dialed()
    made, _ = peer(link, has_tls)
    made.receive_eof()
    assert link.closing.startswith("the peer closed the connection during the handshake")
    assert ("it may require TLS" in link.closing) is not has_tls
    accepted = cluster(0).accepted(NOW)
    made, _ = peer(accepted, has_tls)
    made.receive_eof()
    assert not accepted.closing


def test_the_leader_is_called_at_the_time_that_it_asked_for() -> None:
    calls = []
    end = ClusterPeer(dialed()[1], FakeTransport(), "127.0.0.1", "1", lambda: calls.append(1), lambda peer: None)
    assert end.next_timer() == NEVER
    end.wake_by(NOW + 5)
    assert end.is_due
    assert end.next_timer() == NOW + 5
    end.tick(NOW + 4)
    assert (calls, end.is_due) == ([], True)
    end.tick(NOW + 5)
    assert (calls, end.is_due) == ([1], False)
