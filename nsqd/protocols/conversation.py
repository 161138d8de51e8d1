"""One client's end of a connection, as the reactor sees it, whatever protocol it speaks."""

from typing import Protocol

from nsqd.protocols.outbox import Outbox
from shared.tls_info import TlsInfo


class Conversation(Protocol):
    """Bytes in, bytes out."""

    remote_ip: str  # "" for a unix socket
    port: str
    outbox: Outbox
    waiting: bool  # True: no more input is to be read for the moment
    has_more: bool  # True: `receive` shall be called again, with nothing
    # bytes of memory that a half-received command takes, or will take when it is complete; 0: there is none
    buffered: int
    body_since: int  # ns: when its body began to come; -1: its line is not complete. Counts only with `buffered`

    def receive(self, data: bytes, now: int) -> None:
        """Handle input that has come, at `now` (monotonic ns)."""

    def receive_eof(self) -> None:
        """The client sends no more."""

    def resume(self, now: int) -> None:
        """What Transport.suspend began is over: go on."""

    def upgraded(self, tls: TlsInfo | None = None) -> None:
        """A layer stands that Transport.upgrade asked for."""

    def break_off(self) -> None:
        """End the connection without a word."""

    def disconnected(self) -> None:
        """The connection is gone. Said once more when it was drained first."""

    def take_output(self) -> list[bytes]:
        """Everything that waits to be sent."""

    def network_ready(self) -> None:
        """The network has taken everything, after it had not, or after Outbox.refused was set."""

    def next_timer(self) -> int:
        """When `tick` has something to do (ns)."""

    def tick(self, now: int) -> None:
        """Do what is due at `now` (ns)."""

    @property
    def patience(self) -> int:
        """ns that the network may take nothing; 0: as usual."""
