"""Ordered groups: a channel delivers messages of one group one at a time, in the order in which they were published.

The group of a message is its header `group`; a message without one is of no group. The first message of a group that leaves the
backlog is the *head* of its group until it is finished, or buried if the setting on_bury says that a group then continues. A
later message of the group is *held back*: it left the sequence, counts as ready, and follows when the head has ended. A
head that is requeued, times out or waits for a retry remains the head.

Messages of other groups pass those that are held back, until MOST_HELD are. Then the channel looks no further in the sequence.
A restart finds those that are held back in the log; the heads follow from what waits for a time or is buried.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from nsqd.core.channel.backlog import Backlog, ReadyMessages
from nsqd.core.channel.queued import QueuedBacklog
from nsqd.core.message.frame import ID_SIZE
from nsqd.core.sequence.extent import Extent
from nsqd.core.sequence.journal import ReaderJournal
from nsqd.core.timing.deferred import Message

HEADS_AT_ONCE = 1000  # of which the groups are read in a turn: 1 ms
MOST_HELD = 20_000  # messages held back at a channel: as many as SQS looks ahead in a queue with groups


class GroupedBacklog(QueuedBacklog):
    """The ready messages of a channel whose groups are ordered."""

    is_grouped = is_ordered = True

    __slots__ = ("_behind", "_heads", "_more_heads", "_unknown")

    def __init__(self, plain: Backlog, journal: ReaderJournal) -> None:
        super().__init__(plain, journal)
        self.retry = deque(sorted(self.retry, key=lambda entry: entry[1].ordinal))  # all have the same place
        self._more_heads: dict[bytes, int] = {}  # heads but one, of groups that were not in order before
        # ordinals of heads whose groups are still to be read, descending: the last one is read next
        self._unknown: dict[int, None] = {}
        self._heads: dict[int, bytes] = {}  # the group of each head, by ordinal
        # for each group with a head, the messages that are held back
        self._behind: dict[bytes, deque[Message] | None] = {}

    @property
    def held_count(self) -> int:  # type: ignore[override]
        return self.queued_count

    def put_back(self, message: Message) -> None:
        self.put_first(message)  # in any case before the rest of the sequence: its group waits for it

    def pop_ready(self, count: int, room: int) -> ReadyMessages | None:
        if self._unknown and not self._find_heads():
            return None
        if is_full(self) and not self.retry:
            self._wait_for_groups()
            return None
        return super().pop_ready(count, room)

    def _wait_for_groups(self) -> None:
        """Deliver nothing until a group continues."""
        self.reading = True

    def expect_heads(self, out: Iterable[int], waiting: Iterable[int]) -> None:
        self._unknown = dict.fromkeys(sorted((*out, *waiting), reverse=True))

    def _find_heads(self) -> bool:
        """Read the groups of the next heads to expect. Return False if there are more, or one must be read from disk first."""
        for _ in range(min(len(self._unknown), HEADS_AT_ONCE)):
            ordinal, _ = self._unknown.popitem()
            extent = self.extents.read(ordinal)
            if extent is None:
                self._unknown[ordinal] = None
                self.reading = True
                return False
            if extent.first <= ordinal:
                self._expect_head(extent.group_of(ordinal), ordinal)
        return not self._unknown

    def _expect_head(self, group: bytes, ordinal: int) -> None:
        if not self._becomes_head(group, ordinal):
            self._heads[ordinal] = group
            self._more_heads[group] = self._more_heads.get(group, 0) + 1

    def _becomes_head(self, group: bytes, ordinal: int) -> bool:
        """Return True if a message may be delivered: it has no group, or is the head of its group now."""
        if not group or ordinal in self._heads:
            return True
        if group in self._behind:
            return False
        self._heads[ordinal], self._behind[group] = group, None
        return True

    def _pop_stretch(self, extent: Extent, count: int) -> ReadyMessages | None:
        taken = super()._pop_stretch(extent, count)
        assert taken is not None
        _, first, frames, ids, _ = taken
        for index in range(len(frames)):
            group = extent.group_of(first + index)
            if self._becomes_head(group, first + index):
                continue
            back = len(frames) - index - (not index)  # if it is the first one, it leaves the sequence
            self.untake(back)
            if index:
                return None, first, frames[:index], ids[: index * ID_SIZE], extent
            self._journal.requeue(first, 0, 0, 0)
            self._hold_back(group, Message(first, 0))
            return None
        return taken

    def _pop_first(self, queue: deque[tuple[int, Message]]) -> ReadyMessages | None:
        taken = super()._pop_first(queue)
        if taken is None or taken[0] is None:
            return taken
        message, extent = taken[0], taken[4]
        group = extent.group_of(message.ordinal)
        if self._becomes_head(group, message.ordinal):
            return taken
        self._hold_back(group, message)
        return None

    def _hold_back(self, group: bytes, message: Message) -> None:
        behind = self._behind[group]
        if behind is None:
            behind = self._behind[group] = deque()
        behind.append(message)
        self._note_queued(1)

    def ended(self, first: int, count: int) -> bool:
        before = self.queued_count
        self._unexpect(first, count)
        for ordinal in range(first, first + count):
            group = self._heads.pop(ordinal, None)
            if group is None:
                continue
            if self._more_heads.get(group):
                self._more_heads[group] -= 1
                continue
            behind = self._behind[group]
            if not behind:
                del self._behind[group]
                continue
            message = behind.popleft()
            self._heads[message.ordinal] = group
            self._release(message)
        return self.queued_count < before

    def _unexpect(self, first: int, count: int) -> None:
        """Expect none of `count` messages from `first` on as heads: they ended before their groups were read."""
        if self._unknown:
            for ordinal in range(first, first + count):
                self._unknown.pop(ordinal, None)

    def _release(self, message: Message) -> None:
        """Make a message that is held back the next one of the retry queue."""
        self._note_queued(-1)
        self.reading = False
        self.retry.appendleft((self.retry[0][0] if self.retry else self.cursor, message))

    def _release_all(self) -> None:
        """Release all messages that are held back, the first published first, and know no heads."""
        super()._release_all()
        self._heads, self._behind, self._more_heads, self._unknown = {}, {}, {}, {}

    def _queued(self) -> Iterator[Message]:
        held = (message for behind in self._behind.values() for message in behind or ())
        return iter(sorted(held, key=lambda message: message.ordinal))

    def _keep_queued(self, keep: Callable[[Message], bool]) -> None:
        self._behind = {group: behind and deque(filter(keep, behind)) for group, behind in self._behind.items()}

    def check(self) -> None:
        super().check()
        assert set(self._heads.values()) == self._behind.keys()

    def __repr__(self) -> str:
        return f"<GroupedBacklog from {self.cursor}, {len(self._heads)} heads, {self.queued_count} held back>"


def is_full(backlog: Backlog) -> bool:
    """Return True if a backlog is not to look further in the sequence, because it holds so many messages back."""
    return backlog.queued_count >= MOST_HELD
