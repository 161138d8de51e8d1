"""The upkeep of connections: interest in epoll, deadlines, and an end that loses nothing."""

import select
from collections import Counter

from nsqd.net.connection import DRAIN_TIME, Connection, ConnectionOwner
from nsqd.net.inflow import Inflow
from nsqd.net.system import Poller
from nsqd.net.unread import Unread
from nsqd.protocols.transport import NEVER
from shared.budget import FREE


class ConnectionUpkeep:
    """The checks of connections that are out of the ordinary, after a send and when a timer is due."""

    def __init__(
        self, owner: ConnectionOwner, epoll: Poller, inflow: Inflow, unread: Unread, refused: Counter[str]
    ) -> None:
        self._owner = owner
        self._epoll = epoll
        self._inflow = inflow
        self._unread = unread
        self._refused = refused

    def check_after_send(self, connection: Connection, now: int) -> None:
        """Check a connection after a send that left something to do: close it, drain it, or update its interest in epoll."""
        if connection.broken:
            self._owner.close(connection)
            return
        if connection.metered and not (connection.starved or connection.peer.buffered):
            self._inflow.account(connection, now, 0)  # a read from disk has let its command complete
        if connection.has_unread:
            self._unread.connections[connection] = None
        backlog = connection.backlog
        if backlog > FREE or connection.output.held:
            connection.output.charge(backlog)
        if connection.leaving is not None and not backlog and not connection.sealed:
            self._owner.hand_over(connection)
            return
        if connection.peer.outbox.closing and not backlog and not connection.sealed:
            if connection.eof:
                self._owner.close(connection)
                return
            if not connection.drain_until:
                self._drain(connection, now)
        self._set_interest(connection, backlog > 0)

    def _set_interest(self, connection: Connection, writing: bool) -> None:
        reading = connection.wants_input
        events = (select.EPOLLOUT if writing else 0) | (select.EPOLLIN if reading else 0)
        if connection.is_paused and not connection.eof:
            events |= select.EPOLLRDHUP
        if events == connection.events:
            return
        connection.writing, connection.reading, connection.events = writing, reading, events
        self._epoll.modify(connection.fd, events)
        if writing:
            self._owner.set_timer(connection)

    def _drain(self, connection: Connection, now: int) -> None:
        """Shut down the sending side after the last output, and discard input until the client closes, for at most a second."""
        connection.drain_until = now + DRAIN_TIME
        connection.peer.disconnected()
        self._inflow.release_reserved(connection)
        connection.say_goodbye()
        self._owner.set_timer(connection)

    def tick(self, connection: Connection, now: int) -> None:
        """Do what is due at `now` (ns): close a connection past a deadline, or let its peer tick."""
        deadline = connection.write_deadline()
        if (connection.drain_until and now >= connection.drain_until) or (deadline is not None and now >= deadline):
            self._owner.close(connection)
            return
        if now >= connection.body_due:
            self._refused["body_timeout"] += 1
            self._owner.close(connection)
            return
        if now >= connection.proof_due:
            connection.proof_due = NEVER
            if connection.is_stranger:
                self._refused["proof_timeout"] += 1
                self._owner.close(connection)
                return
        if now >= connection.paused_until:
            self._inflow.end_pause(connection, now)
        if not connection.drain_until:
            connection.expire_limits(now)
            connection.peer.tick(now)
        self._owner.set_timer(connection)
