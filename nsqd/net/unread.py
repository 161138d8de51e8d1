"""Handle input that was received before: of TLS handshakes, in layers, or in the buffers of busy peers.

A turn handles a part of it, for CATCH_UP at most, beginning with the connection that has waited longest. Peers that were
suspended also resume here.
"""

from collections import Counter
from collections.abc import Callable

from nsqd.net.connection import Connection, ConnectionOwner
from nsqd.net.inflow import Inflow
from nsqd.net.layers import Broken, Layers
from shared.log import log

CATCH_UP = 5_000_000  # ns of a turn for handshakes, and for input that is left from earlier turns


class Unread:
    """The connections with such input. `clock`: as the reactor's."""

    def __init__(
        self, owner: ConnectionOwner, inflow: Inflow, clock: Callable[[], tuple[int, int]], refused: Counter[str]
    ) -> None:
        self._owner = owner
        self._inflow = inflow
        self._clock = clock
        self._refused = refused
        # connections with such input, those that have waited longest first
        self.connections: dict[Connection, None] = {}
        self.resumed: list[Connection] = []  # connections whose suspension is over

    def receive(self, connection: Connection, layers: Layers, data: bytes, now: int) -> None:
        """Take input that passes through layers, and give the peer what it can handle; a handshake waits for `catch_up`."""
        if layers.handshaking:
            connection.handshake += data
            self.connections[connection] = None  # a thousand handshakes at once must not be one turn
            self._owner.unflushed[connection] = None  # makes sure that no more is read meanwhile
            return
        try:
            layers.receive(data, connection.peer)
        except Broken as failure:
            self._break_off(connection, failure)
        self._feed(connection, now)

    def defer(self, connection: Connection, data: bytes) -> None:
        """Take input that the peer gets in `catch_up`, because to handle it may take long, or this turn has taken long."""
        if connection.layers is not None:
            try:
                connection.layers.receive(data, connection.peer)
            except Broken as failure:
                self._break_off(connection, failure)
        else:
            connection.pending += data
        self.connections[connection] = None
        self._owner.unflushed[connection] = None  # makes sure that no more is read meanwhile

    def catch_up(self, now: int) -> None:
        """Resume the peers that were suspended, and give others a part of their unread input."""
        resumed, self.resumed = self.resumed, []
        for connection in resumed:
            if not connection.closed and not connection.peer.outbox.closing:
                self._resume(connection, now)
        until = self._clock()[0] + CATCH_UP
        for connection in list(self.connections):
            del self.connections[connection]  # re-queued at the end of the turn
            self._feed(connection, now)
            if self._clock()[0] > until:
                break

    def _resume(self, connection: Connection, now: int) -> None:
        peer = connection.peer
        peer.resume(now)
        if peer.buffered or connection.metered:
            self._inflow.account(connection, now, peer.buffered)
        self._owner.unflushed[connection] = None
        if connection.layers is not None:
            self.connections[connection] = None  # the client's close of TLS waited, too

    def _feed(self, connection: Connection, now: int) -> None:
        """Give the peer a part of its input. The end of the turn makes sure that the rest is not forgotten."""
        self._owner.unflushed[connection] = None
        peer, layers = connection.peer, connection.layers
        if connection.has_unread:
            try:
                data = self._read(connection, layers) if layers is not None else self._take_pending(connection)
            except Broken as failure:
                self._break_off(connection, failure)
                return
            if data or peer.has_more:
                peer.receive(data, now)
                if peer.buffered or connection.metered:
                    self._inflow.account(connection, now, len(data))
        if layers is not None and layers.ended and not (connection.has_more or connection.eof or peer.waiting):
            connection.eof = True
            peer.receive_eof()

    def _take_pending(self, connection: Connection) -> bytes:
        """Return the input of a plain connection, or b"" if the peer still has commands to handle."""
        if connection.peer.has_more:
            return b""
        data, connection.pending = connection.pending, b""
        return data

    def _read(self, connection: Connection, layers: Layers) -> bytes:
        """Return plain input for the peer, or b"" if the peer still has commands to handle. Raises Broken."""
        if connection.handshake:
            handshake, connection.handshake = connection.handshake, b""
            layers.receive(handshake, connection.peer)
        return b"" if connection.peer.has_more or not layers.has_more else layers.read()

    def _break_off(self, connection: Connection, failure: Broken) -> None:
        self._refused["tls_or_compression"] += 1
        # a log handler that keeps the record must not keep the connection, which the failure's traceback refers to
        why = str(failure)
        log.info("CLIENT(%s:%s): %s", connection.peer.remote_ip, connection.peer.port, why)
        connection.peer.break_off(why)
