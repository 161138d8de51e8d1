"""Serve one client's connection: bytes in, commands done, bytes out.

Bytes come in by `receive` and go out by `take_output`; the peer notifies its Transport of output and of timers. It opens no
socket and reads no clock. Replies come strictly in the order of the commands, with messages and heartbeats between them. TLS
and compression are the transport's: the peer agrees on them and sees plain bytes.

`closing` means that the connection ends when its output is sent. `waiting` means that the current command waits for an
authorization server, or for nsqlookupd to know a new topic, and that no later input is parsed.
"""

from nsqd.core.channel.consumer import Consumer
from nsqd.core.message.frame import HEARTBEAT, OK, response
from nsqd.protocols.account import Account
from nsqd.protocols.nsq.access import InDebt, Waiting
from nsqd.protocols.nsq.commands import Later, MpubScan, NeedMore, read_line, require
from nsqd.protocols.nsq.context import Context
from nsqd.protocols.nsq.creation import Topics
from nsqd.protocols.nsq.errors import LOST_COPY, Dropped, NotAllowedError, WireError, fail
from nsqd.protocols.nsq.introduction import Introduction
from nsqd.protocols.nsq.publisher import Publisher
from nsqd.protocols.nsq.subscription import INIT, Subscription
from nsqd.protocols.outbox import Outbox
from nsqd.protocols.transport import NEVER, Fact, Transport
from shared.audit.event import Event, Outcome
from shared.tls.info import TlsInfo

MAGIC = b"  V2"
_PUB = b"PUB "
_F, _PUBLISHES = ord("F"), b"PM"  # the first letters of FIN, and of PUB and MPUB
# Commands, or stretches of fast ones, that are handled in a row: the most expensive take 10 us, and a turn has other clients
# (16,384 RDYs in 64 KiB took 30 ms). A PUB to a topic that had none in this turn takes 40 us with what follows from it.
MOST_COMMANDS = 128


class Peer:
    """The state machine of one NSQ client. Implements nsqd.protocols.conversation.Conversation."""

    is_heavy = False

    __slots__ = (
        "_buffer", "_context", "_is_held", "_liveness", "_need", "_publisher", "_settings", "_started", "_transport",
        "at_eof", "body_since", "buffered", "connected", "errors", "has_more", "introduction", "outbox", "port",
        "remote_ip", "subscription", "waiting",
    )  # fmt: skip

    def __init__(self, context: Context, transport: Transport, remote_ip: str, port: str, now: int, wall: int) -> None:
        self._context = context
        broker, settings = context.broker, context.settings
        self._settings = settings
        self._transport = transport
        self.remote_ip = remote_ip  # "" for a unix socket
        self.port = port
        self.connected = wall  # ns since the epoch
        self.errors = 0  # errors that the client was answered
        self.waiting = False  # True: input is kept, not parsed, until `resume`
        self.buffered = 0  # bytes of the current command when it is complete; 0: no command is half-received
        self.body_since = -1  # ns: when its body began to come; -1: its line is not complete
        # True: `receive` has stopped at MOST_COMMANDS, or in a large MPUB; call it again in the next turn, with no data.
        self.has_more = False
        self.at_eof: WireError | None = None  # the error to send if the peer stops sending in the middle of a command
        self.outbox = Outbox(transport, LOST_COPY)
        self.introduction = Introduction(context, self, transport, remote_ip, now)
        self._liveness = self.introduction.liveness
        access = self.introduction.access
        topics = Topics(context, transport, access)
        self._publisher = Publisher(broker, topics, settings, access, self.outbox)
        self.subscription = Subscription(topics, settings, access, self.outbox, transport, self._fail)
        self._is_held = False  # True: a publish waits until the account of the client is out of debt
        self._started = False  # True: the client sent the right magic
        self._buffer = bytearray()  # input of a command that is not complete
        self._need = 4  # bytes that the buffer needs before parsing makes sense
        if access.credential is not None:
            access.credential.show_user()

    # input

    def receive(self, data: bytes, now: int) -> None:
        """Handle the complete commands in `data` and in input kept before, up to MOST_COMMANDS; keep the rest."""
        self.has_more = False
        if self._buffer or self.waiting:
            self._buffer += data
            if len(self._buffer) < self._need or self.waiting:
                return
            data = bytes(self._buffer)
            self._buffer.clear()
        elif data.startswith(_PUB) and self._publisher.repeat(data, now):
            self._liveness.last_activity = now  # what else `_command` does was done for the PUB before
            return
        self.buffered = 0
        position = self._handle(data, 0 if self._started else self._check_magic(data), now)
        if self._publisher.scan is not None:
            self._note_scan(self._publisher.scan, now)
        if position < len(data) and not self.outbox.closing:
            self._buffer += data[position:] if position else data

    def _handle(self, data: bytes, position: int, now: int) -> int:
        """Handle the complete commands from `position` on, up to MOST_COMMANDS. Return where the rest begins."""
        size, outbox, publisher = len(data), self.outbox, self._publisher
        for _ in range(MOST_COMMANDS):
            if outbox.closing:
                return position
            if position >= size and publisher.batch is None and (publisher.scan is None or not publisher.scan.complete):
                return position
            try:
                position = self._command(data, position, now)
            except NeedMore as more:
                return self._keep(more, position, now)
            except Later as later:
                self._need = 0
                self.has_more = True
                if self._publisher.scan is None and self._publisher.batch is None:  # the exception ended a command
                    self._done(now)
                return later.start
            except InDebt as debt:
                self.waiting = self._is_held = True
                return debt.start or position
            except Waiting:
                self.waiting = True
                return position
            except WireError as failure:
                self._fail(failure)
            except Dropped:
                self._note_failure("failed to read command - the line is too long")
                outbox.break_off()
        self._need = 0
        self.has_more = position < size and not outbox.closing
        return position

    def _keep(self, more: NeedMore, position: int, now: int) -> int:
        """Note what the incomplete command at `position` needs. Return the position from which on input is kept."""
        self._need = more.size
        self.at_eof = more.at_eof
        self.body_since = -1 if more.at_eof is None else self._body_began(now)
        self.buffered = more.size
        return max(position, more.start)

    def _note_scan(self, scan: MpubScan, now: int) -> None:
        """Account for a large MPUB that still arrives, or is read in slices: it keeps the memory that it has reserved."""
        self.buffered = max(scan.memory, scan.size + self.buffered)
        if self.has_more:
            self.at_eof = scan.need(b"", 0).at_eof
        self.body_since = self._body_began(now)

    def receive_eof(self) -> None:
        """Fail a command that stays incomplete, and close: the client sends no more."""
        if self.at_eof is not None and not self.closing:
            self._fail(self.at_eof)
        self.outbox.closing = True

    def break_off(self, why: str = "") -> None:
        self.outbox.break_off()

    def resume(self, now: int) -> None:
        """Continue with the command that waited for another server."""
        self._publisher.forget_topics()  # the authorization servers may have answered, so earlier permissions may not hold
        self.waiting = False
        self._need = 0
        self.receive(b"", now)

    def rights_changed(self) -> None:
        """End the connection if the client, or its subscription, is no longer allowed."""
        self._publisher.forget_topics()
        if not self.introduction.access.renew(*self.subscription.consumes()):
            self._fail(WireError("E_UNAUTHORIZED", "AUTH is no longer valid"))
            self.outbox.end()

    def disconnect(self) -> int:
        """End the connection for an operator, make its messages in flight ready again, and return their number."""
        count = self.subscription.leave()
        fail(self.outbox, WireError("E_INVALID", "disconnected by an operator"))
        self.outbox.end()
        return count

    def upgraded(self, tls: TlsInfo | None = None) -> None:
        """Answer OK through the layer that is in place now: TLS if `tls` is given, else compression."""
        self.introduction.upgraded(tls)
        self._publisher.forget_topics()  # the client may have had another identity, on a unix socket
        self.outbox.reply(OK)

    def disconnected(self) -> None:
        """Release everything: the connection is gone. Messages in flight wait for their timeout."""
        self.outbox.closing = True
        self._buffer.clear()
        self.buffered = 0
        self.has_more = False
        self._publisher.scan = self._publisher.batch = None
        self._publisher.forget_topics()
        self.subscription.disconnected()
        self.introduction.access.close()
        if self._started:
            self._started = False  # the reactor calls this twice if the connection was drained
            self._transport.record_fact(Fact.LEFT, self._client())

    def _fail(self, failure: WireError) -> None:
        """Answer an error, count it, and have it logged; a refusal is recorded in the audit, too."""
        if isinstance(failure, NotAllowedError) and self._context.audit is not None:
            who, kind = self.introduction.access.who()
            event = Event("nsq", failure.action, failure.target, Outcome.REFUSED, who, kind, address=self.remote_ip)
            self._context.audit(event)
        self.errors += 1
        self._context.broker.client_errors["nsq", failure.code] += 1
        self._note_failure(failure.data.decode("utf-8", "backslashreplace"))
        fail(self.outbox, failure)

    def _note_failure(self, text: str) -> None:
        self._transport.record_fact(Fact.FAILED, self._client(), text)

    def _client(self) -> str:
        """Return the client's address as the log shows it."""
        return f"{self.remote_ip}:{self.port}" if self.remote_ip else "@"

    def _check_magic(self, data: bytes) -> int:
        if len(data) < len(MAGIC):
            self._need = len(MAGIC)
            self._buffer += data
            return len(data)
        if not data.startswith(MAGIC):
            self._transport.note_foreign("TCP", data)
            self._fail(WireError("E_BAD_PROTOCOL"))
            return 0
        self._started = True
        self._transport.record_fact(Fact.JOINED, self._client())
        return len(MAGIC)

    def _body_began(self, now: int) -> int:
        """Return the time at which the current body began to come: now, if a command was completed since the last one began."""
        return now if self._liveness.last_activity >= self.body_since else self.body_since

    def _command(self, data: bytes, start: int, now: int) -> int:
        """Handle the command at `start`, or several of the same kind; return where the next one begins."""
        self.at_eof = None
        scan, batch = self._publisher.scan, self._publisher.batch
        if batch is not None:
            end = self._publisher.publish_more(batch, start)
        elif scan is not None:
            end = self._publisher.continue_mpub(scan, data, start, now)
        else:
            letter = data[start]
            if letter == _F:
                end = self.subscription.fast_fin(data, start)
            elif letter in _PUBLISHES:
                end = self._publisher.fast(data, start, now)
            else:
                end = 0
            if not end:
                end = self._slow(data, start, now)
        self._done(now)
        return end

    def _done(self, now: int) -> None:
        """Note that a command was completed: from the first one on, heartbeats keep the connection."""
        liveness = self._liveness
        first, liveness.last_activity = liveness.last_activity < 0, now
        if first:
            self._transport.timer_changed()

    def _slow(self, data: bytes, start: int, now: int) -> int:
        """Handle any command by its exact reading; return where the next one begins."""
        words, at = read_line(data, start)
        publisher, subscription = self._publisher, self.subscription
        if self._settings.tls_required and self.introduction.tls is None and words[0] != b"IDENTIFY":
            raise WireError("E_INVALID", b"cannot %s in current state (TLS required)" % words[0])
        match words[0]:
            case b"RDY":
                subscription.rdy(words)
            case b"FIN":
                subscription.fin(words)
            case b"REQ":
                subscription.req(words, now)
            case b"PUB":
                return publisher.pub(words, data, start, at, now)
            case b"TOUCH":
                subscription.touch(words, now)
            case b"MPUB":
                return publisher.mpub(words, data, start, at, now)
            case b"DPUB":
                return publisher.dpub(words, data, start, at, now)
            case b"HPUB" | b"HDPUB" | b"HMPUB" if publisher.takes_headers:
                return publisher.with_headers(words, data, start, at, now)
            case b"SUB":
                subscription.sub(words, self.introduction.agreed, self.introduction.identity, now)
            case b"CLS":
                subscription.cls()
            case b"IDENTIFY":
                return self._identify(data, start, at, now)
            case b"AUTH":
                return self._auth(words, data, start, at)
            case b"NOP":
                pass
            case _:
                raise WireError("E_INVALID", b"invalid command " + words[0])
        return at

    def _identify(self, data: bytes, start: int, at: int, now: int) -> int:
        require(self.state == INIT and not self.introduction.identity.upgrade.changes, "IDENTIFY")
        reply, end = self.introduction.identify(data, start, at, now)
        self.outbox.reply(response(reply))
        identity = self.introduction.identity
        self._transport.record_fact(Fact.IDENTIFIED, self._client(), identity.summary())
        publisher = self._publisher
        publisher.deduplicates, publisher.takes_headers = identity.deduplication, identity.headers
        publisher.copies = identity.replicate
        if not identity.upgrade.changes:
            return end
        self._transport.upgrade(identity.upgrade)
        return len(data)  # input sent ahead of the upgrade did not pass through it, so it is discarded

    def _auth(self, words: list[bytes], data: bytes, start: int, at: int) -> int:
        require(self.state == INIT, "AUTH")
        reply, end = self.introduction.auth(words, data, start, at)
        self._publisher.forget_topics()  # the client may have had another identity
        self.outbox.reply(response(reply))
        return end

    # output

    def take_output(self) -> list[bytes]:
        return self.outbox.drain()

    # time

    def next_timer(self) -> int:
        if self.closing:
            return NEVER
        if not self._liveness.is_established:
            return self._read_deadline()
        return min(
            self._liveness.heartbeat_due, self._read_deadline(), self.outbox.flush_due, self.subscription.ask_again_at
        )

    def tick(self, now: int) -> None:
        """Send a heartbeat or the held messages, or close the connection of an unresponsive client, if it is time."""
        if self.closing:
            return
        is_established = self._liveness.is_established
        if is_established and self._liveness.takes_heartbeat(now):
            self.outbox.reply(HEARTBEAT)
        if now >= self._read_deadline():
            if self._liveness.last_activity < 0:
                self._context.broker.refused["identify_timeout"] += 1
            self._note_failure("failed to read command - i/o timeout")
            self.outbox.end()
            return
        if not is_established:
            return
        if now >= self.outbox.flush_due:
            self.subscription.tick(now)
        if now >= self.subscription.ask_again_at:
            self.subscription.look_for_room(now)

    def _read_deadline(self) -> int:
        """Return the time (ns) at which the connection of a client that sends nothing is closed."""
        # the client has sent something that is not handled yet, or is not read
        if self.waiting or self.has_more or self._is_paused():
            return NEVER
        return self._liveness.deadline()

    # the client's identity: see nsqd.protocols.account.AccountClient

    def published(self) -> tuple[int, int]:
        return self._publisher.published()

    def in_flight(self) -> int:
        return self.subscription.in_flight()

    @property
    def is_executing(self) -> bool:
        return not self._is_held and (self._publisher.batch is not None or self._publisher.scan is not None)

    def hold_back(self) -> None:
        """Do nothing: the consumer's sink is asked before each delivery."""

    def joined_account(self, account: Account) -> None:
        """Do nothing: the consumer counts what it has in flight."""

    def limits_changed(self) -> None:
        self.subscription.limits_changed()
        self.debt_began()

    def debt_began(self) -> None:
        self.introduction.access.ask_for_debt()

    def pause_ended(self, now: int) -> None:
        self._liveness.last_activity = now
        if self._is_held:
            self._is_held = self.waiting = False
            self._need = 0
            self.has_more = True

    def _is_paused(self) -> bool:
        credential = self.introduction.access.credential
        usage = credential.usage if credential is not None else None
        return usage is not None and usage.is_paused

    # queries

    @property
    def closing(self) -> bool:
        """Return True if no more input is read, and the connection ends with its output."""
        return self.outbox.closing

    @property
    def is_stranger(self) -> bool:
        """Return True until the client has shown who it is, where that is asked for, or else until its first command."""
        if self._settings.auth_required:
            return not self.introduction.access.is_known
        return self._liveness.last_activity < 0

    @property
    def patience(self) -> int:
        return self._liveness.interval

    def network_ready(self) -> None:
        """Offer the consumer messages again, because there may be room now."""
        self.subscription.network_ready()

    @property
    def state(self) -> int:
        """Return the state of the subscription: INIT, SUBSCRIBED or CLOSING."""
        return self.subscription.state

    @property
    def consumer(self) -> Consumer | None:
        """Return the consumer: there is one from SUB until the connection or the channel is gone."""
        return self.subscription.consumer

    @property
    def pub_counts(self) -> dict[str, int]:
        """Return the number of messages published, by topic."""
        return self._publisher.counts
