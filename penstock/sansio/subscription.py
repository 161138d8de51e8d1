"""One nsqd of a consumer: a session with a subscription, its RDY, and the answers that wait to be sent.

The answers of a lost subscription are dropped, since the server delivers those messages again.
"""

import logging
from collections.abc import Sequence
from enum import Enum, auto
from math import inf
from typing import Protocol

from penstock.protocol import nsq
from penstock.sansio.errors import MAY_PASS, ConnectionLost, ConsumerError
from penstock.sansio.message import Message
from penstock.sansio.session import Session
from penstock.sansio.settings import Settings

log = logging.getLogger("penstock.client")

MOST_ANNOUNCED = 1 << 31  # no sane limit or time in ms is above it
SETTLE_S = 0.1  # for a lower RDY to take effect, in addition to twice the time of the introduction
LONGEST_SETTLE_S = 1.0  # for both together
HEADROOM = 4  # so much of the messages in flight is a demand: a full RDY is worth a larger one
DEFAULT_MAX_RDY, DEFAULT_MSG_TIMEOUT_MS = 2500, 60_000  # nsqd's defaults, for servers that do not announce their own


class SubscriptionState(Enum):
    """The progress of the conversation with an nsqd."""

    IDENTIFYING = auto()
    SUBSCRIBING = auto()
    SUBSCRIBED = auto()
    CLOSED = auto()  # CLOSE_WAIT was read: no more messages come
    LOST = auto()  # the connection is closed or of no use


class SubscriptionOwner(Protocol):
    """The consumer that a subscription belongs to: it divides RDY among its subscriptions."""

    def answered(self, subscription: "Subscription", failed: bool | None) -> None:
        """Note that a message was answered. `failed`: whether its handling failed; None: unknown."""

    def touched(self, subscription: "Subscription") -> None:
        """Note that a TOUCH waits to be sent."""


class Subscription:
    """A subscription to one channel at one nsqd. SUB is sent when the server has answered IDENTIFY."""

    __slots__ = (
        "_began_at", "_commands", "_owner", "_peak", "_session", "_settings", "_subscribe", "address", "demand",
        "in_flight", "last_receive_at", "on_way", "rdy", "settles_at", "settles_in_s", "state",
    )  # fmt: skip

    def __init__(
        self, session: Session, topic: str, channel: str, settings: Settings, owner: SubscriptionOwner, now: float
    ) -> None:
        """Begin; the first bytes wait in the output. `now`: s by the owner's clock."""
        self.address = session.address
        self.state = SubscriptionState.IDENTIFYING
        self.rdy = 0  # the last RDY command
        self.in_flight = 0  # messages that have arrived and are not answered
        self.demand = 0  # messages in flight that the server's load is worth; set by the owner and by `measure`
        self._peak = 0  # the largest `in_flight` since the last `measure`
        self.on_way = 0  # messages at most that the server may have sent before it learned of a lower RDY
        self.settles_at = inf  # when none of them can arrive any longer
        self.settles_in_s = SETTLE_S  # how long that takes
        self._began_at = now
        self.last_receive_at = now  # when the server last sent something
        self._session = session
        self._subscribe = nsq.sub(topic, channel)
        self._settings = settings
        self._owner = owner
        self._commands: list[bytes] = []  # plain, not sent yet

    # input and output

    def receive(self, data: bytes, now: float) -> list[Message]:
        """Return the messages that `data` completes.

        Raises ConnectionLost, or ConsumerError if the server refuses us permanently.
        """
        frames = self._session.receive(data)
        self.last_receive_at = now
        if self.state is SubscriptionState.IDENTIFYING and self._session.features is not None:
            self.settles_in_s = min(SETTLE_S + 2 * (now - self._began_at), LONGEST_SETTLE_S)
            self.state = SubscriptionState.SUBSCRIBING
            self._commands.append(self._subscribe)
        messages = [Message(frame, self) for frame in frames if type(frame) is nsq.Message]
        self.in_flight += len(messages)
        self._peak = max(self._peak, self.in_flight)
        self.on_way = max(0, self.on_way - len(messages))
        if len(messages) != len(frames):
            self._handle_others(frames)
        return messages

    def take_output(self) -> bytes:
        """Return the bytes to send, and forget them. Raises ConnectionLost."""
        self._encode()
        return self._session.take_output()

    def _encode(self) -> None:
        if self._commands:
            commands = b"".join(self._commands)
            self._commands.clear()
            self._session.send(commands)

    # answers of messages

    def finish(self, message_id: bytes) -> None:
        """Queue a FIN of a message of this subscription. It is sent with the next output."""
        self.in_flight -= 1
        self._commands.append(nsq.fin(message_id))
        self._owner.answered(self, False)

    def requeue(self, message_id: bytes, attempts: int, ms: int | None, backoff: bool) -> None:
        """Queue a REQ. `ms`: the delay; None: by the settings and the attempts. `backoff`: the handling failed."""
        self.in_flight -= 1
        self._commands.append(nsq.req(message_id, self._settings.requeue_delay_ms(attempts) if ms is None else ms))
        self._owner.answered(self, True if backoff else None)

    def touch(self, message_id: bytes) -> None:
        """Queue a TOUCH of a message of this subscription. It is sent with the next output."""
        self._commands.append(nsq.touch(message_id))
        self._owner.touched(self)

    # commands of the consumer

    def set_rdy(self, n: int, now: float) -> bool:
        """Open the window to `n` messages in flight. Returns False if it is `n` already, and there is nothing to send."""
        if n == self.rdy:
            return False
        if n < self.rdy:
            self.on_way = max(self.on_way, self.rdy - self.in_flight)
            self.settles_at = now + self.settles_in_s
        self.rdy = n
        self._commands.append(nsq.rdy(n))
        return True

    def measure(self) -> None:
        """Update the demand: at once to HEADROOM times the messages in flight, or down to half of it with each call."""
        self.demand = max(self.demand // 2, HEADROOM * self._peak)
        self._peak = self.in_flight

    def leave(self) -> None:
        """Ask for no more messages; the server answers CLOSE_WAIT when the last one is on its way."""
        if self.state is SubscriptionState.SUBSCRIBED:
            self._commands.append(nsq.cls())
        else:
            self.state = SubscriptionState.CLOSED

    def end(self) -> None:
        """Add the closing bytes to the output: nothing follows. Raises ConnectionLost."""
        self._encode()
        self._session.end()

    def drop(self) -> None:
        """Give the connection up: of the output only the closing bytes are left."""
        self.state = SubscriptionState.LOST
        self._commands.clear()
        self._session.end()

    # queries

    @property
    def is_lost(self) -> bool:
        """Return True if the connection is closed or of no use: answers to its messages do nothing."""
        return self.state is SubscriptionState.LOST

    @property
    def reach(self) -> int:
        """Return the number of messages that may be here at once without a further RDY: no server sends more."""
        return max(self.rdy, self.in_flight + self.on_way)

    @property
    def max_rdy(self) -> int:
        """Return the largest RDY that the server accepts."""
        return self._announced("max_rdy_count", DEFAULT_MAX_RDY)

    @property
    def msg_timeout_ms(self) -> int:
        """Return the time in ms for which the server waits for the answer to a message."""
        return self._announced("msg_timeout", DEFAULT_MSG_TIMEOUT_MS)

    def _announced(self, name: str, default: int) -> int:
        value = (self._session.features or {}).get(name)
        return value if type(value) is int and 0 < value <= MOST_ANNOUNCED else default

    # frames that are not messages

    def _handle_others(self, frames: Sequence[nsq.Frame]) -> None:
        for frame in frames:
            if isinstance(frame, nsq.ErrorFrame):
                self._handle_error(frame)
            elif isinstance(frame, nsq.Response):
                if self.state is SubscriptionState.SUBSCRIBING:
                    self.state = SubscriptionState.SUBSCRIBED
                elif frame.data == nsq.CLOSE_WAIT:
                    self.state = SubscriptionState.CLOSED

    def _handle_error(self, error: nsq.ErrorFrame) -> None:
        if not error.fatal:  # the message timed out before its answer, and is redelivered
            log.warning("%s: %s", self.address, error)
        elif self.state is SubscriptionState.SUBSCRIBED or error.code in MAY_PASS:
            raise ConnectionLost(f"{self.address}: {error}")
        else:
            raise ConsumerError(f"{self.address}: {error}")
