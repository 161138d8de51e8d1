"""The reactor over real loopback sockets, turned by hand in virtual time: nothing here waits for a clock."""

import errno
import socket
from collections.abc import Callable
from typing import Any

import pytest
import trio

from nsqd.net.acceptor import ACCEPT_PAUSE
from nsqd.net.connection import DRAIN_TIME, Connection
from nsqd.net.reactor import MAX_RECEIVED, READ_SIZE
from nsqd.protocols.nsq.settings import Settings
from nsqd.storage.memory import MemoryReader, MemoryStore, MemoryTopic
from tests.nsqd.core.node import SECOND, Node
from tests.nsqd.core.slow_store import SlowStore
from tests.nsqd.net.bench import Bench, frames, reset
from tests.nsqd.protocols.nsq.wire import body

pytestmark = pytest.mark.process


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_an_error_arrives_although_more_was_pipelined_behind_it(bench: Bench) -> None:
    client = bench.connect(b"  V2BAD\n" + b"PUB t\n" * 50_000)
    bench.turn(20)
    assert frames(client) == [b"E_INVALID invalid command BAD"]
    client.setblocking(True)
    assert client.recv(1) == b""  # a clean end, no reset


def test_a_drained_connection_is_closed_after_its_time(bench: Bench) -> None:
    client = bench.connect(b"  V2BAD\n")
    assert len(bench.reactor.connections) == 1
    bench.advance(DRAIN_TIME)
    assert (bench.reactor.connections, frames(client)) == ({}, [b"E_INVALID invalid command BAD"])


def test_a_reset_unsubscribes(bench: Bench) -> None:
    client = bench.connect(b"  V2SUB t c\nRDY 5\n")
    reset(client)
    bench.turn()
    assert bench.node.channel("t", "c").consumers == {}


def test_emfile_pauses_accepting_and_keeps_what_there_is(bench: Bench) -> None:
    client = bench.connect()

    class Exhausted:
        def accept(self) -> tuple[socket.socket, object]:
            raise OSError(errno.EMFILE, "Too many open files")

    listeners = bench.reactor._acceptor._listeners
    here = listeners[bench.listener.fileno()]
    listeners[bench.listener.fileno()] = Exhausted(), here[1]
    late = bench.connect(b"  V2PUB t\n" + body(b"x"))
    listeners[bench.listener.fileno()] = here
    client.sendall(b"PUB t\n" + body(b"x"))
    bench.turn()
    assert (frames(client), frames(late)) == ([b"OK"], [])
    bench.advance(ACCEPT_PAUSE)
    bench.turn()
    assert frames(late) == [b"OK"]


def slow_bench() -> tuple[Bench, SlowStore]:
    bench = Bench(Node(store=SlowStore))
    return bench, bench.node.store


def test_a_reply_waits_for_its_own_commit_and_not_for_later_ones() -> None:
    """Durable is always one group behind, and every client publishes again as soon as it is answered."""
    bench, store = slow_bench()
    clients = [bench.connect(b"  V2SUB t c\nRDY 1\n") for _ in range(4)]
    store.sync()
    bench.turn()
    answered = 0
    for step in range(60):
        behind = store.end
        clients[step % 4].sendall(b"PUB t\n" + body(b"x"))
        bench.turn(2)
        store.durable.position = behind
        bench.turn(1)
        answered += sum(frame == b"OK" for client in clients for frame in frames(client))
    assert answered >= 4 + 55
    assert len(bench.reactor._promised.connections) <= 4


def test_what_a_turn_delivers_is_in_its_group(monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[str] = []

    def note(kind: type, name: str, what: Callable[..., str]) -> None:
        real = getattr(kind, name)
        monkeypatch.setattr(
            kind, name, lambda self, *args, **more: notes.append(what(*args)) or real(self, *args, **more)
        )

    note(MemoryReader, "advance", lambda cursor: "advance")
    note(MemoryReader, "requeue", lambda ordinal, attempts, *_: f"attempt {attempts}")
    note(MemoryTopic, "publish", lambda *_: "publish")
    note(MemoryStore, "commit", lambda: "commit")
    bench = Bench(settings=Settings(msg_timeout=5 * SECOND))
    consumer, producer = bench.connect(b"  V2SUB t c\nRDY 1\n"), bench.connect()

    def turn(client: socket.socket | None, data: bytes = b"") -> list[str]:
        notes.clear()
        if client is not None:
            client.sendall(data)
        bench.turn(1)
        return notes

    assert turn(producer, b"PUB t\n" + body(b"1")) == ["publish", "advance", "commit"]
    (_, message) = frames(consumer)
    assert frames(producer) == [b"OK"]
    assert turn(consumer, b"REQ %s 0\n" % message[10:26]) == ["attempt 1", "attempt 2", "commit"]
    assert [frame[8:10] for frame in frames(consumer)] == [b"\0\2"]
    bench.node.now += 5 * SECOND  # it times out, and is delivered again in the same turn
    assert turn(None) == ["attempt 2", "attempt 3", "commit"]


class LateSocket:
    """A socket whose process is stopped for half a second before it is read: the input was sent meanwhile."""

    def __init__(self, sock: socket.socket, node: Node) -> None:
        self._socket, self._node = sock, node

    def recv(self, size: int) -> bytes:
        self._node.now += SECOND // 2
        return self._socket.recv(size)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)


def test_delays_and_calls_over_http_count_from_when_the_bytes_had_come(bench: Bench) -> None:
    producer = bench.connect(b"  V2SUB t c\n")
    bench.connection.socket = LateSocket(bench.connection.socket, bench.node)
    producer.sendall(b"DPUB t 1000\n" + body(b"later"))
    bench.turn(1)
    assert bench.node.channel("t", "c").offsets.delay_queue.waiting.wake_at() == bench.node.now + SECOND
    seen, answer = list[int](), bench.reactor._answer_http_requests
    bench.reactor._answer_http_requests = lambda: seen.append(bench.node.broker.now) or answer()
    bench.reactor.wake()
    producer.sendall(b"NOP\n")
    bench.turn(1)
    assert seen == [bench.node.now]


def test_much_input_in_a_turn_is_handled_in_between(bench: Bench) -> None:
    producers = [bench.connect() for _ in range(12)]
    for producer in producers:
        producer.setblocking(False)
        producer.send(b"PUB t\n" + body(bytes(200_000)))
    handled: list[int] = []
    handle = bench.reactor._handle

    def noted() -> None:
        handled.append(sum(len(data or b"") for _, data in bench.reactor._received))
        handle()

    bench.reactor._handle = noted
    bench.turn(30)
    assert bench.node.broker.topics["t"].intake.message_count == 12
    assert max(handled) <= MAX_RECEIVED + READ_SIZE
    assert [frames(producer) for producer in producers] == [[b"OK"]] * 12


def test_a_halted_reactor_delivers_nothing_more_and_its_connections_close_at_once(bench: Bench) -> None:
    consumer, producer = bench.connect(b"  V2SUB t c\nRDY 1\n"), bench.connect()
    assert frames(consumer) == [b"OK"]
    receive = bench.reactor._receive

    def halted(connection: Connection) -> None:
        """The word comes in a turn, before its end."""
        bench.reactor.halt()
        receive(connection)

    bench.reactor._receive = halted
    producer.sendall(b"PUB t\n" + body(b"x"))
    bench.turn()
    assert bench.node.broker.topics["t"].channels["c"].in_flight_count == 1, "the turn goes to its end"
    assert frames(consumer) == frames(producer) == []
    trio.run(bench.reactor.run)  # it returns
    bench.reactor.hang_up()
    assert not bench.reactor.connections
    consumer.setblocking(True)
    assert consumer.recv(100) == b"", "nothing came before the end"


def test_a_task_that_talks_to_another_server_runs_between_two_turns_of_a_busy_reactor(bench: Bench) -> None:
    reactor, turn, turns = bench.reactor, bench.reactor.turn, list[int]()

    def busy(events: list[tuple[int, int]]) -> None:
        turns.append(len(events))
        turn(events)
        reactor.wake()  # there always is an event
        if len(turns) == 100:
            reactor.halt()

    async def ask(over: Callable[[], None]) -> None:
        for _ in range(5):
            await trio.lowlevel.checkpoint()
        over()
        reactor.halt()

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            reactor.wake()
            reactor.until_over(lambda over: nursery.start_soon(ask, over), lambda: None)
            await reactor.run()

    reactor.turn = busy
    trio.run(run)
    assert len(turns) < 10
