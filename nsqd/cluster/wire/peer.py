"""One connection to another node, as the reactor sees it: bytes go through a Link, and what the link says goes out.

See docs/contributing/design/cluster-protocol.md#connections.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, cast

from nsqd.cluster.wire.cut import CUT_OFF, Cuts
from nsqd.cluster.wire.link import Link
from nsqd.protocols.outbox import Outbox
from nsqd.protocols.transport import NEVER, Transport, Upgrade
from shared.tls.info import TlsInfo

_NOT_TLS = ("wrong version number", "record layer failure")  # what OpenSSL says of bytes that are no TLS


class EagerTransport(Transport, Protocol):
    """A transport that can send before its turn ends."""

    def send_now(self) -> None:
        """Send the output, as far as the network takes it now."""

    def abandon(self) -> None:
        """End the connection with this turn, whether its output was sent or not."""


class ClusterPeer:
    """The end of a connection to another node. Implements nsqd.protocols.conversation.Conversation."""

    waiting = False
    has_more = False
    buffered = 0  # a frame is bounded by its own rules, see nsqd.cluster.wire.frames
    body_since = -1
    patience = 0
    is_heavy = False
    is_stranger = False  # Cluster bounds the number of strangers

    def __init__(
        self,
        link: Link | None,
        transport: Transport,
        remote_ip: str,
        port: str,
        events: Callable[[], None],
        gone: Callable[[ClusterPeer], None],
        has_tls: bool = False,
        cuts: Cuts | None = None,
    ) -> None:
        """Take a connection over; `link` is None if it is one too many, so it is closed.

        `events` is called after each input: other connections may have something to say now. `gone` is called once at the end.
        `has_tls`: the connection begins with a handshake of TLS, and the link says nothing before it is done.
        `cuts`: the partitioned nodes, at any time.
        """
        self.link = link
        self.remote_ip = remote_ip
        self.port = port
        self.outbox = Outbox(transport)
        self._transport = cast("EagerTransport", transport)
        self._events = events
        self._gone: Callable[[ClusterPeer], None] | None = gone
        self._has_tls = has_tls
        self._cuts = cuts or Cuts()
        self._due = NEVER
        self._may_speak = not has_tls  # False: TLS is not complete, so what the link says waits
        if link is None:
            self.outbox.end()
        elif has_tls:
            transport.upgrade(Upgrade(tls=True))
            transport.output_ready()
        else:
            self.flush()

    @property
    def _is_cut(self) -> bool:
        """Return True if this node is partitioned from the other one: everything is dropped, in both directions."""
        return self._cuts.number_of(self.link) is not None

    def flush(self) -> None:
        """Send what the link has to say, and end the connection if the link says so."""
        link, outbox = self.link, self.outbox
        if link is None:
            return
        if self._is_cut:
            link.drain()
        link.unsent = outbox.unsent
        if (link.output or link.queued) and self._may_speak:
            for data in link.drain():
                outbox.reply(data)
        if link.closing and not outbox.closing:
            outbox.end()
        if link.is_dead:  # unsent output would keep the connection, and with it the node's place, until it is sent
            self._transport.abandon()

    def send_now(self) -> None:
        """Send what the link has to say before the turn ends."""
        if self.link is not None and self.link.queued and not self.outbox.closing:
            self.flush()
            self._transport.send_now()

    def receive(self, data: bytes, now: int) -> None:
        """Give bytes that came at `now` (monotonic ns) to the link, and let all connections answer; none after the end."""
        if self.link is not None and not self.outbox.closing and not self._is_cut:
            self.link.receive(data, now)
            self._events()

    def receive_eof(self) -> None:
        """Handle the end of the peer's input: unsent output is sent, and the connection ends."""
        link = self.link
        if link is not None and self._is_cut:
            link.closing = link.closing or CUT_OFF  # the end of a partitioned node is not seen
        if link is not None and link.is_dialer and link.peer is None and not link.closing:
            hint = "" if self._has_tls else "; it may require TLS"
            link.closing = f"the peer closed the connection during the handshake{hint}"
        self.outbox.end()

    def resume(self, now: int) -> None:
        """Do nothing: a connection between nodes is never suspended."""

    def upgraded(self, tls: TlsInfo | None = None) -> None:
        """Let the link speak: the handshake of TLS is done, and the peer's certificate is verified."""
        if self.link is not None and tls is not None:
            self._may_speak = True
            self.link.certify(tls.uris)
            self.flush()

    def rights_changed(self) -> None:
        """Do nothing: nodes know each other by the cluster's secret and by certificates."""

    def break_off(self, why: str = "") -> None:
        """End the connection without sending what is unsent. `why`: one line for the log, if the network or TLS failed."""
        if self.link is not None:
            hint = "; the peer does not use TLS" if why.endswith(_NOT_TLS) else ""
            self.link.closing = self.link.closing or f"{why}{hint}"
        self.outbox.break_off()

    def disconnected(self) -> None:
        """Notify the owner that the connection is gone, at the first call only."""
        gone, self._gone = self._gone, None
        if gone is not None:
            gone(self)

    def take_output(self) -> list[bytes]:
        """Return the bytes that are to be sent now, in pieces, and forget them."""
        return self.outbox.drain()

    def network_ready(self) -> None:
        """Continue with output that waited for the network."""
        self.flush()  # the link's `backlog` is 0 now
        self._events()

    @property
    def is_due(self) -> bool:
        """Return True if `wake_by` was called, and the time has not come."""
        return self._due != NEVER

    def wake_by(self, due: int) -> None:
        """Have `events` called at `due`, monotonic ns."""
        self._due = due
        self._transport.timer_changed()

    def next_timer(self) -> int:
        """Return the time of `wake_by`: their owner calls all links by time."""
        return self._due

    def tick(self, now: int) -> None:
        """Call `events`, if it is time."""
        if now >= self._due:
            self._due = NEVER
            self._events()
