"""Priorities: a channel delivers its most urgent message first, and those of one priority as they became ready.

The priority of a message is its header `priority`, from 0, the most urgent, to 9, as beanstalkd and Oban count; USUAL_PRIORITY
without one. That of a job is the number of hexadecimal digits of its `pri`, 5 for the usual 65,536. Usual messages stay in the
sequence and cost nothing. Others leave it, into a queue for each priority: urgent ones when the topic distributes them, ahead
of the cursor, and the rest when the cursor comes to them. A restart finds all of them in the log, and their priorities again in
their attributes.

One delivery in SHARE is that of the message that has been ready longest, so nothing starves. A message that comes back keeps
its priority, and counts as ready since then.

There are bounds. With MOST_URGENT urgent messages in the queues, the channel looks no further ahead until some are delivered.
With MOST_LATE others in their queues, the first of those is delivered for each that the cursor comes to. Extents with headers
that are on disk only (the setting was turned on with such a backlog) are read ahead bit by bit, between deliveries; these wait
only if no more than MOST_AWAITED messages are left to look at.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain, islice, takewhile
from operator import itemgetter

from nsqd.core.channel.backlog import END_OF_ALL, Backlog, ReadyMessages
from nsqd.core.channel.queued import QueuedBacklog
from nsqd.core.channel.retry import RetryQueue
from nsqd.core.message.frame import ID_SIZE
from nsqd.core.sequence.ahead import Ahead
from nsqd.core.sequence.extent import Extent
from nsqd.core.sequence.journal import ReaderJournal
from nsqd.core.timing.deferred import Message, pack_ready
from penstock.protocol.headers import MOST_PRIORITY, USUAL_PRIORITY

SHARE = 16
MOST_URGENT = MOST_LATE = MOST_AWAITED = 20_000  # messages
# messages with headers that are examined ahead: of a batch that the topic distributes (10 ms if all leave), at a delivery
AHEAD_AT_ONCE, AHEAD_AT_DELIVERY = 4096, 64
SORTED_AT_ONCE = 1000  # messages that came back, in a turn: 2 ms
DROPPED_AT_ONCE = 500  # messages of a queue that are too old: 1 ms
PASSED_AT_ONCE = 1 << 20  # messages without headers that it passes

# (position, message), ascending: the position is the distributed offset when the message became ready
Queue = deque[tuple[int, Message]]
_position = itemgetter(0)


class PriorityBacklog(QueuedBacklog):
    """The ready messages of a channel that delivers by priority."""

    __slots__ = ("_looked", "_queues", "_run", "_unsorted")

    def __init__(self, plain: Backlog, journal: ReaderJournal) -> None:
        super().__init__(plain, journal)
        self._queues: list[Queue] = [deque() for _ in range(MOST_PRIORITY + 1)]  # that of USUAL_PRIORITY stays empty
        # (True if it was there before a restart, message) of messages that came back, whose headers are still to be read
        self._unsorted = RetryQueue()
        self._looked = self.cursor  # ordinal up to which no urgent message is in the sequence
        self._run = 0  # deliveries since the last one to the message that had been ready longest
        retry, self.retry = self.retry, RetryQueue()
        for _, message in retry.entries():
            self.put_first(message)

    # putting messages in

    def put_back(self, message: Message) -> None:
        self._unsorted.append((False, message))
        self._note_queued(1)

    def put_first(self, message: Message) -> None:
        self._unsorted.append((True, message))
        self._note_queued(1)

    def resume(self, cursor: int, ready: int) -> None:
        super().resume(cursor, ready)
        self._looked = cursor

    def revived(self) -> None:
        if self._holes:
            self._looked = self._holes[-1][1]

    def skip(self, first: int, end: int, ordinary: int) -> None:
        super().skip(first, end, ordinary)
        if self._looked == first:
            self._looked = end

    def _sort(self) -> bool:
        """Put the next messages that came back into the queues of their priorities.

        Return False if there are more, or one must be read first.
        """
        for _ in range(min(len(self._unsorted), SORTED_AT_ONCE)):
            is_first, message = self._unsorted[0]
            extent = self.extents.read(message.ordinal)
            if extent is None:
                self.reading = True
                return False
            self._unsorted.popleft()
            priority = extent.priority_of(message.ordinal)
            if priority != USUAL_PRIORITY:
                self._append(priority, message.ordinal if is_first else self._offsets.distributed, message)
                continue
            self._note_queued(-1)
            (super().put_first if is_first else super().put_back)(message)
        return not self._unsorted

    def _append(self, priority: int, position: int, message: Message) -> None:
        queue = self._queues[priority]
        if not queue or queue[-1][0] <= position:
            queue.append((position, message))  # nearly always
        else:
            insort(queue, (position, message), key=_position)

    def extended(self) -> None:
        self.look_ahead(AHEAD_AT_ONCE)

    def look_ahead(self, most: int) -> None:
        """Take urgent messages out of the sequence: look at the next `most`, of extents with headers."""
        if not self._sort():
            return  # those that were there before come first
        self._looked = max(self._looked, self.cursor)
        end = min(self._offsets.distributed, self._looked + PASSED_AT_ONCE)
        while most > 0:
            self._looked = self.extents.next_with_headers(self._looked, end)
            if self._looked == end or sum(map(len, self._queues[:USUAL_PRIORITY])) >= MOST_URGENT:
                return
            extent = self.extents.read(self._looked)
            if extent is None:
                if self._offsets.distributed - self._looked <= MOST_AWAITED:
                    self.reading = True
                return
            stop = min(max(self._looked, extent.end), end, self._looked + most)
            most -= stop - self._looked
            for first, count in [] if extent.delayed else self._unlooked(stop):
                for start, last, priority in extent.priorities(first, first + count):
                    if priority < USUAL_PRIORITY:
                        self._leave_sequence(start, last)
                        self._enqueue(start, last, priority)
            self._looked = stop

    def _unlooked(self, stop: int) -> list[tuple[int, int]]:
        if not self._holes or self._holes[-1][1] <= self._looked:
            return [(self._looked, stop - self._looked)]  # nearly always
        return list(self.ahead(self._looked, stop))

    def _leave_sequence(self, first: int, end: int) -> None:
        if not self._holes or self._holes[-1][1] <= first:
            self.skip(first, end, end - first)
        else:
            insort(self._holes, (first, end))
            self.passed += end - first

    def _enqueue(self, first: int, end: int, priority: int) -> None:
        """Record that messages first..end have left the sequence, and append them to their queue."""
        self._journal.requeue(range(first, end), 0, 0, 0)
        for ordinal in range(first, end):
            self._append(priority, ordinal, Message(ordinal, 0))
        self._note_queued(end - first)

    # taking messages out

    def pop_ready(self, count: int, room: int) -> ReadyMessages | None:
        if not self._sort():
            return None
        if self._looked < self._offsets.distributed:
            self.look_ahead(AHEAD_AT_DELIVERY)
        if self.reading:
            return None
        if not self.queued_count:
            self._run = 0
            return self._pop_most_urgent(count, room)
        if self._run == SHARE - 1:
            taken = self._pop_oldest(room)
            self._run = 0 if taken is not None else self._run
            return taken
        taken = self._pop_most_urgent(min(count, SHARE - 1 - self._run), room)
        self._run += len(taken[2]) if taken is not None else 0
        return taken

    @property
    def _has_usual(self) -> bool:
        return bool(self.retry) or self.cursor < self._offsets.distributed

    def _pop_most_urgent(self, count: int, room: int) -> ReadyMessages | None:
        for queue in self._queues[:USUAL_PRIORITY]:
            if queue:
                return self._pop_first(queue)
        if self._has_usual:
            taken = super().pop_ready(count, room)
            if taken is not None or self.reading or self._has_usual:
                return taken
        return self._pop_late()

    def _pop_late(self) -> ReadyMessages | None:
        for queue in self._queues[USUAL_PRIORITY:]:
            if queue:
                return self._pop_first(queue)
        return None

    def _pop_oldest(self, room: int) -> ReadyMessages | None:
        """Take the message that has been ready longest: the next one of the sequence, or the first of a queue."""
        oldest = min((queue for queue in self._queues if queue), key=lambda queue: queue[0][0])
        if self._has_usual and self.cursor <= oldest[0][0]:
            return super().pop_ready(1, room)
        return self._pop_first(oldest)

    def _pop_first(self, queue: Queue) -> ReadyMessages | None:
        before = len(queue)
        taken = super()._pop_first(queue)
        if queue is not self.retry:
            self._note_queued(len(queue) - before)
        return taken

    def _pop_stretch(self, extent: Extent, count: int) -> ReadyMessages | None:
        taken = super()._pop_stretch(extent, count)
        assert taken is not None
        _, first, frames, ids, _ = taken
        end = first + len(frames)
        other = next(extent.priorities(first, end), None)
        if other is None:
            return taken
        start, stop, priority = other
        if start > first:
            self.untake(end - start)
            return None, first, frames[: start - first], ids[: (start - first) * ID_SIZE], extent
        self.untake(end - stop)
        self._enqueue(first, stop, priority)
        if priority < USUAL_PRIORITY or self._run == SHARE - 1:  # it was not looked at in time, or is the oldest
            return self._pop_first(self._queues[priority])
        return self._pop_late() if sum(map(len, self._queues[USUAL_PRIORITY:])) > MOST_LATE else None

    def drop_expired(self, wall: int, ttl: int, end: int = END_OF_ALL) -> list[tuple[int, int]]:
        """Drop messages of the sequence and at the heads of the queues that have expired at `wall`: see Backlog."""
        spans = super().drop_expired(wall, ttl, end)
        for queue in self._queues:
            heads = [message.ordinal for _, message in islice(queue, DROPPED_AT_ONCE)]
            count = sum(1 for _ in takewhile(lambda ordinal: self._has_expired(ordinal, wall, ttl), heads))
            spans += self._drop_first([queue], count)
        return spans

    def _has_expired(self, ordinal: int, wall: int, ttl: int) -> bool:
        is_known = self.extents.published(ordinal) > 0
        return is_known and self.extents.expired_before(ordinal, ordinal + 1, wall, ttl) > ordinal

    def drop_oldest(self, count: int) -> list[tuple[int, int]]:
        """Drop up to `count` messages: the least urgent, and of those the oldest. See Backlog."""
        late = self._drop_first(self._queues[USUAL_PRIORITY:], count)
        usual = self._drop_next(count - len(late))
        left = count - len(late) - sum(end - first for first, end in usual)
        return late + usual + self._drop_first(self._queues[:USUAL_PRIORITY], left)

    def _drop_first(self, queues: list[Queue], count: int) -> list[tuple[int, int]]:
        """Drop up to `count` messages of these queues, the last queue first. Return their spans."""
        dropped: list[int] = []
        for queue in reversed(queues):
            dropped += [queue.popleft()[1].ordinal for _ in range(min(len(queue), count - len(dropped)))]
        self._note_queued(-len(dropped))
        return [(ordinal, ordinal + 1) for ordinal in dropped]

    def give_up(self) -> tuple[Ahead, RetryQueue]:
        given_up = super().give_up()
        self._looked = self.cursor
        return given_up

    # queries

    def _queued(self) -> Iterator[Message]:
        return (message for _, message in chain(self._unsorted.entries(), *self._queues))

    def packed(self) -> list[bytes]:
        queued = pack_ready(message for _, message in chain.from_iterable(self._queues))
        return [queued, *self._unsorted.packed(), *self.retry.packed()]

    def frozen_chunks(self) -> list[bytes]:
        return [*self._unsorted.frozen_chunks(), *super().frozen_chunks()]

    def _keep_queued(self, keep: Callable[[int], bool]) -> None:
        self._unsorted = RetryQueue(entry for entry in self._unsorted.entries() if keep(entry[1].ordinal))
        self._queues = [deque(entry for entry in queue if keep(entry[1].ordinal)) for queue in self._queues]

    def oldest_returned(self) -> Message | None:
        heads = [queue[0][1] for queue in (*self._queues, self.retry) if queue]
        heads += [message for _, message in islice(self._unsorted, 1)]
        return min(heads, key=lambda message: message.ordinal, default=None)

    def returned(self, start: int = 0) -> Iterator[Message]:
        urgent, late = self._queues[:USUAL_PRIORITY], self._queues[USUAL_PRIORITY:]
        everything = chain(self._unsorted.entries(), *urgent, self.retry.entries(), *late)
        return (message for _, message in islice(everything, start, None))

    def check(self) -> None:
        super().check()
        self._unsorted.check()
        assert not self._queues[USUAL_PRIORITY]
        assert all(sorted(map(_position, queue)) == list(map(_position, queue)) for queue in self._queues)

    def __repr__(self) -> str:
        return f"<PriorityBacklog from {self.cursor}, {list(map(len, self._queues))} queued>"
