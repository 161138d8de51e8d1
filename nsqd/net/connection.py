"""One socket and its peer: bytes between the two, through layers if the client has asked for them.

Output goes out by one direct send. Bytes that the network does not accept wait until the socket is writable. A connection
that ends is drained first: closing a socket with unread input would make the kernel send RST, and the client would lose the
error that explains the end.
"""

from __future__ import annotations

import logging
import socket
import ssl
from select import EPOLLIN
from typing import Protocol

from nsqd.core.sequence.mark import Promise, are_kept
from nsqd.net.endpoint import Endpoint
from nsqd.net.layers import Layers
from nsqd.net.limits import ReplyLimits
from nsqd.protocols.conversation import Conversation
from nsqd.protocols.transport import NEVER, Begin, Fact, Meter, Upgrade
from shared.budget import FREE, Budget, Share
from shared.foreign import describe
from shared.log import log, write
from shared.process.unix_sockets import NOBODY, peer_user
from shared.tls.certificates import TlsObject

# ns that a client may take to read the last output of a closing connection, and that replies with a limit wait after the end of
# its input
DRAIN_TIME = 1_000_000_000
WRITE_DEADLINE = 30_000_000_000  # ns without the network accepting a byte, for clients without heartbeats
# The lines about clients, which may be many: with the client's address, and with the text if there is one.
_LINES = {
    Fact.JOINED: (logging.INFO, "TCP: new client(%s)"),
    Fact.IDENTIFIED: (logging.INFO, "[%s] IDENTIFY: %s"),
    Fact.FAILED: (logging.ERROR, "[%s] - %s"),
    Fact.LEFT: (logging.INFO, "PROTOCOL(V2): [%s] exiting ioloop"),
}


class ConnectionOwner(Protocol):
    """The reactor of a connection, as the connection sees it."""

    budget: Budget  # shared by half-received commands and unsent output
    now: int  # time of the turn, monotonic ns
    unflushed: dict[Connection, None]  # connections that are checked at the end of this turn

    def set_timer(self, connection: Connection) -> None:
        """Set the timer of the connection, which has become earlier."""

    def suspend(self, connection: Connection, begin: Begin) -> None:
        """Stop reading input, as nsqd.protocols.transport.Transport describes."""

    def close(self, connection: Connection) -> None:
        """End the connection at once, without draining it."""

    def displace(self, connection: Connection) -> None:
        """End the connection with the next turn, because another one needs its place. Any thread may call this."""

    def hand_over(self, connection: Connection) -> None:
        """Give the connection's socket to the server of its endpoint, with the input in `leaving`."""

    def wrap(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO) -> TlsObject:
        """Return the server's side of a new TLS connection over the two buffers."""


class Connection:
    """One client's socket with its buffers and state. Implements nsqd.protocols.transport.Transport."""

    __slots__ = (
        "_blocked_since", "_owner", "_unsent", "body_due", "broken", "closed", "drain_until", "endpoint", "eof", "events",
        "fd", "handshake", "input", "layers", "leaving", "leaving_head_due", "limits", "metered", "output",
        "paused_until", "peer", "pending", "proof_due", "reading", "sealed", "socket", "starved", "timer", "usage",
        "writing",
    )  # fmt: skip

    def __init__(self, owner: ConnectionOwner, sock: socket.socket, remote_ip: str, endpoint: Endpoint) -> None:
        self._owner = owner
        self.endpoint = endpoint  # through which it came
        self.leaving: bytes | None = None  # not None: it is handed over with this input when all output has left
        self.leaving_head_due = NEVER  # ns: when the head of the request that `leaving` begins with must be complete
        self.input = Share(owner.budget, remote_ip)  # bytes of the budget that half-received commands hold: see Inflow
        # bytes of the budget that output holds which the network has not accepted
        self.output = Share(owner.budget, remote_ip)
        self.metered = False  # True: Inflow accounts for a half-received command of this connection
        # True: there is no room for the current command, or the client is over its rate, so nothing is read
        self.starved = False
        self.paused_until = NEVER  # ns: when the connection is read again whose client is over its rate
        self.usage: Meter | None = None  # that holds the client to limits; None: it had none yet
        # ns: when the connection is closed whose client is not identified; NEVER: it is, or does not have to be
        self.proof_due = owner.now + endpoint.proof_timeout if endpoint.proof_timeout else NEVER
        self.body_due = NEVER  # ns: when a half-received command, or one that waits for room, is given up
        self._unsent = b""  # bytes taken from the peer, not yet accepted by the network
        self._blocked_since = 0  # ns: since when the network has accepted nothing; counts only with _unsent
        # Output of earlier turns, with the promises that must be kept before it leaves. An empty deque takes 700 bytes.
        self.sealed: list[tuple[list[Promise], list[bytes]]] = []
        self.limits: ReplyLimits | None = None  # those of sealed replies that have any; None: none had one yet
        self.layers: Layers | None = None  # TLS and compression; None: the peer's bytes are the network's
        self.handshake = b""  # bytes of a TLS handshake that were received and wait for their turn
        self.pending = b""  # other bytes that were received and wait until the peer may take them
        self.drain_until = 0  # ns until which input is discarded, after all was sent and shut down; 0: not draining
        self.eof = False  # the client sends no more
        self.broken = False  # the network accepts nothing, so the connection is to be closed
        self.closed = False  # the reactor has closed it, and it has no peer
        self.socket = sock
        self.fd = sock.fileno()
        self.peer: Conversation
        self.events = EPOLLIN  # that epoll reports
        self.reading = True  # True: epoll reports when the socket is readable
        self.writing = False  # True: epoll reports when the socket is writable
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

    def peer_user(self) -> int:
        return peer_user(self.socket) if self.socket.family == socket.AF_UNIX else NOBODY

    def note_foreign(self, port: str, data: bytes) -> None:
        log.warning("%s: closed %s:%s, which sent %s", port, self.peer.remote_ip, self.peer.port, describe(data))

    def record_fact(self, fact: Fact, client: str, text: str = "") -> None:
        level, words = _LINES[fact]
        write(level, (__file__, level, words), *(client, text)[: words.count("%s")])

    def upgrade(self, upgrade: Upgrade) -> None:
        self.layers = Layers(upgrade, self.endpoint.wrap or self._owner.wrap)

    def suspend(self, begin: Begin) -> None:
        self._owner.suspend(self, begin)

    def hand_over(self, rest: bytes, head_due: int = NEVER) -> None:
        if self.leaving is None:
            self.leaving, self.leaving_head_due = rest, head_due
        else:
            self.leaving += rest
        self._owner.unflushed[self] = None

    def meter(self, usage: Meter) -> None:
        self.usage = usage
        self.metered = True  # at the end of the turn Inflow sees whether it is so
        if self.paused_until != NEVER:
            self.paused_until = 0  # another rate may not ask for the pause
        self._owner.unflushed[self] = None
        if hasattr(self, "peer"):  # else the peer is being made, and the timer is set after that
            self._owner.set_timer(self)

    def send_now(self) -> None:
        """Send what may leave before the turn ends. If nothing is left to do then, the turn does not look at it again."""
        unflushed = self._owner.unflushed
        unflushed[self] = None
        if not self.broken and self.send(self._owner.now):
            del unflushed[self]

    def abandon(self) -> None:
        """End the connection with this turn, whether its output was sent or not."""
        self.broken = True
        self.peer.outbox.end()

    # output

    @property
    def backlog(self) -> int:
        """Return the number of bytes that the network has not accepted."""
        return len(self._unsent)

    def seal(self, promises: list[Promise]) -> None:
        """Hold back the output of this turn until these promises are kept."""
        limited = self.peer.outbox.limited
        if not limited:
            self.sealed.append((promises, self._encode_output()))
            return
        if self.limits is None:
            self.limits = ReplyLimits()
        self.sealed += self.limits.seal(promises, self._encode_output(), limited)
        if self.eof:
            self._shorten_limits(self.limits)
        if self.timer is None or self.limits.due < self.timer[0]:
            self._owner.set_timer(self)

    def end_input(self) -> None:
        """Handle the end of input. The client may be gone: replies with limits wait for DRAIN_TIME at most."""
        self.eof = True
        self.peer.receive_eof()
        if self.limits is not None:
            self._shorten_limits(self.limits)
            self._owner.set_timer(self)
        self.output_ready()

    @property
    def is_paused(self) -> bool:
        """Return True if the connection is not read because its client is over its rate."""
        return self.paused_until != NEVER

    def end_paused(self) -> None:
        """End a connection that is not read and whose client sends no more: only executed commands are answered."""
        self.end_input()
        self.peer.outbox.end()

    @property
    def is_stranger(self) -> bool:
        """Return True if the connection may be closed to make room for others."""
        layers = self.layers
        return not self.closed and ((layers is not None and layers.handshaking) or self.peer.is_stranger)

    def displace(self) -> bool:
        """End the connection soon, unless its client is known. Returns False if it is. Any thread may call this."""
        try:
            is_stranger = self.is_stranger
        except AttributeError:  # the reactor's thread has just closed it
            return False
        if is_stranger:
            self._owner.displace(self)
        return is_stranger

    def _shorten_limits(self, limits: ReplyLimits) -> None:
        limits.shorten(self._owner.now + DRAIN_TIME, self.peer.outbox.lost)

    def expire_limits(self, now: int) -> None:
        """Send errors for the replies whose limits are over at `now` (ns), in this turn."""
        if self.limits is not None and self.limits.due <= now:
            self.limits.expire(now)
            self.output_ready()

    @property
    def waits_in_vain(self) -> bool:
        """Return True if output waits for a promise that will never be kept."""
        return any(promise.is_broken for promises, _ in self.sealed for promise in promises)

    def end_in_vain(self) -> bool:
        """End with `Outbox.lost`: replies have waited in vain. Returns False, so close it, if layers have encoded output."""
        outbox = self.peer.outbox
        if (
            self.layers is not None
            or not outbox.lost
            or any(p.mark.broken for promises, _ in self.sealed for p in promises)
        ):
            return False
        self.sealed = [([], self._take_kept())]
        outbox.break_off()
        outbox.reply(outbox.lost)
        return True

    def send(self, now: int) -> bool:
        """Send what may leave at `now` (ns). Return False if the reactor has to check `broken` or unfinished work."""
        peer, layers = self.peer, self.layers
        outbox, unsent = peer.outbox, self._unsent
        if not self.sealed:  # the same as _encode_output without the call, because this runs once a reply
            output = outbox.drain() if layers is None else layers.encode_output(peer)
        else:
            output = self._released() if are_kept(self.sealed[0][0]) else []
        if unsent:
            output.insert(0, unsent)
        data = output[0] if len(output) == 1 else b"".join(output)
        if data:
            try:
                sent = self.socket.send(data)
            except BlockingIOError:
                sent = 0
            except OSError:  # reset or broken pipe: the client is gone, and the next read reports the same
                self.broken = True
                return False
            if sent < len(data):
                if not self._blocked_since or sent:
                    self._blocked_since = now
                self._unsent = data[sent:]
                outbox.unsent = len(self._unsent)
                return False
        if unsent or outbox.refused:
            self._blocked_since = 0
            self._unsent = b""
            outbox.unsent = 0
            outbox.refused = False
            peer.network_ready()
        if (
            self.writing
            or self.eof
            or self.starved
            or not self.reading
            or (self.sealed and len(self.sealed) > self.endpoint.bounds.sealed)
        ):
            return False
        if peer.waiting or outbox.closing or peer.has_more or (self.metered and not peer.buffered):
            return False
        return not self.pending and (layers is None or not (layers.has_more or self.handshake))

    def _released(self) -> list[bytes]:
        """Return the sealed output whose promises are kept, as the first ones are, and what came after it if none is left."""
        output = self._take_kept() if len(self.sealed) > 1 else self.sealed.pop()[1]
        return output if self.sealed else output + self._encode_output()

    def _take_kept(self) -> list[bytes]:
        """Take out the sealed output up to the first promise that is not kept."""
        taken, output = 0, []
        for promises, sealed in self.sealed:
            if not are_kept(promises):
                break
            taken += 1
            output += sealed
        del self.sealed[:taken]
        return output

    def _encode_output(self) -> list[bytes]:
        """Return the output of the peer, encoded for the network."""
        return self.peer.outbox.drain() if self.layers is None else self.layers.encode_output(self.peer)

    def say_goodbye(self) -> None:
        """Send the layers' goodbye, if the network takes it now, and shut down the sending side."""
        data = self.layers.goodbye() if self.layers is not None else b""
        try:
            if data:
                self.socket.send(data)
            self.socket.shutdown(socket.SHUT_WR)
        except OSError:  # the client closed first, and the next read reports it
            pass

    def write_deadline(self) -> int | None:
        """Return the time (ns) at which to close a connection that accepts nothing, or None if no output waits."""
        if not self._unsent:
            return None
        return self._blocked_since + (self.peer.patience or WRITE_DEADLINE)

    # input

    @property
    def has_more(self) -> bool:
        """Return True if there is input that was received: of a handshake, in the peer's buffer, or in the layers."""
        if self.peer.has_more or self.pending:
            return True
        return self.layers is not None and (self.layers.has_more or self.handshake != b"")

    @property
    def has_unread(self) -> bool:
        """Return True if there is such input and the peer may handle it now."""
        if not self.has_more or self.starved:
            return False
        return not (self.peer.outbox.closing or self.peer.waiting or self._is_clogged)

    @property
    def wants_input(self) -> bool:
        """Return whether to read from the socket: False while input waits, or while the client does not read its replies."""
        if self.drain_until:
            return not self.eof
        return not (self.eof or self.starved or self.peer.waiting or self.has_more or self._is_clogged)

    @property
    def _is_clogged(self) -> bool:
        """Return True if so much output waits for the network, or for the log, that nothing more is read."""
        unsent = len(self._unsent)
        bounds = self.endpoint.bounds
        if unsent >= bounds.unsent or len(self.sealed) > bounds.sealed:
            return True
        if self.usage is not None and self.usage.has_output:
            return True
        return unsent > FREE and self._owner.budget.is_full
