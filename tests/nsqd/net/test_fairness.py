"""No client's input takes a turn for itself, and none of it is lost, however much there is of it."""

import json
import socket
import ssl
import struct

import pytest

from nsqd.net.admission import Admission
from nsqd.protocols.nsq.peer import MOST_COMMANDS
from nsqd.protocols.nsq.settings import Settings
from tests.nsqd.core.node import SECOND, Node
from tests.nsqd.net.bench import Bench, frames
from tests.nsqd.protocols.nsq.wire import Wire, body

pytestmark = pytest.mark.process

FLOOD = 5 * MOST_COMMANDS + 7


@pytest.fixture
def bench() -> Bench:
    return Bench(settings=Settings(max_rdy_count=10 * FLOOD))


def rdy_in_force(bench: Bench) -> int:
    (consumer,) = bench.node.channel("t", "c").consumers
    return consumer.ready


def ascending(count: int) -> bytes:
    return b"".join(b"RDY %d\n" % number for number in range(1, count + 1))


def test_a_turn_does_a_bounded_number_of_commands_and_later_turns_the_rest(bench: Bench) -> None:
    client = bench.connect(b"  V2SUB t c\n")
    client.sendall(ascending(FLOOD))
    for turns in range(1, 6):
        bench.turn(1)
        assert rdy_in_force(bench) == turns * MOST_COMMANDS
    assert bench.reactor._due() == bench.node.now  # nothing more comes from the network, and yet there is work
    bench.turn(1)
    assert rdy_in_force(bench) == FLOOD
    assert bench.reactor._due() != bench.node.now
    bench.send(client, b"RDY 1\n")
    assert rdy_in_force(bench) == 1


def test_what_was_sent_before_the_end_is_done_before_the_end(bench: Bench) -> None:
    client = bench.connect(b"  V2")
    client.sendall((b"PUB t\n" + body(b"x")) * FLOOD)
    client.shutdown(socket.SHUT_WR)
    bench.turn(20)
    assert (frames(client), bench.reactor.connections) == ([b"OK"] * FLOOD, {})


def test_the_command_that_is_cut_off_by_the_bound_is_not_torn() -> None:
    wire = Wire()
    data = b"NOP\n" * (MOST_COMMANDS - 1) + b"PUB t\n" + body(b"first") + b"PUB t\n" + body(b"second") + b"PUB t\n\0\0"
    wire.peer.receive(data, 0)
    assert wire.peer.has_more
    wire.peer.receive(b"\0", 0)
    assert not wire.peer.has_more
    wire.send(b"\x01x")
    assert wire.frames() == [(0, b"OK")] * 3


class SlowHandshakes:
    """A TLS whose every handshake takes a second of the turn's clock, and fails."""

    def __init__(self, node: Node) -> None:
        self.node, self.done = node, 0

    def do_handshake(self) -> None:
        self.done += 1
        self.node.now += SECOND
        error = ssl.SSLError(ssl.SSL_ERROR_SSL, "no")
        error.reason = "NO"
        raise error


def test_handshakes_at_once_are_not_one_turn() -> None:
    node = Node()
    tls = SlowHandshakes(node)
    bench = Bench(node, Settings(tls=True), Admission(wrap=lambda incoming, outgoing: tls))
    hello = json.dumps({"feature_negotiation": True, "tls_v1": True}).encode()
    clients = [bench.connect(b"  V2IDENTIFY\n" + struct.pack(">I", len(hello)) + hello) for _ in range(3)]
    for client in clients:
        client.sendall(b"hello")
    bench.turn(1)
    assert tls.done == 1
    # those who wait do not grow
    assert sum(connection.reading for connection in bench.reactor.connections.values()) == 1
    assert bench.reactor._due() == bench.reactor.now
    bench.turn(1)
    assert tls.done == 2
    bench.turn(1)
    assert tls.done == 3
