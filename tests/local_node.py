"""A node in the test's own process: nsqd's broker, reactor, log and HTTP on memory sockets, a disk in memory and virtual time.

    node = LocalNode("-max-msg-size", "100")
    assert node.client.post("/pub?topic=t", content=b"x").text == "OK"
    with Conversation(node, b"  V2SUB t c\\nRDY 1\\n") as client: ...
    node.connect("BEANSTALK").sendall(b"stats\\r\\n")

Everything happens while a client waits for something: then time passes, as far as the next thing that is due. No socket, thread
or file is opened. Other ports, TLS, signals and other processes are for tests of real daemons (tests/daemons.py).
"""

from __future__ import annotations

import asyncio
import heapq
import io
import socket
from collections.abc import Callable, Iterable
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import httpcore
import httpx
import trio

from nsqd.core.observation.series import Series
from nsqd.core.registry import Change
from nsqd.core.topology import TopologySnapshot, snapshot
from nsqd.core.trace import Trace
from nsqd.http.node import Info, Node
from nsqd.net.promised import HttpReplies
from nsqd.options import NsqdOptions
from nsqd.protocols.account import Accounts
from nsqd.protocols.disque.context import Alone
from nsqd.protocols.disque.ids import JobIds
from nsqd.protocols.transport import NEVER
from nsqd.start.beanstalk import FrontEnd as Beanstalk
from nsqd.start.disque import FrontEnd as Disque
from nsqd.start.front_ends import all_peers, nsq_peers
from nsqd.start.http_server import HttpFrontEnd
from nsqd.start.listeners import Listeners
from nsqd.tasks.batch_task import BatchTask
from nsqd.tasks.dead_letter_topics import DeadLetterTopics
from nsqd.tasks.deliveries import Deliveries
from nsqd.tasks.pause_expiry import end_batch
from nsqd.tasks.schedule_task import ScheduleTask
from nsqd.tasks.topology_log import log_changes
from shared.auth.keyring import Keyring
from shared.budget import Budget
from shared.configuration import parse
from shared.connection_limiter import ConnectionLimits
from shared.http.bridge import Bridge
from shared.process.listen import Listener
from shared.process.memory import Memory
from shared.topic_config import Durability
from shared.version import NSQ_VERSION
from tests.nsqd.storage.sim_disk import SimDisk
from tests.nsqd.storage.sim_node import Clock
from tests.simulation import net
from tests.simulation.node import WholeNode

SECOND, MICROSECOND = 1_000_000_000, 1000
START = 1_767_225_600 * SECOND  # ns since the epoch: 2026-01-01
PATIENCE = 60.0  # s of virtual time that a client waits, if it says nothing else
_MEMORY = Memory()
_AT_ONCE = 10_000  # steps at one moment: more than any test needs


class LocalNode(WholeNode):
    """See above. `flags` are nsqd's; those about addresses, files other than -auth-file, and other machines mean nothing."""

    def __init__(
        self,
        *flags: str,
        disk: SimDisk | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.options = parse(NsqdOptions, "nsqd", flags, {})
        options, random = self.options, Random(0)
        self.bugs: list[BaseException] = []
        self.loop = _Loop(lambda: self.clock.now)
        self.bridge = Bridge(self._wake)
        clock = clock or Clock(1000 * SECOND, START)
        disk, durability = disk or SimDisk(random), Durability(options.durability)
        limits, settings = options.limits(), options.settings()
        connections = ConnectionLimits(options.max_connections, options.max_connections_per_ip)
        super().__init__(
            disk, durability, clock, random, limits, 1 << 20, options.mem_budget, 1 << 30, 1 << 40,
            trace=Trace() if options.debug_routes else None, settings=settings, connections=connections,
        )  # fmt: skip
        pauses = self.broker.registry.pauses
        self.broker.end_pauses(clock.wall // SECOND, len(pauses.details))  # those that ended while it was down
        self.network.client = "127.0.0.1"
        self.lookupds = list(options.lookupd_tcp_address)
        self._series = Series()
        self.dead_letter_topics = DeadLetterTopics(self.broker, options.node_number(), self._wake)
        self._tasks = [self._end_pauses, self._note_series, self._forward_dead_letters]  # what nsqd does every second
        if options.statistics_topic:
            deliveries = Deliveries(self.broker, options.statistics_topic, options.node_number(), self._wake)
            self._tasks.append(lambda: deliveries._publish(trio.run(deliveries.collect, self.clock.wall // SECOND - 1)))
        self._schedule_task = ScheduleTask(self.broker, self.reactor.when_sent, self._wake)
        self._tasks.append(self._publish_schedules)
        batch_task = BatchTask(self.broker, self.reactor.when_sent, self._wake)
        self._tasks.append(lambda: batch_task.step(self.clock.wall // SECOND))
        self._next_second = clock.now + SECOND
        self.keyring = None
        if options.auth_file:
            self.keyring = Keyring(options.auth_file, lambda: self.clock.wall / 1e9, clock=lambda: self.clock.now / 1e9)
            self.context.proofs, self.context.accounts = self.keyring, Accounts()
            self._tasks.append(self._watch_rights)
        listener = Listener(cast(Any, net.Listener(self.network)), "127.0.0.1:4151", 4151)
        front_end = HttpFrontEnd(
            options,
            self._node(),
            _listeners(listener, self.keyring),
            cast(Any, SimpleNamespace(report=self.bugs.append)),
            Budget(),
        )
        front_end.accept(self.reactor)
        server = front_end.build()
        server.serve_within(self.loop)
        front_end.leave_rest_to(server)
        self._ports = {"TCP": self.network.listener, "HTTP": cast(Any, listener.socket)}
        transport = httpx.HTTPTransport()
        transport._pool = httpcore.ConnectionPool(network_backend=_Backend(self))
        self.client = httpx.Client(base_url="http://127.0.0.1:4151", transport=transport)

    def killed(self, *flags: str, down: int = 0) -> LocalNode:
        """Return the node that starts `down` ns later on what `kill -9` has left of this one, with other flags if need be."""
        clock = self.clock.after(down, 1000 * SECOND, rebooted=False)
        return LocalNode(*flags, disk=self.disk.kill(), clock=clock)

    # What clients use: the same as of tests.daemons.Daemon

    def connect(self, name: str = "TCP") -> MemorySocket:
        """Return a new connection to the port for NSQ's protocol, or that for "HTTP", "BEANSTALK" or "DISQUE"."""
        ways = self.network._ways
        ways[:] = [way for way in ways if not way.is_over]  # of earlier connections: each step looks at all
        if name not in self._ports:
            self._ports[name] = self._open_port(name)
        return MemorySocket(self, self.network.dial(self._ports[name]))

    def _open_port(self, name: str) -> net.Listener:
        """Accept clients of beanstalkd or of Disque."""
        listener, peers = net.Listener(self.network), partial(all_peers, self.reactor)
        if name == "BEANSTALK":
            front_end = Beanstalk(self.broker, self.options.max_job_size, peers, self.log.files)
        else:
            alone, ids = Alone(self.options.node_number(), 7711), JobIds(self.log.identity.log_id)
            front_end = Disque(self.broker, ids, alone, self.options.max_msg_size, peers)
        front_end.context.proofs, front_end.context.accounts = self.context.proofs, self.context.accounts
        self.reactor.listen(cast(Any, listener), front_end.make_peer)
        return listener

    def wait(self, ready: Callable[[], bool], seconds: float = PATIENCE) -> bool:
        """Let time pass until `ready` returns True. Return False if it does not within `patience` seconds."""
        until = self.clock.now + int(seconds * SECOND)
        return any(ready() for _ in self._moments(until))

    def advance(self, ns: int) -> None:
        """Let time pass, with everything that is due meanwhile."""
        for _ in self._moments(self.clock.now + ns):
            pass

    def _moments(self, until: int) -> Iterable[None]:
        """Yield whenever something may have changed, up to a time (monotonic ns)."""
        steps, last = 0, -1
        while True:
            self.network.move()  # also to clients and to the HTTP server, which the reactor does not poll
            yield
            if self.bugs:
                raise self.bugs[0]
            steps, last = (steps + 1 if last == self.clock.now else 0), self.clock.now
            assert steps < _AT_ONCE, "something is due again and again"
            if self.loop.step() or self._step_all_threads():
                continue
            if self.clock.now >= until and not self.woken:
                return
            self.woken = False
            due = min(until, self.loop.due(), self._next_second)
            self.run_once(self.clock.true + max(0, due - self.clock.now))
            if self.clock.now >= self._next_second:
                self._next_second += SECOND
                for task in self._tasks:
                    task()

    def _step_all_threads(self) -> bool:
        """Do what worker threads would do. Return whether there was anything."""
        worked = False
        while self.syncer.job is not None:
            self.syncer.step()
            worked = True
        while self.cache.step():
            worked = True
        if self.cleaner.waits is not None:
            self.cleaner.step()
            worked = True
        if self.spare.waits:
            self.spare.step()
            worked = True
        if worked:
            self._wake()
        return worked

    # What nsqd/start/daemon.py does

    def _serve_calls(self) -> HttpReplies:
        calls = self.bridge.serve()
        refuse = partial(self.bridge.refuse, calls)
        return HttpReplies(partial(self.bridge.deliver, calls), refuse, refuse)

    def _report_changes(self, changes: list[Change]) -> None:
        log_changes(changes)

    def _end_pauses(self) -> None:
        while end_batch(self.broker, self.clock.wall // SECOND):
            self._wake()

    def _publish_schedules(self) -> None:
        while self._schedule_task.publish_batch(self.clock.wall // SECOND):
            pass

    def _note_series(self) -> None:
        for _ in self._series.record(list(self.broker.topics.values()), self.clock.wall // SECOND):
            pass

    def _forward_dead_letters(self) -> None:
        if self.broker.agenda.dead_letters:
            trio.run(self.dead_letter_topics.forward)

    def _watch_rights(self) -> None:
        if self.keyring.reload_if_changed():
            for peer in all_peers(self.reactor):
                peer.rights_changed()
            self._wake()

    def _topology(self) -> TopologySnapshot:
        return TopologySnapshot(1, snapshot(self.broker))

    def _node(self) -> Node:
        options, reactor = self.options, self.reactor
        assert reactor is not None
        return Node(
            options=options,
            info=Info(NSQ_VERSION, options.broadcast_address, "host", 4151, 4150, self.clock.wall // SECOND),
            bridge=self.bridge,
            broker=self.broker,
            drain=self.broker.drain,
            peers=partial(nsq_peers, reactor),
            set_lookupds=lambda addresses: self.lookupds.__setitem__(slice(None), addresses),
            lookupds=lambda: self.lookupds,
            until_registered=lambda topic, then: then(),
            turns=reactor.turn_times.histogram,
            take_topology=self._topology,
            save_topology=lambda taken: None,
            health=lambda: f"NOK - {self.broker.store.refusal}" if self.broker.store.refusal else "OK",
            memory=_MEMORY.figures,
            log=self.log.figures,
            backup=self.log.backup(),
            contents=self.log.contents(),
            series=self._series,
            refused=lambda: self.broker.refused,
            cluster=None,
            buffers=Budget().figures,
            job_ids=JobIds(self.log.identity.log_id),
            accounts=self.context.accounts,
        )


def _listeners(http: Listener, keyring: Keyring | None) -> Listeners:
    """Return the listeners of a node that has HTTP, and no TLS."""
    return Listeners((), None, http, None, None, None, None, None, None, b"", None, None, None, keyring)


class _Loop(asyncio.BaseEventLoop):
    """An event loop that does not wait: the node steps it, and says how late it is."""

    def __init__(self, now: Callable[[], int]) -> None:
        """`now` returns monotonic ns."""
        super().__init__()
        self._now = now
        self._selector: Any = SimpleNamespace(select=lambda timeout: ())
        self._transports: list[_Transport] = []

    def __del__(self) -> None: ...  # there is nothing to close

    def time(self) -> float:
        return self._now() / 1e9

    def _process_events(self, events: object) -> None: ...

    def _write_to_self(self) -> None: ...

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """Run the function at once."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    async def connect_accepted_socket(self, protocol_factory: Any, sock: Any, **_: Any) -> Any:
        protocol = protocol_factory()
        transport = _Transport(self, sock, protocol)
        self._transports.append(transport)
        protocol.connection_made(transport)
        return transport, protocol

    def step(self) -> bool:
        """Do what is due now. Return whether there was anything."""
        worked = bool(self._ready) or self.due() <= self._now()  # type: ignore[attr-defined]
        if worked:
            self.call_soon(self.stop)
            self.run_forever()
        for transport in list(self._transports):
            worked |= transport.step()
        return worked

    def due(self) -> int:
        """Return the time of the next event that is due (monotonic ns); NEVER if there is none."""
        scheduled: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        if scheduled and scheduled[0].cancelled():  # the first of the heap: of the others, many were cancelled, too
            scheduled[:] = [handle for handle in scheduled if not handle.cancelled()]
            heapq.heapify(scheduled)
            self._timer_cancelled_count = 0
        return int(scheduled[0].when() * 1e9) + MICROSECOND if scheduled else NEVER  # later than a float may be wrong

    def forget(self, transport: _Transport) -> None:
        self._transports.remove(transport)


class _Transport(asyncio.Transport):
    """A memory socket as asyncio's protocols see it."""

    def __init__(self, loop: _Loop, sock: net.Socket, protocol: Any) -> None:
        super().__init__({"peername": ("127.0.0.1", 1000), "sockname": ("127.0.0.1", 4151)})
        self._loop, self._sock, self._protocol = loop, sock, protocol
        self._output = bytearray()
        self._is_paused = self._is_closing = self._has_ended = self._is_held_up = False
        self._ends_writing = False  # once the output has left
        self._limit = 1 << 16

    def step(self) -> bool:
        """Read and write what can be. Return whether there was anything."""
        try:
            return self._send() | self._receive()
        except OSError as error:
            self._lose(error)
            return True

    def _receive(self) -> bool:
        if self._is_paused or self._is_closing or self._has_ended or not self._sock.incoming.is_readable:
            return False
        data = self._sock.recv(1 << 16)
        if data:
            self._loop.call_soon(self._protocol.data_received, data)
        else:
            self._has_ended = True
            self._loop.call_soon(self._end)
        return True

    def _end(self) -> None:
        if not self._protocol.eof_received():
            self.close()

    def _send(self) -> bool:
        sent = 0
        if self._output and self._sock.outgoing.room > 0:
            sent = self._sock.send(bytes(self._output))
            del self._output[:sent]
            if self._is_held_up and not self._output:
                self._is_held_up = False
                self._loop.call_soon(self._protocol.resume_writing)
        if self._ends_writing and not self._output:
            self._ends_writing = False
            self._sock.shutdown(socket.SHUT_WR)
        if self._is_closing and not self._output:
            self._lose(None)
            return True
        return sent > 0

    def _lose(self, error: Exception | None) -> None:
        self._loop.forget(self)
        self._sock.close()
        self._loop.call_soon(self._protocol.connection_lost, error)

    def write(self, data: Any) -> None:
        self._output += data
        if len(self._output) > self._limit and not self._is_held_up:
            self._is_held_up = True
            self._protocol.pause_writing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._limit = high if high is not None else self._limit

    def get_write_buffer_size(self) -> int:
        return len(self._output)

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        self._is_paused = False

    def is_closing(self) -> bool:
        return self._is_closing

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self._ends_writing = True

    def close(self) -> None:
        self._is_closing = True

    def abort(self) -> None:
        self._output.clear()
        self._is_closing = True


class MemorySocket:
    """A client's end of a connection. What would block lets the node's time pass. It has what tests use of socket.socket."""

    family = socket.AF_INET

    def __init__(self, node: LocalNode, end: net.Socket) -> None:
        self._node, self._end = node, end
        self._timeout = PATIENCE

    def __enter__(self) -> MemorySocket:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def settimeout(self, seconds: float) -> None:
        self._timeout = seconds

    def setsockopt(self, *_: int) -> None: ...

    def sendall(self, data: bytes | memoryview) -> None:
        rest = bytes(data)
        while rest:
            if not self._node.wait(lambda: self._end.outgoing.room > 0 or self._end.outgoing.broken, self._timeout):
                raise TimeoutError("timed out")
            rest = rest[self._end.send(rest) :]

    def land(self) -> None:
        """Let all that was sent arrive now: what several clients have sent is then served in one turn."""
        self._end.outgoing.land()

    def recv(self, size: int) -> bytes:
        if not self._node.wait(lambda: self._end.incoming.is_readable, self._timeout):
            raise TimeoutError("timed out")
        return self._end.recv(size)

    def makefile(self, mode: str) -> io.BufferedReader:
        assert mode == "rb"
        return io.BufferedReader(_Raw(self))

    def shutdown(self, how: int) -> None:
        self._end.shutdown(how)

    def close(self) -> None:
        if not self._end.closed:
            self._end.close()


class _Raw(io.RawIOBase):
    """The input of a MemorySocket, as a file."""

    def __init__(self, sock: MemorySocket) -> None:
        self._sock = sock

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._sock.recv(len(buffer))
        buffer[: len(data)] = data
        return len(data)


class _Stream(httpcore.NetworkStream):
    """A MemorySocket as httpx uses it."""

    def __init__(self, sock: MemorySocket) -> None:
        self._sock = sock

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._sock.recv(max_bytes)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._sock.sendall(buffer)

    def close(self) -> None:
        self._sock.close()

    def get_extra_info(self, info: str) -> Any:
        return self._sock._end.incoming.is_readable if info == "is_readable" else None


class _Backend(httpcore.NetworkBackend):
    """Connects httpx to the node, whatever the host."""

    def __init__(self, node: LocalNode) -> None:
        self._node = node

    def connect_tcp(self, *_: Any, **__: Any) -> httpcore.NetworkStream:
        return _Stream(self._node.connect("HTTP"))
