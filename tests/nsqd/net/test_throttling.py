"""Connections whose client has published more than its rate: not read for a while, not closed, and no burden to others."""

import socket

import pytest

from nsqd.net.inflow import BODY_TIMEOUT
from nsqd.protocols.account import Accounts
from nsqd.protocols.beanstalk.client import BeanstalkContext
from nsqd.protocols.nsq.settings import Settings
from tests.nsqd.core.node import MS, SECOND
from tests.nsqd.net.bench import Bench, frames
from tests.nsqd.protocols.beanstalk.wire import put
from tests.nsqd.protocols.disque.wire import context_of, request
from tests.nsqd.protocols.nsq.wire import body, mpub
from tests.nsqd.protocols.rights.proofs import Proofs, token

pytestmark = pytest.mark.process

HELLO = {
    "nsq": b"  V2AUTH\n" + body(token("worker")),
    "beanstalk": b"auth " + token("worker") + b"\r\nuse work\r\n",
    "disque": request("AUTH", token("worker")),
}
PUBLISH = {"nsq": b"PUB work\n" + body(b"x"), "beanstalk": put(b"x"), "disque": request("ADDJOB", "work", "x", 0)}


class Port(Bench):
    def __init__(self, protocol: str = "nsq", **limits: int) -> None:
        super().__init__(settings=Settings(auth_required=True))
        self.protocol, self.proofs, self.accounts = protocol, Proofs("worker", "orders", **limits), Accounts()
        jobs, queues = BeanstalkContext(), context_of(self.node)
        for context in (self.context, jobs, queues):
            context.proofs, context.accounts = self.proofs, self.accounts
        if protocol != "nsq":
            self.speak_of_jobs(jobs if protocol == "beanstalk" else queues)

    def client(self, *said: bytes) -> socket.socket:
        return self.connect(b"".join((HELLO[self.protocol], *said)))

    def set(self, client: socket.socket, *names: str, **limits: int) -> None:
        self.proofs.set(*names, **limits)
        self.of(client).peer.rights_changed()
        self.turn()

    def publish(self, client: socket.socket, count: int = 1) -> None:
        self.send(client, PUBLISH[self.protocol] * count)

    def published(self, name: str = "work") -> int:
        return super().published(name)


@pytest.fixture(params=HELLO)
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_who_is_over_its_rate_is_not_read_until_it_is_not(protocol: str) -> None:
    port = Port(protocol, messages=10)
    client = port.client()
    port.publish(client, 10)
    assert port.of(client).reading
    port.publish(client, 5)  # taken, and to be waited for
    assert port.published() == 15
    assert not port.of(client).reading
    port.publish(client, 5)
    port.advance(499 * MS)
    assert port.published() == 15
    port.advance(MS)
    assert port.published() == 20
    assert not port.of(client).reading
    port.advance(500 * MS)
    assert port.of(client).reading
    one = port.accounts.account("worker").figures()
    assert (one.messages, one.throttled, one.throttled_ms) == (20, 2, 1000)


def test_a_pause_ends_in_no_time_out() -> None:
    port = Port(messages=1)
    client, publish = port.client(), PUBLISH["nsq"]
    port.send(client, publish * 100 + publish[:-1])  # the last one is half-received
    assert port.published() == 100
    heartbeats = 0
    for _ in range(97):
        port.advance(SECOND)
        heartbeats += frames(client).count(b"_heartbeat_")
    assert (heartbeats, len(port.reactor.connections)) == (3, 1)
    port.advance(2 * SECOND)
    port.advance(BODY_TIMEOUT - 1)  # which begins again
    port.send(client, b"x")
    assert (port.published(), len(port.reactor.connections)) == (101, 1)


def test_output_of_an_account_stops_reading_where_it_is_not_taken() -> None:
    port = Port(output=1000)
    client, other = port.client(), port.client()
    peer = port.of(client)
    peer.peer.outbox.unsent, peer._unsent = 2000, b"x" * 2000
    assert not peer.wants_input
    assert port.of(other).wants_input


BATCH = {
    "nsq": mpub(b"work", *[b"x"] * 20_000),
    "beanstalk": put(b"x") * 400,
    "disque": request("ADDJOB", "work", "x", 0) * 400,
}
SIZE = {"nsq": 20_000, "beanstalk": 400, "disque": 400}


def test_a_connection_that_is_gone_leaves_its_debt(protocol: str) -> None:
    port = Port(protocol, messages=50)
    for _ in range(5):
        client = socket.create_connection(port.listener.getsockname(), timeout=5)
        client.sendall(HELLO[protocol] + BATCH[protocol])
        port.turn(20)
        client.close()
        port.turn(20)
    assert (port.published(), port.reactor.connections) == (SIZE[protocol], {})
    port.advance(SECOND * SIZE[protocol] // 50)
    port.publish(port.client())
    assert port.published() == SIZE[protocol] + 1


def test_a_large_batch_that_comes_in_pieces_waits_whole_until_the_debt_is_paid() -> None:
    port = Port(messages=1000)
    slow, fast = port.client(), port.client()
    batch = BATCH["nsq"]
    slow.sendall(batch[:-1])
    port.turn(20)
    fast.sendall(batch)
    port.turn(40)
    assert port.published() == 20_000
    slow.sendall(batch[-1:])
    port.turn(20)
    assert port.published() == 20_000
    assert not port.of(slow).reading
    port.advance(19 * SECOND)
    port.turn(40)
    assert (port.published(), frames(slow)[1:]) == (40_000, [b"OK"])


def test_who_leaves_while_it_is_not_read_is_closed_at_once(protocol: str) -> None:
    port = Port(protocol, messages=1)
    for end in (lambda client: client.close(), lambda client: client.shutdown(socket.SHUT_WR)):
        client = port.client()
        port.publish(client, 300)
        port.publish(client, 300)  # these are not read
        assert not port.of(client).reading
        end(client)
        port.turn()
        assert port.reactor.connections == {}
