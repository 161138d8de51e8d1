"""The transport of a peer's bytes, as every protocol sees it. The reactor's connections implement it; tests have their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeVar

NEVER = 1 << 62  # ns: later than any time
DEFLATE_LEVEL = 6  # the level unless the client asks for another

# Begins something that takes time, and calls its argument when that is over.
Begin = Callable[[Callable[[], None]], None]
# Calls back, between turns, when nsqlookupd knows a topic and the topic has its channels, within a bounded time.
UntilRegistered = Callable[[str, Callable[[], None]], None]
P = TypeVar("P")  # a peer


@dataclass(frozen=True, slots=True)
class Upgrade:
    """The layers that a connection's bytes pass through from some moment on. At most one compression is set."""

    tls: bool = False
    snappy: bool = False
    deflate: bool = False
    deflate_level: int = DEFLATE_LEVEL  # 1 to 9

    @property
    def changes(self) -> bool:
        """Return True if any layer is set, so that the bytes change."""
        return self.tls or self.snappy or self.deflate


class Fact(Enum):
    """A fact about a client that its transport logs, at INFO except for errors."""

    JOINED = "joined"  # the client has begun with the magic of its protocol
    IDENTIFIED = "identified"
    FAILED = "failed"  # the client got an error, or its connection ends because of its input
    LEFT = "left"


class Meter(Protocol):
    """The use of an account by a client, as its transport sees it (nsqd/protocols/account.py)."""

    @property
    def has_rates(self) -> bool:
        """Return True if a rate limits what the client publishes."""

    @property
    def is_held(self) -> bool:
        """Return True if the connection is not to be read from now on."""

    @property
    def has_output(self) -> bool:
        """Return True if the account has more output than it may, and this connection has a part of it."""

    def charge(self, now: int) -> int:
        """Charge what was published since the last time. Return until when (ns) not to read the connection; 0: read it."""

    def end_pause(self, now: int) -> None:
        """Continue: from `now` (ns) on the connection is read."""


class Transport(Protocol):
    """The way of a peer's bytes to the network and back."""

    def output_ready(self) -> None:
        """Send the output at the end of this turn."""

    def timer_changed(self) -> None:
        """Ask for Conversation.next_timer again, which has become earlier."""

    @property
    def is_scarce(self) -> bool:
        """Return True if the memory for buffers is used up: no peer may add to more than FREE unsent bytes then."""

    def peer_user(self) -> int:
        """Return the number of the user at a unix socket; shared.process.unix_sockets.NOBODY for TCP."""

    def note_foreign(self, port: str, data: bytes) -> None:
        """Log that the peer ends the connection because the client speaks another protocol.

        `port` names the peer's protocol as the log does; `data`: the beginning of the input.
        """

    def record_fact(self, fact: Fact, client: str, text: str = "") -> None:
        """Log a fact about the client. `client` is its address as the log shows it, `text` says more."""

    def upgrade(self, upgrade: Upgrade) -> None:
        """Pass everything after the present output through these layers, and call Conversation.upgraded for each."""

    def suspend(self, begin: Begin) -> None:
        """Stop reading input until the work that `begin` begins is over, and then call Conversation.resume in a turn.

        `begin` is called at once. The function that it is given may be called from any code of the reactor's thread, between
        turns.
        """

    def meter(self, usage: Meter) -> None:
        """Hold the connection to the rates and the output that the limits of this usage allow, from now on."""

    def hand_over(self, rest: bytes, head_due: int = NEVER) -> None:
        """Give the connection away once all output has left: to the server of this listener, with the input in `rest`.

        The head of the request that `rest` begins with must be complete by `head_due` (monotonic ns). A second call adds to
        the input. The peer sets `waiting`; only Conversation.disconnected is called from then on. Only listeners with such a
        server allow it.
        """


def with_tls(peer: P, transport: Transport) -> P:
    """Return the peer of a new connection, which speaks TLS from the first byte on."""
    transport.upgrade(Upgrade(tls=True))
    transport.output_ready()
    return peer
