"""Half-received commands: bounded by the budget, closed when they stall, and never waiting for each other.

They come whole, in odd pieces, in slices, or after one that waits.
"""

import random
import socket
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from nsqd.net.admission import Admission
from nsqd.net.inflow import BODY_TIMEOUT, LEAST_RATE, RETRY, WHOLE_BODY_TIMEOUT
from nsqd.protocols.beanstalk.client import BeanstalkContext
from nsqd.protocols.nsq.batch import SLICE
from nsqd.protocols.transport import NEVER
from shared.budget import FREE, Budget
from tests.certificates import Authority
from tests.effort import seeds
from tests.nsqd.core.node import SECOND
from tests.nsqd.net.bench import Bench, reset, send_part
from tests.nsqd.net.secure import Secure
from tests.nsqd.protocols.nsq.wire import body, mpub

pytestmark = pytest.mark.process

LARGE = 20 * FREE  # bytes of a body
LIMIT = 100 * FREE  # one address gets half: two such bodies
PUB = b"PUB t\n" + body(bytes(LARGE))
PROTOCOLS = {
    "nsq": PUB,
    "nsq mpub": mpub(b"t", *[bytes(LARGE // 4)] * 4),
    "beanstalk": b"put 0 0 60 %d\r\n" % LARGE + bytes(LARGE) + b"\r\n",
}
HALF = LARGE // 2
OTHER = "10.0.0.9"


class Port(Bench):
    def __init__(self, protocol: str = "nsq", limit: int = LIMIT) -> None:
        self.budget = Budget(limit)
        super().__init__(edge=Admission(budget=self.budget))
        self.is_beanstalk, command = protocol == "beanstalk", PROTOCOLS[protocol]
        self.first, self.rest = command[:HALF], command[HALF:]
        self.count = 4 if protocol == "nsq mpub" else 1  # messages of the command
        # a small command in two pieces
        self.small = (b"put 0 0 60 5\r\nhe", b"llo\r\n") if self.is_beanstalk else (b"PUB t\n\0\0\0\5he", b"llo")
        if self.is_beanstalk:
            self.speak_of_jobs(BeanstalkContext(max_job_size=10 * LARGE))

    def client(self, *said: bytes) -> socket.socket:
        """Connected, and silent behind what it says."""
        quiet = b"  V2IDENTIFY\n" + body(b'{"heartbeat_interval":-1}')
        client = self.connect(b"use t\r\n" if self.is_beanstalk else quiet)
        for data in said:
            self.say(client, data)
        return client

    def say(self, client: socket.socket, data: bytes) -> None:
        """As much as the kernel takes, in turns."""
        client.setblocking(False)
        port = str(client.getsockname()[1])
        while data:
            left = send_part(client, data)
            reading = (one.reading for one in self.reactor.connections.values() if one.peer.port == port)
            if left is data and not any(reading):
                return
            data = left
            self.turn(2)

    @property
    def used(self) -> int:
        return self.budget.figures().used

    @property
    def state(self) -> tuple[int, int]:
        """Return the number of open connections, and the bytes that they have reserved."""
        return len(self.reactor.connections), self.used


@pytest.fixture(params=PROTOCOLS)
def port(request: pytest.FixtureRequest) -> Port:
    return Port(request.param)


def test_a_command_reserves_what_it_will_take_and_gives_it_back(port: Port) -> None:
    client = port.client(port.first)
    assert LARGE <= port.used <= LARGE + 1000
    port.say(client, port.rest)
    assert (port.published(), port.state) == (port.count, (1, 0))
    port.say(client, port.first)
    assert port.used
    client.close()
    port.turn()
    assert port.state == (0, 0)


def test_a_body_that_does_not_go_on_ends_as_one_over_http(port: Port) -> None:
    client = port.client(port.first)
    port.advance(BODY_TIMEOUT - 1)
    port.say(client, b"x")
    port.advance(BODY_TIMEOUT - 1)
    assert len(port.reactor.connections) == 1
    port.advance(1)
    assert (port.state, port.edge.refused["body_timeout"]) == ((0, 0), 1)


def test_so_does_a_small_one_and_one_that_is_too_large(port: Port) -> None:
    for said in (port.small[0], *([b"put 0 0 60 99999999\r\nhel"] if port.is_beanstalk else [])):
        port.client(said)
        port.advance(BODY_TIMEOUT)
        assert port.state == (0, 0)


def test_a_body_that_trickles_has_an_end(port: Port) -> None:
    client = port.client(port.first)
    whole = WHOLE_BODY_TIMEOUT + LARGE * SECOND // LEAST_RATE
    for _ in range(whole // (20 * SECOND)):
        assert len(port.reactor.connections) == 1
        port.advance(20 * SECOND)
        port.say(client, b"x")
    port.advance(20 * SECOND)
    assert not port.reactor.connections


def test_a_client_that_is_silent_between_commands_or_within_a_line_stays(port: Port) -> None:
    port.client(port.first, port.rest, b"pu" if port.is_beanstalk else b"MPU")
    port.advance(10 * WHOLE_BODY_TIMEOUT)
    assert port.state == (1, 0)


def test_who_publishes_all_the_time_in_pieces_stays(port: Port) -> None:
    client = port.client(port.first)
    for _ in range(12):
        port.advance(20 * SECOND)
        port.say(client, port.rest + port.first)
    assert len(port.reactor.connections) == 1


def test_a_connection_without_room_is_not_read_until_there_is_room(port: Port) -> None:
    clients = [port.client(port.first) for _ in range(5)]
    starved = [one for one in port.reactor.connections.values() if one.starved]
    assert len(starved) == 3
    assert not any(one.reading for one in starved)
    for client in clients[:2]:
        port.say(client, port.rest)
    port.advance(RETRY)
    for client in clients[2:]:
        port.say(client, port.rest)
        port.advance(RETRY)
    for client in clients[2:]:  # the kernel kept what was not read
        port.say(client, b"")
    port.advance(RETRY)
    assert (port.published(), port.used) == (5 * port.count, 0)


def test_who_gets_no_room_for_long_is_closed(port: Port) -> None:
    assert port.budget.reserve(LIMIT, OTHER)
    port.client(port.first)
    port.advance(BODY_TIMEOUT - 1)
    assert len(port.reactor.connections) == 1
    port.advance(1)
    assert port.state == (0, LIMIT)


def test_small_commands_work_however_full_the_budget_is_and_leave_no_deadline(port: Port) -> None:
    port.budget.charge(2 * LIMIT, OTHER)
    port.client(*port.small)
    port.turn(2)
    assert (port.published(), port.connection.body_due) == (1, NEVER)
    port.advance(BODY_TIMEOUT + SECOND)
    assert len(port.reactor.connections) == 1


def test_unread_output_is_counted() -> None:
    port = Port(limit=1000 * LIMIT)
    client = port.connect(b"  V2SUB t c\nRDY 1\n")  # whose kernel keeps a few megabytes
    port.node.broker.topic("t").publish([bytes(40_000_000)], 40_000_000)
    port.turn(20)
    assert port.used == port.connection.backlog > FREE
    client.close()
    port.turn()
    assert port.used == 0


@pytest.mark.parametrize("seed", seeds(1))
def test_whatever_connections_do_the_budget_returns_to_nothing(port: Port, seed: int) -> None:
    command, chance, clients = port.first + port.rest, random.Random(seed), list[socket.socket]()
    acts: list[Callable[[socket.socket], object]] = [
        lambda client: port.say(client, command),
        lambda client: port.say(client, command[: chance.randrange(len(command))]),
        lambda client: port.say(client, b"".join(port.small)),
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
        assert port.used == sum(one.input.held + one.output.held for one in port.reactor.connections.values())
    for client in clients:
        client.close()
    port.advance(10 * WHOLE_BODY_TIMEOUT)
    port.advance(1)
    assert (port.state, port.budget._owners) == ((0, 0), {})


@pytest.mark.parametrize(("tls", "codec"), [(False, "deflate"), (True, ""), (True, "snappy")])
def test_behind_layers_it_is_the_same(tmp_path: Path, tls: bool, codec: str) -> None:
    bench = Secure(Authority(tmp_path))
    budget = bench.reactor.budget
    limit = budget.figures().limit
    budget.charge(limit, OTHER)
    client = bench.client(tls=tls, codec=codec)
    command = b"PUB t\n" + body(random.Random(5).randbytes(LARGE))  # which no compression makes small
    client.say(command[:HALF])
    bench.turn(20)
    assert (bench.connection.starved, bench.connection.reading) == (True, False)
    budget.release(limit, OTHER)
    bench.advance(RETRY)
    bench.turn(20)
    assert bench.connection.reading
    client.say(command[HALF:])
    bench.turn(30)
    assert (client.frames(), budget.figures().used) == ([b"OK"], 0)
    client.say(command[:HALF])
    bench.turn(20)
    assert budget.figures().used > LARGE
    bench.advance(BODY_TIMEOUT)
    assert (bench.reactor.connections, budget.figures().used) == ({}, 0)


def test_a_piece_that_ends_between_two_messages_leaves_nothing_reserved() -> None:
    port, command = Port(), mpub(b"t", *[bytes(30_000)] * 4)
    cut = len(command) - 2 * 30_004
    client = port.client(command[:cut])
    assert port.used
    port.say(client, command[cut:])
    assert (port.published(), port.used) == (4, 0)
    port.advance(BODY_TIMEOUT + SECOND)
    assert len(port.reactor.connections) == 1


def sized(size: int, count: int) -> bytes:
    """The beginning of an MPUB with these sizes."""
    return b"MPUB t\n" + struct.pack(">ii", size, count)


def test_a_large_mpub_that_stops_after_a_slice_is_counted_and_closed() -> None:
    port, count = Port(limit=1000 * LIMIT), 100 * SLICE
    port.client(sized(4 + 5 * count, count) + b"\0\0\0\1x" * SLICE)
    port.turn(4)
    assert port.used > 5 * count
    port.advance(BODY_TIMEOUT)
    assert port.state == (0, 0)


def test_inner_sizes_beyond_the_outer_one_are_counted() -> None:
    port = Port()
    port.client(sized(4, 5) + body(bytes(100_000)) * 2)
    port.turn(2)
    assert port.used >= 200_000


def test_mpubs_that_end_a_turn_count_as_commands() -> None:
    port = Port()
    client = port.connect(b"  V2")  # it says nothing else, as a shell script might
    for _ in range(20):
        port.say(client, mpub(b"t", *[b"x"] * SLICE))
        port.turn(4)
        port.advance(SECOND)
    assert (len(port.reactor.connections), port.published()) == (1, 20 * SLICE)


def test_what_waits_behind_a_new_topic_is_counted_when_its_turn_comes() -> None:
    port, calls = Port(), list[Callable[[], None]]()
    port.context.until_registered = lambda topic, then: calls.append(then)
    port.node.broker.directory.ask_for_channels = True
    port.client(b"PUB new\n" + body(b"x") + b"PUB t\n" + struct.pack(">i", 10 * FREE) + bytes(2 * FREE))
    assert port.connection.peer.waiting
    calls.pop()()
    port.turn(2)
    assert port.used >= 10 * FREE
    port.advance(BODY_TIMEOUT)
    assert port.state == (0, 0)
