"""One nsqd of a consumer: a connection that is subscribed, its RDY, and the answers that wait to be sent.

Law: the answers to a link that is lost are dropped, since the server delivers those messages again; `lost` says why,
and only `receive` raises.
"""

import logging
import ssl
from collections.abc import Sequence
from enum import Enum, auto
from time import monotonic

from penstock.client.connection import Connection
from penstock.client.errors import ConnectionLost, ConsumerError
from penstock.client.message import Message
from penstock.client.settings import Settings
from penstock.protocol import nsq

log = logging.getLogger("penstock.client")

ANSWERS_WAIT_S = 0.01  # how long a finish may wait for company while the consumer is busy with a batch
MAY_PASS = ("E_SUB_FAILED", "E_AUTH_FAILED")  # the channel is full, nsqd is exiting, its auth server does not answer
DEFAULT_MAX_RDY = 2500  # nsqd's, for servers that do not say


class State(Enum):
    """How far the conversation is."""

    IDENTIFYING = auto()
    SUBSCRIBING = auto()
    SUBSCRIBED = auto()
    CLOSED = auto()  # CLOSE_WAIT was read: no message comes any more


class Link:
    """Connects at once, and subscribes as the answers come in; silence ends it after read_timeout_s."""

    def __init__(
        self, address: str, topic: str, channel: str, settings: Settings, tls: ssl.SSLContext | None = None
    ) -> None:
        self.address = address
        self.state = State.IDENTIFYING
        self.lost = ""  # why, once it is
        self.rdy = 0  # what the server was told
        self._subscribe = nsq.sub(topic, channel)
        self._settings = settings
        self._answers: list[bytes] = []
        self._flushed_at = self._heard_at = monotonic()
        self._connection = Connection(address, settings, tls)

    def receive(self) -> list[Message]:
        """The messages that have arrived. Raises ConnectionLost, or ConsumerError if the server will never have us."""
        frames = self._connection.receive()
        self._heard_at = monotonic()
        if self.state is State.IDENTIFYING and self._connection.features is not None:
            self._connection.send(self._subscribe)
            self.state = State.SUBSCRIBING
        messages = [Message(frame, self) for frame in frames if type(frame) is nsq.Message]
        if len(messages) != len(frames):
            self._take_others(frames)
        return self._within_attempts(messages) if self._settings.max_attempts else messages

    def set_rdy(self, n: int) -> None:
        """Open the window to n messages in flight. Nothing is sent if it stands there already."""
        if n != self.rdy:
            self.rdy = n
            self._send(nsq.rdy(n))

    def answer(self, command: bytes) -> None:
        """Send this soon, together with others."""
        self._answers.append(command)
        if monotonic() - self._flushed_at > ANSWERS_WAIT_S:
            self.flush()

    def flush(self) -> None:
        """Send what waits, now."""
        self._flushed_at = monotonic()
        if self._answers:
            data = b"".join(self._answers)
            self._answers.clear()
            self._send(data)

    def leave(self) -> None:
        """Ask for no more messages; the server says CLOSE_WAIT when the last one is on the way."""
        self.flush()
        if self.state is State.SUBSCRIBED:
            self._send(nsq.cls())
        else:
            self.state = State.CLOSED

    def finish_sending(self) -> None:
        """Nothing more will be sent: the server closes when it has heard everything."""
        self.flush()
        try:
            self._connection.finish_sending()
        except ConnectionLost as error:
            self.lost = str(error)

    def close(self) -> None:
        """Idempotent."""
        self._connection.close()

    def is_silent(self, now: float) -> bool:
        """True if nothing came for so long that the server must be gone. `now` is monotonic, in seconds."""
        if now - self._heard_at <= self._settings.read_timeout_s:
            return False
        return not self._connection.wait_readable(0)  # else it was the consumer that did not listen

    @property
    def max_rdy(self) -> int:
        """The largest RDY the server takes."""
        limit = (self._connection.features or {}).get("max_rdy_count")
        return limit if isinstance(limit, int) and limit > 0 else DEFAULT_MAX_RDY

    def requeue_delay_ms(self, attempts: int) -> int:
        """The delay of a requeue that names none."""
        return min(attempts * self._settings.default_requeue_delay_ms, self._settings.max_requeue_delay_ms)

    def fileno(self) -> int:
        """For selectors."""
        return self._connection.fileno()

    def _send(self, data: bytes) -> None:
        if self.lost:
            return
        try:
            self._connection.send(data)
        except ConnectionLost as error:
            self.lost = str(error)

    def _take_others(self, frames: Sequence[nsq.Frame]) -> None:
        for frame in frames:
            if isinstance(frame, nsq.ErrorFrame):
                self._take_error(frame)
            elif isinstance(frame, nsq.Response):
                if self.state is State.SUBSCRIBING:
                    self.state = State.SUBSCRIBED
                elif frame.data == nsq.CLOSE_WAIT:
                    self.state = State.CLOSED

    def _take_error(self, error: nsq.ErrorFrame) -> None:
        if not error.fatal:  # the message timed out before the answer: the operator should know it comes twice
            log.warning("%s: %s", self.address, error)
        elif self.state is State.SUBSCRIBED or error.code in MAY_PASS:
            raise ConnectionLost(f"{self.address}: {error}")
        else:
            raise ConsumerError(f"{self.address}: {error}")

    def _within_attempts(self, messages: list[Message]) -> list[Message]:
        """Those that were not tried too often; the others are finished, as go-nsq does."""
        good = []
        for message in messages:
            if message.attempts <= self._settings.max_attempts:
                good.append(message)
            else:
                log.warning("%s: giving up on %r", self.address, message)
                message.finish()
        return good
