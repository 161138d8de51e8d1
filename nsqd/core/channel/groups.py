"""Ordered groups: a channel delivers messages of one group one at a time, in the order in which they were published.

The group of a message is its header `group`; a message without one is of no group. The first message of a group that leaves the
backlog is the *head* of its group until it is finished, or buried if the setting on_bury says that a group then continues. A
later message of the group is *held back*: it left the sequence, counts as ready, and is *freed* when the head has ended. A
head that is requeued, times out or waits for a retry remains the head.

Messages of other groups pass those that are held back, until MOST_HELD are. Then the channel looks no further in the sequence.
A restart finds those that are held back in the log; the heads follow from what waits for a time or is buried.

Messages are taken, and end, by the batch. If all of a batch are of different groups without a head, a few operations of sets
and dicts do for the whole batch, and the run in flight has the groups of its messages.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from nsqd.core.channel.backlog import Backlog, GroupBatch, ReadyMessages
from nsqd.core.channel.queued import QueuedBacklog
from nsqd.core.message.frame import ID_SIZE
from nsqd.core.sequence.extent import Extent
from nsqd.core.sequence.journal import ReaderJournal
from nsqd.core.timing.deferred import Message

HEADS_AT_ONCE = 1000  # of which the groups are read in a turn: 1 ms
MOST_HELD = 20_000  # messages held back at a channel: as many as SQS looks ahead in a queue with groups
LOOKED_AT_ONCE = 64  # messages of the sequence, of which a consumer with a smaller window gets the next ones


class GroupedBacklog(QueuedBacklog):
    """The ready messages of a channel whose groups are ordered."""

    is_grouped = is_ordered = True

    __slots__ = ("_behind", "_came_back", "_freed", "_groups", "_heads", "_more_heads", "_unknown")

    def __init__(self, plain: Backlog, journal: ReaderJournal) -> None:
        super().__init__(plain, journal)
        self.retry = deque(sorted(self.retry, key=lambda entry: entry[1].ordinal))  # all have the same place
        self._forget_groups()

    def _forget_groups(self) -> None:
        self._more_heads: dict[bytes, int] = {}  # heads but one, of groups that were not in order before
        # ordinals of heads whose groups are still to be read, descending: the last one is read next
        self._unknown: dict[int, None] = {}
        self._heads: dict[int, bytes] = {}  # the group of each head that no run in flight has, by ordinal
        self._groups: set[bytes] = set()  # those with a head
        self._behind: dict[bytes, deque[int]] = {}  # ordinals of the messages that are held back, by group
        # ordinals of messages that were held back, are heads now, and are delivered next, ascending
        self._freed: list[int] = []
        self._came_back: dict[int, Message] = {}  # those that are held back after a delivery

    @property
    def held_count(self) -> int:  # type: ignore[override]
        return self.queued_count - len(self._freed)

    def put_back(self, message: Message) -> None:
        self.put_first(message)  # in any case before the rest of the sequence: its group waits for it

    # heads

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

    def keep_heads(self, heads: Mapping[int, bytes]) -> None:
        self._heads.update(heads)

    def _becomes_head(self, group: bytes, ordinal: int) -> bool:
        """Return True if a message may be delivered: it has no group, or is the head of its group now."""
        if not group or ordinal in self._heads:
            return True
        if group in self._groups:
            return False
        self._groups.add(group)
        self._heads[ordinal] = group
        return True

    # taking messages out

    def pop_ready(self, count: int, room: int) -> ReadyMessages | None:
        if self._unknown and not self._find_heads():
            return None
        if not self.retry:
            if self._freed:
                return self._pop_freed(count, room)
            if is_full(self):
                self._wait_for_groups()
                return None
        return super().pop_ready(count, room)

    def _wait_for_groups(self) -> None:
        """Deliver nothing until a group continues."""
        self.reading = True

    def _pop_freed(self, count: int, room: int) -> ReadyMessages | None:
        """Take the first freed messages of one extent. Return None if that must be read first, or the next one is corrupt."""
        extent = self.extents.read(self._freed[0])
        if extent is None:
            self.reading = True
            return None
        if extent.first > self._freed[0]:
            self._note_queued(-1)
            self.ended((self._freed.pop(0),), ())
            return None
        most = min(count, max(1, room // (extent.largest + extent.longest_headers)))
        most = bisect_left(self._freed, extent.first + len(extent.frames), 0, min(most, len(self._freed)))
        ordinals = self._freed[:most]
        del self._freed[:most]
        self._note_queued(-most)
        self._journal.requeue(ordinals, 1, 0, 0)
        return self._batch(extent, GroupBatch(ordinals))

    def _batch(self, extent: Extent, batch: GroupBatch) -> ReadyMessages:
        """Return messages of an extent as `pop_ready` does."""
        places = [ordinal - extent.first for ordinal in batch.ordinals]
        ids = b"".join([extent.ids[place * ID_SIZE : (place + 1) * ID_SIZE] for place in places])
        return batch, batch.ordinals[0], [extent.frames[place] for place in places], ids, extent

    def _pop_stretch(self, extent: Extent, count: int) -> ReadyMessages | None:
        if is_full(self):
            return None
        start = self.cursor
        if count == 1 and self._becomes_head(extent.group_of(start), start):  # for a third of the cost of a batch
            return super()._pop_stretch(extent, 1)
        most = min(self._limit(), extent.first + len(extent.frames), start + MOST_HELD - self.queued_count)
        stop = min(start + count, most)
        groups = extent.groups(start, stop)
        if not any(groups):
            return super()._pop_stretch(extent, stop - start)
        if self._become_heads(groups):
            taken = super()._pop_stretch(extent, stop - start)
            assert taken is not None
            return GroupBatch(range(start, stop), groups, True), *taken[1:]
        if stop < (further := min(start + LOOKED_AT_ONCE, most)):
            groups += extent.groups(stop, further)
        return self._pop_heads(extent, groups, count)

    def _become_heads(self, groups: list[bytes]) -> bool:
        """Return True if all of these are different groups without a head, but have heads now."""
        new = set(groups)
        if len(new) < len(groups) or b"" in new or not self._groups.isdisjoint(new):
            return False
        self._groups |= new
        return True

    def _pop_heads(self, extent: Extent, groups: list[bytes], count: int) -> ReadyMessages | None:
        """Take up to `count` of the next messages that may be delivered. `groups`: of all that may be looked at."""
        start, taken, held = self.cursor, [], []
        behind = self._behind
        for ordinal, group in enumerate(groups, start):
            if group in behind:
                behind[group].append(ordinal)
            elif self._becomes_head(group, ordinal):
                taken.append(ordinal)
                if len(taken) == count:
                    break
                continue
            else:
                self._hold_back(group, ordinal)
            held.append(ordinal)
        super()._pop_stretch(extent, len(taken) + len(held))
        if held:
            self._note_queued(len(held))
            self._journal.requeue(held, 0, 0, 0)
        if not taken:
            return None
        return self._batch(extent, GroupBatch(taken, is_run=taken[-1] - taken[0] == len(taken) - 1))

    def _pop_first(self, queue: deque[tuple[int, Message]]) -> ReadyMessages | None:
        taken = super()._pop_first(queue)
        if taken is None or not isinstance(taken[0], Message):
            return taken
        message, extent = taken[0], taken[4]
        group = extent.group_of(message.ordinal)
        if self._becomes_head(group, message.ordinal):
            return taken
        if message.attempts:
            self._came_back[message.ordinal] = message
        self._hold_back(group, message.ordinal)
        self._note_queued(1)
        return None

    def _hold_back(self, group: bytes, ordinal: int) -> None:
        behind = self._behind.get(group)
        if behind is None:
            behind = self._behind[group] = deque()
        behind.append(ordinal)

    def untake_batch(self, batch: GroupBatch) -> None:
        if batch.ordinals:
            self.keep_heads(batch.heads())
            self._freed = sorted([*batch.ordinals, *self._freed])
            self._note_queued(len(batch.ordinals))
            self._journal.requeue(batch.ordinals, 0, 0, 0)

    # ends

    def ended(self, ordinals: Sequence[int], groups: Sequence[bytes]) -> bool:
        groups = groups or self._ended_heads(ordinals)
        if not self._more_heads and self._behind.keys().isdisjoint(groups):
            self._groups.difference_update(groups)
            return False
        before = self.held_count
        for group in groups:
            if self._more_heads.get(group):
                self._more_heads[group] -= 1
            elif group in self._behind:
                self._free(group)
            else:
                self._groups.remove(group)
        return self.held_count < before

    def _ended_heads(self, ordinals: Sequence[int]) -> list[bytes]:
        """Forget those of these messages that are heads, and expect no others of them as heads. Return their groups."""
        if self._unknown:
            for ordinal in ordinals:
                self._unknown.pop(ordinal, None)
        heads = self._heads
        return [heads.pop(ordinal) for ordinal in ordinals if ordinal in heads]

    def _free(self, group: bytes) -> None:
        """Make the first message that is held back the head of its group, which is delivered next."""
        behind = self._behind[group]
        ordinal = behind.popleft()
        if not behind:
            del self._behind[group]
        self._heads[ordinal] = group
        self.reading = False
        if ordinal not in self._came_back:
            insort(self._freed, ordinal)
        else:
            message = self._came_back.pop(ordinal)
            self._note_queued(-1)
            self.retry.appendleft((self.retry[0][0] if self.retry else self.cursor, message))

    # all of them

    def _release_all(self) -> None:
        """Release all messages that are held back, the first published first, and know no heads."""
        super()._release_all()
        self._forget_groups()

    def _queued(self) -> Iterator[Message]:
        held = [ordinal for behind in self._behind.values() for ordinal in behind]
        return (self._came_back.get(ordinal) or Message(ordinal, 0) for ordinal in sorted([*held, *self._freed]))

    def _keep_queued(self, keep: Callable[[int], bool]) -> None:
        self._behind = kept(self._behind, keep)
        self._freed = list(filter(keep, self._freed))
        self._came_back = {ordinal: one for ordinal, one in self._came_back.items() if keep(ordinal)}

    def check(self) -> None:
        super().check()
        assert self._heads.keys() >= set(self._freed)
        assert all(self._behind.values())

    def check_groups(self, out: Iterable[bytes]) -> None:
        assert {*self._heads.values(), *out} == self._groups >= self._behind.keys()

    def __repr__(self) -> str:
        return f"<GroupedBacklog from {self.cursor}, {len(self._groups)} groups, {self.held_count} held back>"


def is_full(backlog: Backlog) -> bool:
    """Return True if a backlog is not to look further in the sequence, because it holds so many messages back."""
    return backlog.queued_count >= MOST_HELD


def kept(queues: dict[bytes, deque[int]], keep: Callable[[int], bool]) -> dict[bytes, deque[int]]:
    """Return queues without the ordinals that `keep` refuses. Queues of which nothing is left are left out."""
    return {group: left for group, queue in queues.items() if (left := deque(filter(keep, queue)))}
