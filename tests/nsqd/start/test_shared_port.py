"""The shared port of a node over a reactor that is turned by hand: it is open while the node takes messages."""

import socket
from collections.abc import Iterator
from contextlib import closing
from functools import partial

import pytest

from nsqd.protocols.nsq.peer import Peer
from nsqd.start.shared_port import SharedPort
from shared.process.listen import Listener, bind_shared, listen
from tests.nsqd.net.bench import Bench, frames
from tests.nsqd.protocols.nsq.wire import body

pytestmark = pytest.mark.process


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.close()


@pytest.fixture
def place() -> Iterator[Listener]:
    """A port that no other process takes, because a socket that never listens is bound to it."""
    with closing(bind_shared("127.0.0.1:0")) as place:
        yield place


def shared_port(bench: Bench, place: Listener) -> SharedPort:
    return SharedPort(place.address, bind_shared(place.address), bench.reactor, partial(Peer, bench.context))


def connect(bench: Bench, place: Listener) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", place.port), timeout=5)
    bench.clients.append(client)
    client.sendall(b"  V2PUB t\n" + body(b"x"))
    return client


def test_it_opens_closes_and_opens_again(bench: Bench, place: Listener) -> None:
    port = shared_port(bench, place)
    with pytest.raises(ConnectionRefusedError):
        connect(bench, place)
    port.open()
    client = connect(bench, place)
    bench.turn()
    assert frames(client) == [b"OK"]
    port.follow(draining=True)
    with pytest.raises(ConnectionRefusedError):
        connect(bench, place)
    port.follow(draining=False)
    client = connect(bench, place)
    bench.turn()
    assert frames(client) == [b"OK"]
    port.close()
    port.close()


def test_who_waits_when_it_closes_is_served(bench: Bench, place: Listener) -> None:
    port = shared_port(bench, place)
    port.open()
    waiting = [connect(bench, place) for _ in range(10)]
    port.close()
    bench.turn()
    assert [frames(client) for client in waiting] == [[b"OK"]] * 10


def test_a_port_taken_meanwhile_is_left_alone(bench: Bench, place: Listener, caplog: pytest.LogCaptureFixture) -> None:
    port = shared_port(bench, place)
    port.open()
    port.follow(draining=True)
    place.close()
    with closing(listen(place.address)):
        port.follow(draining=False)
        assert "TCP SHARED: cannot listen, producers reach this node at its own address only" in caplog.text
        port.follow(draining=True)  # nothing is left to close
