"""Replies that wait for promises: connections with sealed output, and what HTTP clients are told.

The reactor looks here after each commit. Nothing is looked through until one of the marks that somebody waits for has moved.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from nsqd.core.sequence.mark import Mark, Promise, are_kept
from nsqd.net.connection import Connection


@dataclass(frozen=True, slots=True)
class Served:
    """What the HTTP thread asked for and was done in a turn: how its replies are sent, and how they are refused."""

    deliver: Callable[[], None]
    refuse: Callable[[], None]


class Promised:
    """See above."""

    __slots__ = ("_served", "connections", "marks")

    def __init__(self) -> None:
        self.connections: dict[Connection, None] = {}  # those with sealed output
        self._served: list[tuple[Sequence[Promise], Served]] = []  # HTTP replies, with the promises they wait for
        # the marks that they wait for: where each was at the last look; empty if nobody waits
        self.marks: dict[Mark, int] = {}

    def wait_for(self, promises: Iterable[Promise]) -> None:
        """Somebody waits for these: a connection that is among `connections`, or HTTP."""
        for promise in promises:
            self.marks.setdefault(promise.mark, promise.mark.position)

    def add_served(self, served: Served, promises: Sequence[Promise]) -> None:
        """The replies to HTTP wait for these."""
        self._served.append((promises, served))
        self.wait_for(promises)

    def forget(self, connection: Connection) -> None:
        """The connection is gone."""
        self.connections.pop(connection, None)
        if not self.connections and not self._served:
            self.marks.clear()

    def release(self) -> tuple[dict[Connection, None], list[Connection]]:
        """If a mark has moved or is broken: answer HTTP, and see which connections need not wait any more.

        Returns those with output that can leave now, and those that wait for what will never come.
        """
        marks = self.marks
        if all(mark.position == seen and not mark.broken for mark, seen in marks.items()):
            return {}, []
        is_broken = any(mark.broken for mark in marks)
        marks.clear()
        served, self._served = self._served, []
        for promises, replies in served:
            if are_kept(promises):
                replies.deliver()
            elif any(promise.is_broken for promise in promises):
                replies.refuse()
            else:
                self.add_served(replies, promises)
        ready, lost = dict[Connection, None](), list[Connection]()
        connections, self.connections = self.connections, {}
        for connection in connections:
            if is_broken and connection.waits_in_vain:
                lost.append(connection)
                continue
            waiting = [promises for promises, _ in connection.sealed if not are_kept(promises)]
            for promises in waiting:
                self.connections[connection] = None
                self.wait_for(promises)
            if len(waiting) < len(connection.sealed):
                ready[connection] = None
        return ready, lost
