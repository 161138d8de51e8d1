"""The connections' timers: one queue with the next timer of each connection."""

from nsqd.core.timing.duequeue import DueQueue
from nsqd.net.connection import Connection
from nsqd.protocols.transport import NEVER

MOST_DUE = 512  # connections handled in a turn


class Timers:
    """The queue of timers. A connection's `timer` is its entry in the queue."""

    def __init__(self) -> None:
        self._queue: DueQueue[Connection] = DueQueue()
        self.due = NEVER  # ns: no timer is due before

    def set(self, connection: Connection) -> None:
        """Make sure that `pop_due` returns the connection when its next timer is due."""
        due = connection.drain_until or min(
            connection.peer.next_timer(), connection.body_due, connection.paused_until, connection.proof_due
        )
        if connection.limits is not None and not connection.drain_until:
            due = min(due, connection.limits.due)
        deadline = connection.write_deadline()
        if deadline is not None:
            due = min(due, deadline)
        if connection.timer is not None:
            if connection.timer[0] <= due:
                return  # the connection is returned earlier anyway, and the caller then sets its timer again
            self._queue.remove(connection.timer[1])
        connection.timer = (due, self._queue.push(due, connection))
        self.due = min(self.due, due)

    def cancel(self, connection: Connection) -> None:
        """Remove the timer of a connection that is gone."""
        if connection.timer is not None:
            self._queue.remove(connection.timer[1])
            connection.timer = None

    def pop_due(self, now: int, most: int = MOST_DUE) -> list[Connection]:
        """Return up to `most` connections that are due at `now` (ns), without their timers: the caller sets them again."""
        connections = self._queue.pop_due(now, most)
        for connection in connections:
            connection.timer = None
        self.due = self.next_due()
        return connections

    def next_due(self) -> int:
        """Return the time of the next timer (ns), or NEVER if there is none."""
        due = self._queue.next_due()
        return NEVER if due is None else due

    def __len__(self) -> int:
        return len(self._queue)
