"""A message in a consumer's hands: its content, and the three answers to it.

Law: only the first `finish` or `requeue` counts. After it, and after the connection is lost, answers do nothing: the
server then delivers the message again, or no longer has it.
"""

from typing import Protocol

from penstock.protocol import nsq


class Answers(Protocol):
    """The receiver of the answers: the link over which the message came."""

    def answer(self, command: bytes) -> None: ...
    def requeue_delay_ms(self, attempts: int) -> int: ...
    def flush(self) -> None: ...


class Message:
    """One delivery of a message: `body` is its content in bytes, `id` its 16 bytes of message id."""

    __slots__ = ("_link", "attempts", "body", "id", "timestamp")

    def __init__(self, received: nsq.Message, link: Answers) -> None:
        self._link: Answers | None = link
        self.id = received.id
        self.body = received.body
        self.timestamp = received.timestamp  # ns since the epoch, set at publish
        self.attempts = received.attempts  # 1 at the first delivery

    def finish(self) -> None:
        """Finish the message (FIN): the server does not deliver it to this channel again.

        The command is sent together with others, at the latest when the consumer is asked for more messages.
        """
        link = self._link
        if link is not None:
            self._link = None
            link.answer(nsq.fin(self.id))

    def requeue(self, ms: int | None = None, backoff: bool = False) -> None:
        """Ask the server to deliver the message again (REQ) after `ms` milliseconds.

        Without `ms`, the delay is default_requeue_delay_ms times the attempts made, at most max_requeue_delay_ms.
        `backoff`: the work failed, so the whole consumer slows down until messages succeed again (see Backoff).
        """
        link = self._link
        if link is not None:
            self._link = None
            link.answer(nsq.req(self.id, link.requeue_delay_ms(self.attempts) if ms is None else ms))

    def touch(self) -> None:
        """Ask the server for more time (TOUCH); the command is sent at once."""
        if self._link is not None:
            self._link.answer(nsq.touch(self.id))
            self._link.flush()

    def __repr__(self) -> str:
        return f"<Message {self.id.decode('ascii', 'replace')} attempts={self.attempts} {len(self.body)} bytes>"
