"""One socket, and the peer behind it: bytes between the two, through layers if the client has asked for them.

Output goes out by one direct send; what the network does not accept waits, and the reactor asks again when the socket is
writable. A connection that ends is drained first: closing a socket with unread input would make the kernel send RST, and
the client lose the error that told it why.
"""

import socket
from collections import deque
from typing import TYPE_CHECKING

from nsqd.core.sequence.mark import Promise
from nsqd.net.conversation import Conversation
from nsqd.net.layers import Layers
from nsqd.protocols.nsq.authorization import Question
from nsqd.protocols.nsq.identify import Upgrade
from nsqd.protocols.nsq.outbox import NEVER
from shared.budget import FREE, Share

if TYPE_CHECKING:
    from nsqd.net.reactor import Reactor

MAX_UNSENT = 4 * 1024 * 1024  # bytes: a client that reads no replies is not read from beyond that
DRAIN_TIME = 1_000_000_000  # ns that a closing connection may take to read what it was told
WRITE_DEADLINE = 30_000_000_000  # ns without the network accepting a byte, for clients without heartbeats


class Connection:
    """Implements nsqd.protocols.nsq.outbox.Transport."""

    __slots__ = (
        "_blocked_since",
        "_reactor",
        "_unsent",
        "body_due",
        "drain_until",
        "eof",
        "fd",
        "handshake",
        "input",
        "layers",
        "output",
        "peer",
        "reading",
        "sealed",
        "socket",
        "starved",
        "timer",
        "writing",
    )

    def __init__(self, reactor: "Reactor", sock: socket.socket, remote_ip: str) -> None:
        self._reactor = reactor
        self.input = Share(reactor.budget, remote_ip)  # of half-received commands: see Inflow
        self.output = Share(reactor.budget, remote_ip)  # of what the network has not accepted
        self.starved = False  # there is no room for the command at hand: nothing is read
        self.body_due = NEVER  # ns: when a half-received command, or one that waits for room, is given up
        self._unsent = b""  # taken from the peer, not yet accepted by the network
        self._blocked_since = 0  # ns: since when the network has accepted nothing; counts only with _unsent
        # output of earlier turns, by the promises that must be kept before it leaves
        self.sealed: deque[tuple[list[Promise], list[bytes]]] = deque()
        self.layers: Layers | None = None  # TLS and compression; None: the peer's bytes are the network's
        self.handshake = b""  # of TLS: received, and waiting for its turn
        self.drain_until = 0  # not 0: all was said and shut down; input is discarded until then
        self.eof = False  # the client sends no more
        self.socket = sock
        self.fd = sock.fileno()
        self.peer: Conversation
        self.reading = True  # interest in epoll
        self.writing = False  # likewise
        self.timer: tuple[int, int] | None = None  # (due, handle) in the reactor's timers

    # Transport

    def output_ready(self) -> None:
        """The peer has output: send it at the end of this turn."""
        self._reactor.unflushed[self] = None

    def timer_changed(self) -> None:
        """The peer's next timer is earlier than before."""
        self._reactor.set_timer(self)

    def unsent(self) -> int:
        """Bytes that the network has not accepted. While the budget is full, more than a few count as too many."""
        unsent = len(self._unsent)
        return max(unsent, MAX_UNSENT) if unsent > FREE and self._reactor.budget.is_full else unsent

    def upgrade(self, upgrade: Upgrade) -> None:
        """Add layers, once what was said before has been taken."""
        self.layers = Layers(upgrade, self._reactor.wrap)

    def authorize(self, question: Question) -> None:
        """Have the authorization servers asked; nothing is read until they have answered."""
        self._reactor.unflushed[self] = None
        self._reactor.authorize(self, question)

    def await_registration(self, topic: str) -> None:
        """Have the peer resumed when nsqlookupd knows the topic; nothing is read until then."""
        self._reactor.unflushed[self] = None
        self._reactor.await_registration(self, topic)

    # the reactor's side

    @property
    def backlog(self) -> int:
        """Bytes that the network has not accepted, whatever the budget says."""
        return len(self._unsent)

    def seal(self, promises: list[Promise]) -> None:
        """What the peer has said in this turn leaves when these are kept."""
        self.sealed.append((promises, self._take()))

    @property
    def waits_in_vain(self) -> bool:
        """True if a promise will never be kept that output waits for."""
        return any(promise.is_broken for promises, _ in self.sealed for promise in promises)

    def send(self, now: int) -> bool:
        """Send what may leave. False: the connection is broken."""
        if self.sealed:
            output = self._released()
        else:  # as _take, without the call: this is once a reply
            output = self.peer.outbox.take() if self.layers is None else self.layers.take(self.peer)
        if self._unsent:
            output.insert(0, self._unsent)
            self._unsent = b""
        data = output[0] if len(output) == 1 else b"".join(output)
        if data:
            try:
                sent = self.socket.send(data)
            except BlockingIOError:
                sent = 0
            except OSError:  # reset, broken pipe: the peer is gone, and its reader will be told the same
                return False
            if sent < len(data):
                if not self._blocked_since or sent:
                    self._blocked_since = now
                self._unsent = data[sent:]
                return True
        self._blocked_since = 0
        self.peer.network_ready()
        return True

    def _released(self) -> list[bytes]:
        """Sealed output whose promises are kept, and if it is all of it, what came after."""
        output: list[bytes] = []
        while self.sealed and all(promise.is_kept for promise in self.sealed[0][0]):
            output += self.sealed.popleft()[1]
        return output if self.sealed else output + self._take()

    def _take(self) -> list[bytes]:
        """What the peer says now, as it goes to the network."""
        return self.peer.take_output() if self.layers is None else self.layers.take(self.peer)

    def say_goodbye(self) -> None:
        """All was said: the layers say so, too, if the network takes it now."""
        data = self.layers.goodbye() if self.layers is not None else b""
        try:
            if data:
                self.socket.send(data)
            self.socket.shutdown(socket.SHUT_WR)
        except OSError:  # it closed first, and the next read says so
            pass

    @property
    def is_plain(self) -> bool:
        """True while nothing is out of the ordinary: all was sent, and epoll waits for input and for nothing else."""
        if self._unsent or self.sealed or self.writing or self.eof or self.starved or not self.reading:
            return False
        peer = self.peer
        return not (peer.waiting or peer.outbox.closing or self.has_more)

    @property
    def keeps_input(self) -> bool:
        """True while a command is half-received, and until that is taken note of as over: see Inflow.note."""
        return self.peer.buffered > 0 or self.input.held > 0 or self.body_due != NEVER

    @property
    def has_more(self) -> bool:
        """True if there is input that needs no network: of a handshake, in the peer's buffer, or behind the layers."""
        return self.peer.has_more or (self.layers is not None and (self.layers.has_more or self.handshake != b""))

    @property
    def has_unread(self) -> bool:
        """True if there is such input, and the peer may have it."""
        if not self.has_more or self.starved:
            return False
        return not (self.peer.closing or self.peer.waiting) and self.unsent() < MAX_UNSENT

    @property
    def wants_input(self) -> bool:
        """False while there is enough to do: input waits, or the client does not read what it is answered."""
        if self.drain_until:
            return not self.eof
        if self.eof or self.starved or self.peer.waiting or self.has_more:
            return False
        return self.unsent() < MAX_UNSENT

    def write_deadline(self) -> int | None:
        """When to give up on a network that accepts nothing."""
        if not self._unsent:
            return None
        return self._blocked_since + (self.peer.patience or WRITE_DEADLINE)
