"""Replies that wait for promises: connections with sealed output, and what HTTP clients are told.

The reactor looks here after each commit. Nothing is looked through until one of the marks that somebody waits for has moved.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from nsqd.core.sequence.mark import Mark, Promise
from nsqd.net.connection import Connection


@dataclass(frozen=True, slots=True)
class Served:
    """What the HTTP thread asked for and was done in a turn: how its replies are sent, and how they are refused."""

    deliver: Callable[[], None]
    refuse: Callable[[], None]


class Promised:
    """See above."""

    __slots__ = ("_connections", "_served", "marks")

    def __init__(self) -> None:
        self._connections: dict[Connection, None] = {}  # those with sealed output
        self._served: list[tuple[Sequence[Promise], Served]] = []  # HTTP replies, with the promises they wait for
        # the marks that they wait for: where each was at the last look; empty if nobody waits
        self.marks: dict[Mark, int] = {}

    def add(self, connection: Connection, promises: Iterable[Promise]) -> None:
        """The connection has sealed output that waits for these."""
        self._connections[connection] = None
        self._note(promises)

    def add_served(self, served: Served, promises: Sequence[Promise]) -> None:
        """The replies to HTTP wait for these."""
        self._served.append((promises, served))
        self._note(promises)

    def _note(self, promises: Iterable[Promise]) -> None:
        for promise in promises:
            self.marks.setdefault(promise.mark, promise.mark.position)

    def forget(self, connection: Connection) -> None:
        """The connection is gone."""
        self._connections.pop(connection, None)
        if not self._connections and not self._served:
            self.marks.clear()

    def release(self) -> list[Connection]:
        """If a mark has moved: answer HTTP, and return the connections, which may have output that can leave now.

        A connection is returned once; whoever cannot send all of it adds it again.
        """
        if all(mark.position == seen and not mark.broken for mark, seen in self.marks.items()):
            return []
        self.marks.clear()
        served, self._served = self._served, []
        for promises, replies in served:
            if all(promise.is_kept for promise in promises):
                replies.deliver()
            elif any(promise.is_broken for promise in promises):
                replies.refuse()
            else:
                self.add_served(replies, promises)
        connections, self._connections = list(self._connections), {}
        return connections
