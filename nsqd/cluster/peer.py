"""One connection to another node, as the reactor sees it: bytes go through a Link, and what the link says goes out.

See docs/design/cluster.md#connections.
"""

from __future__ import annotations

from collections.abc import Callable

from nsqd.cluster.link import MOST_OUTPUT, Link
from nsqd.protocols.outbox import Outbox
from nsqd.protocols.transport import NEVER, Transport
from shared.tls_info import TlsInfo


class ClusterPeer:
    """The end of a connection to another node. Implements nsqd.protocols.conversation.Conversation."""

    waiting = False
    has_more = False
    buffered = 0  # a frame is bounded by its own rules, see nsqd.protocols.peer.frames
    body_since = -1
    patience = 0

    def __init__(
        self,
        link: Link | None,
        transport: Transport,
        remote_ip: str,
        port: str,
        events: Callable[[], None],
        gone: Callable[[ClusterPeer], None],
    ) -> None:
        """Take a connection over; `link` is None if it is one too many, so it is closed.

        `events` is called after each input: other connections may have something to say now. `gone` is called once at the end.
        """
        self.link = link
        self.remote_ip = remote_ip
        self.port = port
        self.outbox = Outbox(transport)
        self._events = events
        self._gone: Callable[[ClusterPeer], None] | None = gone
        if link is None:
            self.outbox.end()
        else:
            self.flush()

    def flush(self) -> None:
        """Send what the link has to say, and end the connection if the link says so."""
        link, outbox = self.link, self.outbox
        if link is None:
            return
        if link.output:
            outbox.reply(bytes(link.output))
            link.output.clear()
        if outbox.unsent > MOST_OUTPUT and not link.closing:
            link.closing = "the peer reads nothing"
        if link.closing and not outbox.closing:
            outbox.end()

    def receive(self, data: bytes, now: int) -> None:
        if self.link is not None and not self.outbox.closing:
            self.link.receive(data, now)
            self._events()

    def receive_eof(self) -> None:
        self.outbox.end()

    def resume(self, now: int) -> None:
        """Do nothing: a connection between nodes is never suspended."""

    def upgraded(self, tls: TlsInfo | None = None) -> None:
        """Do nothing: there are no layers yet."""

    def break_off(self) -> None:
        self.outbox.break_off()

    def disconnected(self) -> None:
        gone, self._gone = self._gone, None
        if gone is not None:
            gone(self)

    def take_output(self) -> list[bytes]:
        return self.outbox.drain()

    def network_ready(self) -> None:
        """Go on with what waited for the network."""
        self._events()

    def next_timer(self) -> int:
        return NEVER  # the owner of all links calls their `tick`

    def tick(self, now: int) -> None:
        """Do nothing: see next_timer."""

    def __repr__(self) -> str:
        return f"<ClusterPeer {self.remote_ip}:{self.port} {self.link and self.link.peer}>"
