"""What the reactor needs of a peer, whatever protocol it speaks."""

from typing import Protocol

from nsqd.protocols.nsq.authorization import Authorization, AuthRefused
from nsqd.protocols.nsq.outbox import Outbox
from shared.tls_info import TlsInfo


class Conversation(Protocol):
    """One client's end: bytes in, bytes out."""

    remote_ip: str  # "" for a unix socket
    port: str
    outbox: Outbox
    waiting: bool  # True: no more input is to be read for the moment
    has_more: bool  # True: `receive` shall be called again, with nothing
    buffered: (
        int  # bytes of memory that a half-received command takes, or will take when it is complete; 0: there is none
    )
    body_since: int  # ns: when its body began to come; -1: its line is not complete. Counts only with `buffered`

    def receive(self, data: bytes, now: int) -> None:
        """Input has come."""

    def receive_eof(self) -> None:
        """The client sends no more."""

    def authorized(self, answer: Authorization | AuthRefused, now: int) -> None:
        """An answer to Transport.authorize."""

    def resume(self, now: int) -> None:
        """What Transport.await_registration waited for is over."""

    def upgraded(self, tls: TlsInfo | None = None) -> None:
        """A layer stands that Transport.upgrade asked for."""

    def break_off(self) -> None:
        """End it without a word."""

    def disconnected(self) -> None:
        """The connection is gone."""

    def take_output(self) -> list[bytes]:
        """Everything that waits to be sent."""

    def network_ready(self) -> None:
        """The network has taken all that there was."""

    def next_timer(self) -> int:
        """When `tick` has something to do (ns)."""

    def tick(self, now: int) -> None:
        """It is time."""

    @property
    def closing(self) -> bool:
        """The connection ends with its output."""

    @property
    def patience(self) -> int:
        """ns that the network may take nothing; 0: as usual."""
