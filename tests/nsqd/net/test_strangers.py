"""Connections whose clients have not shown who they are: given up in time, and closed to make room for others."""

import socket

import pytest

from nsqd.net.admission import Admission
from nsqd.protocols.beanstalk.client import BeanstalkContext
from nsqd.protocols.beanstalk.peer import Peer as Beanstalk
from nsqd.protocols.conversation import Conversation
from nsqd.protocols.disque.peer import Peer as Disque
from nsqd.protocols.nsq.settings import Settings
from nsqd.protocols.transport import Transport
from shared.connection_limiter import ConnectionLimits
from tests.nsqd.core.node import SECOND, Node
from tests.nsqd.net.test_reactor import Bench
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
        limits = Admission(ConnectionLimits(MOST))
        super().__init__(Node(), Settings(auth_required=has_rights), limits)
        proofs = Proofs("worker") if has_rights else None
        self.context.proofs = proofs
        self.protocol = protocol
        jobs, queues = BeanstalkContext(proofs=proofs), context_of(self.node)
        queues.proofs = proofs

        def make_peer(transport: Transport, ip: str, port: str, now: int, wall: int) -> Conversation:
            if protocol == "beanstalk":
                return Beanstalk(self.node.broker, jobs, transport, ip, port, now)
            return Disque(self.node.broker, queues, transport, ip, port, now)

        make = self.reactor._endpoints[self.listener.fileno()].make_peer if protocol == "nsq" else make_peer
        self.reactor._acceptor.stop(self.listener.fileno(), 0)
        self.reactor.listen(self.listener, make, proof_timeout=TIMEOUT)

    def known(self) -> socket.socket:
        return self.connect(HELLO[self.protocol])

    def ports(self) -> list[int]:
        """The ports of the clients that are connected, in the order of their coming."""
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
    port.close()


def test_without_an_auth_file_a_client_of_jobs_may_be_silent_for_ever() -> None:
    for protocol in ("beanstalk", "disque"):
        port = Port(protocol, has_rights=False)
        for _ in range(MOST):
            port.connect(b"")
        port.advance(1000 * SECOND)
        before = port.ports()
        port.connect(b"")
        assert port.ports() == before
        assert len(before) == MOST
        port.close()


def test_strangers_push_out_strangers_and_no_known_client(protocol: str) -> None:
    port = Port(protocol)
    known = [port.known().getsockname()[1] for _ in range(2)]
    for _ in range(50):
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
    port.node.broker.check()
    port.close()
