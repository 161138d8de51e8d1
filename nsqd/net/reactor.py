"""The turn (ARCHITECTURE.md section 3): one trio task, one epoll, every plain TCP connection of the node.

A pass reads what is readable, lets each peer handle all its complete commands, serves every consumer that became ready,
does what is due, writes one group, and then sends: deliveries at once, replies that promise when their group is durable.
No message leaves before the group that records its delivery is written, so a kill forgets no attempt. Measured in the
prototype: a trio task per connection costs 1.5 times as much at 50 connections and 2.7 times at 500.
"""

import select
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NoReturn

import trio

from nsqd.core.broker import Broker
from nsqd.core.sequence.mark import Promise
from nsqd.core.timing.duequeue import DueQueue
from nsqd.net.acceptor import Acceptor, ConnectionLimits, Visitor
from nsqd.net.connection import DRAIN_TIME, Connection
from nsqd.net.conversation import Conversation
from nsqd.net.inflow import Inflow
from nsqd.net.layers import Broken, Layers, Wrap
from nsqd.net.promised import Promised, Served
from nsqd.net.system import System
from nsqd.protocols.nsq.authorization import Authorization, AuthRefused, Question
from nsqd.protocols.nsq.peer import Peer
from nsqd.protocols.nsq.settings import Settings
from shared.budget import FREE, Budget
from shared.log import log
from shared.tls import TlsObject

READ_SIZE = 256 * 1024  # bytes: one recv_into a shared buffer, per connection and turn
SCARCE_READ_SIZE = 32 * 1024  # bytes, likewise, while somebody waits for room in the budget
MAX_EVENTS = 512  # connections served in a turn
MAX_RECEIVED = 1024 * 1024  # bytes: what is received beyond that in a turn waits until the peers have had it
CATCH_UP = 5_000_000  # ns of a turn for handshakes, and for input that is left from earlier turns
BACK_TO_TRIO = 2_000_000  # ns of turns in a row before HTTP, discovery and signals get their share
LINGER = 0.002  # s to wait in epoll before the wait goes through trio, which costs 40 us more a wake-up

Meet = Callable[[Connection, Visitor, int, int], Conversation]  # connection, who it is, now, wall: the peer to be
Ask = Callable[[Question, Callable[[Authorization | AuthRefused], None]], None]
UntilRegistered = Callable[[str, Callable[[], None]], None]  # topic, what to call


def _no_tls(*_: object) -> NoReturn:
    raise AssertionError("TLS was granted without a certificate")


def _nobody_to_ask(*_: object) -> NoReturn:
    raise AssertionError("AUTH was required without servers to ask")


def _no_lookupd(*_: object) -> NoReturn:
    raise AssertionError("a topic is registered without an nsqlookupd")


@dataclass(slots=True)
class Edge:
    """What a connection meets before it meets the broker."""

    limits: ConnectionLimits = field(default_factory=ConnectionLimits)
    wrap: Wrap = _no_tls  # the server's side of a TLS connection
    ask: Ask = _nobody_to_ask  # the authorization servers; the answer comes in the trio thread, between turns
    until_registered: UntilRegistered = _no_lookupd  # calls back between turns
    refused: Counter[str] = field(default_factory=Counter)  # what was not let in, or thrown out, by reason
    budget: Budget = field(default_factory=Budget)  # of half-received commands and unsent output


class Reactor:
    """See above. `clock` gives (monotonic ns, wall ns); `serve_http` runs what the HTTP thread asked for in this turn."""

    def __init__(
        self,
        broker: Broker,
        settings: Settings,
        clock: Callable[[], tuple[int, int]],
        serve_http: Callable[[], Served],
        after_turn: Callable[[], None],
        edge: Edge | None = None,
        system: System | None = None,
    ) -> None:
        system = system or System()
        self._broker = broker
        self._settings = settings
        self._clock = clock
        self._serve_http = serve_http
        self._after_turn = after_turn
        self._epoll = system.poller()
        self._wake_read, self._wake_write = system.pair()
        self._buffer = bytearray(READ_SIZE)
        self._view = memoryview(self._buffer)
        self._into = self._view  # where input is received: the buffer, or a part of it while memory is scarce
        self._edge = edge or Edge()
        self.budget = self._edge.budget
        self._inflow = Inflow()
        self._acceptor = Acceptor(self._epoll, self._edge.limits, self._edge.refused)
        self._meet: dict[int, Meet] = {}  # by the listener's file descriptor
        # what came in this turn and no peer has had: b"" is the end of input, None a reset
        self._received: list[tuple[Connection, bytes | None]] = []
        self._received_size = 0  # bytes of it
        self._unread: dict[Connection, None] = {}  # connections with input that needs no network any more
        # came since the last turn; None: what Transport.await_registration waited for
        self._answers: list[tuple[Connection, Authorization | AuthRefused | None]] = []
        self._awaited = 0  # calls of until_registered whose time is not over
        self._promised = Promised()  # what waits for the log
        self.connections: dict[int, Connection] = {}  # by file descriptor
        self.unflushed: dict[Connection, None] = {}  # connections with output for the end of this turn
        self.timers: DueQueue[Connection] = DueQueue()
        self.now, self.wall = clock()
        self.turns = 0
        for end in (self._wake_read, self._wake_write):
            end.setblocking(False)
        self._epoll.register(self._wake_read.fileno(), select.EPOLLIN)

    def listen(self, sock: socket.socket, meet: Meet | None = None) -> None:
        """Accept connections of a listening, non-blocking socket. `meet`: how they are met; None: as clients of NSQ."""
        self._acceptor.listen(sock)
        self._meet[sock.fileno()] = meet or self._meet_nsq

    def _meet_nsq(self, connection: Connection, visitor: Visitor, now: int, wall: int) -> Conversation:
        return Peer(self._broker, self._settings, connection, visitor.ip, visitor.port, now, wall)

    def wake(self) -> None:
        """Make the next turn happen now. From any thread."""
        try:
            self._wake_write.send(b"\0")
        except OSError:
            pass  # it is full of wake-ups already, or the daemon has stopped turning

    async def run(self) -> None:
        """Turn for ever. Cancel to stop; then `close`."""
        since_trio, _ = self._clock()
        while True:
            due = self._due()
            events = self._epoll.poll(self._linger(due), MAX_EVENTS)
            if not events and (due is None or due > self._clock()[0]):
                await self._wait(due)
                since_trio, _ = self._clock()
                events = self._epoll.poll(0, MAX_EVENTS)
            self.turn(events)
            if self.now - since_trio > BACK_TO_TRIO:
                await trio.lowlevel.checkpoint()
                since_trio = self.now

    def turn(self, events: list[tuple[int, int]]) -> None:
        """One pass."""
        self.turns += 1
        doors: list[int] = []
        woken = False
        for fd, event in events:
            connection = self.connections.get(fd)
            if connection is not None:
                if event & select.EPOLLOUT:
                    self.unflushed[connection] = None
                if event & ~select.EPOLLOUT:
                    self._receive(connection)
            elif fd in self._acceptor:
                doors.append(fd)
            elif fd == self._wake_read.fileno():
                woken = True
        self._handle()
        for fd in doors:
            for visitor in self._acceptor.accept(fd, self.now):
                self._add(visitor, self._meet[fd])
        served = self._answer_http() if woken else None
        if self._unread or self._answers:
            self._catch_up()
        self._broker.seal()
        self._broker.serve()
        self._broker.tick()
        self._tick()
        self._broker.serve()
        self._commit(served)
        self._flush()
        self._after_turn()

    # waiting

    def _due(self) -> int | None:
        """When the next turn is due without any event."""
        if self._broker.agenda.awake or self.unflushed or self._unread or self._answers:
            return self.now
        dues = (
            self._broker.scan.next_turn(),
            self.timers.next_due(),
            self._acceptor.again or None,
            self._inflow.retry_at,
        )
        return min((due for due in dues if due is not None), default=None)

    def _linger(self, due: int | None) -> float:
        if self._awaited:  # the tasks that talk to nsqlookupd need this thread
            return 0.0
        return LINGER if due is None else min(LINGER, max(0.0, (due - self.now) / 1e9))

    async def _wait(self, due: int | None) -> None:
        seconds = inf if due is None else max(0.0, (due - self._clock()[0]) / 1e9)
        with trio.move_on_after(seconds):
            await trio.lowlevel.wait_readable(self._epoll.fileno())

    # connections

    def _add(self, visitor: Visitor, meet: Meet) -> None:
        visitor.socket.setblocking(False)
        if visitor.ip:
            visitor.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = Connection(self, visitor.socket, visitor.ip)
        connection.peer = meet(connection, visitor, self.now, self.wall)
        self.connections[connection.fd] = connection
        self._epoll.register(connection.fd, select.EPOLLIN)
        self.set_timer(connection)

    def _begin(self) -> None:
        """Read the clocks and tell the broker: what happens from now on happens at this time."""
        self.now, self.wall = self._clock()
        self._broker.begin(self.now, self.wall)

    def _receive(self, connection: Connection) -> None:
        """Take what the network has; `_handle` gives it to the peer, with a time that is read after it came."""
        try:
            size = connection.socket.recv_into(self._into)
        except BlockingIOError:
            return
        except OSError:  # reset by the peer
            self._received.append((connection, None))
            return
        self._received.append((connection, bytes(self._view[:size])))
        self._received_size += size
        if self._received_size > MAX_RECEIVED:
            self._handle()

    def _handle(self) -> None:
        """Give the peers what came for them since the last call. A delay counts from no earlier than the bytes' arrival."""
        self._begin()
        received, self._received = self._received, []
        self._received_size = 0
        for connection, data in received:
            if data and connection.layers is None and not connection.drain_until:
                connection.peer.receive(data, self.now)
                if connection.peer.has_more:
                    self.unflushed[connection] = None  # `_send` sees to it that the rest is not forgotten
                if connection.keeps_input:
                    self._note_input(connection, len(data))  # also when the half-received command is complete now
            else:
                self._handle_unusual(connection, data)

    def _handle_unusual(self, connection: Connection, data: bytes | None) -> None:
        """The end of input (b""), a reset (None), input behind layers, or input that nobody wants any more."""
        if data is None:
            self.close(connection)
        elif not data:
            connection.eof = True
            connection.peer.receive_eof()
            self.unflushed[connection] = None
        elif connection.drain_until or connection.layers is None:
            pass
        elif connection.layers.handshaking:
            connection.handshake += data
            self._unread[connection] = None  # a thousand handshakes at once shall not be one turn
            self.unflushed[connection] = None  # no more is read meanwhile
        else:
            self._receive_layered(connection, connection.layers, data)

    def _answer_http(self) -> Served:
        """Do what the HTTP thread asked for, at a time that is read after it did."""
        self._wake_read.recv(4096)
        self._begin()
        return self._serve_http()

    def close(self, connection: Connection) -> None:
        """End a connection at once."""
        if self.connections.pop(connection.fd, None) is None:
            return
        self.unflushed.pop(connection, None)
        self._promised.forget(connection)
        self._unread.pop(connection, None)
        self._acceptor.left(connection.peer.remote_ip)
        self._inflow.forget(connection)
        connection.output.hold(0)
        if connection.timer is not None:
            self.timers.remove(connection.timer[1])
        connection.peer.disconnected()
        self._epoll.unregister(connection.fd)
        connection.socket.close()
        connection.layers = None
        del connection.peer  # they hold each other, and the daemon never collects old garbage

    # layers and authorization

    def _receive_layered(self, connection: Connection, layers: Layers, data: bytes) -> None:
        try:
            layers.receive(data, connection.peer)
        except Broken as failure:
            self._break_off(connection, failure)
        self._feed(connection)

    def _feed(self, connection: Connection) -> None:
        """One portion of what waits in the peer, or behind its layers; `_send` sees to it that the rest is not forgotten."""
        self.unflushed[connection] = None
        peer, layers = connection.peer, connection.layers
        if connection.has_unread:
            try:
                if layers is not None and connection.handshake:
                    handshake, connection.handshake = connection.handshake, b""
                    layers.receive(handshake, peer)
                data = b"" if peer.has_more or layers is None or not layers.has_more else layers.read()
            except Broken as failure:
                self._break_off(connection, failure)
                return
            if data or peer.has_more:
                peer.receive(data, self.now)
                if connection.keeps_input:
                    self._note_input(connection, len(data))
        if layers is not None and layers.ended and not (connection.has_more or connection.eof or peer.waiting):
            connection.eof = True
            peer.receive_eof()

    def _break_off(self, connection: Connection, failure: Broken) -> None:
        self._edge.refused["tls_or_compression"] += 1
        why = str(failure)  # whoever keeps the record must not keep the connection, which the failure's traceback holds
        log.info("CLIENT(%s:%s): %s", connection.peer.remote_ip, connection.peer.port, why)
        connection.peer.break_off()

    def _note_input(self, connection: Connection, size: int) -> None:
        """The peer keeps some of its input, or kept some before: see Inflow."""
        if not self._inflow.note(connection, self.now, size):
            self._into = self._view[:SCARCE_READ_SIZE]
            self.unflushed[connection] = None  # `_send` sees to it that no more is read
        self.set_timer(connection)

    def _admit_waiting(self) -> None:
        """Read again from those for whom there is room in the budget now."""
        for connection in self._inflow.retry(self.now):
            self.unflushed[connection] = None  # `_send` sees to it that it is read
            self.set_timer(connection)
        if self._inflow.retry_at is None:
            self._into = self._view

    def wrap(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO) -> TlsObject:
        """A new TLS connection's server side."""
        return self._edge.wrap(incoming, outgoing)

    def authorize(self, connection: Connection, question: Question) -> None:
        """Have the authorization servers asked; the answer comes with a later turn."""

        def answered(answer: Authorization | AuthRefused) -> None:
            self._answers.append((connection, answer))
            self.wake()

        self._edge.ask(question, answered)

    def await_registration(self, connection: Connection, topic: str) -> None:
        """Resume the peer with a later turn."""

        def known() -> None:
            self._answers.append((connection, None))
            self.wake()

        self.until_registered(topic, known)

    def until_registered(self, topic: str, then: Callable[[], None]) -> None:
        """Call `then` between turns, when nsqlookupd knows the topic or a bounded time is over."""
        self._awaited += 1

        def over() -> None:
            self._awaited -= 1
            then()

        self._edge.until_registered(topic, over)

    def _catch_up(self) -> None:
        """Give peers what waited for this turn: answers of the authorization servers, input behind layers."""
        answers, self._answers = self._answers, []
        for connection, answer in answers:
            if self.connections.get(connection.fd) is connection and not connection.peer.closing:
                if answer is None:
                    connection.peer.resume(self.now)
                else:
                    connection.peer.authorized(answer, self.now)
                if connection.keeps_input:
                    self._note_input(connection, connection.peer.buffered)
                self.unflushed[connection] = None
                if connection.layers is not None:
                    self._unread[connection] = None  # the client's goodbye waited too
        until = self._clock()[0] + CATCH_UP
        for connection in list(self._unread):  # the one that waits longest first; `_send` puts it behind the others
            del self._unread[connection]
            self._feed(connection)
            if self._clock()[0] > until:
                break

    # output

    def _commit(self, served: Served | None) -> None:
        """Close the turn's group. Replies that tell of it wait for their marks, but not for later groups.

        The HTTP replies of a turn leave together: they wait for what any of them, or any connection, waits for.
        """
        promises = self._broker.commit()
        if self._promised.marks:
            self._release()
        if promises:
            self._seal(promises)
            if served is not None:
                self._promised.add_served(served, promises)
        elif served is not None:
            served.deliver()

    def _seal(self, promises: Sequence[Promise]) -> None:
        """Hold back what the connections have said in this turn, where it waits for a mark of these promises."""
        for connection in self.unflushed:
            marks = connection.peer.outbox.marks
            if marks:
                own = [promise for promise in promises if promise.mark in marks]
                if own:
                    connection.seal(own)
                    self._promised.add(connection, own)

    def _release(self) -> None:
        """Send what waited for the log, as far as the log has come to it."""
        for connection in self._promised.release():
            if connection.waits_in_vain:  # better no answer than one that never comes
                self.close(connection)
            else:
                self.unflushed[connection] = None

    def _flush(self) -> None:
        """Send the output of all connections that have some."""
        if not self.unflushed:
            return
        unflushed, self.unflushed = self.unflushed, {}
        for connection in unflushed:
            if self.connections.get(connection.fd) is connection:  # else it was closed meanwhile
                self._send(connection)

    def _send(self, connection: Connection) -> None:
        if not connection.send(self.now):
            self.close(connection)
            return
        if connection.input.held and not connection.peer.buffered:  # an answer of the disk let its command complete
            self._note_input(connection, 0)
        if connection.is_plain:
            return
        if connection.has_unread:
            self._unread[connection] = None
        closing = connection.peer.closing
        if connection.sealed:
            self._promised.add(connection, connection.sealed[0][0])
        backlog = connection.backlog
        waiting = backlog > 0
        if backlog > FREE or connection.output.held:
            connection.output.charge(backlog)
        if closing and not waiting and not connection.sealed:
            if connection.eof:
                self.close(connection)
                return
            if not connection.drain_until:
                self._drain(connection)
        if connection.writing != waiting or connection.reading != connection.wants_input:
            self._set_interest(connection, waiting)

    def _set_interest(self, connection: Connection, writing: bool) -> None:
        connection.writing = writing
        connection.reading = connection.wants_input
        events = (select.EPOLLOUT if connection.writing else 0) | (select.EPOLLIN if connection.reading else 0)
        self._epoll.modify(connection.fd, events)
        if connection.writing:
            self.set_timer(connection)

    def _drain(self, connection: Connection) -> None:
        """All was said: tell the peer so, and read until it has closed too, for a second at the most."""
        connection.drain_until = self.now + DRAIN_TIME
        connection.peer.disconnected()
        self._inflow.forget(connection)
        connection.say_goodbye()
        self.set_timer(connection)

    # timers

    def set_timer(self, connection: Connection) -> None:
        """See to it that `_tick` looks at the connection when its next timer is due."""
        due = connection.drain_until or min(connection.peer.next_timer(), connection.body_due)
        deadline = connection.write_deadline()
        if deadline is not None:
            due = min(due, deadline)
        if connection.timer is not None:
            if connection.timer[0] <= due:
                return  # it looks earlier anyway, and sets the timer anew
            self.timers.remove(connection.timer[1])
        connection.timer = (due, self.timers.push(due, connection))

    def _tick(self) -> None:
        self._acceptor.resume(self.now)
        if self._inflow.retry_at is not None and self.now >= self._inflow.retry_at:
            self._admit_waiting()
        for connection in self.timers.pop_due(self.now, MAX_EVENTS):
            connection.timer = None
            deadline = connection.write_deadline()
            if (connection.drain_until and self.now >= connection.drain_until) or (
                deadline is not None and self.now >= deadline
            ):
                self.close(connection)
                continue
            if self.now >= connection.body_due:
                self._edge.refused["body_timeout"] += 1
                self.close(connection)
                continue
            if not connection.drain_until:
                connection.peer.tick(self.now)
            self.set_timer(connection)

    def close_all(self) -> None:
        """Stop: close every connection, and the epoll."""
        for connection in list(self.connections.values()):
            self.close(connection)
        self._epoll.close()
        self._wake_read.close()
        self._wake_write.close()
