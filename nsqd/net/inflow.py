"""Half-received commands: what they may take in memory, and how long they may take to arrive.

A command whose body is still coming reserves all that it will take in memory from the budget, once that is more than a
connection may hold anyway. Whoever has reserved can always complete its command, so connections never wait for each other.
Whoever gets no room is not read until there is some, or closed after BODY_TIMEOUT. The time comes in.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from nsqd.protocols.nsq.outbox import NEVER
from shared.values import MILLISECOND, SECOND

if TYPE_CHECKING:
    from nsqd.net.connection import Connection

BODY_TIMEOUT = 30 * SECOND  # ns between two pieces of a body, and to wait for room; as for the bodies of HTTP
WHOLE_BODY_TIMEOUT = 120 * SECOND  # ns for all of it, and LEAST_RATE beyond
LEAST_RATE = 64 * 1024  # bytes a second
RETRY = 50 * MILLISECOND  # ns between attempts to get room: the HTTP thread gives bytes back without a word to us
MOST_RETRIED = 64  # connections in an attempt


class Inflow:
    """See above. A connection's `input` is what it has reserved, `body_due` when it is given up."""

    __slots__ = ("_retry_at", "_waiting")

    def __init__(self) -> None:
        self._waiting: dict[Connection, None] = {}  # those that are not read, as there was no room for them
        self._retry_at = 0

    def note(self, connection: Connection, now: int, arrived: int) -> bool:
        """The peer has taken input, at most `arrived` bytes since it last had none. False: it must not be read any more."""
        peer, share = connection.peer, connection.input
        if connection.starved:
            return False
        if peer.buffered and peer.body_since >= 0:
            whole = WHOLE_BODY_TIMEOUT + peer.buffered * SECOND // LEAST_RATE
            connection.body_due = min(now + BODY_TIMEOUT, peer.body_since + whole)
        else:
            connection.body_due = NEVER
        if share.hold(peer.buffered):
            return True
        share.charge(min(peer.buffered, share.held + arrived))
        connection.starved = True
        if peer.body_since >= 0:  # else it waits for something else, and sent more than a connection may hold meanwhile
            connection.body_due = now + BODY_TIMEOUT
        self._waiting[connection] = None
        return False

    def retry(self, now: int) -> list[Connection]:
        """Those among the waiting for whom there is room now."""
        self._retry_at = now + RETRY
        admitted = []
        for connection in list(islice(self._waiting, MOST_RETRIED)):
            del self._waiting[connection]
            if connection.input.fits(connection.peer.buffered) and connection.input.hold(connection.peer.buffered):
                connection.starved = False
                peer = connection.peer
                connection.body_due = now + BODY_TIMEOUT if peer.buffered and peer.body_since >= 0 else NEVER
                admitted.append(connection)
            else:
                self._waiting[connection] = None  # behind the others: one address must not keep another one waiting
        return admitted

    def forget(self, connection: Connection) -> None:
        """The connection reads no more commands."""
        self._waiting.pop(connection, None)
        connection.starved = False
        connection.body_due = NEVER
        connection.input.hold(0)

    @property
    def retry_at(self) -> int | None:
        """When to call `retry` (ns); None: nobody waits."""
        return self._retry_at if self._waiting else None
