"""Receives: requests for messages by clients that keep no connection. Each one is a consumer that is given messages once.

A receive subscribes to a channel, waits for up to as many messages as it asked for, and is answered with them. From then on
they are in flight until the client finishes or requeues them, or until they time out, and the consumer stays subscribed for as
long as it has any. A message that times out has failed as in the window of any other consumer (channel/failures.py).

A *receipt* names one delivery of a message: the message's id, followed by the token of the receive, which is random. So it
cannot be guessed, and it has expired when the message is delivered again, or when the node has restarted.

An ephemeral channel is deleted with its last consumer. A receive keeps it for KEEP after it has begun, so that messages which
are published between two receives are not lost.

See docs/contributing/design/channel.md#receives.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from nsqd.core.channel import commands
from nsqd.core.channel.channel import Channel
from nsqd.core.channel.consumer import CLOSED_SINK, Consumer
from nsqd.core.channel.window import window_of
from nsqd.core.directory import Directory
from nsqd.core.limits import TooMany
from nsqd.core.message.frame import ID_SIZE, message_id
from nsqd.core.timing.agenda import Agenda
from shared.values import SECOND

MOST_BYTES = 1024 * 1024  # of the frames of an answer, unless a single one is larger
MOST_WAITING = 1000  # receives that wait at a time: each has a connection and a task of the HTTP thread
MOST_OPEN = 20_000  # receives that wait, or have messages in flight: each takes about 1.5 KB
KEEP = 60 * SECOND  # ns for which a receive keeps an ephemeral channel


class Receive:
    """One request for messages. It waits, then it is answered, and it is over when none of its messages is in flight.

    Implements ConsumerSink.
    """

    __slots__ = ("_receives", "arrived", "channel", "consumer", "frames", "group", "is_answered", "size", "token")

    def __init__(
        self,
        receives: Receives,
        channel: Channel,
        token: str,
        msg_timeout: int,
        arrived: Callable[[], None],
        group: dict[Receive, None],
    ) -> None:
        self._receives = receives
        self.channel = channel
        self.token = token
        self.arrived = arrived  # called when it can be answered
        self.group = group  # the open receives of one client
        # to answer with, by message id: a message that times out before the answer may be delivered to the receive again
        self.frames: dict[bytes, bytes] = {}
        self.size = 0  # bytes of all frames that it was given
        self.is_answered = False
        # None: the receive is over, or its channel is deleted
        self.consumer: Consumer | None = channel.subscribe(self, msg_timeout, 0, takes_headers=True)

    @property
    def in_flight(self) -> int:
        """Return the number of its messages in flight, also of shards."""
        consumer = self.consumer
        if consumer is None:
            return 0
        return consumer.in_flight if consumer.window is None else consumer.window.total("in_flight")

    @property
    def open_window(self) -> int:
        """Return the number of further messages that it may be given."""
        consumer = self.consumer
        if consumer is None or self.is_answered:
            return 0
        return (consumer.ready if consumer.window is None else consumer.window.rdy) - self.in_flight

    def is_reading(self) -> bool:
        """Return True if messages of the channel are being read from disk."""
        return any(channel.backlog.reading for channel in self.channel.shards)

    # Sink of the consumer

    def deliver(self, frames: list[bytes], size: int, now: int) -> None:
        """Keep the frames for the answer, which waits for the copies of these messages."""
        self._receives.wait_for_copies(self.channel)
        self.frames |= {message_id(frame): frame for frame in frames}
        self.size += size
        self.arrived()

    def room(self) -> int:
        """Return the bytes of messages that it takes. After the answer it is asked only when nothing is in flight."""
        if self.is_answered:
            self._receives.end_later(self)
            return 0
        return MOST_BYTES - self.size

    def flush(self) -> None:
        """Do nothing: messages are not held back."""

    def evicted(self) -> None:
        """End, because the channel was deleted."""
        self._receives.forget(self)
        self.arrived()

    def __repr__(self) -> str:
        return f"<Receive: {len(self.frames)} frames, {self.in_flight} in flight, window {self.open_window}>"


class Receives:
    """All receives of a node that wait or have messages in flight. It takes part in turns. Implements AgendaReader."""

    def __init__(self, directory: Directory, agenda: Agenda) -> None:
        self._directory, self._agenda = directory, agenda
        self._by_token: dict[str, Receive] = {}
        self._waiting: dict[Receive, None] = {}  # those that are not answered
        self._over: dict[Receive, None] = {}  # those to end in this turn
        # until when an ephemeral channel is kept (monotonic ns), and by which consumer; the first one ends first
        self._kept: dict[Channel, tuple[int, Consumer]] = {}
        self._is_stopping = False  # True: no receive waits
        self.scan_entry: tuple[int, int] | None = None  # see ScanQueue

    def open(
        self,
        channel: Channel,
        count: int,
        token: str,
        msg_timeout: int,
        arrived: Callable[[], None],
        group: dict[Receive, None],
    ) -> Receive:
        """Return a new receive of up to `count` messages, which joins `group`. Raises TooMany.

        `msg_timeout`: ns until a message times out. `arrived` is called when there are messages, or when none will come; the
        caller then calls `answer` or `abandon`, or does so earlier.
        """
        if len(self._waiting) >= MOST_WAITING or len(self._by_token) >= MOST_OPEN:
            self._directory.context.registry.refused["receives"] += 1
            raise TooMany(f"{len(self._waiting)} receives wait, and {len(self._by_token)} are open")
        if channel.ephemeral:
            self._keep(channel)
        receive = Receive(self, channel, token, msg_timeout, arrived, group)
        self._by_token[token] = receive
        self._waiting[receive] = group[receive] = None
        self._set_window(receive, count)
        if self._is_stopping:
            arrived()
        return receive

    def answer(self, receive: Receive) -> list[bytes] | None:
        """Return the frames for the answer of a receive, which gets no more; None if its channel was deleted."""
        self._close(receive)
        if receive.frames:
            self.wait_for_copies(receive.channel)
        frames, receive.frames = receive.frames, {}
        return None if receive.channel.deleted else [*frames.values()]

    def abandon(self, receive: Receive) -> None:
        """Make the messages of a receive ready again, because its client is gone. None of them has failed."""
        self._close(receive)
        if receive.consumer is not None:
            window = receive.consumer.window
            members = [(receive.channel, receive.consumer)] if window is None else window_of(receive.consumer).holders()
            for channel, member in members:
                channel.return_all(member)
            self.end_later(receive)

    def stop(self) -> None:
        """Have all receives answered, now and from now on, because the node stops."""
        self._is_stopping = True
        for receive in self._waiting:
            receive.arrived()

    # receipts

    def finish(self, channel: Channel, receipts: list[str]) -> list[str]:
        """Finish messages. Return the receipts that have expired, or are of another channel."""
        _promise(channel)
        return self._act(channel, receipts, lambda consumer, one: commands.finish(channel, consumer, one))

    def requeue(self, channel: Channel, receipts: list[str], delay: int) -> list[str]:
        """Make messages ready after `delay` ns, or bury those that failed too often. Returns as `finish`."""
        now = self._agenda.now
        _promise(channel)
        return self._act(channel, receipts, lambda consumer, one: commands.requeue(channel, consumer, one, delay, now))

    def touch(self, channel: Channel, receipts: list[str], timeout: int, longest: int) -> list[str]:
        """Extend the deadlines of messages, as commands.touch; `timeout` 0: that of the receive. Returns as `finish`."""
        now = self._agenda.now

        def touch(consumer: Consumer, message_id: bytes) -> str:
            return commands.touch(channel, consumer, message_id, timeout or consumer.msg_timeout, longest, now)

        return self._act(channel, receipts, touch)

    def _act(self, channel: Channel, receipts: list[str], command: Callable[[Consumer, bytes], object]) -> list[str]:
        """Carry out a command for each message. It returns something that is true if the consumer does not have the message."""
        expired = []
        for receipt in receipts:
            receive = self._by_token.get(receipt[ID_SIZE:])
            consumer = receive.consumer if receive is not None and receive.channel is channel else None
            if consumer is None or command(consumer, receipt[:ID_SIZE].encode()):
                expired.append(receipt)
        return expired

    # the end of receives

    def _close(self, receive: Receive) -> None:
        """Give a receive no more messages, and end it once none is in flight: its window then opens, without any room."""
        self._waiting.pop(receive, None)
        self._set_window(receive, 0)
        receive.is_answered = True
        self._set_window(receive, 1)

    @staticmethod
    def _set_window(receive: Receive, count: int) -> None:
        if receive.consumer is not None:
            commands.set_ready(receive.channel, receive.consumer, count)

    def end_later(self, receive: Receive) -> None:
        """End a receive when the agenda is served: now its channel may be amid a loop over its consumers."""
        self._over[receive] = None
        self._agenda.awake[self] = None

    def serve(self, now: int) -> None:
        """End the receives that are over."""
        over, self._over = self._over, {}
        for receive in over:
            consumer = receive.consumer
            if consumer is not None:
                self.forget(receive)
                self._directory.unsubscribe(receive.channel, consumer)

    def forget(self, receive: Receive) -> None:
        """Forget a receive whose consumer leaves its channel."""
        receive.consumer = None
        self._waiting.pop(receive, None)
        self._by_token.pop(receive.token, None)
        receive.group.pop(receive, None)

    @staticmethod
    def wait_for_copies(channel: Channel) -> None:
        """Hold the answers of this turn back until the messages of the channel have their copies."""
        gate = channel.offsets.gate
        if gate is not None:
            gate.pass_through()

    # ephemeral channels

    def _keep(self, channel: Channel) -> None:
        """Keep an ephemeral channel for KEEP from now on."""
        due = self._agenda.now + KEEP
        consumer = self._kept.pop(channel)[1] if channel in self._kept else channel.subscribe(CLOSED_SINK, 0, 0)
        self._kept[channel] = due, consumer
        self._agenda.schedule_scan(self, due)

    def next_due(self) -> int | None:
        return next((due for due, _ in self._kept.values()), None)

    def scan(self, now: int, limit: int) -> int:
        """Keep the ephemeral channels no longer that are due, up to `limit` of them. Return their number."""
        due = [channel for channel, (until, _) in islice(self._kept.items(), limit) if until <= now]
        for channel in due:
            self._directory.unsubscribe(channel, self._kept.pop(channel)[1])
        return len(due)

    def counts(self) -> dict[str, int]:
        """Return the number of receives by state."""
        return {"waiting": len(self._waiting), "in_flight": len(self._by_token) - len(self._waiting)}

    def check(self) -> None:
        """Raise AssertionError if an invariant of this class does not hold."""
        for token, receive in self._by_token.items():
            assert receive.token == token
            assert receive in receive.group
            assert receive.consumer in receive.channel.consumers
            assert (receive in self._waiting) != receive.is_answered
            assert receive.in_flight or not receive.is_answered or receive in self._over
        assert self._waiting.keys() <= set(self._by_token.values())

    def __repr__(self) -> str:
        return f"<Receives: {len(self._waiting)} wait, {len(self._by_token)} open>"


def _promise(channel: Channel) -> None:
    """Have the answers of this turn wait until its records about the channel are as durable as the topic promises."""
    for shard in channel.shards:
        shard.journal.promise()
