"""Limit the memory that half-received commands take, and the time they may take to arrive.

A command whose body is still coming reserves all of its memory from the budget, once that is more than a connection may hold
anyway. A connection that has reserved can always complete its command, so connections never wait for each other. A connection
that gets no room is not read until there is some, or is closed after BODY_TIMEOUT. The caller passes the time in.

A connection whose client has published more than its rate allows is not read for a while, either. What it has sent is handled
before; it is not closed for that, however long it takes.

See docs/contributing/design/security.md#sizes-and-times.
"""

from __future__ import annotations

from itertools import islice

from nsqd.net.connection import Connection, ConnectionOwner
from nsqd.protocols.transport import NEVER, Meter
from shared.values import MILLISECOND, SECOND

# ns between two pieces of a body, and to wait for room; the same as for the bodies of HTTP requests
BODY_TIMEOUT = 30 * SECOND
WHOLE_BODY_TIMEOUT = 120 * SECOND  # ns for a whole body, plus the time that it takes at LEAST_RATE
LEAST_RATE = 64 * 1024  # bytes a second
# ns between attempts to get room: the HTTP thread gives bytes back without telling the reactor
RETRY = 50 * MILLISECOND
MOST_RETRIED = 64  # connections in one attempt


class Inflow:
    """All half-received commands, with the shares of the budget (Connection.input) and the deadlines (body_due) of each."""

    def __init__(self, owner: ConnectionOwner) -> None:
        self._owner = owner
        self._waiting: dict[Connection, None] = {}  # connections that are not read, because there was no room for them
        self._not_before = 0  # ns: the earliest time of the next attempt
        self.retry_at = NEVER  # when to call `retry` (ns); NEVER: no connection waits

    def account(self, connection: Connection, now: int, arrived: int) -> None:
        """Account for the current command after the peer took input; stop reading the connection if there is no room.

        `arrived` is at most the number of bytes that came since the peer last had none. The caller calls this while the peer
        has a half-received command, and once after that: while `metered`.
        """
        if not self._admits(connection, now, arrived):
            # at the end of the turn ConnectionUpkeep sees that no more is to be read
            self._owner.unflushed[connection] = None
        if connection.usage is not None:
            self._charge(connection, connection.usage, now)
        self._owner.set_timer(connection)

    def _charge(self, connection: Connection, usage: Meter, now: int) -> None:
        """Charge what the peer has published; stop reading the connection while that was more than its rate."""
        connection.metered = connection.metered or usage.has_rates
        until = usage.charge(now) if usage.is_held or not connection.starved else 0
        if until:
            connection.starved, connection.paused_until = True, until
            connection.body_due = NEVER
            self._owner.unflushed[connection] = None

    def end_pause(self, connection: Connection, now: int) -> None:
        """Read the connection again. A body that is coming has all its time again."""
        peer = connection.peer
        connection.paused_until, connection.starved = NEVER, False
        if connection.usage is not None:
            connection.usage.end_pause(now)
        if peer.body_since >= 0:
            peer.body_since = now
        # at the end of the turn ConnectionUpkeep sees that it is to be read
        self._owner.unflushed[connection] = None
        self.account(connection, now, 0)

    def _admits(self, connection: Connection, now: int, arrived: int) -> bool:
        """Reserve the memory of the current command. Return False if there is no room, or if there was none before."""
        peer, share = connection.peer, connection.input
        if connection.starved:
            return False
        if peer.buffered and peer.body_since >= 0:
            whole = WHOLE_BODY_TIMEOUT + peer.buffered * SECOND // LEAST_RATE
            connection.body_due = min(now + BODY_TIMEOUT, peer.body_since + whole)
        else:
            connection.body_due = NEVER
        if share.hold(peer.buffered):
            connection.metered = share.held > 0 or connection.body_due != NEVER
            return True
        share.charge(min(peer.buffered, share.held + arrived))
        connection.starved = connection.metered = True
        # otherwise the peer waits for another server, and the client sent more than a connection may hold meanwhile
        if peer.body_since >= 0:
            connection.body_due = now + BODY_TIMEOUT
        self._waiting[connection] = None
        self.retry_at = self._not_before
        return False

    def retry(self, now: int) -> None:
        """Read again from the connections for which there is room now."""
        for connection in list(islice(self._waiting, MOST_RETRIED)):
            del self._waiting[connection]
            if connection.input.fits(connection.peer.buffered) and connection.input.hold(connection.peer.buffered):
                connection.starved = False
                peer = connection.peer
                connection.body_due = now + BODY_TIMEOUT if peer.buffered and peer.body_since >= 0 else NEVER
                connection.metered = connection.input.held > 0 or connection.body_due != NEVER
                # at the end of the turn ConnectionUpkeep sees that it is to be read
                self._owner.unflushed[connection] = None
                self._owner.set_timer(connection)
            else:
                self._waiting[connection] = None  # after the others: one address must not keep another one waiting
        self._not_before = now + RETRY
        self.retry_at = self._not_before if self._waiting else NEVER

    def release_reserved(self, connection: Connection) -> None:
        """Release what the connection has reserved: it reads no more commands."""
        self._waiting.pop(connection, None)
        if not self._waiting:
            self.retry_at = NEVER
        connection.starved = connection.metered = False
        connection.paused_until = NEVER
        connection.body_due = NEVER
        connection.input.hold(0)
