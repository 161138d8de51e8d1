"""The replies that wait for promises: connections with sealed output, and replies to HTTP clients.

The reactor calls `release` after each commit. It checks no connection until one of the awaited marks has moved.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from nsqd.core.sequence.mark import Mark, Promise, are_kept
from nsqd.net.connection import Connection


@dataclass(frozen=True, slots=True)
class HttpReplies:
    """The HTTP requests that were done in a turn: how their replies are sent, and how they are refused."""

    deliver: Callable[[], None]
    refuse: Callable[[], None]
    give_up: Callable[[], None] | None = None  # instead, if copies did not come in time; None: as `refuse`


class Promised:
    """The connections and HTTP replies that wait, and the marks that they wait for."""

    def __init__(self) -> None:
        self.connections: dict[Connection, None] = {}  # connections with sealed output
        self._http_replies: list[tuple[Sequence[Promise], HttpReplies]] = []  # with the promises that they wait for
        # The awaited marks, with the position of each at the last check; empty if nothing waits.
        self.marks: dict[Mark, int] = {}

    def wait_for(self, promises: Iterable[Promise]) -> None:
        """Watch the marks of these promises, for a connection among `connections` or for HTTP."""
        for promise in promises:
            self.marks.setdefault(promise.mark, promise.mark.position)

    def add_http_replies(self, served: HttpReplies, promises: Sequence[Promise]) -> None:
        """Hold the HTTP replies back until these promises are kept."""
        self._http_replies.append((promises, served))
        self.wait_for(promises)

    def remove_connection(self, connection: Connection) -> None:
        """Forget a connection that is gone."""
        self.connections.pop(connection, None)
        if not self.connections and not self._http_replies:
            self.marks.clear()

    def give_up_http_replies(self) -> None:
        """Answer all HTTP requests that wait: their effects may be lost."""
        served, self._http_replies = self._http_replies, []
        for _, replies in served:
            (replies.give_up or replies.refuse)()

    def release(self) -> tuple[dict[Connection, None], list[Connection]]:
        """If a mark has moved, answer HTTP, and return the connections whose output can leave, and those that wait in vain."""
        marks = self.marks
        if all(mark.position == seen and not mark.broken and mark.given_up <= seen for mark, seen in marks.items()):
            return {}, []
        is_broken = any(mark.broken or mark.given_up > mark.position for mark in marks)
        marks.clear()
        served, self._http_replies = self._http_replies, []
        for promises, replies in served:
            if are_kept(promises):
                replies.deliver()
            elif any(promise.mark.broken for promise in promises if promise.is_broken):
                replies.refuse()
            elif any(promise.is_broken for promise in promises):
                (replies.give_up or replies.refuse)()
            else:
                self.add_http_replies(replies, promises)
        ready: dict[Connection, None] = {}
        lost: list[Connection] = []
        connections, self.connections = self.connections, {}
        kept: list[Promise] | None = None  # promises that are kept; the connections of a turn share them
        for connection in connections:
            if is_broken and connection.waits_in_vain:
                lost.append(connection)
                continue
            sealed = connection.sealed
            if len(sealed) == 1 and (sealed[0][0] is kept or are_kept(sealed[0][0])):  # nearly always
                kept = sealed[0][0]
                ready[connection] = None
                continue
            waiting = [promises for promises, _ in sealed if not are_kept(promises)]
            for promises in waiting:
                self.connections[connection] = None
                self.wait_for(promises)
            if len(waiting) < len(sealed):
                ready[connection] = None
        return ready, lost
