"""Limits of groups: messages of one group in flight, and delivered in a second; and fairness among groups.

The group of a message is its header `group`; a message without one is of no group, and has no limits. Messages beyond a limit
are held back, as those of ordered groups are (groups.py), up to MOST_HELD. Unless groups are ordered, one that is requeued or
times out is in flight no longer.

With fairness a group is *noisy* while it has at least NOISY messages in flight and more than a tenth of all, as in the fair
queues of SQS. The next messages of a noisy group wait behind those of all others: they are delivered when nothing else can be,
or when the group is noisy no longer.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import chain, islice

from nsqd.core.channel.backlog import Backlog, GroupBatch, ReadyMessages
from nsqd.core.channel.groups import GroupedBacklog, is_full, kept
from nsqd.core.sequence.extent import NO_GROUP
from nsqd.core.sequence.journal import ReaderJournal
from nsqd.core.timing.deferred import Message
from nsqd.core.timing.throttle import BURST, UNLIMITED
from shared.values import SECOND

LEAST_CLEANED = 1000  # groups
NOISY, SHARE = 30, 10  # messages in flight, at least; a noisy group has more than one part in SHARE of all


class LimitedBacklog(GroupedBacklog):
    """The ready messages of a channel whose groups have limits."""

    __slots__ = (
        "_awaited", "_clean_at", "_clock", "_dues", "_fair", "_late", "_late_count", "_most", "_out", "_rate", "_schedule",
        "_spent", "_unspent", "is_ordered",
    )  # fmt: skip

    def __init__(
        self,
        plain: Backlog,
        journal: ReaderJournal,
        most: int,
        rate: int,
        fair: bool,
        is_ordered: bool,
        clock: Callable[[], int],
        schedule: Callable[[int], None],
    ) -> None:
        """Take over the messages of a backlog without groups.

        `most`: messages of a group in flight, `rate`: deliveries per second; 0: any number. `clock` returns the time of the
        turn, and `schedule` has `release_due` called at a time (monotonic ns).
        """
        super().__init__(plain, journal)
        self._clean_at = LEAST_CLEANED  # groups in `_spent`: with more, those that may spend again are forgotten
        self.is_ordered = is_ordered
        self._most = 1 if is_ordered else most or UNLIMITED
        self._rate, self._fair, self._clock, self._schedule = rate, fair, clock, schedule

    def _forget_groups(self) -> None:
        super()._forget_groups()
        self._out: dict[int, int] = {}  # messages in flight or about to be, by group
        # the next messages of noisy groups, the group whose turn it is first; a group is in `_behind` or here
        self._late: dict[int, deque[int]] = {}
        self._late_count = 0  # messages in `_late`
        # when each group has spent what its rate allows, without a burst (monotonic ns); groups are forgotten later
        self._spent: dict[int, int] = {}
        # with a rate: the message of each group that was freed and is still to be delivered, by group
        self._unspent: dict[int, int] = {}
        self._dues: list[tuple[int, int]] = []  # a heap: when groups that are held back for their rate may continue
        self._awaited: set[int] = set()  # the groups in it

    @property
    def held_count(self) -> int:  # type: ignore[override]
        return super().held_count - self._late_count

    # messages in flight

    def _becomes_head(self, group: int, ordinal: int) -> bool:
        if not group or ordinal in self._heads:
            if self._unspent.get(group) == ordinal:
                del self._unspent[group]
                self._spend(group)
                self._continue(group)
            return True
        if group in self._behind or group in self._late or not self._is_open(group) or self._is_noisy(group):
            return False
        self._expect_head(group, ordinal)
        self._spend(group)
        return True

    def _expect_head(self, group: int, ordinal: int) -> None:
        if group and ordinal not in self._heads:
            self._heads[ordinal] = group
            self._out[group] = self._out.get(group, 0) + 1

    def keep_heads(self, heads: Mapping[int, int]) -> None:
        """Do nothing: all heads are known by ordinal."""

    def _choose(self, groups: list[int], count: int) -> list[int]:
        held: list[int] = []
        behind = self._behind
        for ordinal, group in enumerate(groups, self.cursor):
            if group in behind:
                behind[group].append(ordinal)
            elif self._becomes_head(group, ordinal):
                count -= 1
                if not count:
                    break
                continue
            else:
                self._hold_back(group, ordinal)
            held.append(ordinal)
        return held

    def _free(self, groups: list[int]) -> None:
        for group in groups:
            first = self._behind[group][0]
            self._expect_head(group, first)
            if self._rate:
                self._unspent[group] = first
        super()._free(groups)

    def _pop_freed(self, count: int, room: int) -> ReadyMessages | None:
        taken = super()._pop_freed(count, room)
        if taken is not None:
            for ordinal in taken[0].ordinals if isinstance(taken[0], GroupBatch) else (taken[1],):
                self._becomes_head(self._heads[ordinal], ordinal)
        return taken

    def _spend(self, group: int) -> None:
        """Note that a message of the group is delivered next."""
        if self._rate:
            now = self._clock()
            self._spent[group] = max(now, self._spent.get(group, 0)) + SECOND // self._rate
            if len(self._spent) > self._clean_at:
                self._spent = {one: spent for one, spent in self._spent.items() if spent > now}
                self._clean_at = 2 * len(self._spent) + LEAST_CLEANED  # at most as many are kept as were looked at

    def _is_open(self, group: int) -> bool:
        """Return True if the limits let one more message of the group be in flight, and none is about to be."""
        return (
            group not in self._unspent
            and self._out.get(group, 0) < self._most
            and self._opens_at(group) <= self._clock()
        )

    def _opens_at(self, group: int) -> int:
        return self._spent.get(group, 0) - BURST

    def _is_noisy(self, group: int) -> bool:
        out = self._out.get(group, 0) if self._fair else 0
        return out >= NOISY and out * SHARE > len(self._heads)

    def expect_heads(self, out: Iterable[int], waiting: Iterable[int]) -> None:
        super().expect_heads(out, waiting if self.is_ordered else ())

    # messages that wait

    def put_back(self, message: Message) -> None:
        if self.is_ordered:
            super().put_back(message)
        else:
            Backlog.put_back(self, message)

    def _hold_back(self, group: int, ordinal: int) -> None:
        if group in self._late or (group not in self._behind and self._is_open(group)):
            self._late.setdefault(group, deque()).append(ordinal)
            self._late_count += 1
            return
        super()._hold_back(group, ordinal)
        if len(self._behind[group]) == 1:
            self._await_rate(group)

    def _await_rate(self, group: int) -> None:
        """Have a group that is held back continue when its rate allows that, unless it waits for another limit."""
        due = self._opens_at(group)
        if due > self._clock() and self._out.get(group, 0) < self._most and group not in self._awaited:
            self._awaited.add(group)
            heappush(self._dues, (due, group))
            self._schedule(self._dues[0][0])

    @property
    def due(self) -> int | None:  # type: ignore[override]
        return self._dues[0][0] if self._dues else None

    def release_due(self, now: int) -> None:
        while self._dues and self._dues[0][0] <= now:
            _, group = heappop(self._dues)
            self._awaited.remove(group)
            self._continue(group)

    def ended(self, ordinals: Sequence[int], groups: Sequence[int]) -> bool:
        before = self.held_count
        for ordinal in ordinals:
            for group in self._ended_heads((ordinal,)):
                self._out[group] -= 1
                if not self._out[group]:
                    del self._out[group]
                if self._unspent.get(group) == ordinal:
                    del self._unspent[group]
                self._continue(group)
                self._continue_late()
        return self.held_count < before

    def came_back(self, ordinal: int) -> bool:
        return not self.is_ordered and self.ended((ordinal,), ())

    def _continue(self, group: int) -> None:
        """Let messages of a group leave that is held back, as its limits allow."""
        while group in self._behind and self._is_open(group):
            if self._is_noisy(group):
                self._late[group] = self._behind.pop(group)
                self._late_count += len(self._late[group])
                self.reading = False
                return
            self._free([group])
        if group in self._behind:
            self._await_rate(group)

    def _continue_late(self) -> None:
        """Let a message leave of a group that is noisy no longer."""
        group = self._quiet_late()
        if group is not None:
            queue = self._behind[group] = self._late[group]
            self._free([group])
            self._behind.pop(group, None)
            self._left_late(group, queue)

    def _quiet_late(self) -> int | None:
        """Return a group of `_late` that is noisy no longer and not limited. Fewer than SHARE groups can be noisy at a time."""
        groups = islice(self._late, SHARE)
        return next((group for group in groups if self._is_open(group) and not self._is_noisy(group)), None)

    def _left_late(self, group: int, queue: deque[int]) -> None:
        """Note that a message has left the queue of a noisy group, and let others have their turns."""
        self._late_count -= 1
        del self._late[group]
        if queue:
            self._late[group] = queue

    # taking messages out

    def pop_ready(self, count: int, room: int) -> ReadyMessages | None:
        taken = super().pop_ready(count, room)
        if taken is not None or self.reading or self.retry or self._freed:
            return taken
        return self._pop_late() if is_full(self) or self.cursor == self._offsets.distributed else None

    def _pop_first(self, queue: deque[tuple[int, Message]]) -> ReadyMessages | None:
        message = queue[0][1]
        group = self._heads.get(message.ordinal)
        if group is None or not self._rate or self._unspent.get(group) == message.ordinal:
            return super()._pop_first(queue)
        if self._opens_at(group) > self._clock():
            queue.popleft()
            self._hold_back_head(group, message)
            return None
        taken = super()._pop_first(queue)
        if taken is not None:
            self._spend(group)
        return taken

    def _hold_back_head(self, group: int, message: Message) -> None:
        """Hold back the head of an ordered group, which came back before the rate of the group allows its next delivery."""
        self._came_back[message.ordinal] = message
        queue = self._late[group] if group in self._late else self._behind.setdefault(group, deque())
        self._late_count += group in self._late
        queue.insert(bisect_left(queue, message.ordinal), message.ordinal)
        self._note_queued(1)
        self.ended((message.ordinal,), ())

    def _wait_for_groups(self) -> None:
        self.reading = not self._late

    def _pop_late(self) -> ReadyMessages | None:
        """Take a message of a group that is or was noisy: there are no others."""
        while self._late:
            group = self._quiet_late() or next(iter(self._late))
            queue = self._late[group]
            if not self._is_open(group):
                self._late_count -= len(queue)
                self._behind[group] = self._late.pop(group)
                self._await_rate(group)
                continue
            extent = self.extents.read(queue[0])
            if extent is None:
                self.reading = True
                return None
            ordinal = queue.popleft()
            self._note_queued(-1)
            self._left_late(group, queue)
            if extent.first <= ordinal:
                self._expect_head(group, ordinal)
                self._spend(group)
                return self._taken(self._came_back.pop(ordinal, Message(ordinal, 0)), extent)
        return None

    # all of them

    def _queued(self) -> Iterator[Message]:
        late = (self._came_back.get(one) or Message(one, 0) for queue in self._late.values() for one in queue)
        return iter(sorted(chain(super()._queued(), late), key=lambda message: message.ordinal))

    def _keep_queued(self, keep: Callable[[int], bool]) -> None:
        super()._keep_queued(keep)
        self._late = kept(self._late, keep)
        self._late_count = sum(map(len, self._late.values()))

    def check(self) -> None:
        super().check()
        assert sum(self._out.values()) == len(self._heads)
        assert self._late_count == sum(map(len, self._late.values()))
        assert all(self._late.values())
        assert self._awaited == {group for _, group in self._dues}
        assert not self._behind.keys() & self._late.keys()
        assert all(self._heads[ordinal] == group for group, ordinal in self._unspent.items())

    def check_groups(self, out: Iterable[int]) -> None:
        assert self._out.keys() >= {*out} - {NO_GROUP}

    def __repr__(self) -> str:
        return f"<LimitedBacklog from {self.cursor}, {len(self._out)} groups out, {self.queued_count} held back>"
