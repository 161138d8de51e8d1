"""TLS of an endpoint's own certificates, on both sides of a connection: the side that dials begins by itself."""

from __future__ import annotations

import select
import socket
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest

from nsqd.net.endpoint import Endpoint
from nsqd.net.layers import Layers
from nsqd.protocols.transport import Transport, Upgrade
from shared.connection_limiter import ConnectionLimiter, ConnectionLimits
from shared.tls.info import TlsInfo
from shared.tls.mutual import MutualCertificates
from shared.tls.node_certificates import node_uri
from tests.node_certificates import load, make_certificates
from tests.nsqd.net.bench import Bench, PlainConversation, reset

pytestmark = pytest.mark.process


class Talker(PlainConversation):
    """A Conversation that asks for TLS at once, says hello when TLS is there, and keeps its input."""

    def __init__(
        self, made: list[Talker], hello: bytes, transport: Transport, ip: str = "", port: str = "", *_: int
    ) -> None:
        super().__init__(transport, ip, port)
        made.append(self)
        self.hello, self.received, self.why = hello, b"", ""
        self.tls: TlsInfo | None = None
        self.is_eof = False
        transport.upgrade(Upgrade(tls=True))
        transport.output_ready()

    def receive(self, data: bytes, now: int) -> None:
        self.received += data

    def receive_eof(self) -> None:
        self.is_eof = True
        super().receive_eof()

    def upgraded(self, tls: TlsInfo | None = None) -> None:
        assert self.tls is None
        self.tls = tls
        self.outbox.reply(self.hello)

    def break_off(self, why: str = "") -> None:
        self.why = why
        super().break_off()


class Ends(Bench):
    """A reactor that accepts a connection and has dialed it, too; each end has certificates of its own."""

    def __init__(self, dialer: MutualCertificates, acceptor: MutualCertificates) -> None:
        super().__init__()
        self._dialer = dialer
        self._made: list[Talker] = []
        self._limiter = ConnectionLimiter("TEST", ConnectionLimits(9), self.edge.refused)
        self.other = socket.create_server(("127.0.0.1", 0))
        self.clients.append(self.other)  # to be closed
        self.other.setblocking(False)
        make_peer = partial(Talker, self._made, b"from the acceptor")
        self.reactor.listen(self.other, make_peer, self._limiter, wrap=acceptor.accept)

    def dial(self, address: tuple[str, int] | None = None) -> Talker:
        self.serve(socket.create_connection(address or self.other.getsockname(), timeout=5))
        return self._made[-1]

    def serve(self, sock: socket.socket) -> None:
        """Serve a connection that was made to a server. Raises OSError."""
        make_peer = partial(Talker, self._made, b"from the dialer")
        self.reactor.adopt(sock, Endpoint(make_peer, self._limiter, wrap=self._dialer.dial))

    def connect_both(self) -> tuple[Talker, Talker]:
        dialer = self.dial()
        self.turn(30)
        (acceptor,) = (one for one in self._made if one is not dialer)
        return dialer, acceptor


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("own"))


@pytest.fixture
def ends(own: Path) -> Ends:
    return Ends(load(own, 1), load(own, 0))


def test_both_sides_know_who_the_other_is_before_they_speak(ends: Ends) -> None:
    dialer, acceptor = ends.connect_both()
    assert (dialer.tls.uris, acceptor.tls.uris) == ((node_uri(0),), (node_uri(1),))
    assert (dialer.received, acceptor.received) == (b"from the acceptor", b"from the dialer")


@pytest.mark.parametrize("wrong", ["dialer", "acceptor"])
def test_each_side_learns_why_a_handshake_failed(
    own: Path, tmp_path_factory: pytest.TempPathFactory, wrong: str
) -> None:
    foreign = make_certificates(tmp_path_factory.mktemp("foreign"))
    dialing, accepting = (load(foreign if side == wrong else own, 1, own) for side in ("dialer", "acceptor"))
    ends = Ends(dialing, accepting)
    dialer, acceptor = ends.connect_both()
    refusing, refused = (acceptor, dialer) if wrong == "dialer" else (dialer, acceptor)
    assert "certificate verify failed" in refusing.why
    assert "alert unknown ca" in refused.why
    assert (dialer.received, acceptor.received, ends.edge.refused["tls_or_compression"]) == (b"", b"", 2)


def test_a_side_that_accepts_says_nothing_first(own: Path) -> None:
    for wrap, says_something in ((load(own, 0).accept, False), (load(own, 0).dial, True)):
        layers, talker = Layers(Upgrade(tls=True), wrap), Talker([], b"", Mock())
        assert bool(layers.encode_output(talker)) is says_something
        assert layers.handshaking
        assert layers.encode_output(talker) == []


def test_a_connection_that_was_reset_before_it_is_served_is_closed(ends: Ends) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        sock = socket.create_connection(server.getsockname(), timeout=5)
        accepted, _ = server.accept()
    reset(accepted)
    assert select.select([sock], [], [], 5)[0]
    with pytest.raises(OSError, match="not connected"):
        ends.serve(sock)
    assert (sock.fileno(), ends.reactor.connections) == (-1, {})
