"""The reactor over real loopback sockets, turned by hand in virtual time: nothing here waits for a clock."""

import errno
import logging
import socket
import struct
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, cast

import pytest
import trio

from nsqd.core.sequence.mark import Promise
from nsqd.net.acceptor import ACCEPT_PAUSE
from nsqd.net.admission import Admission
from nsqd.net.connection import DRAIN_TIME, Connection
from nsqd.net.endpoint import MakePeer, OutputBounds
from nsqd.net.promised import HttpReplies
from nsqd.net.reactor import MAX_RECEIVED, READ_SIZE, Reactor
from nsqd.protocols.nsq.context import Context
from nsqd.protocols.nsq.peer import Peer
from nsqd.protocols.nsq.settings import Settings
from nsqd.storage.memory import MemoryReader, MemoryStore, MemoryTopic
from nsqd.storage.sequence import Sequence
from shared.log import log
from tests.nsqd.core.node import SECOND, Node
from tests.nsqd.core.slow_store import SlowStore
from tests.nsqd.protocols.nsq.wire import body, mpub

pytestmark = pytest.mark.process


class Bench:
    """A reactor with a listener, and the clients of a test."""

    patience = 0.01  # s in which a byte passes the loopback device

    def __init__(self, node: Node, settings: Settings | None = None, admission: Admission | None = None) -> None:
        self.node = node
        self.http: list[HttpReplies] = []
        self.edge = admission or Admission()
        self.context = Context(node.broker, settings or Settings())
        self.reactor = Reactor(node.broker, lambda: (node.now, 1), self._serve_http, lambda changes: None, self.edge)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setblocking(False)
        self.reactor.listen(self.listener, partial(Peer, self.context))
        self.clients: list[socket.socket] = []

    def speak(self, make_peer: MakePeer, bounds: OutputBounds | None = None) -> None:
        """Speak another protocol at the listener."""
        endpoints, fd = self.reactor._endpoints, self.listener.fileno()
        endpoints[fd] = replace(endpoints[fd], make_peer=make_peer, bounds=bounds or OutputBounds())

    def _serve_http(self) -> HttpReplies:
        return self.http.pop() if self.http else HttpReplies(lambda: None, lambda: None)

    def turn(self, times: int = 6) -> None:
        patience = self.patience
        for _ in range(times):
            events = self.reactor._epoll.poll(patience)
            self.reactor.turn(events)
            patience = self.patience if events else 0  # after one idle turn nothing is on its way

    def connect(self, hello: bytes = b"  V2") -> socket.socket:
        client = socket.create_connection(self.listener.getsockname(), timeout=5)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # no byte waits for an acknowledgement
        self.clients.append(client)
        client.sendall(hello)
        self.turn()
        return client

    def advance(self, ns: int) -> None:
        self.node.now += ns
        self.turn()

    def close(self) -> None:
        self.reactor.close_all()
        self.listener.close()
        for client in self.clients:
            client.close()


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench(Node())
    yield bench
    bench.node.broker.check()
    bench.close()


def frames(client: socket.socket) -> list[bytes]:
    client.setblocking(False)
    data = b""
    try:
        while part := client.recv(1 << 20):
            data += part
    except BlockingIOError:
        pass
    found, at = [], 0
    while at < len(data):
        (size,) = struct.unpack_from(">i", data, at)
        found.append(data[at + 8 : at + 4 + size])
        at += 4 + size
    return found


def test_publish_and_consume(bench: Bench) -> None:
    consumer = bench.connect(b"  V2SUB t c\nRDY 5\n")
    producer = bench.connect(b"  V2PUB t\n" + body(b"1") + mpub(b"t", b"2", b"3"))
    assert frames(producer) == [b"OK", b"OK"]
    bench.advance(SECOND)  # the output buffer's time
    got = frames(consumer)
    assert [frame[26:] for frame in got] == [b"", b"1", b"2", b"3"]  # the OK of SUB first
    consumer.sendall(b"".join(b"FIN %s\n" % frame[10:26] for frame in got[1:]))
    bench.turn()
    assert bench.node.held() == 0


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
    assert bench.reactor.connections == {}
    assert frames(client) == [b"E_INVALID invalid command BAD"]


def test_half_close_ends_the_connection_after_its_replies(bench: Bench) -> None:
    client = bench.connect(b"  V2PUB t\n" + body(b"1"))
    client.sendall(b"PUB t\n\0\0")
    client.shutdown(socket.SHUT_WR)
    bench.turn()
    assert frames(client) == [b"OK", b"E_BAD_MESSAGE PUB failed to read message body size"]
    assert bench.reactor.connections == {}


def test_a_reset_unsubscribes(bench: Bench) -> None:
    client = bench.connect(b"  V2SUB t c\nRDY 5\n")
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    bench.turn()
    assert bench.node.channel("t", "c").consumers == {}


def test_a_client_that_reads_no_replies_is_not_read_from(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, log.name)  # a line for each FIN takes longer than all else
    bounds = OutputBounds(unsent=256 * 1024)
    bench.speak(partial(Peer, bench.context), bounds)
    bench.listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)  # else the kernel takes megabytes
    client = bench.connect(b"  V2SUB t c\n")
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    client.setblocking(False)
    (connection,) = bench.reactor.connections.values()
    fins = b"FIN 0123456789abcdef\n" * 10_000
    for _ in range(1000):
        try:
            client.send(fins)
        except BlockingIOError:
            pass
        bench.turn(1)
        if not connection.reading and connection.backlog >= bounds.unsent:
            break
    bench.turn(5)
    assert bounds.unsent <= connection.backlog < 2 * bounds.unsent + 2_000_000
    assert not connection.reading
    bench.advance(31 * SECOND)  # the write deadline: one heartbeat interval
    bench.advance(31 * SECOND)
    assert bench.reactor.connections == {}


def test_a_consumer_that_does_not_read_does_not_stop_another(bench: Bench) -> None:
    stuck = bench.connect(b"  V2SUB t c\nRDY 2500\n")
    stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    bench.node.broker.topic("t").publish([b"x" * 10_000] * 3000, 30_000_000)
    bench.turn(40)
    healthy = bench.connect(b"  V2SUB t c\nRDY 100\n")
    bench.turn(20)
    assert len(frames(healthy)) == 101
    (first, _) = bench.reactor.connections.values()
    assert first.backlog <= 300_000


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
    assert frames(client) == [b"OK"]
    assert frames(late) == []
    bench.advance(ACCEPT_PAUSE)
    bench.turn()
    assert frames(late) == [b"OK"]


def test_heartbeat_and_read_deadline(bench: Bench) -> None:
    client = bench.connect(b"  V2IDENTIFY\n" + body(b'{"heartbeat_interval":1000}'))
    bench.advance(SECOND)
    assert frames(client) == [b"OK", b"_heartbeat_"]
    bench.advance(SECOND)
    bench.advance(DRAIN_TIME)
    assert bench.reactor.connections == {}


def test_no_reply_leaves_before_its_commit_is_durable() -> None:
    bench = Bench(Node(store=SlowStore))
    store = bench.node.store
    client = bench.connect(b"  V2PUB t\n" + body(b"x"))
    other = bench.connect(b"  V2NOP\nBAD\n")
    delivered: list[int] = []
    bench.http.append(HttpReplies(lambda: delivered.append(1), lambda: delivered.append(-1)))
    bench.node.broker.topic("t").publish([b"y"], 1)
    bench.reactor.wake()
    bench.turn()
    assert (frames(client), frames(other), delivered) == ([], [b"E_INVALID invalid command BAD"], [])
    client.sendall(b"BAD\n")  # a later reply does not overtake
    bench.turn()
    assert frames(client) == []
    store.sync()
    bench.turn()
    assert (frames(client), delivered) == ([b"OK", b"E_INVALID invalid command BAD"], [1])
    bench.close()


def test_a_reply_waits_for_its_own_commit_and_not_for_later_ones() -> None:
    """Durable is always one group behind, and every client publishes again as soon as it is answered."""
    bench = Bench(Node(store=SlowStore))
    store = bench.node.store
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
    bench.close()


def test_nobody_waits_for_what_will_never_be_durable() -> None:
    """After a failed sync: what was durable is answered, the rest is refused or hung up on, at once."""
    bench = Bench(Node(store=SlowStore))
    store = bench.node.store
    told: list[str] = []
    bench.http.append(HttpReplies(lambda: told.append("early: done"), lambda: told.append("early: refused")))
    bench.node.broker.topic("t").publish([b"x"], 1)
    bench.reactor.wake()
    bench.turn()
    store.sync()
    client = bench.connect(b"  V2PUB t\n" + body(b"y"))
    idle = bench.connect(b"  V2NOP\n")
    store.sync()
    bench.turn()
    assert frames(client) == [b"OK"]
    client.sendall(b"PUB t\n" + body(b"z"))
    bench.http.append(HttpReplies(lambda: told.append("late: done"), lambda: told.append("late: refused")))
    bench.node.broker.topic("t").publish([b"x"], 1)
    bench.reactor.wake()
    bench.turn()
    assert told == ["early: done"]
    store.durable.broken = True
    bench.reactor.wake()
    bench.turn()
    assert told == ["early: done", "late: refused"]
    client.setblocking(True)
    assert client.recv(1) == b""
    assert len(bench.reactor.connections) == 1
    idle.sendall(b"BAD\n")
    bench.turn()
    assert frames(idle) == [b"E_INVALID invalid command BAD"]
    bench.close()


async def test_run_serves_while_trio_does_other_things(bench: Bench) -> None:
    """Real time, but nothing is waited for by the clock: the client's answer ends the test."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.reactor.run)
        stream = await trio.open_tcp_stream(*bench.listener.getsockname())
        await stream.send_all(b"  V2")
        for _ in range(3):
            await stream.send_all(b"PUB t\n" + body(b"x"))
            assert (await stream.receive_some(100))[8:] == b"OK"
        await stream.aclose()
        nursery.cancel_scope.cancel()


class NotedReader(MemoryReader):
    __slots__ = ("_notes",)

    def __init__(self, sequence: Sequence, notes: list[str]) -> None:
        super().__init__(sequence)
        self._notes = notes

    def advance(self, cursor: int) -> None:
        self._notes.append("advance")

    def requeue(self, ordinal: int, attempts: int, failures: int, due: int) -> None:
        self._notes.append(f"attempt {attempts}")


class NotedTopic(MemoryTopic):
    __slots__ = ("_notes",)

    def __init__(self, notes: list[str]) -> None:
        super().__init__(Sequence())
        self._notes = notes

    def publish(self, *arguments: Any, **more: Any) -> None:
        self._notes.append("publish")
        super().publish(*arguments, **more)

    def reader(self, number: int, name: str, kind: int, start: int) -> NotedReader:
        return NotedReader(self.sequence, self._notes)


class Noted(MemoryStore):
    """It notes what a group holds, in order, and what is there when the group is closed."""

    def __init__(self) -> None:
        super().__init__(lambda ceiling: True)
        self.notes: list[str] = []

    def topic(self, number: int, name: str) -> NotedTopic:
        return NotedTopic(self.notes)

    def commit(self) -> tuple[Promise, ...]:
        self.notes.append("commit")
        return super().commit()


def test_what_a_turn_delivers_is_in_its_group_and_a_quiet_turn_writes_one_group() -> None:
    bench = Bench(Node(store=Noted), Settings(msg_timeout=5 * SECOND))
    store = bench.node.store
    consumer = bench.connect(b"  V2SUB t c\nRDY 1\n")
    producer = bench.connect()
    store.notes.clear()
    producer.sendall(b"PUB t\n" + body(b"1"))
    bench.turn(1)
    assert store.notes == ["publish", "advance", "commit"]
    (_, message) = frames(consumer)
    assert frames(producer) == [b"OK"]
    store.notes.clear()
    consumer.sendall(b"REQ %s 0\n" % message[10:26])
    bench.turn(1)
    assert store.notes == ["attempt 1", "attempt 2", "commit"]
    assert [frame[8:10] for frame in frames(consumer)] == [b"\0\2"]
    store.notes.clear()
    bench.node.now += 5 * SECOND  # it times out, and is delivered again in the same turn
    bench.turn(1)
    assert store.notes == ["attempt 2", "attempt 3", "commit"]
    bench.close()


def test_what_a_connection_is_told_comes_in_the_order_in_which_it_was_said(bench: Bench) -> None:
    producer = bench.connect()
    producer.sendall(b"PUB t\n" + body(b"1"))
    bench.turn()
    consumer = bench.connect(b"  V2SUB t c\nRDY 1\n")
    assert [frame[26:] for frame in frames(consumer)] == [b"", b"1"]  # SUB's OK first


class LateSocket:
    """A socket whose process is stopped for half a second before it is read: what comes was sent meanwhile."""

    def __init__(self, sock: socket.socket, node: Node) -> None:
        self._socket = sock
        self._node = node

    def recv(self, size: int) -> bytes:
        self._node.now += SECOND // 2
        return self._socket.recv(size)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)


def test_a_delay_counts_from_when_the_bytes_had_come(bench: Bench) -> None:
    producer = bench.connect(b"  V2SUB t c\n")
    (connection,) = bench.reactor.connections.values()
    connection.socket = cast(Any, LateSocket(connection.socket, bench.node))
    producer.sendall(b"DPUB t 1000\n" + body(b"later"))
    bench.turn(1)
    assert bench.node.channel("t", "c").offsets.lane.waiting.wake_at() == bench.node.now + SECOND


def test_so_does_one_of_a_call_over_http(bench: Bench) -> None:
    producer = bench.connect(b"  V2SUB t c\n")
    (connection,) = bench.reactor.connections.values()
    connection.socket = cast(Any, LateSocket(connection.socket, bench.node))
    seen: list[int] = []
    bench.reactor._answer_http_requests = lambda: (
        seen.append(bench.node.broker.now) or HttpReplies(lambda: None, lambda: None)
    )
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
