"""Half-received commands: bounded by the budget, closed when they do not go on, and never waiting for each other."""

import random
import socket
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from nsqd.net.admission import Admission
from nsqd.net.inflow import BODY_TIMEOUT, LEAST_RATE, RETRY, WHOLE_BODY_TIMEOUT
from nsqd.protocols.beanstalk.client import BeanstalkContext
from nsqd.protocols.beanstalk.peer import Peer as Beanstalk
from nsqd.protocols.conversation import Conversation
from nsqd.protocols.nsq.settings import Settings
from nsqd.protocols.transport import Transport
from shared.budget import FREE, Budget
from tests.certificates import Authority
from tests.effort import seeds
from tests.nsqd.core.node import SECOND, Node
from tests.nsqd.net.secure import Secure
from tests.nsqd.net.test_reactor import Bench, frames
from tests.nsqd.protocols.nsq.wire import body, mpub

pytestmark = pytest.mark.process

LARGE = 20 * FREE  # bytes of a body
LIMIT = 100 * FREE  # one address gets half: two such bodies
PUB = b"PUB t\n" + body(bytes(LARGE))
MPUB = mpub(b"t", *[bytes(LARGE // 4)] * 4)
PUT = b"put 0 0 60 %d\r\n" % LARGE + bytes(LARGE) + b"\r\n"
HALF = LARGE // 2
NO_HEARTBEATS = b'{"heartbeat_interval":-1}'


class Port(Bench):
    """A reactor whose listener meets clients of one protocol."""

    def __init__(self, protocol: str, limit: int = LIMIT) -> None:
        self.budget = Budget(limit)
        super().__init__(Node(), Settings(), Admission(budget=self.budget))
        self.protocol = protocol
        context = BeanstalkContext(max_job_size=10 * LARGE)

        def make_peer(transport: Transport, ip: str, port: str, now: int, wall: int) -> Conversation:
            return Beanstalk(self.node.broker, context, transport, ip, port, now)

        if protocol == "beanstalk":
            self.speak(make_peer)

    def client(self) -> socket.socket:
        """Connected, and as silent as it likes."""
        if self.protocol == "beanstalk":
            return self.connect(b"use t\r\n")
        return self.connect(b"  V2IDENTIFY\n" + body(NO_HEARTBEATS))

    def say(self, client: socket.socket, data: bytes) -> None:
        """As much as the kernel takes, in turns."""
        client.setblocking(False)
        while data:
            try:
                data = data[client.send(data) :]
            except BlockingIOError:
                if not self._reads(client):
                    return
            self.turn(2)

    def _reads(self, client: socket.socket) -> bool:
        port = str(client.getsockname()[1])
        return any(one.peer.port == port and one.reading for one in self.reactor.connections.values())

    @property
    def used(self) -> int:
        return self.budget.figures().used

    @property
    def open(self) -> int:
        return len(self.reactor.connections)

    @property
    def published(self) -> int:
        topic = self.node.broker.topics.get("t")
        return topic.intake.message_count if topic is not None else 0


PROTOCOLS = {"nsq": PUB, "nsq mpub": MPUB, "beanstalk": PUT}
every_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)


@every_protocol
def test_a_command_reserves_what_it_will_take_and_gives_it_back(protocol: str) -> None:
    port = Port(protocol)
    client = port.client()
    port.say(client, PROTOCOLS[protocol][:HALF])
    assert LARGE <= port.used <= LARGE + 1000
    port.say(client, PROTOCOLS[protocol][HALF:])
    assert port.used == 0
    assert port.published == (4 if protocol == "nsq mpub" else 1)
    port.close()


@every_protocol
def test_a_connection_that_goes_gives_it_back(protocol: str) -> None:
    port = Port(protocol)
    client = port.client()
    port.say(client, PROTOCOLS[protocol][:HALF])
    assert port.used
    client.close()
    port.turn()
    assert (port.used, port.open) == (0, 0)
    port.close()


@every_protocol
def test_a_body_that_does_not_go_on_ends_as_one_over_http(protocol: str) -> None:
    port = Port(protocol)
    client = port.client()
    port.say(client, PROTOCOLS[protocol][:HALF])
    port.advance(BODY_TIMEOUT - 1)
    assert port.open == 1
    port.say(client, b"x")
    port.advance(BODY_TIMEOUT - 1)
    assert port.open == 1
    port.advance(1)
    assert (port.open, port.used) == (0, 0)
    assert port.edge.refused["body_timeout"] == 1
    port.close()


@every_protocol
def test_so_does_a_small_one_and_one_that_is_too_large(protocol: str) -> None:
    for said in (
        (b"put 0 0 60 5\r\nhel", b"put 0 0 60 99999999\r\nhel") if protocol == "beanstalk" else (b"PUB t\n\0\0\0\5hel",)
    ):
        port = Port(protocol)
        port.say(port.client(), said)
        port.advance(BODY_TIMEOUT)
        assert (port.open, port.used) == (0, 0)
        port.close()


@every_protocol
def test_a_body_that_trickles_has_an_end(protocol: str) -> None:
    port = Port(protocol)
    client = port.client()
    port.say(client, PROTOCOLS[protocol][:HALF])
    whole = WHOLE_BODY_TIMEOUT + LARGE * SECOND // LEAST_RATE
    for _ in range(whole // (20 * SECOND)):
        assert port.open == 1
        port.advance(20 * SECOND)
        port.say(client, b"x")
    port.advance(20 * SECOND)
    assert port.open == 0
    port.close()


@every_protocol
def test_a_client_that_is_silent_between_commands_or_within_a_line_stays(protocol: str) -> None:
    port = Port(protocol)
    client = port.client()
    port.say(client, PROTOCOLS[protocol])
    port.say(client, b"MPUB"[: 3 if protocol != "beanstalk" else 0] or b"pu")
    port.advance(10 * WHOLE_BODY_TIMEOUT)
    assert (port.open, port.used) == (1, 0)
    port.close()


@every_protocol
def test_who_publishes_all_the_time_in_pieces_stays(protocol: str) -> None:
    port = Port(protocol)
    client, command = port.client(), PROTOCOLS[protocol]
    port.say(client, command[:HALF])
    for _ in range(12):
        port.advance(20 * SECOND)
        port.say(client, command[HALF:] + command[:HALF])
    assert port.open == 1
    port.close()


@every_protocol
def test_who_gets_no_room_is_not_read_until_there_is_some(protocol: str) -> None:
    port, command = Port(protocol), PROTOCOLS[protocol]
    clients = [port.client() for _ in range(5)]
    for client in clients:
        port.say(client, command[:HALF])
    starved = [one for one in port.reactor.connections.values() if one.starved]
    assert len(starved) == 3
    assert not any(one.reading for one in starved)
    for client in clients[:2]:
        port.say(client, command[HALF:])
    port.advance(RETRY)
    for client in clients[2:]:
        port.say(client, command[HALF:])
        port.advance(RETRY)
    for client in clients[2:]:  # the kernel kept what was not read
        port.say(client, b"")
    port.advance(RETRY)
    assert port.published == (20 if protocol == "nsq mpub" else 5)
    assert port.used == 0
    port.close()


@every_protocol
def test_who_gets_no_room_for_long_is_closed(protocol: str) -> None:
    port, command = Port(protocol), PROTOCOLS[protocol]
    other = Budget.reserve(port.budget, LIMIT, "10.0.0.9")
    assert other
    port.say(port.client(), command[:HALF])
    port.advance(BODY_TIMEOUT - 1)
    assert port.open == 1
    port.advance(1)
    assert port.open == 0
    assert port.used == LIMIT
    port.close()


@every_protocol
def test_small_commands_work_however_full_the_budget_is(protocol: str) -> None:
    port = Port(protocol)
    port.budget.charge(2 * LIMIT, "10.0.0.9")
    client = port.client()
    port.say(client, b"put 0 0 60 5\r\nhello\r\n" if protocol == "beanstalk" else b"PUB t\n" + body(b"hello"))
    assert port.published == 1
    port.close()


def test_output_that_nobody_reads_is_counted() -> None:
    port = Port("nsq", limit=1000 * LIMIT)
    client = port.connect(b"  V2SUB t c\nRDY 1\n")  # whose kernel keeps a few megabytes
    port.node.broker.topic("t").publish([bytes(40_000_000)], 40_000_000)
    port.turn(20)
    (connection,) = port.reactor.connections.values()
    assert port.used == connection.backlog > FREE
    client.close()
    port.turn()
    assert port.used == 0
    port.close()


@pytest.mark.parametrize("seed", seeds(1))
@every_protocol
def test_whatever_connections_do_the_budget_returns_to_nothing(protocol: str, seed: int) -> None:
    port, command, chance = Port(protocol), PROTOCOLS[protocol], random.Random(seed)
    small = b"put 0 0 60 5\r\nhello\r\n" if protocol == "beanstalk" else b"PUB t\n" + body(b"hello")
    clients: list[socket.socket] = []

    def reset(client: socket.socket) -> None:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()

    acts: list[Callable[[socket.socket], object]] = [
        lambda client: port.say(client, command),
        lambda client: port.say(client, command[: chance.randrange(len(command))]),
        lambda client: port.say(client, small),
        lambda client: port.advance(chance.choice((1, RETRY, SECOND, BODY_TIMEOUT // 2))),
        lambda client: client.shutdown(socket.SHUT_WR), lambda client: client.close(), reset,
    ]  # fmt: skip
    for _ in range(50):
        if len(clients) < 6:
            clients.append(port.client())
        client = chance.choice(clients)
        try:
            chance.choice(acts)(client)
        except OSError:
            pass  # the connection is over
        if client.fileno() < 0:
            clients.remove(client)
        port.turn(2)
        held = sum(one.input.held + one.output.held for one in port.reactor.connections.values())
        assert port.used == held
    for client in clients:
        client.close()
    port.advance(10 * WHOLE_BODY_TIMEOUT)
    port.advance(1)
    assert (port.used, port.open) == (0, 0)
    assert port.budget._owners == {}
    port.close()


def test_replies_are_still_read_while_memory_is_scarce() -> None:
    """A consumer's FIN is a small command."""
    port = Port("nsq")
    consumer = port.connect(b"  V2SUB t c\nRDY 1\n")
    port.node.broker.topic("t").publish([b"hello"], 5)
    port.turn()
    message = frames(consumer)[-1]
    port.budget.charge(2 * LIMIT, "10.0.0.9")
    port.say(port.client(), PUB[:HALF])
    port.say(consumer, b"FIN " + message[10:26] + b"\n")
    (channel,) = port.node.broker.topics["t"].channels.values()
    assert channel.in_flight_count == 0
    port.close()


@pytest.mark.parametrize(("tls", "codec"), [(False, "deflate"), (True, ""), (True, "snappy")])
def test_behind_layers_it_is_the_same(tmp_path: Path, tls: bool, codec: str) -> None:
    bench = Secure(Authority(tmp_path))
    budget = bench.reactor.budget
    limit = budget.figures().limit
    budget.charge(limit, "10.0.0.9")
    client = bench.client(tls=tls, codec=codec)
    command = b"PUB t\n" + body(random.Random(5).randbytes(LARGE))  # which no compression makes small
    client.say(command[:HALF])
    bench.turn(20)
    (connection,) = bench.reactor.connections.values()
    assert connection.starved
    assert not connection.reading
    budget.release(limit, "10.0.0.9")
    bench.advance(RETRY)
    bench.turn(20)
    assert connection.reading
    client.say(command[HALF:])
    bench.turn(30)
    assert client.frames() == [b"OK"]
    assert budget.figures().used == 0
    client.say(command[:HALF])
    bench.turn(20)
    assert budget.figures().used > LARGE
    bench.advance(BODY_TIMEOUT)
    assert bench.reactor.connections == {}
    assert budget.figures().used == 0
    bench.close()
