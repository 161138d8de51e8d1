"""The turn's agenda: what time it is, who can deliver, what was published, and which queue is due when.

Topics and their readers write into it, the broker works it off. It knows none of them.
"""

from typing import Protocol

from nsqd.core.timing.duequeue import DueQueue


class Queue(Protocol):
    """What has messages that wait for a time: a reader of a topic, or a topic's delay lane."""

    watched: tuple[int, int] | None  # (due, handle) of its entry in the agenda

    def scan(self, now: int, limit: int) -> int:
        """Serve up to about `limit` messages that are due; return how many: 0 means that nothing was due."""

    def next_due(self) -> int | None:
        """When scan has something to do (monotonic ns)."""


class Server(Protocol):
    """What can deliver messages."""

    def serve(self, now: int) -> None:
        """Give each consumer that has room its share, once."""


class Reader(Queue, Server, Protocol):
    """What is both."""


class Source(Protocol):
    """What takes in messages during a turn."""

    def seal(self, wall: int) -> None:
        """Give the messages their ids and places."""

    def settle(self) -> None:
        """Give the jobs their places, ahead of the messages."""


class Agenda:
    """See above."""

    __slots__ = ("awake", "index", "now", "unsealed", "unsettled", "wall")

    def __init__(self) -> None:
        self.now = 0  # monotonic ns, of this turn
        self.wall = 0  # ns since the epoch, of this turn
        self.awake: dict[Server, None] = {}  # readers that may have something for somebody who has room
        self.unsealed: list[Source] = []  # with messages published in this turn
        self.unsettled: list[Source] = []  # with jobs put in this turn
        self.index: DueQueue[Queue] = DueQueue()  # queues by a lower bound of their earliest due time

    def settle(self) -> None:
        """The jobs that were put so far exist: for whoever looks at them in the same turn."""
        unsettled, self.unsettled = self.unsettled, []
        for source in unsettled:
            source.settle()

    def seal(self) -> None:
        """What was published so far in this turn has its ids and places: it can be delivered from now on."""
        if self.unsettled:
            self.settle()
        if self.unsealed:
            unsealed, self.unsealed = self.unsealed, []
            for source in unsealed:
                source.seal(self.wall)

    def serve(self) -> None:
        """Every reader that can deliver gives each of its consumers its share, once."""
        if self.awake:
            awake, self.awake = self.awake, {}
            for reader in awake:
                reader.serve(self.now)

    def watch(self, queue: Queue, due: int) -> None:
        """See to it that `queue` is scanned by `due` (monotonic ns)."""
        watched = queue.watched
        if watched is not None:
            if watched[0] <= due:
                return
            self.index.remove(watched[1])
        queue.watched = (due, self.index.push(due, queue))

    def unwatch(self, queue: Queue) -> None:
        """The queue waits for nothing."""
        if queue.watched is not None:
            self.index.remove(queue.watched[1])
            queue.watched = None

    def forget(self, reader: "Reader") -> None:
        """The reader is gone."""
        self.unwatch(reader)
        self.awake.pop(reader, None)

    def __repr__(self) -> str:
        return f"<Agenda: {len(self.awake)} awake, {len(self.index)} watched>"
