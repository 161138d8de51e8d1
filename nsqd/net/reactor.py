"""The turn: one trio task and one epoll serve every TCP connection of the node, whatever protocol it speaks.

A turn reads all input, lets each peer handle its complete commands, serves every consumer that became ready, runs the
timers, writes one group to the log, and then sends. Deliveries leave at once. Replies about records leave when the log's
marks (written, durable) have reached those records. No message leaves before the group that records its delivery is written,
so a kill forgets no attempt. In the prototype, a trio task per connection cost 1.5 times as much at 50 connections and 2.7
times as much at 500.
"""

import errno
import select
import socket
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from time import monotonic_ns
from typing import Protocol

import trio

from nsqd.core.broker import Broker
from nsqd.core.registry import Change
from nsqd.core.sequence.mark import Mark, Promise, of_all
from nsqd.net.acceptor import Accepted, Acceptor
from nsqd.net.admission import Admission
from nsqd.net.connection import Connection
from nsqd.net.endpoint import Adopt, Endpoint, MakePeer, OutputBounds
from nsqd.net.inflow import Inflow
from nsqd.net.layers import Wrap
from nsqd.net.promised import HttpReplies, Promised
from nsqd.net.system import System, WakeUp
from nsqd.net.timers import MOST_DUE, Timers
from nsqd.net.unread import CATCH_UP, Unread
from nsqd.net.upkeep import ConnectionUpkeep
from nsqd.protocols.transport import NEVER, Begin
from shared.connection_limiter import ConnectionLimiter
from shared.histogram import Samples

READ_SIZE = 256 * 1024  # bytes that are received from a connection in a turn, about
# bytes of a connection's first read in a turn: malloc gives up to 128 KiB without a system call
FIRST_READ_SIZE = 64 * 1024
SCARCE_READ_SIZE = 32 * 1024  # bytes that are received in a turn while a connection waits for room in the budget
MAX_EVENTS = 512  # connections served in a turn
# bytes: input beyond that waits in a turn until the peers have handled what was received before
MAX_RECEIVED = 1024 * 1024
BACK_TO_TRIO = 10_000_000  # ns of turns in a row before discovery, timers and signals get their share
LOOK_EVERY = 8  # connections whose input is handled between two looks at the clock; a power of 2
LARGE = 4 * 1024  # bytes of input that may take long
DUE_AT_ONCE = 8  # timers between two looks at the clock
LINGER = 0.002  # s to wait in epoll before the wait goes through trio, which costs 40 us more a wake-up

Clock = Callable[[], tuple[int, int]]  # monotonic ns, and ns since the epoch


class ClusterTurn(Protocol):
    """The work of a node of a cluster for the others, in each turn."""

    def turn(self) -> None:
        """Do what is due, before what was published is sealed."""

    def replies(self) -> HttpReplies | None:
        """Return the replies that leave when the promises of the turn are kept, or None. The turn's group is written."""


class Reactor:
    """The loop that serves all connections, as the module describes. Implements ConnectionOwner."""

    def __init__(
        self,
        broker: Broker,
        clock: Clock,
        answer_http_requests: Callable[[], HttpReplies],
        report_changes: Callable[[list[Change]], None],
        admission: Admission | None = None,
        system: System | None = None,
    ) -> None:
        """Set up the epoll, the parts of a turn and the wake-up socket.

        `answer_http_requests` executes the requests of the HTTP thread. `report_changes` is called after a turn with changes of
        the topology.
        """
        system, admission = system or System(), admission or Admission()
        self._broker = broker
        self._agenda, self._scan, self._registry = broker.agenda, broker.scan, broker.registry
        self.clock = clock
        self._answer_http_requests = answer_http_requests
        self._report_changes = report_changes
        self._epoll = system.poller()
        self._wake_up = WakeUp(self._epoll, system.pair)
        self.wake = self._wake_up.wake  # makes the next turn happen now; from any thread
        self._buffer = memoryview(bytearray(READ_SIZE - FIRST_READ_SIZE))  # where large input is received
        self.budget = admission.budget
        self.wrap = admission.wrap
        self._inflow = Inflow(self)
        self._acceptor = Acceptor(self._epoll, system.leave_spare)
        # of all listeners that bring none of their own
        self._limiter = ConnectionLimiter("TCP", admission.limits, admission.refused)
        self._endpoints: dict[int, Endpoint] = {}  # by the listener's file descriptor
        # Input of this turn that was not given to a peer yet: b"" is the end of input, None a reset.
        self._received: list[tuple[Connection, bytes | None]] = []
        self._received_size = 0  # bytes in `_received`
        self._unread = Unread(self, self._inflow, clock, admission.refused)
        self._outside = 0  # calls of `until_over` that have not ended
        self._promised = Promised()  # output and HTTP replies that wait for the log
        self._watched: list[tuple[tuple[Mark, ...], HttpReplies]] = []  # see `when_sent`
        self._upkeep = ConnectionUpkeep(self, self._epoll, self._inflow, self._unread, admission.refused)
        self._displaced: deque[Connection] = deque()  # connections that another one needs the place of
        self.connections: dict[int, Connection] = {}  # by file descriptor
        self.unflushed: dict[Connection, None] = {}  # those with output, or with something to check when the turn ends
        self.timers = Timers()
        self.set_timer = self.timers.set
        self.now, self.wall = clock()
        # ns from the return of epoll until everything is sent: a client waits at most as long for another one
        self.turn_times = Samples()
        self.others: ClusterTurn | None = None  # None: there are none
        self._is_halted = False

    def listen(
        self,
        sock: socket.socket,
        make_peer: MakePeer,
        limiter: ConnectionLimiter | None = None,
        adopt: Adopt | None = None,
        bounds: OutputBounds | None = None,
        wrap: Wrap | None = None,
        proof_timeout: int = 0,
    ) -> None:
        """Accept connections of a listening, non-blocking socket, and make their peers with `make_peer`.

        `limiter` counts them instead of the limits that all other listeners share; `adopt` takes those that are handed over;
        `wrap` makes their TLS instead of the node's own. `proof_timeout`: see Endpoint.
        """
        endpoint = self._endpoints[sock.fileno()] = Endpoint(
            make_peer, limiter or self._limiter, adopt, bounds or OutputBounds(), proof_timeout, wrap
        )
        self._acceptor.listen(sock, endpoint.limiter)

    def adopt(self, sock: socket.socket, endpoint: Endpoint) -> None:
        """Serve and count a connection that this process has made. Raises OSError, and closes it, if that fails."""
        try:
            ip, port = sock.getpeername()[:2]
            if not endpoint.limiter.admits(ip, self.now):
                raise OSError(errno.EMFILE, "too many connections")
        except OSError:
            sock.close()
            raise
        self._add(Accepted(sock, ip, str(port)), endpoint)

    def stop_listening(self, sock: socket.socket) -> None:
        """Accept the connections that wait at a listener, which the kernel would reset otherwise, and close it."""
        endpoint = self._endpoints.get(sock.fileno())
        if endpoint is None:
            return
        self._begin()
        for accepted in self._acceptor.stop(sock.fileno(), self.now):
            self._add(accepted, endpoint)
        del self._endpoints[sock.fileno()]
        sock.close()

    def halt(self) -> None:
        """Send nothing more, not even in this turn, and make this turn the last one. The caller then calls `close_all`."""
        self._is_halted = True

    async def run(self) -> None:
        """Run turns until cancelled, or halted. The caller then calls `close_all`."""
        since_trio, _ = self.clock()
        while not self._is_halted:
            events = self._epoll.poll(self._linger(), MAX_EVENTS)
            if not events:
                due = self._due()
                if due is None or due > self.clock()[0]:
                    await self._wait(due)
                    since_trio, _ = self.clock()
                    events = self._epoll.poll(0, MAX_EVENTS)
            self.turn(events)
            if self._outside or self.now - since_trio > BACK_TO_TRIO:
                await trio.lowlevel.checkpoint()
                since_trio = self.now
                self.turn_times.settle()

    def turn(self, events: list[tuple[int, int]]) -> None:
        """Run one pass: handle the events of epoll, serve, commit, and send."""
        began, agenda = monotonic_ns(), self._agenda
        served = self._take_events(events)
        while self._displaced:
            self.close(self._displaced.popleft())
        if self._unread.connections or self._unread.resumed:
            self._unread.catch_up(self.now)
        if self.others is not None:
            self.others.turn()
        if agenda.unsealed or agenda.unsealed_puts:
            agenda.seal()
        if agenda.awake:
            agenda.serve()
        if self.now >= agenda.scan_at:
            self._scan.turn(self.now)
        self._tick()
        if agenda.awake:
            agenda.serve()
        self._commit(served)
        if self.unflushed and not self._is_halted:
            self._flush()
        if self._registry.changes:
            self._report_changes(self._registry.fetch_changes())
        self.turn_times.note(monotonic_ns() - began)

    # waiting

    def _due(self) -> int | None:
        """Return the time (monotonic ns) of the next turn without an event, or None if only an event can cause one."""
        scan = self._scan.next_turn()
        due = self._due_with(NEVER if scan is None else scan)
        return None if due == NEVER else due

    def _due_with(self, scan_at: int) -> int:
        """Return the time of the next turn without an event, or NEVER, if the scan has something to do at `scan_at`."""
        if self._agenda.awake or self.unflushed or self._unread.connections or self._unread.resumed:
            return self.now
        return min(self.timers.due, self._acceptor.again, self._inflow.retry_at, scan_at)

    def _linger(self) -> float:
        """Return for how long to wait in epoll (s): until the next turn is due, at most for LINGER."""
        if self._outside:  # the tasks that talk to other servers need this thread
            return 0.0
        if self._due_with(self._agenda.scan_at) - self.now >= LINGER * 1e9:  # it is due then, or later
            return LINGER
        return min(LINGER, max(0.0, ((self._due() or NEVER) - self.now) / 1e9))

    async def _wait(self, due: int | None) -> None:
        seconds = inf if due is None else max(0.0, (due - self.clock()[0]) / 1e9)
        with trio.move_on_after(seconds):
            await trio.lowlevel.wait_readable(self._epoll.fileno())

    def until_over(self, begin: Begin, then: Callable[[], None]) -> None:
        """Begin something that other trio tasks do, and call `then` when it is over. Until then they get this thread often."""
        self._outside += 1

        def over() -> None:
            self._outside -= 1
            then()

        begin(over)

    def suspend(self, connection: Connection, begin: Begin) -> None:
        """Stop reading the connection's input, call `begin`, and resume the peer once the work that it began is over."""
        self.unflushed[connection] = None
        self.until_over(begin, partial(self._resume, connection))

    def _resume(self, connection: Connection) -> None:
        self._unread.resumed.append(connection)
        self.wake()

    # input

    def _take_events(self, events: list[tuple[int, int]]) -> HttpReplies | None:
        """Receive and handle the input of this turn, and accept connections. Returns the replies to the HTTP thread, if any."""
        listeners: list[int] = []
        woken = False
        connections, receive, readable, writable = self.connections, self._receive, select.EPOLLIN, select.EPOLLOUT
        for fd, event in events:
            connection = connections.get(fd)
            if connection is not None:
                if event == readable:  # nearly always
                    receive(connection)
                    continue
                if event & writable:
                    self.unflushed[connection] = None
                if event & ~writable:
                    self._receive_unusual(connection, event)
            elif fd in self._endpoints:
                listeners.append(fd)
            elif fd == self._wake_up.fd:
                woken = True
        self._handle()
        for fd in listeners:
            for accepted in self._acceptor.accept(fd, self.now):
                self._add(accepted, self._endpoints[fd])
        return self._answer_http() if woken else None

    def _begin(self) -> None:
        """Read the clocks for the broker: everything from now on happens at this time."""
        self.now, self.wall = self.clock()
        self._broker.begin(self.now, self.wall)

    def _receive(self, connection: Connection) -> None:
        """Receive input. `_handle` gives it to the peer, with a time that is read after the bytes came.

        Input below FIRST_READ_SIZE is received where it stays: a shared buffer would cost a view and a copy of it.
        """
        data: bytes | None
        try:
            data = connection.socket.recv(FIRST_READ_SIZE if self._inflow.retry_at == NEVER else SCARCE_READ_SIZE)
        except BlockingIOError:
            return
        except OSError:  # reset by the peer
            data = None
        else:
            if len(data) == FIRST_READ_SIZE:
                data = self._receive_more(connection, data)
            self._received_size += len(data)
        self._received.append((connection, data))
        if self._received_size > MAX_RECEIVED:
            self._handle()

    def _receive_unusual(self, connection: Connection, event: int) -> None:
        """Receive input, unless the connection is not to be read and its client is gone."""
        if not connection.is_paused:
            self._receive(connection)
        elif event & (select.EPOLLHUP | select.EPOLLERR):
            self.close(connection)
        elif not connection.eof:
            connection.end_paused()

    def _receive_more(self, connection: Connection, data: bytes) -> bytes:
        """Return `data` and the input after it. A reset or an end is left to the next read."""
        try:
            size = connection.socket.recv_into(self._buffer)
        except OSError:
            return data
        return b"".join((data, self._buffer[:size]))

    def _handle(self) -> None:
        """Give the peers their input since the last call. A delay counts from no earlier than the bytes' arrival.

        If several clients have sent something, input that may take long waits until `Unread.catch_up`, which handles it for a
        limited time, and so does the rest when that time is over: no client waits for the long commands of all others.
        """
        self._begin()
        now, received, self._received = self.now, self._received, []
        self._received_size = 0
        is_alone, until = len(received) == 1, 0
        for number, (connection, data) in enumerate(received):
            if not data or connection.drain_until:
                self._handle_unusual(connection, data)
                continue
            peer = connection.peer
            if not is_alone:
                if number & (LOOK_EVERY - 1) == LOOK_EVERY - 1:
                    until = until or now + CATCH_UP
                    is_late = self.clock()[0] > until
                    if is_late:
                        for late, rest in received[number:]:
                            self._defer(late, rest)
                        return
                if len(data) > LARGE or peer.is_heavy:
                    self._defer(connection, data)
                    continue
            if connection.layers is not None:
                self._handle_unusual(connection, data)
                continue
            peer.receive(data, now)
            if peer.has_more:
                self.unflushed[connection] = None  # Upkeep makes sure that the rest is handled later
            if peer.buffered or connection.metered:  # also when the half-received command has just been completed
                self._inflow.account(connection, now, len(data))

    def _defer(self, connection: Connection, data: bytes | None) -> None:
        """Let input wait for `Unread.catch_up`, unless it is an end or a handshake, which have their own ways."""
        layers = connection.layers
        if not data or connection.drain_until or (layers is not None and layers.handshaking):
            self._handle_unusual(connection, data)
        else:
            self._unread.defer(connection, data)

    def _handle_unusual(self, connection: Connection, data: bytes | None) -> None:
        """Handle the end of input (b""), a reset (None), input behind layers, or input of a draining connection."""
        if data is None:
            self.close(connection)
        elif not data:
            if not connection.pending:  # else epoll reports it again
                connection.end_input()
        elif connection.layers is not None and not connection.drain_until:
            self._unread.receive(connection, connection.layers, data, self.now)

    def _answer_http(self) -> HttpReplies:
        """Execute the requests of the HTTP thread, at a time that is read after them."""
        self._wake_up.clear()
        self._begin()
        return self._answer_http_requests()

    # connections

    def _add(self, accepted: Accepted, endpoint: Endpoint) -> None:
        accepted.socket.setblocking(False)
        if accepted.ip:
            accepted.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = Connection(self, accepted.socket, accepted.ip, endpoint)
        connection.peer = endpoint.make_peer(connection, accepted.ip, accepted.port, self.now, self.wall)
        self.connections[connection.fd] = connection
        endpoint.limiter.watch(connection, accepted.ip, connection.displace)
        self._epoll.register(connection.fd, select.EPOLLIN)
        self.set_timer(connection)

    def close(self, connection: Connection) -> None:
        """Close a connection at once, and forget it everywhere."""
        if not connection.closed:
            ip = connection.peer.remote_ip
            self._forget(connection)
            connection.socket.close()
            connection.endpoint.limiter.count_off(ip)

    def displace(self, connection: Connection) -> None:
        """End a connection with the next turn, because another one needs its place. Any thread may call this."""
        self._displaced.append(connection)
        self.wake()

    def hand_over(self, connection: Connection) -> None:
        """Give the connection's socket to the server of its endpoint, and forget the connection everywhere else."""
        adopt, rest, ip = connection.endpoint.adopt, connection.leaving, connection.peer.remote_ip
        head_due = connection.leaving_head_due
        assert adopt is not None, "only listeners with a server hand over"
        assert rest is not None
        self._forget(connection)
        adopt(connection.socket, ip, rest, head_due)

    def _forget(self, connection: Connection) -> None:
        connection.closed = True
        connection.endpoint.limiter.stop_displacing(connection)
        del self.connections[connection.fd]
        self.unflushed.pop(connection, None)
        self._promised.remove_connection(connection)
        self._unread.connections.pop(connection, None)
        self._inflow.release_reserved(connection)
        self.timers.cancel(connection)
        connection.output.hold(0)
        connection.peer.disconnected()
        self._epoll.unregister(connection.fd)
        connection.layers = None
        del connection.peer  # the two refer to each other, and the daemon never collects old garbage

    def when_sent(
        self,
        marks: tuple[Mark, ...],
        then: Callable[[], None],
        refused: Callable[[], None] = lambda: None,
        given_up: Callable[[], None] | None = None,
    ) -> None:
        """Call `then` when the output of this turn leaves that waits for these marks; see HttpReplies for the others."""
        self._watched.append((marks, HttpReplies(then, refused, given_up)))

    def give_up_http_replies(self) -> None:
        """Answer all HTTP requests that wait for promises. Not to be called in a turn."""
        self._promised.give_up_http_replies()

    def hang_up(self) -> None:
        """Close every connection, and wait for no further promise; not in a turn. Messages in flight have not failed."""
        self._broker.agenda.is_stopping = True
        self.give_up_http_replies()
        for connection in list(self.connections.values()):
            self.close(connection)

    def close_all(self) -> None:
        """Stop: close every connection, and the epoll."""
        self.hang_up()
        self._epoll.close()
        self._wake_up.close()

    # output

    def _commit(self, served: HttpReplies | None) -> None:
        """Close the turn's group. Replies about it wait for their marks, but not for later groups.

        The HTTP replies of a turn leave together: they wait for everything that any of them, or any connection, waits for,
        except for replies with a limit of their own.
        """
        promises = self._broker.commit()
        if self._promised.marks:
            self._release()
        if promises:
            self._seal(promises)
        for replies in (served,) if self.others is None else (served, self.others.replies()):
            if replies is None:
                continue
            if shared := of_all(promises):
                self._promised.add_http_replies(replies, shared)
            else:
                replies.deliver()
        if self._watched:
            self._watch(promises)

    def _watch(self, promises: Sequence[Promise]) -> None:
        """Have each reply of `when_sent` follow what it waits for among the promises of this turn."""
        for marks, replies in self._watched:
            if own := [promise for promise in promises if promise.mark in marks]:
                self._promised.add_http_replies(replies, own)
            else:
                replies.deliver()
        self._watched.clear()

    def _seal(self, promises: Sequence[Promise]) -> None:
        """Hold back the output of this turn for each connection that waits for the mark of one of these promises."""
        # the promises to wait for, by the tuple of marks that a connection waits for
        known: dict[tuple[Mark, ...], list[Promise]] = {}
        for connection in self.unflushed:
            marks = connection.peer.outbox.marks
            if not marks:
                continue
            own = known.get(marks)
            if own is None:
                own = known[marks] = [promise for promise in promises if promise.mark in marks]
                self._promised.wait_for(own)
            if own:
                connection.seal(own)
                self._promised.connections[connection] = None

    def _release(self) -> None:
        """Send the output whose promises the log has kept, and close connections whose promises are broken."""
        ready, lost = self._promised.release()
        for connection in lost:  # no answer is better than one that never comes
            if not connection.end_in_vain():
                self.close(connection)
        self.unflushed |= ready

    def _flush(self) -> None:
        """Send the output of all connections that have some."""
        now, unflushed, self.unflushed = self.now, self.unflushed, {}
        for connection in unflushed:
            if not connection.closed and not connection.send(now):
                self._upkeep.check_after_send(connection, now)

    # timers

    def _tick(self) -> None:
        """Run the acceptor, the inflow and the connections' timers, as far as they are due."""
        now = self.now
        if now >= self._acceptor.again:
            self._acceptor.resume(now)
        if now >= self._inflow.retry_at:
            self._inflow.retry(now)
        if now >= self.timers.due:
            until = self.clock()[0] + CATCH_UP
            for _ in range(MOST_DUE // DUE_AT_ONCE):  # the rest is due in the next turn
                for connection in self.timers.pop_due(now, DUE_AT_ONCE):
                    self._upkeep.tick(connection, now)
                if now < self.timers.due or self.clock()[0] > until:
                    break
