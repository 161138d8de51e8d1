"""A reactor over loopback sockets, turned by hand in virtual time, and clients of any protocol."""

import select
import socket
import struct
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import ClassVar

from nsqd.net.admission import Admission
from nsqd.net.connection import Connection
from nsqd.net.endpoint import MakePeer, OutputBounds
from nsqd.net.promised import HttpReplies
from nsqd.net.reactor import Reactor
from nsqd.protocols.beanstalk.client import BeanstalkContext
from nsqd.protocols.beanstalk.peer import Peer as Beanstalk
from nsqd.protocols.conversation import Conversation
from nsqd.protocols.disque.client import DisqueContext
from nsqd.protocols.disque.peer import Peer as Disque
from nsqd.protocols.nsq.context import Context
from nsqd.protocols.nsq.peer import Peer
from nsqd.protocols.nsq.settings import Settings
from nsqd.protocols.outbox import Outbox
from nsqd.protocols.transport import NEVER, Transport
from shared.tls.info import TlsInfo
from tests.nsqd.core.node import Node


class Bench:
    """A reactor with a listener, and the clients of a test. A fixture of conftest.py closes it."""

    patience = 0.01  # s in which a byte passes the loopback device
    open: ClassVar[list["Bench"]] = []

    def __init__(
        self, node: Node | None = None, settings: Settings | None = None, edge: Admission | None = None
    ) -> None:
        self.node = node = node or Node()
        self.http: list[HttpReplies] = []
        self.edge = edge or Admission()
        self.context = Context(node.broker, settings or Settings())
        self.reactor = Reactor(node.broker, lambda: (node.now, 1), self._serve_http, lambda changes: None, self.edge)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setblocking(False)
        self.reactor.listen(self.listener, partial(Peer, self.context))
        self.clients: list[socket.socket] = []
        Bench.open.append(self)

    def speak(self, make_peer: MakePeer, bounds: OutputBounds | None = None) -> None:
        endpoints, fd = self.reactor._endpoints, self.listener.fileno()
        endpoints[fd] = replace(endpoints[fd], make_peer=make_peer, bounds=bounds or OutputBounds())

    def speak_of_jobs(self, context: BeanstalkContext | DisqueContext) -> None:
        """Speak beanstalkd's protocol or Disque's."""
        kind = Beanstalk if isinstance(context, BeanstalkContext) else Disque

        def make_peer(transport: Transport, ip: str, port: str, now: int, wall: int) -> Conversation:
            return kind(self.node.broker, context, transport, ip, port, now)

        self.speak(make_peer)

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

    def send(self, client: socket.socket, data: bytes) -> None:
        client.sendall(data)
        self.turn()

    def of(self, client: socket.socket) -> Connection:
        """Return the reactor's end of a client's connection."""
        port = str(client.getsockname()[1])
        (found,) = (one for one in self.reactor.connections.values() if one.peer.port == port)
        return found

    @property
    def connection(self) -> Connection:
        (connection,) = self.reactor.connections.values()
        return connection

    def published(self, name: str = "t") -> int:
        topic = self.node.broker.topics.get(name)
        return topic.intake.message_count if topic is not None else 0

    def advance(self, ns: int) -> None:
        self.node.now += ns
        self.turn()

    def close(self) -> None:
        Bench.open.remove(self)
        self.reactor.close_all()
        for sock in (self.listener, *self.clients):
            sock.close()


class PlainConversation:
    """A Conversation that says and wants nothing by itself."""

    waiting = has_more = False
    buffered, body_since, patience = 0, -1, 0

    def __init__(self, transport: Transport, remote_ip: str, port: str) -> None:
        self.remote_ip, self.port = remote_ip, port
        self.outbox = Outbox(transport)

    def receive_eof(self) -> None:
        self.outbox.end()

    def resume(self, now: int) -> None: ...

    def upgraded(self, tls: TlsInfo | None = None) -> None: ...

    def break_off(self, why: str = "") -> None:
        self.outbox.break_off()

    def disconnected(self) -> None: ...

    def take_output(self) -> list[bytes]:
        return self.outbox.drain()

    def network_ready(self) -> None: ...

    def next_timer(self) -> int:
        return NEVER

    def tick(self, now: int) -> None: ...


def frames(client: socket.socket) -> list[bytes]:
    client.setblocking(False)
    data, found, at = received(client)[0], [], 0
    while at < len(data):
        (size,) = struct.unpack_from(">i", data, at)
        found.append(data[at + 8 : at + 4 + size])
        at += 4 + size
    return found


def received(client: socket.socket) -> tuple[bytes, bool]:
    """Return the input, and whether the connection has ended after it."""
    data = b""
    try:
        while part := client.recv(1 << 20):
            data += part
        return data, True
    except BlockingIOError:
        return data, False


def reset(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def send_part(client: socket.socket, data: bytes) -> bytes:
    """Send what the kernel takes. Returns the rest."""
    try:
        return data[client.send(data) :]
    except BlockingIOError:
        return data


def nothing_is_left(bench: Bench) -> bool:
    """No connection, nothing of one that waits for a turn, and nothing but listener and wake-up in the epoll."""
    reactor = bench.reactor
    left = (reactor.connections, reactor.unflushed, reactor._unread.connections, reactor._promised.marks)
    return not any((*left, reactor._limiter._by_ip)) and not len(reactor.timers) and registered(reactor._epoll) == 2


def registered(epoll: select.epoll) -> int:
    info = Path(f"/proc/self/fdinfo/{epoll.fileno()}").read_text()
    return sum(line.startswith("tfd:") for line in info.splitlines())
