"""A topic's delay lane: messages published with a delay, which wait here once for all channels."""

from collections.abc import Collection, Iterable, Iterator

from nsqd.core.timing.deferred import Deferred, Message


class DelayLane:
    """See above. The edge of the topic tells which of them the readers know of: those before it."""

    __slots__ = ("ahead", "before", "overdue", "waiting")

    def __init__(self, number: int) -> None:
        """`number`: the topic's."""
        self.waiting = Deferred(number)  # until their delay is over
        self.before = 0  # of those, how many are before the edge
        self.ahead = 0  # messages with a delay at or past the edge, in `waiting` or in `overdue`
        self.overdue: list[Message] = []  # of the latter, those whose delay is over

    def push(self, first: int, count: int, due: int, now: int) -> None:
        """Messages `first`.., at or past the edge, wait until `due` (monotonic ns)."""
        for ordinal in range(first, first + count):
            self.waiting.push(due, Message(ordinal, 0), now)
        self.ahead += count

    def pass_edge(self) -> int:
        """The edge moves behind all of them. Returns how many it passes."""
        passed, self.ahead = self.ahead, 0
        self.before += passed
        overdue, self.overdue = self.overdue, []
        for message in overdue:  # they go to the readers with the next scan
            self.waiting.push(0, message, 0)
        return passed

    def release(self, now: int, limit: int, edge: int) -> tuple[int, list[Message]]:
        """Take out up to `limit` messages whose delay is over: how many were moved, and those before the edge."""
        moved = self.waiting.approach(now, limit)
        due = self.waiting.pop_due(now, limit)
        released = [message for message in due if message.ordinal < edge]
        if len(released) < len(due):  # no reader has been given these: they are due, and wait for the edge
            self.overdue += [message for message in due if message.ordinal >= edge]
        self.before -= len(released)
        return moved + len(due), released

    def take(self, ordinals: Collection[int], edge: int, now: int) -> list[tuple[int, Message]]:
        """Take out those of `ordinals` that are before the edge, each with when it is due. Walks everything."""
        taken = self.waiting.take_with_due(ordinals) if self.before else []
        for due, message in taken:
            if message.ordinal >= edge:
                self.waiting.push(due, message, now)
        taken = [entry for entry in taken if entry[1].ordinal < edge]
        self.before -= len(taken)
        return taken

    def ordinals(self, first: int, edge: int) -> Iterator[int]:
        """Messages from `first` on, before the edge, that wait here. Walks everything."""
        for _, message in self.waiting.items():
            if first <= message.ordinal < edge:
                yield message.ordinal

    def delayed(self) -> set[int]:
        """All messages that wait here, or are overdue. Walks everything."""
        return {message.ordinal for _, message in self.waiting.items()} | {one.ordinal for one in self.overdue}

    def drop_from(self, ordinal: int) -> None:
        """Messages from `ordinal`, the edge, on are dropped. Walks everything."""
        self.waiting.remove_from(ordinal)
        self.overdue.clear()
        self.ahead = 0

    def load(self, delayed: Iterable[tuple[int, int]], now: int) -> None:
        """After a restart: (ordinal, due) of the messages at or past the edge that have a delay."""
        for ordinal, due in delayed:
            self.push(ordinal, 1, due, now)

    def clear(self) -> None:
        """Drop everything."""
        self.waiting.clear()
        self.overdue.clear()
        self.before = self.ahead = 0

    def check(self, edge: int) -> None:
        """Raise AssertionError if a sentence above is false."""
        self.waiting.check()
        waiting = [message.ordinal for _, message in self.waiting.items()]
        assert self.before == sum(ordinal < edge for ordinal in waiting)
        assert self.ahead == len(self.overdue) + sum(ordinal >= edge for ordinal in waiting)
        assert all(message.ordinal >= edge for message in self.overdue)

    def __repr__(self) -> str:
        return f"<DelayLane: {self.waiting.count} wait, {len(self.overdue)} overdue>"
