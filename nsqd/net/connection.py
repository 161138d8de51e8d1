"""One socket, and the peer behind it: bytes between the two, through layers if the client has asked for them.

Output goes out by one direct send; what the network does not accept waits, and the reactor asks again when the socket is
writable. A connection that ends is drained first: closing a socket with unread input would make the kernel send RST, and
the client lose the error that told it why.
"""

import socket
import ssl
from collections import deque
from typing import Protocol

from nsqd.core.sequence.mark import Promise, are_kept
from nsqd.net.layers import Layers
from nsqd.protocols.conversation import Conversation
from nsqd.protocols.transport import NEVER, Begin, Upgrade
from shared.budget import FREE, Budget, Share
from shared.tls import TlsObject

MAX_UNSENT = 4 * 1024 * 1024  # bytes: a client that reads no replies is not read from beyond that
DRAIN_TIME = 1_000_000_000  # ns that a closing connection may take to read what it was told
WRITE_DEADLINE = 30_000_000_000  # ns without the network accepting a byte, for clients without heartbeats


class Owner(Protocol):
    """What a connection asks of the reactor that it belongs to."""

    budget: Budget  # of half-received commands and unsent output
    unflushed: dict["Connection", None]  # connections that are looked at again at the end of this turn

    def set_timer(self, connection: "Connection") -> None:
        """A timer of the connection has become earlier."""

    def suspend(self, connection: "Connection", begin: Begin) -> None:
        """See nsqd.protocols.transport.Transport."""

    def close(self, connection: "Connection") -> None:
        """End the connection at once."""

    def wrap(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO) -> TlsObject:
        """A new TLS connection's server side."""


class Connection:
    """Implements nsqd.protocols.transport.Transport."""

    __slots__ = (
        "_blocked_since",
        "_owner",
        "_unsent",
        "body_due",
        "broken",
        "closed",
        "drain_until",
        "eof",
        "fd",
        "handshake",
        "input",
        "layers",
        "metered",
        "output",
        "peer",
        "reading",
        "sealed",
        "socket",
        "starved",
        "timer",
        "writing",
    )

    def __init__(self, owner: Owner, sock: socket.socket, remote_ip: str) -> None:
        self._owner = owner
        self.input = Share(owner.budget, remote_ip)  # of half-received commands: see Inflow
        self.output = Share(owner.budget, remote_ip)  # of what the network has not accepted
        self.metered = False  # Inflow has a half-received command of it on its books
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
        self.broken = False  # the network accepts nothing any more: the connection is to be closed
        self.closed = False  # the reactor has closed it: there is no peer any more
        self.socket = sock
        self.fd = sock.fileno()
        self.peer: Conversation
        self.reading = True  # interest in epoll
        self.writing = False  # likewise
        self.timer: tuple[int, int] | None = None  # (due, handle) in the reactor's timers

    def __repr__(self) -> str:
        return f"<Connection {self.fd}>"

    # Transport

    def output_ready(self) -> None:
        self._owner.unflushed[self] = None

    def timer_changed(self) -> None:
        self._owner.set_timer(self)

    @property
    def is_scarce(self) -> bool:
        return self._owner.budget.is_full

    def upgrade(self, upgrade: Upgrade) -> None:
        self.layers = Layers(upgrade, self._owner.wrap)

    def suspend(self, begin: Begin) -> None:
        self._owner.suspend(self, begin)

    # output

    @property
    def backlog(self) -> int:
        """Bytes that the network has not accepted."""
        return len(self._unsent)

    def seal(self, promises: list[Promise]) -> None:
        """What the peer has said in this turn leaves when these are kept."""
        self.sealed.append((promises, self._take()))

    @property
    def waits_in_vain(self) -> bool:
        """True if output waits for a promise that will never be kept."""
        return any(promise.is_broken for promises, _ in self.sealed for promise in promises)

    def send(self, now: int) -> bool:
        """Send what may leave at `now` (ns). False: the reactor has to look further, at `broken` or at what waits."""
        peer, layers = self.peer, self.layers
        if self.sealed:
            output = self._released()
        else:  # as _take, without the call: this is once a reply
            output = peer.outbox.take() if layers is None else layers.take(peer)
        if self._unsent:
            output.insert(0, self._unsent)
        data = output[0] if len(output) == 1 else b"".join(output)
        if data:
            try:
                sent = self.socket.send(data)
            except BlockingIOError:
                sent = 0
            except OSError:  # reset, broken pipe: the peer is gone, and its reader will be told the same
                self.broken = True
                return False
            if sent < len(data):
                if not self._blocked_since or sent:
                    self._blocked_since = now
                self._unsent = data[sent:]
                peer.outbox.unsent = len(self._unsent)
                return False
        self._blocked_since = 0
        outbox = peer.outbox
        if self._unsent or outbox.refused:
            self._unsent = b""
            outbox.unsent = 0
            outbox.refused = False
            peer.network_ready()
        if self.writing or self.eof or self.starved or not self.reading:
            return False
        if peer.waiting or outbox.closing or peer.has_more or (self.metered and not peer.buffered):
            return False
        return layers is None or not (layers.has_more or self.handshake)

    def _released(self) -> list[bytes]:
        """Sealed output whose promises are kept, and if it is all of it, what came after."""
        output: list[bytes] = []
        sealed = self.sealed
        while sealed and are_kept(sealed[0][0]):
            output += sealed.popleft()[1]
        return output if sealed else output + self._take()

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

    def write_deadline(self) -> int | None:
        """When to give up on a network that accepts nothing (ns); None: nothing waits for it."""
        if not self._unsent:
            return None
        return self._blocked_since + (self.peer.patience or WRITE_DEADLINE)

    # input

    @property
    def has_more(self) -> bool:
        """True if there is input that needs no network: of a handshake, in the peer's buffer, or behind the layers."""
        return self.peer.has_more or (self.layers is not None and (self.layers.has_more or self.handshake != b""))

    @property
    def has_unread(self) -> bool:
        """True if there is such input, and the peer may have it."""
        if not self.has_more or self.starved:
            return False
        return not (self.peer.outbox.closing or self.peer.waiting or self._is_clogged)

    @property
    def wants_input(self) -> bool:
        """False while there is enough to do: input waits, or the client does not read what it is answered."""
        if self.drain_until:
            return not self.eof
        return not (self.eof or self.starved or self.peer.waiting or self.has_more or self._is_clogged)

    @property
    def _is_clogged(self) -> bool:
        """True if so much output waits for the network that nothing more is read."""
        unsent = len(self._unsent)
        return unsent >= MAX_UNSENT or (unsent > FREE and self._owner.budget.is_full)
