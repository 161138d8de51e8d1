"""The door: how many come in, in all and from one address, and what a machine without descriptors does to it."""

import errno
import select
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nsqd.net.acceptor import ACCEPT_BATCH, ACCEPT_PAUSE, Accepted, Acceptor
from nsqd.net.admission import Admission
from nsqd.protocols.transport import NEVER
from shared.connection_limiter import ConnectionLimiter, ConnectionLimits
from tests.nsqd.core.node import SECOND
from tests.nsqd.net.bench import Bench, frames
from tests.nsqd.protocols.nsq.wire import body

pytestmark = pytest.mark.process


class Door:
    """An acceptor with one listener, and those who knock."""

    def __init__(self, total: int = 10_000, per_ip: int = 0, path: Path | None = None) -> None:
        family, address = (socket.AF_INET, ("127.0.0.1", 0)) if path is None else (socket.AF_UNIX, str(path))
        self.listener = socket.create_server(address, family=family, backlog=256)
        self.listener.setblocking(False)
        self.refused: Counter[str] = Counter()
        self.epoll = select.epoll()
        self.acceptor = Acceptor(self.epoll)
        self.limiter = ConnectionLimiter("TCP", ConnectionLimits(total, per_ip), self.refused)
        self.acceptor.listen(self.listener, self.limiter)
        self.open: list[socket.socket] = [self.listener]

    def knock(self, count: int = 1, ip: str = "127.0.0.1") -> list[socket.socket]:
        clients = [socket.socket(self.listener.family) for _ in range(count)]
        for client in clients:
            client.settimeout(5)
            if ip:
                client.bind((ip, 0))
            client.connect(self.listener.getsockname())
        self.open += clients
        return clients

    def accept(self, now: int = 0) -> list[Accepted]:
        accepted = list(self.acceptor.accept(self.listener.fileno(), now))
        self.open += [accepted.socket for accepted in accepted]
        return accepted

    def accept_from(self, listener: object) -> None:
        self.acceptor._listeners[self.listener.fileno()] = listener, self.limiter

    def is_watched(self) -> bool:
        return self.epoll.poll(0) == [(self.listener.fileno(), select.EPOLLIN)]


MakeDoor = Callable[..., Door]


@pytest.fixture
def door() -> Iterator[MakeDoor]:
    doors: list[Door] = []
    yield lambda *args, **more: doors.append(Door(*args, **more)) or doors[-1]
    for door in doors:
        for sock in (*door.open, door.epoll):
            sock.close()


def test_who_comes_in_is_known_by_address_and_port(door: MakeDoor) -> None:
    here = door()
    (client,) = here.knock(ip="127.0.0.9")
    (accepted,) = here.accept()
    assert (accepted.ip, accepted.port, here.accept()) == ("127.0.0.9", str(client.getsockname()[1]), [])
    assert here.listener.fileno() in here.acceptor
    assert -1 not in here.acceptor


def test_a_turn_lets_in_a_bounded_number(door: MakeDoor) -> None:
    here = door()
    here.knock(ACCEPT_BATCH + 3)
    assert len(here.accept()) == ACCEPT_BATCH
    assert here.is_watched()
    assert len(here.accept()) == 3


def test_who_waits_when_it_stops_is_let_in(door: MakeDoor) -> None:
    here = door(total=ACCEPT_BATCH + 3)
    clients = here.knock(ACCEPT_BATCH + 5)
    waiting = here.acceptor.stop(here.listener.fileno(), 0)
    here.open += [accepted.socket for accepted in waiting]
    assert [accepted.port for accepted in waiting] == [str(client.getsockname()[1]) for client in clients[:-2]]
    assert here.refused == {"max_connections": 2}
    assert here.listener.fileno() not in here.acceptor
    assert not here.is_watched()


def test_beyond_the_limit_the_door_is_shut_without_a_word(door: MakeDoor) -> None:
    here = door(total=2)
    clients, accepted = here.knock(4), here.accept()
    assert (len(accepted), here.refused) == (2, {"max_connections": 2})
    assert [client.recv(1) for client in clients[2:]] == [b"", b""]
    here.limiter.count_off(accepted[0].ip)
    here.knock(2)
    assert (len(here.accept()), here.refused) == (1, {"max_connections": 3})


class Exhausted:
    """A listener of a machine that has no descriptor left, or of one that is broken off."""

    def __init__(self, listener: socket.socket, number: int) -> None:
        self._listener, self._number = listener, number
        self.asked = 0

    def accept(self) -> tuple[socket.socket, object]:
        self.asked += 1
        if self.asked > 1 and self._number == errno.ECONNABORTED:
            return self._listener.accept()
        raise OSError(self._number, "no")


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM])
def test_without_descriptors_it_pauses_and_comes_back(door: MakeDoor, number: int) -> None:
    here = door()
    here.knock()
    exhausted = Exhausted(here.listener, number)
    here.accept_from(exhausted)
    assert (here.accept(SECOND), exhausted.asked, here.acceptor.again) == ([], 1, SECOND + ACCEPT_PAUSE)
    assert not here.is_watched()
    here.accept_from(here.listener)
    here.acceptor.resume(SECOND + ACCEPT_PAUSE - 1)
    assert not here.is_watched()
    here.acceptor.resume(SECOND + ACCEPT_PAUSE)
    assert here.is_watched()
    assert (here.acceptor.again, len(here.accept())) == (NEVER, 1)


def test_one_that_was_aborted_does_not_stop_the_next(door: MakeDoor) -> None:
    here = door()
    here.knock()
    here.accept_from(Exhausted(here.listener, errno.ECONNABORTED))
    assert len(here.accept()) == 1
    assert here.is_watched() is False


def test_a_closed_connection_frees_its_place_however_it_ended() -> None:
    admission = Admission(limits=ConnectionLimits(total=1))
    bench = Bench(edge=admission)
    hellos = [b"  V2BAD\n", b"nope", b"  V2PUB t\n" + body(b"x"), b""]
    for hello in hellos:
        bench.connect(hello)
        bench.clients[-1].close()
        bench.turn()
        assert bench.reactor._limiter._open == 0
    assert not admission.refused
    client = bench.connect(b"  V2PUB t\n" + body(b"x"))
    assert frames(client) == [b"OK"]
