"""One client's end of a connection as the reactor sees it, whatever protocol the client speaks."""

from typing import Protocol

from nsqd.protocols.outbox import Outbox
from shared.tls.info import TlsInfo


class Conversation(Protocol):
    """A client's end of a connection: it takes bytes in and gives bytes out."""

    remote_ip: str  # "" for a unix socket
    port: str
    outbox: Outbox
    waiting: bool  # True: no more input is to be read for now
    has_more: bool  # True: call `receive` again in the next turn, with no data
    # Bytes of memory that a half-received command takes, or will take when it is complete; 0: there is no such command.
    buffered: int
    # ns: when the body of that command began to come; -1: its line is not complete. Counts only with `buffered`
    body_since: int
    is_heavy: bool  # True: a short command of the client may take a millisecond

    def receive(self, data: bytes, now: int) -> None:
        """Handle input that has come, at `now` (monotonic ns)."""

    def receive_eof(self) -> None:
        """Handle the end of input: the client sends no more."""

    def resume(self, now: int) -> None:
        """Continue at `now` (ns): what Transport.suspend began is over."""

    def upgraded(self, tls: TlsInfo | None = None) -> None:
        """Handle that a layer asked for with Transport.upgrade is in place; `tls` describes it if it is TLS."""

    def rights_changed(self) -> None:
        """Identify the client again, and end the connection if it is no longer known: the auth file has changed."""

    def break_off(self, why: str = "") -> None:
        """End the connection without another byte to the client. `why` says what is wrong with the bytes that came."""

    def disconnected(self) -> None:
        """Release everything: the connection is gone. The reactor calls this twice if the connection was drained first."""

    def take_output(self) -> list[bytes]:
        """Take everything that waits to be sent."""

    def network_ready(self) -> None:
        """Continue: the network has taken all output, after it had not, or after Outbox.refused was set."""

    def next_timer(self) -> int:
        """Return the time (monotonic ns) of the next `tick`."""

    def tick(self, now: int) -> None:
        """Do what is due at `now` (ns)."""

    @property
    def is_stranger(self) -> bool:
        """Return True if the connection may be closed to make room: the client is not known, or idle. Any thread may ask."""

    @property
    def patience(self) -> int:
        """Return for how many ns the network may take nothing before the connection is closed; 0: the usual limit."""


class PlainPeer:
    """The base of peers that suspend no connection, ask for no layer, and are not refused room."""

    __slots__ = ()
    outbox: Outbox
    patience = 0

    def take_output(self) -> list[bytes]:
        return self.outbox.drain()

    def break_off(self, why: str = "") -> None:
        self.outbox.break_off()

    def network_ready(self) -> None:
        """Do nothing: this peer waits for no room in the network."""

    def resume(self, now: int) -> None:
        """Do nothing: this peer suspends no connection."""

    def upgraded(self, tls: TlsInfo | None = None) -> None:
        """Do nothing: this peer asks for no layer."""

    def rights_changed(self) -> None:
        """Do nothing: this peer checks the rights of each request."""
