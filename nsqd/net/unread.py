"""Input that needs no network any more: of TLS handshakes, behind layers, in the buffers of peers with much to do.

A turn takes a portion of it, for CATCH_UP at most, from the connection that waits longest first. Peers that were suspended
go on here, too.
"""

from collections import Counter
from collections.abc import Callable

from nsqd.net.connection import Connection, Owner
from nsqd.net.inflow import Inflow
from nsqd.net.layers import Broken, Layers
from shared.log import log

CATCH_UP = 5_000_000  # ns of a turn for handshakes, and for input that is left from earlier turns


class Unread:
    """See above. `clock` gives monotonic ns first."""

    __slots__ = ("_clock", "_inflow", "_owner", "_refused", "connections", "resumed")

    def __init__(
        self, owner: Owner, inflow: Inflow, clock: Callable[[], tuple[int, int]], refused: Counter[str]
    ) -> None:
        self._owner = owner
        self._inflow = inflow
        self._clock = clock
        self._refused = refused
        self.connections: dict[Connection, None] = {}  # those with such input
        self.resumed: list[Connection] = []  # those whose peers need not wait any more

    def receive(self, connection: Connection, layers: Layers, data: bytes, now: int) -> None:
        """Input has come that passes through layers."""
        if layers.handshaking:
            connection.handshake += data
            self.connections[connection] = None  # a thousand handshakes at once shall not be one turn
            self._owner.unflushed[connection] = None  # no more is read meanwhile
            return
        try:
            layers.receive(data, connection.peer)
        except Broken as failure:
            self._break_off(connection, failure)
        self._feed(connection, now)

    def catch_up(self, now: int) -> None:
        """Let peers go on that were suspended, and give others a portion of what they have not read."""
        resumed, self.resumed = self.resumed, []
        for connection in resumed:
            if not connection.closed and not connection.peer.outbox.closing:
                self._resume(connection, now)
        until = self._clock()[0] + CATCH_UP
        for connection in list(self.connections):
            del self.connections[connection]  # the end of the turn puts it behind the others
            self._feed(connection, now)
            if self._clock()[0] > until:
                break

    def _resume(self, connection: Connection, now: int) -> None:
        peer = connection.peer
        peer.resume(now)
        if peer.buffered or connection.metered:
            self._inflow.note(connection, now, peer.buffered)
        self._owner.unflushed[connection] = None
        if connection.layers is not None:
            self.connections[connection] = None  # the client's goodbye waited too

    def _feed(self, connection: Connection, now: int) -> None:
        """One portion of what waits. The end of the turn sees to it that the rest is not forgotten."""
        self._owner.unflushed[connection] = None
        peer, layers = connection.peer, connection.layers
        if connection.has_unread:
            try:
                data = self._read(connection, layers) if layers is not None else b""
            except Broken as failure:
                self._break_off(connection, failure)
                return
            if data or peer.has_more:
                peer.receive(data, now)
                if peer.buffered or connection.metered:
                    self._inflow.note(connection, now, len(data))
        if layers is not None and layers.ended and not (connection.has_more or connection.eof or peer.waiting):
            connection.eof = True
            peer.receive_eof()

    def _read(self, connection: Connection, layers: Layers) -> bytes:
        """Plain input for the peer, if it has nothing left to do. Raises Broken."""
        if connection.handshake:
            handshake, connection.handshake = connection.handshake, b""
            layers.receive(handshake, connection.peer)
        return b"" if connection.peer.has_more or not layers.has_more else layers.read()

    def _break_off(self, connection: Connection, failure: Broken) -> None:
        self._refused["tls_or_compression"] += 1
        why = str(failure)  # whoever keeps the record must not keep the connection, which the failure's traceback holds
        log.info("CLIENT(%s:%s): %s", connection.peer.remote_ip, connection.peer.port, why)
        connection.peer.break_off()
