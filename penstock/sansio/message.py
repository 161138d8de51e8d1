"""A message that a consumer has received: its content, and the three answers to it.

Only the first `finish` or `requeue` counts. After it, and after the connection is lost, answers do nothing: the
server then delivers the message again, or no longer has it.
"""

import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from penstock.protocol import nsq

if TYPE_CHECKING:
    from opentelemetry.context import Context

    from penstock.telemetry import Operation

NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class AnswerSink(Protocol):
    """The subscription over which a message came: it sends the answers."""

    @property
    def is_lost(self) -> bool: ...
    def finish(self, message_id: bytes) -> None: ...
    def requeue(self, message_id: bytes, attempts: int, ms: int | None, backoff: bool) -> None: ...
    def touch(self, message_id: bytes) -> None: ...


class Message:
    """One delivery of a message: `body` is its content in bytes, `id` its 16 bytes of message id.

    `headers`: texts by name, in lower case, as the message was published; empty if the server is not Penstock's.

    Example::

        with Consumer("orders", "billing", ["127.0.0.1:4150"]) as consumer:
            message: Message = next(consumer)
            print(message.id, message.timestamp, message.attempts, message.headers, message.body)
            message.touch()
            message.requeue(1000)
    """

    __slots__ = ("_answers", "attempts", "body", "headers", "id", "operation", "timestamp")

    def __init__(self, received: nsq.Message, answers: AnswerSink) -> None:
        self._answers: AnswerSink | None = answers
        self.id = received.id
        self.body = received.body
        self.headers = dict(received.headers) if received.headers else NO_HEADERS
        self.timestamp = received.timestamp  # ns since the epoch, set at publish
        self.attempts = received.attempts  # 1 at the first delivery
        self.operation: Operation | None = None  # the span in which the message is processed; None: there is none

    @property
    def is_pending(self) -> bool:
        """Return True while an answer counts: before `finish` and `requeue`, and while its connection lives."""
        return self._answers is not None and not self._answers.is_lost

    @property
    def context(self) -> "Context | None":
        """Return the context of OpenTelemetry in which the message is processed; None if spans are off (extra `otel`)."""
        return None if self.operation is None else self.operation.context

    def finish(self) -> None:
        """Finish the message (FIN): the server does not deliver it to this channel again.

        The command is sent together with others, at the latest when the consumer is asked for more messages.
        """
        answers = self._answers
        if answers is not None:
            self._answers = None
            answers.finish(self.id)
            if self.operation is not None:
                self.operation.end()

    def requeue(self, ms: int | None = None, backoff: bool = False) -> None:
        """Ask the server to deliver the message again (REQ) after `ms` milliseconds.

        Without `ms`, the delay is default_requeue_delay_ms times the attempts made, at most max_requeue_delay_ms.
        `backoff`: the work failed, so the whole consumer slows down until messages succeed again (see Backoff).
        """
        answers = self._answers
        if answers is not None:
            self._answers = None
            answers.requeue(self.id, self.attempts, ms, backoff)
            if self.operation is not None:
                self.operation.end(sys.exception())

    def touch(self) -> None:
        """Ask the server for more time (TOUCH); the command is sent at once."""
        if self._answers is not None:
            self._answers.touch(self.id)

    def __repr__(self) -> str:
        return f"<Message {self.id.decode('ascii', 'replace')} attempts={self.attempts} {len(self.body)} bytes>"
