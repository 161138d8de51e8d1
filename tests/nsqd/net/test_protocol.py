"""A protocol that nobody knows, on the reactor: lines are answered with themselves, and one of them has to wait."""

from collections.abc import Callable

import pytest

from nsqd.protocols.conversation import Conversation
from nsqd.protocols.outbox import Outbox
from nsqd.protocols.transport import NEVER, Transport
from shared.tls_info import TlsInfo
from tests.nsqd.core.node import Node
from tests.nsqd.net.test_reactor import Bench

pytestmark = pytest.mark.process


class Echo:
    """A Conversation that answers each line with the same line."""

    def __init__(self, asked: list[Callable[[], None]], transport: Transport, remote_ip: str, port: str) -> None:
        self._asked = asked
        self._transport = transport
        self._kept = b""
        self.remote_ip, self.port = remote_ip, port
        self.outbox = Outbox(transport)
        self.waiting = self.has_more = False
        self.buffered, self.body_since = 0, -1
        self.patience = 0

    def receive(self, data: bytes, now: int) -> None:
        self._kept += data
        while b"\n" in self._kept and not (self.waiting or self.outbox.closing):
            line, _, self._kept = self._kept.partition(b"\n")
            self.outbox.reply(line + b"\n")
            if line == b"wait":
                self.waiting = True
                self._transport.suspend(self._asked.append)
            if line == b"end":
                self.outbox.end()

    def receive_eof(self) -> None:
        self.outbox.end()

    def resume(self, now: int) -> None:
        self.waiting = False
        self.outbox.reply(b"go\n")
        self.receive(b"", now)

    def upgraded(self, tls: TlsInfo | None = None) -> None: ...

    def break_off(self, why: str = "") -> None:
        self.outbox.break_off()

    def disconnected(self) -> None:
        self.outbox.closing = True

    def take_output(self) -> list[bytes]:
        return self.outbox.drain()

    def network_ready(self) -> None: ...

    def next_timer(self) -> int:
        return NEVER

    def tick(self, now: int) -> None: ...


class EchoBench(Bench):
    """A reactor with two listeners: NSQ's, and one for lines."""

    def __init__(self) -> None:
        super().__init__(Node())
        self.asked: list[Callable[[], None]] = []
        self.speak(self._make_peer)

    def _make_peer(self, transport: Transport, ip: str, port: str, now: int, wall: int) -> Conversation:
        return Echo(self.asked, transport, ip, port)


def test_lines_come_back_and_the_last_one_ends_the_connection() -> None:
    bench = EchoBench()
    client = bench.connect(b"one\ntwo\nen")
    assert client.recv(100) == b"one\ntwo\n"
    client.sendall(b"d\nmore\n")
    bench.turn()
    assert client.recv(100) == b"end\n"
    assert client.recv(100) == b""
    bench.close()


def test_a_suspended_peer_reads_nothing_until_it_is_resumed_in_a_turn() -> None:
    bench = EchoBench()
    client = bench.connect(b"wait\nnext\n")
    assert client.recv(100) == b"wait\n"
    (connection,) = bench.reactor.connections.values()
    client.sendall(b"later\n")
    bench.turn()
    assert not connection.reading
    bench.asked.pop()()
    client.setblocking(False)
    bench.turn()
    assert client.recv(100) == b"go\nnext\nlater\n"
    assert connection.reading
    bench.close()


def test_an_answer_for_a_connection_that_is_gone_is_dropped() -> None:
    bench = EchoBench()
    client = bench.connect(b"wait\n")
    (connection,) = bench.reactor.connections.values()
    bench.reactor.close(connection)
    client.close()
    bench.asked.pop()()
    bench.turn()
    assert bench.reactor.connections == {}
    assert not bench.reactor._unread.resumed
    bench.close()
