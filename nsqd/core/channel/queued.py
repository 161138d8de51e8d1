"""A backlog that has some of its ready messages in queues of their own: those of groups, or of priorities.

Each of them has a record in the log, as one that came back without a delivery, so a restart finds all of them.
"""

from collections.abc import Callable, Collection, Iterator
from itertools import islice

from nsqd.core.channel.backlog import Backlog
from nsqd.core.channel.retry import RetryQueue
from nsqd.core.sequence.ahead import Ahead
from nsqd.core.sequence.journal import ReaderJournal
from nsqd.core.timing.deferred import Message, pack_ready


class QueuedBacklog(Backlog):
    """The ready messages of a channel, some of which are queued."""

    __slots__ = ("_journal", "queued_count")

    def __init__(self, plain: Backlog, journal: ReaderJournal) -> None:
        """Take over the messages of a backlog without queues."""
        self._take_over(plain)
        self._journal = journal
        self.queued_count = 0

    def _queued(self) -> Iterator[Message]:
        """Yield the messages of the queues, as they are to be delivered without them."""
        raise NotImplementedError

    def _keep_queued(self, keep: Callable[[int], bool]) -> None:
        """Remove all messages with other ordinals from the queues. The caller counts them."""
        raise NotImplementedError

    def _note_queued(self, count: int) -> None:
        """Count `count` messages more in the queues, or fewer if it is negative."""
        self.queued_count += count
        self.passed -= count

    def plain(self) -> Backlog:
        self._release_all()
        return Backlog.taking_over(self)

    def _release_all(self) -> None:
        """Move all messages of the queues to the beginning of the retry queue."""
        queued = list(self._queued())
        at = self.retry[0][0] if self.retry else self.cursor
        self.retry.extendleft((at, message) for message in reversed(queued))
        self._keep_queued(lambda _: False)
        self._note_queued(-len(queued))
        self.reading = False

    def remove_retried(self, ordinals: Collection[int]) -> list[Message]:
        queued = [message for message in self._queued() if message.ordinal in ordinals]
        if queued:
            self._keep_queued(lambda ordinal: ordinal not in ordinals)
            self._note_queued(-len(queued))
        return queued + super().remove_retried(set(ordinals).difference(message.ordinal for message in queued))

    def give_up(self) -> tuple[Ahead, RetryQueue]:
        self._release_all()
        return super().give_up()

    def returned(self, start: int = 0) -> Iterator[Message]:
        yield from super().returned(start)
        yield from islice(self._queued(), max(0, start - self.retry.size), None)

    def packed(self) -> list[bytes]:
        return [pack_ready(self._queued()), *super().packed()]

    def check(self) -> None:
        super().check()
        assert self.queued_count == sum(1 for _ in self._queued())
