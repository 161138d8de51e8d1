"""One nsqd of a consumer: a subscribed connection, its RDY, and the answers that wait to be sent.

Law: the answers to a link that is lost are dropped, since the server delivers those messages again. `lost` says why it
was lost, and only `receive` raises.
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

ANSWERS_WAIT_S = 0.01  # how long an answer may wait for others while the consumer is busy with a batch
MAY_PASS = ("E_SUB_FAILED", "E_AUTH_FAILED")  # the channel is full, nsqd is exiting, or its auth server is silent
DEFAULT_MAX_RDY = 2500  # nsqd's default, for servers that do not announce a limit


class LinkState(Enum):
    """The progress of the conversation with an nsqd."""

    IDENTIFYING = auto()
    SUBSCRIBING = auto()
    SUBSCRIBED = auto()
    CLOSED = auto()  # CLOSE_WAIT was read: no more messages come


class Link:
    """A subscription to one channel at one nsqd.

    It connects when it is made (raises ConnectionLost) and subscribes when the answers come in. `is_silent` detects a
    server that sends nothing for read_timeout_s.
    """

    def __init__(
        self, address: str, topic: str, channel: str, settings: Settings, tls: ssl.SSLContext | None = None
    ) -> None:
        self.address = address
        self.state = LinkState.IDENTIFYING
        self.lost = ""  # the reason, once the connection is lost
        self.rdy = 0  # the RDY that the server was told last
        self._subscribe = nsq.sub(topic, channel)
        self._settings = settings
        self._answers: list[bytes] = []
        self._flushed_at = self._heard_at = monotonic()
        self._connection = Connection(address, settings, tls)

    def receive(self) -> list[Message]:
        """Return the messages that have arrived. Raises ConnectionLost, or ConsumerError if the server refuses us for good."""
        frames = self._connection.receive()
        self._heard_at = monotonic()
        if self.state is LinkState.IDENTIFYING and self._connection.features is not None:
            self._connection.send(self._subscribe)
            self.state = LinkState.SUBSCRIBING
        messages = [Message(frame, self) for frame in frames if type(frame) is nsq.Message]
        if len(messages) != len(frames):
            self._handle_others(frames)
        return self._within_attempts(messages) if self._settings.max_attempts else messages

    def set_rdy(self, n: int) -> None:
        """Open the window to `n` messages in flight; send nothing if it is `n` already."""
        if n != self.rdy:
            self.rdy = n
            self._send(nsq.rdy(n))

    def answer(self, command: bytes) -> None:
        """Queue an answer, which is sent soon and together with others."""
        self._answers.append(command)
        if monotonic() - self._flushed_at > ANSWERS_WAIT_S:
            self.flush()

    def flush(self) -> None:
        """Send the queued answers now; drop them if the link is lost."""
        self._flushed_at = monotonic()
        if self._answers:
            data = b"".join(self._answers)
            self._answers.clear()
            self._send(data)

    def leave(self) -> None:
        """Ask for no more messages; the server answers CLOSE_WAIT when the last one is on its way."""
        self.flush()
        if self.state is LinkState.SUBSCRIBED:
            self._send(nsq.cls())
        else:
            self.state = LinkState.CLOSED

    def finish_sending(self) -> None:
        """Flush, then tell the server that nothing more comes; it closes when it has handled everything."""
        self.flush()
        try:
            self._connection.finish_sending()
        except ConnectionLost as error:
            self.lost = str(error)

    def close(self) -> None:
        """Close the connection without waiting; closing it again does nothing."""
        self._connection.close()

    def is_silent(self, now: float) -> bool:
        """Return True if the server has sent nothing for read_timeout_s and must be gone.

        `now` is the monotonic time in seconds.
        """
        if now - self._heard_at <= self._settings.read_timeout_s:
            return False
        return not self._connection.wait_readable(0)  # bytes are waiting: the consumer did not read them

    @property
    def max_rdy(self) -> int:
        """Return the largest RDY that the server accepts."""
        limit = (self._connection.features or {}).get("max_rdy_count")
        return limit if isinstance(limit, int) and limit > 0 else DEFAULT_MAX_RDY

    def requeue_delay_ms(self, attempts: int) -> int:
        """Return the delay in ms of a requeue that does not name one, after `attempts` deliveries."""
        return min(attempts * self._settings.default_requeue_delay_ms, self._settings.max_requeue_delay_ms)

    def fileno(self) -> int:
        """Return the socket's file descriptor, for selectors."""
        return self._connection.fileno()

    def _send(self, data: bytes) -> None:
        if self.lost:
            return
        try:
            self._connection.send(data)
        except ConnectionLost as error:
            self.lost = str(error)

    def _handle_others(self, frames: Sequence[nsq.Frame]) -> None:
        for frame in frames:
            if isinstance(frame, nsq.ErrorFrame):
                self._handle_error(frame)
            elif isinstance(frame, nsq.Response):
                if self.state is LinkState.SUBSCRIBING:
                    self.state = LinkState.SUBSCRIBED
                elif frame.data == nsq.CLOSE_WAIT:
                    self.state = LinkState.CLOSED

    def _handle_error(self, error: nsq.ErrorFrame) -> None:
        if not error.fatal:  # the message timed out before its answer: tell the operator that it comes twice
            log.warning("%s: %s", self.address, error)
        elif self.state is LinkState.SUBSCRIBED or error.code in MAY_PASS:
            raise ConnectionLost(f"{self.address}: {error}")
        else:
            raise ConsumerError(f"{self.address}: {error}")

    def _within_attempts(self, messages: list[Message]) -> list[Message]:
        """Return the messages within max_attempts, and finish the others as go-nsq does."""
        good = []
        for message in messages:
            if message.attempts <= self._settings.max_attempts:
                good.append(message)
            else:
                log.warning("%s: giving up on %r", self.address, message)
                message.finish()
        return good
