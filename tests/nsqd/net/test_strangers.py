"""Connections whose clients have not shown who they are: given up in time, and closed to make room for others."""

import socket

import pytest

from nsqd.net.admission import Admission
from nsqd.protocols.beanstalk.client import BeanstalkContext
from nsqd.protocols.nsq.settings import Settings
from shared.connection_limiter import ConnectionLimits
from tests.nsqd.core.node import SECOND
from tests.nsqd.net.bench import Bench
from tests.nsqd.net.test_throttling import HELLO
from tests.nsqd.protocols.disque.wire import context_of
from tests.nsqd.protocols.rights.proofs import Proofs

pytestmark = pytest.mark.process

MOST = 4  # connections
TIMEOUT = 10 * SECOND
SILENT = {"nsq": b"  V2NOP\n", "beanstalk": b"stats\r\n", "disque": b"PING\r\n"}  # who says this has shown no token


class Port(Bench):
    """A reactor with a few places, whose listener meets clients of one protocol."""

    def __init__(self, protocol: str, *, has_rights: bool = True) -> None:
        super().__init__(settings=Settings(auth_required=has_rights), edge=Admission(ConnectionLimits(MOST)))
        self.context.proofs = proofs = Proofs("worker") if has_rights else None
        self.protocol, queues = protocol, context_of(self.node)
        queues.proofs = proofs
        if protocol != "nsq":
            self.speak_of_jobs(BeanstalkContext(proofs=proofs) if protocol == "beanstalk" else queues)
        make_peer = self.reactor._endpoints[self.listener.fileno()].make_peer
        self.reactor._acceptor.stop(self.listener.fileno(), 0)
        self.reactor.listen(self.listener, make_peer, proof_timeout=TIMEOUT)

    def known(self) -> socket.socket:
        return self.connect(HELLO[self.protocol])

    def ports(self) -> list[int]:
        return [int(connection.peer.port) for connection in self.reactor.connections.values()]


@pytest.fixture(params=SILENT)
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_who_shows_no_token_in_time_is_given_up(protocol: str) -> None:
    port = Port(protocol)
    known = port.known()
    port.connect(b"")
    port.connect(SILENT[protocol])
    port.advance(TIMEOUT - 1)
    assert len(port.ports()) == 3
    port.advance(1)
    assert port.ports() == [known.getsockname()[1]]
    assert port.edge.refused["proof_timeout"] >= 1


def test_without_an_auth_file_a_client_of_jobs_may_be_silent_for_ever() -> None:
    for protocol in ("beanstalk", "disque"):
        port = Port(protocol, has_rights=False)
        for _ in range(MOST):
            port.connect(b"")
        port.advance(1000 * SECOND)
        before = port.ports()
        port.connect(b"")
        assert (port.ports(), len(before)) == (before, MOST)


def test_strangers_push_out_strangers_and_no_known_client(protocol: str) -> None:
    port = Port(protocol)
    known = [port.known().getsockname()[1] for _ in range(2)]
    for _ in range(20):
        port.connect(SILENT[protocol])
        port.connect(b"")
        assert port.ports()[:2] == known
        assert len(port.ports()) <= MOST
    known.append(port.known().getsockname()[1])  # one that has a token gets in at any time
    known.append(port.known().getsockname()[1])
    for _ in range(5):
        port.connect(SILENT[protocol])
        assert port.ports() == known  # there is no place left that a stranger could take
    assert port.reactor._limiter._open == MOST
