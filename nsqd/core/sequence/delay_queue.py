"""A topic's delay queue: each message published with a delay waits here once for all channels.

See docs/contributing/design/channel.md#delays.
"""

from collections.abc import Collection, Iterable, Iterator

from nsqd.core.timing.deferred import MINUTE, Deferred, Message
from nsqd.core.timing.deferred_pages import Page, due_soon


class DelayQueue:
    """The delayed messages of one topic. The readers know only of those before the topic's distributed offset."""

    __slots__ = ("_number", "ahead", "before", "overdue", "waiting")

    def __init__(self, number: int) -> None:
        """Start empty. `number`: the topic's number."""
        self._number = number
        self.waiting = Deferred(number)  # messages whose delay is not over, or that are to be released next
        self.before = 0  # how many messages in `waiting` are before the distributed offset
        self.ahead = 0  # how many messages at or past the distributed offset are in `waiting` or `overdue`
        self.overdue: list[Message] = []  # messages at or past the distributed offset whose delay is over

    def push(self, first: int, count: int, due: int, now: int) -> None:
        """Hold `count` messages from `first` on, which are at or past the distributed offset, until `due` (monotonic ns)."""
        for ordinal in range(first, first + count):
            self.waiting.push(due, Message(ordinal, 0), now)
        self.ahead += count

    def pass_all(self) -> int:
        """Note that the distributed offset moves behind all messages. Returns how many delayed ones it passes."""
        passed, self.ahead = self.ahead, 0
        self.before += passed
        overdue, self.overdue = self.overdue, []
        for message in overdue:  # they go to the readers with the next scan
            self.waiting.push(0, message, 0)
        return passed

    def release(self, now: int, limit: int, distributed: int) -> tuple[int, list[Message]]:
        """Take out up to `limit` messages whose delay is over.

        Returns how many were moved, and those before the distributed offset.
        """
        moved = self.waiting.approach(now, limit)
        due = self.waiting.pop_due(now, limit)
        released = [message for message in due if message.ordinal < distributed]
        if len(released) < len(due):  # the rest is due, too, but has to wait until the distributed offset passes it
            self.overdue += [message for message in due if message.ordinal >= distributed]
        self.before -= len(released)
        return moved + len(due), released

    def pop_distributed(self, ordinals: Collection[int], distributed: int, now: int) -> list[tuple[int, Message]]:
        """Take out those of `ordinals` that are before the distributed offset, each as (due, message).

        Walks everything that waits.
        """
        taken = self.waiting.remove_with_due(ordinals) if self.before else []
        for due, message in taken:
            if message.ordinal >= distributed:
                self.waiting.push(due, message, now)
        taken = [entry for entry in taken if entry[1].ordinal < distributed]
        self.before -= len(taken)
        return taken

    def ordinals(self, first: int, distributed: int) -> Iterator[int]:
        """Yield the ordinals from `first` on and before the distributed offset that wait here. Walks everything that waits."""
        for _, message in self.waiting.items():
            if first <= message.ordinal < distributed:
                yield message.ordinal

    def snapshot(self) -> list[Iterable[int]]:
        """Return the ordinals of all messages that wait here now, in parts. It stays as it is when the queue changes."""
        return self.waiting.snapshot()

    def give_up(self) -> Deferred:
        """Drop all messages that wait here or are overdue. Return those that waited, for the caller to free."""
        given_up, self.waiting = self.waiting, Deferred(self._number)
        self.overdue, self.before, self.ahead = [], 0, 0
        return given_up

    def delayed(self) -> set[int]:
        """Return the ordinals of all messages that wait here or are overdue. Walks everything that waits."""
        return {message.ordinal for _, message in self.waiting.items()} | {one.ordinal for one in self.overdue}

    def drop_from(self, ordinal: int) -> None:
        """Drop all messages from `ordinal` on, which must be the distributed offset. Walks everything that waits."""
        self.waiting.remove_from(ordinal)
        self.overdue.clear()
        self.ahead = 0

    def load(self, delayed: list[Page], distributed: int, now: int) -> None:
        """Hold, after a restart, the messages that wait here."""
        later: list[Page] = []
        for ordinal, due, _ in due_soon(delayed, now + MINUTE, later):
            self.waiting.push(due, Message(ordinal, 0), now)
        for page in later:
            self.waiting.load(page.tobytes())
        ordinals = [page[::3] for page in delayed]
        self.before = sum(ordinal < distributed for part in ordinals for ordinal in part)
        self.ahead = sum(map(len, ordinals)) - self.before

    def check(self, distributed: int) -> None:
        """Raise AssertionError if an invariant of the queue does not hold. `distributed`: the topic's."""
        self.waiting.check()
        waiting = [message.ordinal for _, message in self.waiting.items()]
        assert self.before == sum(ordinal < distributed for ordinal in waiting)
        assert self.ahead == len(self.overdue) + sum(ordinal >= distributed for ordinal in waiting)
        assert all(message.ordinal >= distributed for message in self.overdue)

    def __repr__(self) -> str:
        return f"<DelayQueue: {self.waiting.count} wait, {len(self.overdue)} overdue>"
