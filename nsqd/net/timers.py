"""The connections' timers: when each wants to be looked at next, in one queue."""

from nsqd.core.timing.duequeue import DueQueue
from nsqd.net.connection import Connection
from nsqd.protocols.transport import NEVER

MOST_DUE = 512  # connections in a turn


class Timers:
    """See above. A connection's `timer` is its entry."""

    __slots__ = ("_queue", "due")

    def __init__(self) -> None:
        self._queue: DueQueue[Connection] = DueQueue()
        self.due = NEVER  # ns: nothing is due before

    def set(self, connection: Connection) -> None:
        """See to it that `pop_due` returns the connection when its next timer is due."""
        due = connection.drain_until or min(connection.peer.next_timer(), connection.body_due)
        deadline = connection.write_deadline()
        if deadline is not None:
            due = min(due, deadline)
        if connection.timer is not None:
            if connection.timer[0] <= due:
                return  # it is returned earlier anyway, and its timer is set anew
            self._queue.remove(connection.timer[1])
        connection.timer = (due, self._queue.push(due, connection))
        self.due = min(self.due, due)

    def forget(self, connection: Connection) -> None:
        """The connection is gone."""
        if connection.timer is not None:
            self._queue.remove(connection.timer[1])
            connection.timer = None

    def pop_due(self, now: int) -> list[Connection]:
        """Connections to be looked at, up to MOST_DUE. They have no timer any more: the caller sets it anew."""
        connections = self._queue.pop_due(now, MOST_DUE)
        for connection in connections:
            connection.timer = None
        self.due = self.next_due()
        return connections

    def next_due(self) -> int:
        """When the next one is due (ns); NEVER if there is none."""
        due = self._queue.next_due()
        return NEVER if due is None else due

    def __len__(self) -> int:
        return len(self._queue)
