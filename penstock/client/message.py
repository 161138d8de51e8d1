"""A message in a consumer's hands: its content, and the three answers to it.

Law: one `finish` or `requeue` counts, the first; after it, and after its connection is lost, answers do nothing: the
server then gives the message to somebody again, or has forgotten it already.
"""

from typing import Protocol

from penstock.protocol import nsq


class Answers(Protocol):
    """Where answers go: the link the message came over."""

    def answer(self, command: bytes) -> None: ...
    def requeue_delay_ms(self, attempts: int) -> int: ...
    def flush(self) -> None: ...


class Message:
    """What a consumer hands out."""

    __slots__ = ("_link", "attempts", "body", "id", "timestamp")

    def __init__(self, received: nsq.Message, link: Answers) -> None:
        self._link: Answers | None = link
        self.id = received.id
        self.body = received.body
        self.timestamp = received.timestamp  # ns since the epoch, set at publish
        self.attempts = received.attempts  # 1 at the first delivery

    def finish(self) -> None:
        """This message is done. Sent with its neighbours: at the latest when the consumer is asked for more."""
        link = self._link
        if link is not None:
            self._link = None
            link.answer(nsq.fin(self.id))

    def requeue(self, ms: int | None = None) -> None:
        """Deliver it again: after ms, or after the settings' delay times the attempts made."""
        link = self._link
        if link is not None:
            self._link = None
            link.answer(nsq.req(self.id, link.requeue_delay_ms(self.attempts) if ms is None else ms))

    def touch(self) -> None:
        """It needs more time: sent at once."""
        if self._link is not None:
            self._link.answer(nsq.touch(self.id))
            self._link.flush()

    def __repr__(self) -> str:
        return f"<Message {self.id.decode('ascii', 'replace')} attempts={self.attempts} {len(self.body)} bytes>"
