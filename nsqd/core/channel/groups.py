"""Ordered groups: a channel delivers messages of one group one at a time, in the order in which they were published.

The group of a message is its header `group`; a message without one is of no group. The first message of a group that leaves the
backlog is the *head* of its group until it is finished, or buried if the setting on_bury says that a group then continues. A
later message of the group is *held back*: it left the sequence, counts as ready, and is *freed* when the head has ended. A
head that is requeued, times out or waits for a retry remains the head.

Messages of other groups pass those that are held back, until MOST_HELD are. Then the channel looks no further in the sequence.
A restart finds those that are held back in the log; the heads follow from what waits for a time or is buried.

Messages are taken, and end, by the batch: the run in flight has the groups of its messages, if they come from the sequence.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import compress, repeat

from nsqd.core.channel.backlog import Backlog, GroupBatch, ReadyMessages
from nsqd.core.channel.queued import QueuedBacklog
from nsqd.core.channel.retry import RetryQueue
from nsqd.core.message.frame import ID
from nsqd.core.sequence.extent import NO_GROUP, Extent
from nsqd.core.sequence.journal import ReaderJournal
from nsqd.core.timing.deferred import Message

HEADS_AT_ONCE = 1000  # of which the groups are read in a turn: 1 ms
MOST_HELD = 20_000  # messages held back at a channel: as many as SQS looks ahead in a queue with groups
LOOKED_AT_ONCE = 64  # messages of the sequence, of which a consumer with a smaller window gets the next ones


class GroupedBacklog(QueuedBacklog):
    """The ready messages of a channel whose groups are ordered."""

    is_grouped = is_ordered = True

    __slots__ = ("_behind", "_came_back", "_freed", "_groups", "_heads", "_known", "_more_heads", "_unknown")

    def __init__(self, plain: Backlog, journal: ReaderJournal) -> None:
        super().__init__(plain, journal)
        # all have the same place
        self.retry = RetryQueue(sorted(self.retry.entries(), key=lambda entry: entry[1].ordinal))
        self._forget_groups()

    def _forget_groups(self) -> None:
        self._more_heads: dict[int, int] = {}  # heads but one, of groups that were not in order before
        # ordinals of heads whose groups are still to be read, descending: the last one is read next
        self._unknown: dict[int, None] = {}
        self._heads: dict[int, int] = {}  # the group of each head that no run in flight has, by ordinal
        self._groups: set[int] = set()  # those with a head
        # (first, groups) of the messages of the sequence that were looked at last, some of which may be next
        self._known: tuple[int, list[int]] = 0, []
        self._behind: dict[int, deque[int]] = {}  # ordinals of the messages that are held back, by group
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

    def _expect_head(self, group: int, ordinal: int) -> None:
        if not self._becomes_head(group, ordinal):
            self._heads[ordinal] = group
            self._more_heads[group] = self._more_heads.get(group, 0) + 1

    def keep_heads(self, heads: Mapping[int, int]) -> None:
        self._heads.update((ordinal, group) for ordinal, group in heads.items() if group)

    def _becomes_head(self, group: int, ordinal: int) -> bool:
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
        """Take the first freed messages. Return None if the next one must be read first, or is corrupt."""
        freed, first = self._freed, self.extents.read(self._freed[0])
        if first is None:
            self.reading = True
            return None
        most = min(count, len(freed))
        if first.first > freed[0] or most == 1:
            self._note_queued(-1)
            ordinal = freed.pop(0)
            if first.first <= ordinal:  # half the cost of a batch
                return self._taken(Message(ordinal, 0), first)
            self.ended((ordinal,), ())
            return None
        parts: list[tuple[Extent, list[int]]] = []
        extent: Extent | None = first
        at, room = 0, max(room, first.largest + first.longest_headers)
        while at < most and extent is not None and extent.first <= freed[at] and extent.has_ttl == first.has_ttl:
            size = extent.largest + extent.longest_headers
            stop = bisect_left(freed, extent.end, at, min(most, at + room // size))
            if stop == at:
                break
            parts.append((extent, freed[at:stop]))
            room -= (stop - at) * size
            at = stop
            extent = self.extents.read(freed[at]) if at < most else None
        ordinals = freed[:at]
        del freed[:at]
        self._note_queued(-at)
        self._journal.requeue(ordinals, 1, 0, 0)
        return _batch(ordinals, parts)

    def _pop_stretch(self, extent: Extent, count: int) -> ReadyMessages | None:
        if is_full(self):
            return None
        start = self.cursor
        if count == 1 and self._becomes_head(extent.group_of(start), start):  # for a third of the cost of a batch
            return super()._pop_stretch(extent, 1)
        most = min(self._limit(), extent.first + len(extent.frames), start + MOST_HELD - self.queued_count)
        groups = self._next_groups(extent, start, min(start + max(count, LOOKED_AT_ONCE), most))
        return self._pop_heads(extent, groups, count) if any(groups) else super()._pop_stretch(extent, count)

    def _next_groups(self, extent: Extent, first: int, end: int) -> list[int]:
        """Return the groups of messages first..end of the sequence. The last of them may be asked for again."""
        if end - first > LOOKED_AT_ONCE:
            return extent.groups(first, end)
        start, known = self._known
        if not start <= first <= end <= start + len(known):
            known = extent.groups(first, max(end, min(first + LOOKED_AT_ONCE, extent.end)))
            start, self._known = first, (first, known)
        return known[first - start : end - start]

    def _pop_heads(self, extent: Extent, groups: list[int], count: int) -> ReadyMessages | None:
        """Take up to `count` of the next messages that may be delivered. `groups`: of all that may be looked at."""
        held = self._choose(groups, count)
        first, size = self.cursor, min(len(groups), count + len(held))
        stretch = super()._pop_stretch(extent, size)
        assert stretch is not None
        _, _, frames, ids, _ = stretch
        ordinals: list[int] | range = range(first, first + size)
        groups = groups[:size]
        if held:
            self._note_queued(len(held))
            self._journal.requeue(held, 0, 0, 0)
            left = bytearray(b"\1") * size
            for ordinal in held:
                left[ordinal - first] = 0
            ordinals = list(compress(ordinals, left))
            groups, frames = list(compress(groups, left)), list(compress(frames, left))
            ids = b"".join([frame[ID] for frame in frames])
        return (GroupBatch(ordinals, (extent,), groups), ordinals[0], frames, ids, extent) if ordinals else None

    def _choose(self, groups: list[int], count: int) -> list[int]:
        """Take up to `count` of the next messages: those of no group, and the heads. Hold back the others before the last one.

        Return the ordinals of those that are held back, ascending. `groups`: of all that may be looked at.
        """
        held: list[int] = []
        busy, behind = self._groups, self._behind
        for ordinal, group in enumerate(groups, self.cursor):
            if group in busy:
                held.append(ordinal)
                if group in behind:
                    behind[group].append(ordinal)
                else:
                    behind[group] = deque((ordinal,))
                continue
            if group:
                busy.add(group)
            count -= 1
            if not count:
                break
        return held

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

    def _hold_back(self, group: int, ordinal: int) -> None:
        self._behind.setdefault(group, deque()).append(ordinal)

    def untake_batch(self, batch: GroupBatch) -> None:
        if batch.ordinals:
            self.keep_heads(batch.heads())
            heads = [ordinal for ordinal in batch.ordinals if ordinal in self._heads]
            self._freed = sorted([*heads, *self._freed])
            self._note_queued(len(heads))
            at = self.retry[0][0] if self.retry else self.cursor
            plain = [Message(ordinal, 0) for ordinal in batch.ordinals if ordinal not in self._heads]  # of no group
            self.retry.extendleft((at, message) for message in reversed(plain))
            self._journal.requeue(batch.ordinals, 0, 0, 0)

    # ends

    def ended(self, ordinals: Sequence[int], groups: Sequence[int]) -> bool:
        groups, behind = groups or self._ended_heads(ordinals), self._behind
        if self._more_heads:
            groups = [group for group in groups if not self._has_more_heads(group)]
        waiting = [group for group in groups if group in behind]
        self._groups.difference_update(groups)
        self._groups.update(waiting)
        self._free(waiting)
        return bool(waiting)

    def _has_more_heads(self, group: int) -> bool:
        """Return True if the group has other heads than one that has ended."""
        more = self._more_heads.pop(group, 0)
        if more > 1:
            self._more_heads[group] = more - 1
        return more > 0

    def _ended_heads(self, ordinals: Sequence[int]) -> list[int]:
        """Forget those of these messages that are heads, and expect no others of them as heads. Return their groups."""
        if self._unknown:
            for ordinal in ordinals:
                self._unknown.pop(ordinal, None)
        return [group for group in map(self._heads.pop, ordinals, repeat(NO_GROUP)) if group]

    def _free(self, groups: list[int]) -> None:
        """Make the first message that is held back of each group the head, which is delivered next."""
        if not groups:
            return
        behind, freed = self._behind, self._freed
        ordinals = [behind[group].popleft() for group in groups]
        for group in groups:
            if not behind[group]:
                del behind[group]
        self._heads.update(zip(ordinals, groups, strict=True))
        self.reading = False
        for ordinal in self._came_back.keys() & ordinals if self._came_back else ():
            ordinals.remove(ordinal)
            self._note_queued(-1)
            self.retry.appendleft((self.retry[0][0] if self.retry else self.cursor, self._came_back.pop(ordinal)))
        if len(ordinals) > len(freed) // 32:  # else to sort costs more than to insert
            freed += ordinals
            freed.sort()
        else:
            for ordinal in ordinals:
                insort(freed, ordinal)

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

    def check_groups(self, out: Iterable[int]) -> None:
        assert {*self._heads.values(), *out} - {NO_GROUP} == self._groups >= self._behind.keys()

    def __repr__(self) -> str:
        return f"<GroupedBacklog from {self.cursor}, {len(self._groups)} groups, {self.held_count} held back>"


def _batch(ordinals: list[int], parts: list[tuple[Extent, list[int]]]) -> ReadyMessages:
    """Return messages as `pop_ready` does. `parts`: (extent, those of the ordinals that it has)."""
    frames: list[bytes] = []
    for extent, part in parts:
        first, all_frames = extent.first, extent.frames
        frames += [all_frames[ordinal - first] for ordinal in part]
    ids = b"".join([frame[ID] for frame in frames])
    return GroupBatch(ordinals, [extent for extent, _ in parts]), ordinals[0], frames, ids, parts[0][0]


def is_full(backlog: Backlog) -> bool:
    """Return True if a backlog is not to look further in the sequence, because it holds so many messages back."""
    return backlog.queued_count >= MOST_HELD


def kept(queues: dict[int, deque[int]], keep: Callable[[int], bool]) -> dict[int, deque[int]]:
    """Return queues without the ordinals that `keep` refuses. Queues of which nothing is left are left out."""
    return {group: left for group, queue in queues.items() if (left := deque(filter(keep, queue)))}
