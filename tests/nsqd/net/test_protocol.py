"""A made-up protocol on the reactor: lines are answered with themselves, and one of them has to wait."""

from collections.abc import Callable
from functools import partial

import pytest

from nsqd.protocols.transport import Transport
from tests.nsqd.net.bench import Bench, PlainConversation

pytestmark = pytest.mark.process


class Echo(PlainConversation):
    """A Conversation that answers each line with the same line."""

    def __init__(self, asked: list[Callable[[], None]], transport: Transport, ip: str, port: str, *_: int) -> None:
        super().__init__(transport, ip, port)
        self._asked, self._transport, self._kept = asked, transport, b""

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

    def resume(self, now: int) -> None:
        self.waiting = False
        self.outbox.reply(b"go\n")
        self.receive(b"", now)

    def disconnected(self) -> None:
        self.outbox.closing = True


class EchoBench(Bench):
    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Callable[[], None]] = []
        self.speak(partial(Echo, self.asked))


def test_a_suspended_peer_reads_nothing_until_it_is_resumed_in_a_turn() -> None:
    bench = EchoBench()
    client = bench.connect(b"wait\nnext\n")
    assert client.recv(100) == b"wait\n"
    connection = bench.connection
    bench.send(client, b"later\n")
    assert not connection.reading
    bench.asked.pop()()
    client.setblocking(False)
    bench.turn()
    assert client.recv(100) == b"go\nnext\nlater\n"
    assert connection.reading


def test_an_answer_for_a_connection_that_is_gone_is_dropped() -> None:
    bench = EchoBench()
    client = bench.connect(b"wait\n")
    bench.reactor.close(bench.connection)
    client.close()
    bench.asked.pop()()
    bench.turn()
    assert bench.reactor.connections == {}
    assert not bench.reactor._unread.resumed
