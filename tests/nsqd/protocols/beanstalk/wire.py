"""A client's end of a beanstalkd peer: bytes in, bytes out, in virtual time. No socket."""

from typing import Any, Self

from nsqd.core.limits import Limits
from nsqd.protocols.beanstalk.client import BeanstalkContext
from nsqd.protocols.beanstalk.peer import Peer
from shared.process.unix_sockets import NOBODY
from tests.nsqd.core.node import MS, Node
from tests.nsqd.protocols.transport import StillTransport


class Wire(StillTransport):
    """The network takes everything at once."""

    def __init__(self, node: Node | None = None, context: BeanstalkContext | None = None, user: int = NOBODY) -> None:
        super().__init__(user)
        self.remote_ip = "10.0.0.1" if user == NOBODY else ""
        self.node = node or Node(Limits())
        self.received = bytearray()
        self.peer = self.make_peer(context)
        before = self.node.after_turn

        def after_turn() -> None:
            before()
            self._collect()

        self.node.after_turn = after_turn

    def check(self) -> None:
        """Assert what must always be so of the node."""
        self.node.broker.check()
        self.node.broker.tubes.check()

    def make_peer(self, context: BeanstalkContext | None) -> Any:
        """The peer of the connection. Other protocols have other ones."""
        return Peer(self.node.broker, context or BeanstalkContext(), self, self.remote_ip, "5555", self.node.now)

    # the test's side

    def send(self, data: bytes) -> Self:
        """Bytes arrive; the node takes its turn."""
        self.peer.receive(data, self.node.now)
        self._continue()
        return self

    def _continue(self) -> None:
        self.node.turn()
        while self.peer.has_more and not self.peer.outbox.closing:
            self.peer.receive(b"", self.node.now)
            self.node.turn()
        self._collect()

    def said(self) -> bytes:
        """What came since the last call."""
        self._continue()
        data, self.received = bytes(self.received), bytearray()
        return data

    def ask(self, data: bytes) -> bytes:
        """Send the bytes, and return the answer."""
        return self.send(data).said()

    def eof(self) -> Self:
        """The client sends no more."""
        self.peer.receive_eof()
        self._continue()
        return self

    def leave(self) -> None:
        """The connection is gone."""
        self.peer.disconnected()
        self.node.turn()

    def advance(self, ms: int) -> Self:
        """Time passes, with the peer's timer served."""
        end = self.node.now + ms * MS
        while self.node.now < end:
            timer = max(self.node.now + 1, self.peer.next_timer())
            self.node.advance(min(end, timer) - self.node.now)
            if self.peer.next_timer() <= self.node.now:
                self.peer.tick(self.node.now)
            self._continue()
        return self

    def _collect(self) -> None:
        self.received += b"".join(self.peer.take_output())


def put(body: bytes, priority: int = 0, delay: int = 0, ttr: int = 60) -> bytes:
    """Return the bytes of a whole put command."""
    return b"put %d %d %d %d\r\n%s\r\n" % (priority, delay, ttr, len(body), body)


def facts(answer: bytes) -> dict[str, str]:
    """A dictionary as it was answered; its length is checked."""
    head, _, rest = answer.partition(b"\r\n")
    word, size = head.split(b" ")
    assert word == b"OK"
    assert rest.endswith(b"\n\r\n")
    assert len(rest) == int(size) + 2
    first, *lines = rest[:-2].decode().splitlines()
    assert first == "---"
    return dict(line.split(": ", 1) for line in lines)
