"""One client's connection: what it may say, what it is answered, what waits to be sent to it.

Bytes come in by `receive`, go out by `take_output`; a Transport is told when there is something to send or a time to
wait for. It opens no socket and reads no clock. Replies come strictly in the order of the commands; messages and heartbeats
stand between them. TLS and compression are the transport's: the peer agrees on them and sees plain bytes.

State (specs/nsq.md a4): INIT -> SUB -> SUBSCRIBED -> CLS -> CLOSING; `closing` means that the connection ends when its
output is sent. `waiting`: the command at hand waits for an authorization server, and nothing behind it is looked at.
"""

from collections.abc import Callable

from nsqd.core.broker import Broker, TooMany
from nsqd.core.consumer import ELSEWHERE, SAME_REGION, SAME_ZONE, Consumer
from nsqd.core.frame import CLOSE_WAIT, HEARTBEAT, OK, error, response
from nsqd.core.topic import Topic
from nsqd.protocols.nsq import fast
from nsqd.protocols.nsq.access import Access, Waiting
from nsqd.protocols.nsq.authorization import Authorization, AuthRefused, Question
from nsqd.protocols.nsq.commands import (
    AUTH_BODY,
    DPUB_BODY,
    IDENTIFY_BODY,
    PUB_BODY,
    MpubScan,
    NeedMore,
    parse_number,
    read_body,
    read_line,
    read_mpub_count,
)
from nsqd.protocols.nsq.errors import Dropped, WireError, quote
from nsqd.protocols.nsq.identify import Identity, Upgrade, answer, apply, decode
from nsqd.protocols.nsq.outbox import NEVER, Outbox, Transport
from nsqd.protocols.nsq.settings import HANDSHAKE_TIMEOUT, MAX_PENDING_OUTPUT, MILLISECOND, Settings
from penstock.protocol.names import is_valid_name
from shared.tls_info import TlsInfo

INIT, SUBSCRIBED, CLOSING = 0, 3, 4

MAGIC = b"  V2"
MOST_KNOWN = 256  # topics a connection remembers: honest producers have a few
ID_SIZE = 16
_PUB, _MPUB, _FIN = b"PUB ", b"MPUB ", b"FIN "


class Peer:
    """See above."""

    __slots__ = (
        "_broker",
        "_buffer",
        "_heartbeat_due",
        "_known",
        "_mpub",
        "_need",
        "_opened",
        "_outbox",
        "_pump",
        "_settings",
        "_started",
        "_transport",
        "_upgrade_due",
        "access",
        "at_eof",
        "closing",
        "connected",
        "consumer",
        "identified",
        "identity",
        "last_activity",
        "port",
        "pub_counts",
        "published",
        "remote_ip",
        "state",
        "tls",
        "waiting",
    )

    def __init__(
        self, broker: Broker, settings: Settings, transport: Transport, remote_ip: str, port: str, now: int, wall: int
    ) -> None:
        self._broker = broker
        self._settings = settings
        self._transport = transport
        self.remote_ip = remote_ip  # "" for a unix socket
        self.port = port
        self.connected = wall  # ns since the epoch
        self.state = INIT
        self.closing = False  # no more input is read; the connection ends with its output
        self.waiting = False  # input is kept, not looked at, until `authorized`
        self.consumer: Consumer | None = None  # from SUB on, until the connection or the channel goes
        self.identified = False
        self.identity = Identity(
            client_id=remote_ip,
            hostname=remote_ip,
            output_buffer_timeout=settings.output_buffer_timeout,
            msg_timeout=settings.msg_timeout,
        )
        self._pump = self.identity  # what delivery keeps to: the first IDENTIFY's, whatever later ones say (quirk)
        self.pub_counts: dict[str, int] = {}  # messages published, by topic
        self.published = False  # True: replies wait for this turn's commit
        self.at_eof: WireError | None = None  # what to say if the peer stops sending in the middle of a command
        self.tls: TlsInfo | None = None  # of the handshake, once it is done
        self.access = Access(settings.auth_required, self._ask)
        self.last_activity = -1  # ns of the last complete command; negative: there was none
        self._opened = now
        self._upgrade_due = NEVER  # when a TLS handshake under way must be done
        self._started = False  # True: the magic was right
        self._buffer = bytearray()  # input of a command that is not complete
        self._need = 4  # bytes of it without which parsing is pointless
        self._mpub: MpubScan | None = None  # an MPUB whose messages are still coming
        self._known: dict[bytes, Topic] = {}  # topics published to by this peer
        self._outbox = Outbox(transport)
        self._heartbeat_due = now + self.identity.heartbeat_interval

    # input

    def receive(self, data: bytes, now: int) -> None:
        """Handle every complete command in `data` and what was kept before; keep the rest."""
        if self._buffer or self.waiting:
            self._buffer += data
            if len(self._buffer) < self._need or self.waiting:
                return
            data = bytes(self._buffer)
            self._buffer.clear()
        position = 0 if self._started else self._check_magic(data)
        size = len(data)
        while position < size and not self.closing:
            try:
                position = self._command(data, position, now)
            except NeedMore as more:
                self._need = more.size
                self.at_eof = more.at_eof
                break
            except Waiting:
                self.waiting = True
                break
            except WireError as failure:
                self._fail(failure)
            except Dropped:
                self.break_off()
        if position < size and not self.closing:
            self._buffer += data[position:] if position else data

    def receive_eof(self) -> None:
        """The peer sends no more."""
        if self.at_eof is not None and not self.closing:
            self._fail(self.at_eof)
        self.closing = True

    def break_off(self) -> None:
        """End the connection without a word: what came is not of this protocol, TLS or compression."""
        self.closing = True
        self._outbox.drop()
        self._transport.output_ready()

    def authorized(self, answer: Authorization | AuthRefused, now: int) -> None:
        """What the authorization servers say to the question asked last: go on with the command that waited."""
        self.access.answered(answer)
        self.waiting = False
        self._known.clear()  # they were allowed before
        self._need = 0
        self.receive(b"", now)

    def upgraded(self, tls: TlsInfo | None = None) -> None:
        """The next layer stands, TLS (`tls`) or compression: the client is told so through it."""
        if tls is not None:
            self.tls = tls
            self._upgrade_due = NEVER
            self._transport.timer_changed()  # heartbeats begin
        self._outbox.reply(OK)

    def _check_magic(self, data: bytes) -> int:
        if len(data) < len(MAGIC):
            self._need = len(MAGIC)
            self._buffer += data
            return len(data)
        if not data.startswith(MAGIC):
            self._outbox.reply(error(b"E_BAD_PROTOCOL"))
            self.closing = True
            return 0
        self._started = True
        return len(MAGIC)

    def _command(self, data: bytes, start: int, now: int) -> int:
        """Handle the command at `start`, or several alike; return where the next one begins."""
        self.at_eof = None
        if self._mpub is not None:
            return self._continue_mpub(self._mpub, data, start, now)
        end = self._fast(data, start, now) or self._slow(data, start, now)
        if self._mpub is None:
            self.last_activity = now
        return end

    def _fast(self, data: bytes, start: int, now: int) -> int:
        """The common shapes. 0: take the slow path."""
        if data.startswith(_FIN, start):
            consumer = self.consumer
            ids = fast.fins(data, start) if consumer is not None else None
            if ids is None or consumer is None:
                return 0
            for message_id, why in consumer.finish(ids):
                self._fail(_failed("FIN", message_id, why))
            return start + len(ids) // ID_SIZE * fast.FIN_SIZE
        if now >= self.access.until:
            return 0
        if data.startswith(_PUB, start):
            one = fast.pub(data, start, self._settings.max_msg_size)
            topic = self._known.get(one[0]) if one else None
            if one is None or topic is None or topic.deleted:
                return 0
            self._publish(topic, [one[1]], len(one[1]))
            return one[2]
        if data.startswith(_MPUB, start):
            settings = self._settings
            many = fast.mpub(data, start, settings.max_msg_size, settings.max_body_size)
            topic = self._known.get(many[0]) if many else None
            if many is None or topic is None or topic.deleted:
                return 0
            self._publish(topic, many[1], many[2])
            return many[3]
        return 0

    def _slow(self, data: bytes, start: int, now: int) -> int:
        """Any command, exactly."""
        words, at = read_line(data, start)
        if self._settings.tls_required and self.tls is None and words[0] != b"IDENTIFY":
            raise WireError("E_INVALID", b"cannot %s in current state (TLS required)" % words[0])
        handler = _HANDLERS.get(words[0])
        if handler is None:
            raise WireError("E_INVALID", b"invalid command " + words[0])
        end = handler(self, words, data, start, at, now)
        if self.last_activity < 0 and self._mpub is None:
            self._first_command(now)
        return end

    # commands: (words of the line, the buffer, where the command began, where its line ended, now) -> where it ended

    def _identify(self, words: list[bytes], data: bytes, start: int, at: int, now: int) -> int:
        self._require(self.state == INIT and not self.identity.upgrade.changes, "IDENTIFY")
        body, end = read_body(data, start, at, IDENTIFY_BODY, self._settings.max_body_size)
        asked = decode(body)
        self.identity, failure = apply(asked, self._settings)
        if failure is not None:
            raise failure
        if not self.identified:
            self._pump = self.identity
            self._heartbeat_due = now + (self._pump.heartbeat_interval or NEVER)
        self.identified = True
        self._transport.timer_changed()
        self._outbox.reply(response(answer(self.identity, self._settings)))
        if not self.identity.upgrade.changes:
            return end
        self._begin_upgrade(self.identity.upgrade, now)
        return len(data)  # what was sent ahead of the upgrade did not come through it: it is not believed

    def _auth(self, words: list[bytes], data: bytes, start: int, at: int, now: int) -> int:
        self._require(self.state == INIT, "AUTH")
        if len(words) != 1:
            raise WireError("E_INVALID", "AUTH invalid number of parameters")
        secret, end = read_body(data, start, at, AUTH_BODY, self._settings.max_body_size)
        self._outbox.reply(response(self.access.auth(secret)))
        return end

    def _sub(self, words: list[bytes], data: bytes, start: int, at: int, now: int) -> int:
        self._require(self.state == INIT, "SUB")
        if not self.identity.heartbeat_interval:
            raise WireError("E_INVALID", "cannot SUB with heartbeats disabled")
        if len(words) < 3:
            raise WireError("E_INVALID", "SUB insufficient number of parameters")
        topic_name = _name(words[1], "E_BAD_TOPIC", "SUB topic")
        channel_name = _name(words[2], "E_BAD_CHANNEL", "SUB channel")
        self.access.check("SUB", topic_name, channel_name, now)
        try:
            channel = self._broker.topic(topic_name).channel(channel_name)
        except TooMany as full:
            raise WireError("E_SUB_FAILED", f"SUB failed {full}") from None
        limit = self._settings.max_channel_consumers
        if limit and len(channel.consumers) >= limit:
            text = f"SUB failed consumers for {topic_name}:{channel_name} exceeds limit of {limit}"
            raise WireError("E_SUB_FAILED", text)
        self.consumer = channel.subscribe(self, self._pump.msg_timeout, self._pump.sample_rate, self._distance())
        self.state = SUBSCRIBED
        self._outbox.reply(OK)
        return at

    def _pub(self, words: list[bytes], data: bytes, start: int, at: int, now: int) -> int:
        if len(words) < 2:
            raise WireError("E_INVALID", "PUB insufficient number of parameters")
        name = _name(words[1], "E_BAD_TOPIC", "PUB topic")
        body, end = read_body(data, start, at, PUB_BODY, self._settings.max_msg_size)
        self.access.check("PUB", name, "", now)
        self._publish(self._topic(name, "PUB"), [body], len(body))
        return end

    def _dpub(self, words: list[bytes], data: bytes, start: int, at: int, now: int) -> int:
        if len(words) < 3:
            raise WireError("E_INVALID", "DPUB insufficient number of parameters")
        name = _name(words[1], "E_BAD_TOPIC", "DPUB topic")
        delay = parse_number(words[2])
        if delay is None:
            raise WireError("E_INVALID", b"DPUB could not parse timeout " + words[2])
        longest = self._settings.max_req_timeout // MILLISECOND
        if delay > longest:
            raise WireError("E_INVALID", f"DPUB timeout {delay} out of range 0-{longest}")
        body, end = read_body(data, start, at, DPUB_BODY, self._settings.max_msg_size)
        self.access.check("DPUB", name, "", now)
        topic = self._topic(name, "DPUB")
        if delay:
            topic.publish_deferred(body, now + delay * MILLISECOND)
            self._published(topic, 1)
        else:
            self._publish(topic, [body], len(body))
        return end

    def _mpub_begin(self, words: list[bytes], data: bytes, start: int, at: int, now: int) -> int:
        if len(words) < 2:
            raise WireError("E_INVALID", "MPUB insufficient number of parameters")
        name = _name(words[1], "E_BAD_TOPIC", "E_BAD_TOPIC MPUB topic")  # the code really stands twice
        self.access.check("MPUB", name, "", now)
        self._topic(name, "MPUB")
        settings = self._settings
        count, at = read_mpub_count(data, start, at, settings.max_body_size)
        self._mpub = MpubScan(name, count, settings.max_msg_size, settings.max_body_size)
        return self._continue_mpub(self._mpub, data, at, now)

    def _continue_mpub(self, scan: MpubScan, data: bytes, at: int, now: int) -> int:
        at = scan.feed(data, at)
        if not scan.complete:
            more = scan.need(data, at)
            self._need = more.size
            self.at_eof = more.at_eof
            self._buffer += data[at:]
            return len(data)
        self._mpub = None
        if self.last_activity < 0:
            self._first_command(now)
        self.last_activity = now
        self._publish(self._topic(scan.topic, "MPUB"), scan.bodies, scan.size)
        return at

    def _rdy(self, words: list[bytes], data: bytes, start: int, at: int, now: int) -> int:
        if self.state == CLOSING:
            return at  # silently: the client may not know yet
        self._require(self.state == SUBSCRIBED, "RDY")
        count = parse_number(words[1]) if len(words) > 1 else 1
        if count is None:
            raise WireError("E_INVALID", b"RDY could not parse count " + words[1])
        if count > self._settings.max_rdy_count:
            raise WireError("E_INVALID", f"RDY count {_signed(count)} out of range 0-{self._settings.max_rdy_count}")
        if self.consumer is not None:
            self.consumer.set_ready(count)
        return at

    def _fin(self, words: list[bytes], data: bytes, start: int, at: int, now: int) -> int:
        consumer, message_id = self._in_flight_command("FIN", 2, words)
        for failed, why in consumer.finish(message_id):
            self._fail(_failed("FIN", failed, why))
        return at

    def _req(self, words: list[bytes], data: bytes, start: int, at: int, now: int) -> int:
        consumer, message_id = self._in_flight_command("REQ", 3, words)
        delay = parse_number(words[2])
        if delay is None:
            raise WireError("E_INVALID", b"REQ could not parse timeout " + words[2])
        why = consumer.requeue(message_id, min(delay * MILLISECOND, self._settings.max_req_timeout), now)
        if why:
            self._fail(_failed("REQ", message_id, why))
        return at

    def _touch(self, words: list[bytes], data: bytes, start: int, at: int, now: int) -> int:
        consumer, message_id = self._in_flight_command("TOUCH", 2, words)
        why = consumer.touch(message_id, self.identity.msg_timeout, self._settings.max_msg_timeout, now)
        if why:
            self._fail(_failed("TOUCH", message_id, why))
        return at

    def _cls(self, words: list[bytes], data: bytes, start: int, at: int, now: int) -> int:
        self._require(self.state == SUBSCRIBED, "CLS")
        self.state = CLOSING
        if self.consumer is not None:
            self.consumer.set_ready(0)
        self._outbox.reply(CLOSE_WAIT)
        return at

    def _nop(self, words: list[bytes], data: bytes, start: int, at: int, now: int) -> int:
        return at

    # output

    def deliver(self, frames: list[bytes], size: int, now: int) -> None:
        """Messages for the client. Held back as it asked for; sent at once when its window or its buffer is full."""
        outbox, consumer, agreed = self._outbox, self.consumer, self._pump
        outbox.hold(frames, size)
        if (
            outbox.size >= min(agreed.output_buffer_size, MAX_PENDING_OUTPUT)
            or consumer is None
            or consumer.in_flight >= consumer.ready
        ):
            outbox.flush()
        elif agreed.output_buffer_timeout:
            outbox.flush_by(now + agreed.output_buffer_timeout)

    def take_output(self) -> list[bytes]:
        """Everything that waits to be sent."""
        self.published = False
        return self._outbox.take()

    def room(self) -> int:
        """Bytes of messages that may be taken for the client now."""
        return 0 if self.closing else self._outbox.room(MAX_PENDING_OUTPUT)

    def flush(self) -> None:
        """The client has stopped being ready: nothing is held back."""
        self._outbox.flush()

    def evicted(self) -> None:
        """The channel was deleted: so is the connection."""
        self.consumer = None
        self.closing = True
        self._transport.output_ready()

    def disconnected(self) -> None:
        """The connection is gone; what is in flight waits for its time-out, and nothing else is kept."""
        self.closing = True
        self._buffer.clear()
        self._mpub = None
        self._known.clear()
        self.access.close()
        if self.consumer is not None:
            consumer, self.consumer = self.consumer, None
            consumer.channel.unsubscribe(consumer)

    # time

    def next_timer(self) -> int:
        """When tick has something to do (ns)."""
        if self.closing:
            return NEVER
        if self.last_activity < 0 or self._upgrade_due != NEVER:
            return self._read_deadline()
        return min(self._heartbeat_due, self._read_deadline(), self._outbox.flush_due)

    def tick(self, now: int) -> None:
        """Send a heartbeat or what was held back, or give up on a silent client, if it is time."""
        if self.closing:
            return
        if now >= self._read_deadline():
            if self.last_activity < 0:
                self._broker.refused["identify_timeout"] += 1
            self.closing = True
            self._transport.output_ready()
            return
        if self.last_activity < 0 or self._upgrade_due != NEVER:
            return
        if now >= self._heartbeat_due:
            self._heartbeat_due = now + self._pump.heartbeat_interval
            self._outbox.reply(HEARTBEAT)
        if now >= self._outbox.flush_due:
            self._outbox.flush()

    def _read_deadline(self) -> int:
        """When a client that sends nothing is given up."""
        if self.waiting:
            return NEVER
        if self.last_activity < 0:
            return self._opened + self._settings.identify_timeout
        if self._upgrade_due != NEVER:
            return self._upgrade_due
        interval = self.identity.heartbeat_interval
        return self.last_activity + 2 * interval if interval else NEVER

    # helpers

    def _fail(self, failure: WireError) -> None:
        self._outbox.reply(error(failure.data))
        if failure.fatal:
            self.closing = True

    def _first_command(self, now: int) -> None:
        """The client speaks: from now on heartbeats keep the connection."""
        self.last_activity = now
        self._transport.timer_changed()

    def _begin_upgrade(self, upgrade: Upgrade, now: int) -> None:
        """What is sent after the answer passes through layers that the transport adds."""
        if upgrade.tls:
            self._upgrade_due = now + HANDSHAKE_TIMEOUT
            self._transport.timer_changed()
        self._transport.upgrade(upgrade)

    def _ask(self, secret: bytes) -> None:
        common_name = self.tls.common_name if self.tls else ""
        self._transport.authorize(Question(self.remote_ip, self.tls is not None, common_name, secret))

    def _distance(self) -> int:
        """Where the consumer is, as seen from this node."""
        mine, there = self._settings, self.identity
        if mine.topology_zone and mine.topology_zone == there.topology_zone:
            return SAME_ZONE
        return SAME_REGION if mine.topology_region and mine.topology_region == there.topology_region else ELSEWHERE

    def _topic(self, name: str, command: str) -> Topic:
        try:
            topic = self._broker.topic(name)
        except TooMany as full:
            raise WireError(f"E_{command}_FAILED", f"{command} failed {full}") from None
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()  # deleted ones among them are not kept for ever
        self._known[name.encode()] = topic
        return topic

    def _publish(self, topic: Topic, bodies: list[bytes], size: int) -> None:
        topic.publish(bodies, size)
        self._published(topic, len(bodies))

    def _published(self, topic: Topic, count: int) -> None:
        self.pub_counts[topic.name] = self.pub_counts.get(topic.name, 0) + count
        self.published = True
        self._outbox.reply(OK)

    @staticmethod
    def _require(allowed: bool, command: str) -> None:
        if not allowed:
            raise WireError("E_INVALID", f"cannot {command} in current state")

    def _in_flight_command(self, command: str, count: int, words: list[bytes]) -> tuple[Consumer, bytes]:
        """The consumer and the message id of a FIN, REQ or TOUCH."""
        self._require(self.state in (SUBSCRIBED, CLOSING), command)
        if len(words) < count:
            raise WireError("E_INVALID", f"{command} insufficient number of params")
        if len(words[1]) != ID_SIZE:
            raise WireError("E_INVALID", "invalid message ID")
        if self.consumer is None:  # the channel was deleted under it; the connection is about to close
            raise WireError("E_INVALID", f"cannot {command} in current state")
        return self.consumer, words[1]


def _failed(command: str, message_id: bytes, why: str) -> WireError:
    """FIN, REQ or TOUCH of a message that the client does not have."""
    return WireError(f"E_{command}_FAILED", b"%s %s failed %s" % (command.encode(), message_id, why.encode()))


def _name(word: bytes, code: str, what: str) -> str:
    """A valid topic or channel name, or the error that it is none."""
    name = word.decode("latin-1")
    if not is_valid_name(name):
        raise WireError(code, f"{what} name {quote(word)} is not valid")
    return name


def _signed(number: int) -> int:
    """A uint64 as the int64 with the same bits, as the original prints it."""
    return number - (1 << 64) if number >> 63 else number


_Handler = Callable[[Peer, list[bytes], bytes, int, int, int], int]
_HANDLERS: dict[bytes, _Handler] = {
    b"IDENTIFY": Peer._identify,
    b"AUTH": Peer._auth,
    b"SUB": Peer._sub,
    b"PUB": Peer._pub,
    b"DPUB": Peer._dpub,
    b"MPUB": Peer._mpub_begin,
    b"RDY": Peer._rdy,
    b"FIN": Peer._fin,
    b"REQ": Peer._req,
    b"TOUCH": Peer._touch,
    b"CLS": Peer._cls,
    b"NOP": Peer._nop,
}
