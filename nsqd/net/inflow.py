"""Half-received commands: what they may take in memory, and how long they may take to arrive.

A command whose body is still coming reserves all that it will take in memory from the budget, once that is more than a
connection may hold anyway. Whoever has reserved can always complete its command, so connections never wait for each other.
Whoever gets no room is not read until there is some, or closed after BODY_TIMEOUT. The time comes in.
"""

from itertools import islice

from nsqd.net.connection import Connection, Owner
from nsqd.protocols.transport import NEVER
from shared.values import MILLISECOND, SECOND

BODY_TIMEOUT = 30 * SECOND  # ns between two pieces of a body, and to wait for room; as for the bodies of HTTP
WHOLE_BODY_TIMEOUT = 120 * SECOND  # ns for all of it, and LEAST_RATE beyond
LEAST_RATE = 64 * 1024  # bytes a second
RETRY = 50 * MILLISECOND  # ns between attempts to get room: the HTTP thread gives bytes back without a word to us
MOST_RETRIED = 64  # connections in an attempt


class Inflow:
    """See above. A connection's `input` is what it has reserved, `body_due` when it is given up, `metered` if either is."""

    __slots__ = ("_not_before", "_owner", "_waiting", "retry_at")

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._waiting: dict[Connection, None] = {}  # those that are not read, as there was no room for them
        self._not_before = 0  # ns: the earliest time of the next attempt
        self.retry_at = NEVER  # when to call `retry` (ns); NEVER: nobody waits

    def note(self, connection: Connection, now: int, arrived: int) -> None:
        """The peer has taken input, at most `arrived` bytes since it last had none. It may not be read any more.

        To be called while the peer has a half-received command, and once after that: while `metered`.
        """
        if not self._admits(connection, now, arrived):
            self._owner.unflushed[connection] = None  # there it is seen that no more is to be read
        self._owner.set_timer(connection)

    def _admits(self, connection: Connection, now: int, arrived: int) -> bool:
        """Reserve what the command at hand takes. False: there is no room, or there was none before."""
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
        if peer.body_since >= 0:  # else it waits for something else, and sent more than a connection may hold meanwhile
            connection.body_due = now + BODY_TIMEOUT
        self._waiting[connection] = None
        self.retry_at = self._not_before
        return False

    def retry(self, now: int) -> None:
        """Read again from those for whom there is room now."""
        for connection in list(islice(self._waiting, MOST_RETRIED)):
            del self._waiting[connection]
            if connection.input.fits(connection.peer.buffered) and connection.input.hold(connection.peer.buffered):
                connection.starved = False
                peer = connection.peer
                connection.body_due = now + BODY_TIMEOUT if peer.buffered and peer.body_since >= 0 else NEVER
                connection.metered = connection.input.held > 0 or connection.body_due != NEVER
                self._owner.unflushed[connection] = None  # there it is seen that it is to be read
                self._owner.set_timer(connection)
            else:
                self._waiting[connection] = None  # behind the others: one address must not keep another one waiting
        self._not_before = now + RETRY
        self.retry_at = self._not_before if self._waiting else NEVER

    def forget(self, connection: Connection) -> None:
        """The connection reads no more commands."""
        self._waiting.pop(connection, None)
        if not self._waiting:
            self.retry_at = NEVER
        connection.starved = connection.metered = False
        connection.body_due = NEVER
        connection.input.hold(0)
