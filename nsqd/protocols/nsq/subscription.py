"""Handle SUB, RDY, FIN, REQ, TOUCH and CLS of one client, and the messages on their way to it.

The states are INIT -> SUB -> SUBSCRIBED -> CLS -> CLOSING. A Subscription is the ConsumerSink of its consumer.

See docs/contributing/design/nsq-protocol.md#commands.
"""

from collections.abc import Callable

from nsqd.core.channel import commands
from nsqd.core.channel.channel import Channel
from nsqd.core.channel.consumer import ELSEWHERE, SAME_REGION, SAME_ZONE, Consumer
from nsqd.core.channel.window import window_of
from nsqd.core.limits import TooMany
from nsqd.core.message.frame import CLOSE_WAIT, ID_SIZE, OK
from nsqd.protocols.account import LOOK_AGAIN
from nsqd.protocols.nsq import fast
from nsqd.protocols.nsq.access import Access
from nsqd.protocols.nsq.commands import Later, parse_number, read_name, require
from nsqd.protocols.nsq.creation import Topics
from nsqd.protocols.nsq.errors import WireError
from nsqd.protocols.nsq.identify import NOTHING_AGREED, Agreement
from nsqd.protocols.nsq.limited import LimitedSink
from nsqd.protocols.nsq.settings import MAX_PENDING_OUTPUT, Settings
from nsqd.protocols.outbox import Outbox
from nsqd.protocols.transport import NEVER, Transport
from shared.budget import FREE
from shared.values import MILLISECOND

INIT, SUBSCRIBED, CLOSING = 0, 3, 4
_SHARED_PORT = (
    "SUB failed several nsqd share this port for producers: find each of them by nsqlookupd or its own address"
)
MOST_FAILURES = 500  # FINs that fail in a turn: some 5 ms, because an error costs ten times as much as a FIN


class Subscription:
    """The consuming side of one client. Commands take the words of their line, and raise WireError or Waiting."""

    __slots__ = (
        "_access", "_agreed", "_channel", "_fail", "_failures", "_limited", "_msg_timeout", "_outbox", "_settings",
        "_tick_due", "_topics", "_transport", "ask_again_at", "consumer", "state",
    )  # fmt: skip

    def __init__(
        self,
        topics: Topics,
        settings: Settings,
        access: Access,
        outbox: Outbox,
        transport: Transport,
        fail: Callable[[WireError], None],
    ) -> None:
        self._fail = fail  # answers an error, which must not be fatal
        self._topics = topics
        self._transport = transport
        self._settings = settings
        self._access = access
        self._outbox = outbox
        self._agreed = NOTHING_AGREED  # that delivery keeps to, once subscribed
        self._failures = 0  # FINs that failed since failures last raised Later
        self._msg_timeout = 0  # ns from a TOUCH to the message's new timeout
        self._limited: LimitedSink | None = None  # None: no limit of an identity says what is delivered
        self.ask_again_at = NEVER  # ns: when to check for room in flight again; 0: `look_for_room` decides
        self._tick_due = 0  # ns: the first tick of the output buffer's clock at which nothing was sent yet
        self.state = INIT
        self.consumer: Consumer | None = None  # set from SUB until the connection or the channel is gone
        self._channel: Channel  # the channel of that consumer; not set before SUB

    # commands

    def sub(self, words: list[bytes], agreed: Agreement, identity: Agreement, now: int) -> None:
        """Handle SUB. `agreed`: of the first IDENTIFY, to which delivery keeps; `identity`: of the last one (quirk)."""
        require(self.state == INIT, "SUB")
        if self._settings.publish_only:
            raise WireError("E_SUB_FAILED", _SHARED_PORT)
        if not identity.heartbeat_interval:
            raise WireError("E_INVALID", "cannot SUB with heartbeats disabled")
        if len(words) < 3:
            raise WireError("E_INVALID", "SUB insufficient number of parameters")
        topic = read_name(words[1], "E_BAD_TOPIC", "SUB topic")
        name = read_name(words[2], "E_BAD_CHANNEL", "SUB channel")
        self._access.check("SUB", topic, name, now)
        try:
            channel = self._topics.find_or_create(topic).channel(name)
        except TooMany as full:
            raise WireError("E_SUB_FAILED", f"SUB failed {full}") from None
        limit = self._settings.max_channel_consumers
        if limit and len(channel.consumers) >= limit:
            raise WireError("E_SUB_FAILED", f"SUB failed consumers for {topic}:{name} exceeds limit of {limit}")
        distance = _distance(self._settings, identity)
        self._channel = channel
        self.consumer = channel.subscribe(self, agreed.msg_timeout, agreed.sample_rate, distance, agreed.headers)
        self.limits_changed()
        self._agreed, self._msg_timeout = agreed, identity.msg_timeout
        self._tick_due = now + agreed.output_buffer_timeout
        self.state = SUBSCRIBED
        self._outbox.reply(OK)

    def rdy(self, words: list[bytes]) -> None:
        """Handle RDY: set how many messages may be in flight to the client."""
        if self.state == CLOSING:
            return  # without an error: the client may not know yet
        require(self.state == SUBSCRIBED, "RDY")
        count = parse_number(words[1]) if len(words) > 1 else 1
        if count is None:
            raise WireError("E_INVALID", b"RDY could not parse count " + words[1])
        most = self._settings.max_rdy_count
        if count > most:
            raise WireError("E_INVALID", f"RDY count {_signed(count)} out of range 0-{most}")
        if self.consumer is not None:
            if self._limited is not None:
                self._limited.wanted = count
            commands.set_ready(self._channel, self.consumer, count)

    def limits_changed(self) -> None:
        """Deliver as the limits of the client's identity say from now on."""
        credential, consumer = self._access.credential, self.consumer
        if consumer is None or credential is None:
            return
        if self._limited is not None:
            self._limited.leave()
        usage = credential.usage
        self._limited = None
        if usage is not None and (usage.limits.in_flight or usage.limits.output):
            self._limited = LimitedSink(self, self._channel, consumer, usage, self._ask_again)
            consumer.sink = self._limited
        self._channel.refresh(consumer)

    def _ask_again(self) -> None:
        self.ask_again_at = 0
        self._transport.timer_changed()

    def look_for_room(self, now: int) -> None:
        """Check from time to time whether there is room in flight for the consumer, while there is none."""
        if not self.ask_again_at:
            self.ask_again_at = now + LOOK_AGAIN
            return
        self.ask_again_at = NEVER
        if self.consumer is not None and self._limited is not None:
            self._limited.look_for_room()
            if self._limited.is_blocked:
                self.ask_again_at = now + LOOK_AGAIN

    def in_flight(self) -> int:
        """Return the number of messages in flight to the client, also of shards."""
        consumer = self.consumer
        if consumer is None:
            return 0
        return consumer.in_flight if consumer.window is None else consumer.window.total("in_flight")

    def fast_fin(self, data: bytes, start: int) -> int:
        """Finish as many whole FINs as follow each other at `start`. Return where they end; 0: read the command exactly.

        The caller has seen that the first one begins with "F". Raises Later after MOST_FAILURES failures: that is enough for a
        turn.
        """
        consumer = self.consumer
        if consumer is None:
            return 0
        ids = fast.fins(data, start)
        if ids is None:
            return 0
        end = start + len(ids) // ID_SIZE * fast.FIN_SIZE
        failed = commands.finish(self._channel, consumer, ids)
        if failed:
            for message_id, why in failed:
                self._failed("FIN", message_id, why)
            self._failures += len(failed)
            if self._failures >= MOST_FAILURES:
                self._failures = 0
                raise Later(end)
        return end

    def fin(self, words: list[bytes]) -> None:
        """Handle FIN: finish the message with the id."""
        consumer, message_id = self._in_flight_command("FIN", 2, words)
        for failed, why in commands.finish(self._channel, consumer, message_id):
            self._failed("FIN", failed, why)

    def req(self, words: list[bytes], now: int) -> None:
        """Handle REQ: requeue a message, after a delay in ms."""
        consumer, message_id = self._in_flight_command("REQ", 3, words)
        delay = parse_number(words[2])
        if delay is None:
            raise WireError("E_INVALID", b"REQ could not parse timeout " + words[2])
        longest = self._settings.max_req_timeout
        why = commands.requeue(self._channel, consumer, message_id, min(delay * MILLISECOND, longest), now)
        if why:
            self._failed("REQ", message_id, why)

    def touch(self, words: list[bytes], now: int) -> None:
        """Handle TOUCH: give a message more time before its timeout."""
        consumer, message_id = self._in_flight_command("TOUCH", 2, words)
        longest = self._settings.max_msg_timeout
        why = commands.touch(self._channel, consumer, message_id, self._msg_timeout, longest, now)
        if why:
            self._failed("TOUCH", message_id, why)

    def cls(self) -> None:
        """Handle CLS: deliver no more messages to the client."""
        require(self.state == SUBSCRIBED, "CLS")
        self.state = CLOSING
        if self.consumer is not None:
            if self._limited is not None:
                self._limited.wanted = 0
            commands.set_ready(self._channel, self.consumer, 0)
        self._outbox.reply(CLOSE_WAIT)

    def disconnected(self) -> None:
        """Remove the consumer: the connection is gone. Messages in flight wait for their timeout."""
        if self.consumer is not None:
            if self._limited is not None:
                self._limited.leave()
            consumer, self.consumer = self.consumer, None
            self._topics.broker.unsubscribe(self._channel, consumer)
        self._fail = _ignore  # breaks the circle with the peer: no collector runs

    def leave(self) -> int:
        """Remove the consumer, and make its messages in flight ready again, or bury them. Return their number."""
        consumer = self.consumer
        if consumer is None:
            return 0
        members = [(self._channel, consumer)] if consumer.window is None else window_of(consumer).holders()
        count = sum(member.in_flight for _, member in members)
        self.disconnected()
        for channel, member in members:
            channel.journal.promise()
            channel.return_all(member)  # none are left with -requeue-on-disconnect
        return count

    def network_ready(self) -> None:
        """Offer the consumer messages again, because there may be room now."""
        if self.consumer is not None:
            self._channel.refresh(self.consumer)

    def consumes(self) -> tuple[str, str]:
        """Return the topic and the channel that the client has subscribed to; ("", ""): none."""
        return (self._channel.topic_name, self._channel.name) if self.consumer is not None else ("", "")

    # Sink of the consumer

    def deliver(self, frames: list[bytes], size: int, now: int) -> None:
        """Take messages for the client, held back as it asked for.

        They are sent at once when its window or its buffer is full, or when others wait until one of their group is finished.
        """
        outbox, consumer, agreed = self._outbox, self.consumer, self._agreed
        is_full = outbox.size + size >= min(agreed.output_buffer_size, MAX_PENDING_OUTPUT)
        channel = self._channel
        flush = is_full or consumer is None or consumer.in_flight >= consumer.ready or channel.backlog.held_count > 0
        if not flush and agreed.output_buffer_timeout:
            if now >= self._tick_due:
                flush = True
                self._advance_tick(now)
            else:
                outbox.flush_by(self._tick_due)
        gate = channel.offsets.gate
        if gate is not None and (marks := gate.pass_through()):
            outbox.wait_for(marks)
        outbox.hold(frames, size, flush=flush)

    def tick(self, now: int) -> None:
        """Send the held messages: the output buffer's clock has ticked.

        A tick that finds nothing waits for the next message, as in the original: after a quiet time a lone message is sent at
        once.
        """
        if self._agreed.output_buffer_timeout:
            self._advance_tick(now)
        self._outbox.flush()

    def _advance_tick(self, now: int) -> None:
        """Set the next tick to a multiple of the clock's interval."""
        interval = self._agreed.output_buffer_timeout
        self._tick_due = now + interval - (now - self._tick_due) % interval

    def room(self) -> int:
        """Return the bytes of messages that the client may get now. After 0, Peer.network_ready follows later."""
        outbox = self._outbox
        room = MAX_PENDING_OUTPUT - outbox.size - outbox.unsent
        if room > 0 and not outbox.closing and (outbox.unsent <= FREE or not outbox.is_scarce):
            return room
        outbox.refused = True
        return 0

    def flush(self) -> None:
        """Hold nothing back: the client has stopped being ready."""
        self._outbox.flush()

    def evicted(self) -> None:
        """End the connection, because the channel was deleted."""
        self.consumer = None
        self._outbox.end()

    # helpers

    def _in_flight_command(self, command: str, count: int, words: list[bytes]) -> tuple[Consumer, bytes]:
        """Check a FIN, REQ or TOUCH, and return the consumer and the message id. Raises WireError."""
        require(self.state in (SUBSCRIBED, CLOSING), command)
        if len(words) < count:
            raise WireError("E_INVALID", f"{command} insufficient number of params")
        if len(words[1]) != ID_SIZE:
            raise WireError("E_INVALID", "invalid message ID")
        if self.consumer is None:  # the channel was deleted under the consumer; the connection is about to close
            raise WireError("E_INVALID", f"cannot {command} in current state")
        return self.consumer, words[1]

    def _failed(self, command: str, message_id: bytes, why: str) -> None:
        """Answer a FIN, REQ or TOUCH of a message that the client does not have."""
        text = b"%s %s failed %s" % (command.encode(), message_id, why.encode())
        self._fail(WireError(f"E_{command}_FAILED", text))


def _ignore(_: WireError) -> None:
    """Answer no error: the connection is gone."""


def _distance(settings: Settings, identity: Agreement) -> int:
    """Return the distance of a client from this node: SAME_ZONE, SAME_REGION or ELSEWHERE."""
    if settings.topology_zone and settings.topology_zone == identity.topology_zone:
        return SAME_ZONE
    region = settings.topology_region
    return SAME_REGION if region and region == identity.topology_region else ELSEWHERE


def _signed(number: int) -> int:
    """Return a uint64 as the int64 with the same bits, as the original prints it."""
    return number - (1 << 64) if number >> 63 else number
