"""The messages that a channel has ready: those from its cursor to the distributed offset, and those that came back.

The distributed offset is the ordinal up to which the topic has distributed messages to its readers.

A message comes back when it is requeued, times out, or its delay ends. It waits in the retry queue until the cursor has passed
as many messages as --mem-queue-size, rather than ten million. A hole is a span of ordinals ahead of the cursor that the
channel is done with. Nothing here blocks: a message that is not in memory is requested from storage, and `reading` is True
until it has been read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import repeat

from nsqd.core.channel.retry import RetryQueue
from nsqd.core.message.frame import ID_SIZE
from nsqd.core.reader import DistributedBatch
from nsqd.core.sequence.ahead import Ahead
from nsqd.core.sequence.extent import Extent
from nsqd.core.sequence.journal import Extents
from nsqd.core.sequence.offsets import TopicOffsets
from nsqd.core.sequence.spans import without
from nsqd.core.timing.deferred import Message

END_OF_ALL = 1 << 63  # higher than any ordinal
LOST_AT_ONCE = 100  # lost messages of the retry queue passed over before other work gets its turn: about 1 ms


class GroupBatch:
    """Messages whose groups matter and that are delivered for the first time together; all are heads of their groups."""

    __slots__ = ("extents", "groups", "ordinals")

    def __init__(self, ordinals: list[int] | range, extents: Sequence[Extent], groups: Sequence[int] = ()) -> None:
        self.ordinals = ordinals  # ascending
        self.extents = extents  # that have them, ascending
        self.groups = groups  # of each message; (): the backlog has them by ordinal

    def heads(self) -> dict[int, int]:
        """Return the groups by ordinal, as far as the backlog does not have them."""
        return dict(zip(self.ordinals, self.groups, strict=False))

    def cut(self, count: int) -> GroupBatch:
        """Remove all but the first `count` messages, and return these others."""
        rest = GroupBatch(self.ordinals[count:], self.extents, self.groups[count:])
        self.ordinals, self.groups = self.ordinals[:count], self.groups[:count]
        return rest

    def each(self) -> Iterator[tuple[Extent, int]]:
        """Yield each message as (extent, ordinal)."""
        at = 0
        for extent in self.extents:
            stop = bisect_left(self.ordinals, extent.end, at)
            yield from zip(repeat(extent), self.ordinals[at:stop])
            at = stop

    def with_headers(self, frames: list[bytes]) -> list[bytes]:
        """Return the frames with their headers: see Extent.with_headers."""
        pairs = zip(self.each(), frames, strict=True)
        return [one for (extent, ordinal), frame in pairs for one in extent.with_headers(ordinal, [frame])]


ReadyMessages = tuple[Message | GroupBatch | None, int, list[bytes], bytes, Extent]  # see Backlog.pop_ready


class Backlog:
    """The ready messages of one channel."""

    is_grouped = False  # True: groups.py or group_limits.py
    is_ordered = False  # True: a message that comes back holds its group back
    due: int | None = None  # when to call `release_due` (monotonic ns)
    held_count = 0  # of the ready messages, those that wait until another one of their group has ended
    queued_count = 0  # of the ready messages, those in queues of groups or priorities

    __slots__ = ("_extent", "_holes", "_mem_queue_size", "_offsets", "cursor", "extents", "passed", "reading", "retry")

    def __init__(self, offsets: TopicOffsets, extents: Extents, mem_queue_size: int) -> None:
        """Create an empty backlog with its cursor at the distributed offset."""
        self._offsets = offsets
        self.extents = extents
        self._mem_queue_size = mem_queue_size  # messages
        # ordinal of the next message that was never taken; at most the distributed offset
        self.cursor = offsets.distributed
        # of the messages that `ordinary` counts, those before the cursor or in a hole that are not queued
        self.passed = offsets.ordinary
        self.retry = RetryQueue()  # (cursor at which it is taken, message); cursors ascend
        self.reading = False  # True: the next message is being read from disk; nothing is taken meanwhile
        self._holes: deque[tuple[int, int]] = deque()  # spans (first, end) ahead of the cursor, ascending, disjoint
        self._extent: Extent | None = None  # the extent that the cursor was in last

    @classmethod
    def taking_over(cls, other: Backlog) -> Backlog:
        """Return a backlog in place of another one, which must hold nothing back."""
        taken = cls.__new__(cls)
        taken._take_over(other)
        return taken

    def _take_over(self, other: Backlog) -> None:
        for name in Backlog.__slots__:
            setattr(self, name, getattr(other, name))
        self.retry = RetryQueue((self.cursor, message) for _, message in self.retry.entries())

    def plain(self) -> Backlog:
        """Return a backlog that delivers in no special order, in place of this one. Queued messages come next."""
        return self

    # putting messages in

    def put_back(self, message: Message) -> None:
        """Append a message to the retry queue, to be taken when the cursor has passed mem-queue-size more or is at its end."""
        self.retry.append((min(self._offsets.distributed, self.cursor + self._mem_queue_size), message))

    def put_first(self, message: Message) -> None:
        """Append a message to the retry queue after a restart, so that it is delivered before the sequence."""
        self.retry.append((self.cursor, message))

    def resume(self, cursor: int, ready: int) -> None:
        """Move the cursor to `cursor` after a restart; `ready` messages are from there to the distributed offset."""
        self.cursor, self.passed = cursor, self._offsets.ordinary - ready

    def revived(self) -> None:
        """Take account of the holes that a restart has made."""

    def extended(self) -> None:
        """Look at the messages that the distributed offset has just passed."""

    # groups, which a plain backlog does not know

    def expect_heads(self, out: Iterable[int], waiting: Iterable[int]) -> None:
        """Take these messages as heads of their groups: they are in flight already, or they wait for a time or are buried."""

    def ended(self, ordinals: Sequence[int], groups: Sequence[int]) -> bool:
        """Let the groups continue of those messages that are heads. Return True if any can.

        `groups`: of each message; (): the backlog has them by ordinal.
        """
        return False

    def keep_heads(self, heads: Mapping[int, int]) -> None:
        """Keep the groups of heads by ordinal: they are neither finished nor in flight in a run that has them."""

    def came_back(self, ordinal: int) -> bool:
        """Let the group of a message continue that is in flight no longer, unless groups are ordered. Return True if it can."""
        return False

    def check_groups(self, out: Iterable[int]) -> None:
        """Raise AssertionError unless each group with a head is known. `out`: those that runs in flight have."""

    def release_due(self, now: int) -> None:
        """Let the groups continue whose rate allows that at `now` (monotonic ns)."""

    # taking messages out

    def pop_ready(self, count: int, room: int) -> ReadyMessages | None:
        """Take the next messages: one of the retry queue, or at most `count` of the sequence with `room` bytes in all.

        Return (the Message that came back, a GroupBatch, or None for messages of the sequence without groups; the ordinal of
        the first; the frames, of which there is at least one even if it exceeds `room`; the ids, end to end; their extent, or
        the first of those of a GroupBatch: some have messages with a ttl of their own only if it has).
        Return None if nothing is ready, if the next message must be read from disk first, or after LOST_AT_ONCE messages that
        are lost or held back.
        """
        lost = 0
        while self.retry or self.cursor < self._offsets.distributed:
            if self.retry and self.retry[0][0] <= self.cursor:
                taken = self._pop_first(self.retry)
                if taken is not None or self.reading:
                    return taken
                lost += 1
                if lost == LOST_AT_ONCE:
                    return None
                continue
            if self._holes and self._holes[0][0] <= self.cursor:
                self.cursor = self._holes.popleft()[1]
                continue
            extent = self._extent
            if extent is None or not extent.first <= self.cursor < extent.first + len(extent.frames):
                extent = self._extent = self.extents.read(self.cursor)
                if extent is None:
                    self.reading = True
                    return None
            if extent.first > self.cursor:  # a gap: delayed messages that came by the retry queue and are finished
                self.cursor = min(extent.first, self._limit())
                continue
            if extent.delayed:  # the topic's delay queue hands these messages out
                self.cursor = min(extent.end, self._limit())
                continue
            before = self.cursor
            taken = self._pop_stretch(extent, min(count, max(1, room // (extent.largest + extent.longest_headers))))
            if taken is not None or self.cursor == before:  # too many are held back already
                return taken
            lost += 1
            if lost == LOST_AT_ONCE:
                return None
        # messages that were counted and did not come are corrupt on disk
        self.passed = self._offsets.ordinary - self.queued_count
        return None

    def _limit(self) -> int:
        """Return the ordinal before which the cursor must stop: the distributed offset, the next hole or the next retry."""
        limit = self._offsets.distributed
        if self.retry:
            limit = min(limit, self.retry[0][0])
        return min(limit, self._holes[0][0]) if self._holes else limit

    def _pop_stretch(self, extent: Extent, count: int) -> ReadyMessages | None:
        first = self.cursor
        start = first - extent.first
        stop = min(start + count, self._limit() - extent.first, len(extent.frames))
        frames = extent.frames[start:stop]
        self.cursor += stop - start
        self.passed += stop - start
        if stop == len(extent.frames):
            self._extent = None  # an idle channel must not keep an extent alive that all channels have finished
        return None, first, frames, bytes(extent.ids[start * ID_SIZE : stop * ID_SIZE]), extent

    def untake(self, count: int) -> None:
        """Give back the last `count` messages that were taken from the sequence."""
        self.cursor -= count
        self.passed -= count

    def untake_batch(self, batch: GroupBatch) -> None:
        """Give back messages that were taken as a GroupBatch, or as a part of one."""

    def _pop_first(self, queue: deque[tuple[int, Message]]) -> ReadyMessages | None:
        """Take the first message of a queue. Return None if it must be read first, is corrupt on disk, or held back."""
        message = queue[0][1]
        extent = self.extents.read(message.ordinal)
        if extent is None:
            self.reading = True
            return None
        queue.popleft()
        return self._taken(message, extent) if extent.first <= message.ordinal else None

    def _taken(self, message: Message, extent: Extent) -> ReadyMessages:
        """Return a message of a queue as `pop_ready` does."""
        index = message.ordinal - extent.first
        ids = bytes(extent.ids[index * ID_SIZE : (index + 1) * ID_SIZE])
        return message, message.ordinal, [extent.frames[index]], ids, extent

    def skip(self, first: int, end: int, ordinary: int) -> None:
        """Make a hole of messages first..end, behind all other holes. `ordinary` of the messages were counted as ready."""
        self.passed += ordinary
        if self._holes and self._holes[-1][1] == first:
            self._holes[-1] = (self._holes[-1][0], end)
        else:
            self._holes.append((first, end))

    @property
    def excess(self) -> int:
        """Return the number of ready messages beyond mem-queue-size, if it is positive."""
        return self._offsets.ordinary - self.passed + self.retry.size - self._mem_queue_size

    def drop_newest(self, batch: DistributedBatch, count: int) -> list[tuple[int, int]]:
        """Drop up to `count` messages, the newest of `batch` without a delay, which the distributed offset has just passed.

        Return their spans (first, end), ascending.
        """
        excess = min(batch.ordinary, count)
        if excess <= 0:
            return []
        spans = [(batch.end - excess, batch.end)]
        if batch.delayed:
            delayed = self._offsets.delay_queue.delayed()
            plain = [ordinal for ordinal in range(batch.first, batch.end) if ordinal not in delayed]
            spans = [(ordinal, ordinal + 1) for ordinal in plain[-excess:]]
        for first, end in spans:
            self.skip(first, end, end - first)
        return spans

    def drop_expired(self, wall: int, ttl: int, end: int = END_OF_ALL) -> list[tuple[int, int]]:
        """Move the cursor past the messages before `end` and the first that has not expired at `wall` (see Extent.leading).

        Return their spans (first, end), ascending.
        """
        end = self.extents.expired_before(self.cursor, min(end, self._offsets.distributed), wall, ttl)
        return self._drop_next(sum(stretch for _, stretch in self.ahead(self.cursor, end))) if end > self.cursor else []

    def drop_oldest(self, count: int) -> list[tuple[int, int]]:
        """Drop up to `count` ready messages, but none of the retry queue. Return their spans (first, end)."""
        return self._drop_next(count)

    def _drop_next(self, count: int) -> list[tuple[int, int]]:
        """Move the cursor past up to `count` messages. Return their spans (first, end), ascending."""
        spans: list[tuple[int, int]] = []
        for first, stretch in list(self._next_stretches(count)):
            spans.append((first, first + stretch))
            self.passed += stretch
            self.cursor = first + stretch
        while self._holes and self._holes[0][1] <= self.cursor:
            self._holes.popleft()
        return spans

    def _next_stretches(self, count: int) -> Iterator[tuple[int, int]]:
        """Yield the next `count` messages that the cursor will take, as (first, count)."""
        for first, stretch in self.ahead(self.cursor):
            if count <= 0:
                return
            yield first, min(stretch, count)
            count -= stretch

    def pull(self, ordinal: int) -> bool:
        """Make a hole of one message ahead of the cursor. Return False if the cursor would not have taken that message."""
        holes, end = self._holes, ordinal + 1
        place = bisect_left(holes, (end,))
        before = holes[place - 1] if place else (0, 0)
        extents = self.extents.extents(ordinal, min(end, self._offsets.distributed))
        if ordinal < max(self.cursor, before[1]) or all(delayed for _, _, delayed in extents):
            return False
        if place < len(holes) and holes[place][0] == end:
            end = holes[place][1]
            del holes[place]
        if before[1] == ordinal and place:
            holes[place - 1] = before[0], end
        else:
            holes.insert(place, (ordinal, end))
        self.passed += 1
        return True

    def remove_retried(self, ordinals: Collection[int]) -> list[Message]:
        """Take these messages out of the retry queue and return them. This walks the queue up to the last of them."""
        return self.retry.remove_ordinals(ordinals)

    def returned(self, start: int = 0) -> Iterator[Message]:
        """Yield the messages of the retry queue in its order, and then those that are held back, from index `start` on."""
        return (message for _, message in self.retry.entries(start))

    def packed(self) -> list[bytes]:
        """Return the messages of the retry queue, and those that are held back, packed in chunks of 24 bytes each."""
        return self.retry.packed()

    def frozen_chunks(self) -> list[bytes]:
        """Return those of these chunks that never change."""
        return self.retry.frozen_chunks()

    def oldest_returned(self) -> Message | None:
        """Return the message that came back and is delivered next, or the oldest that other ones pass."""
        return next(self.returned(), None)

    def give_up(self) -> tuple[Ahead, RetryQueue]:
        """Forget all ready messages and move the cursor to the distributed offset.

        Return the messages that were ahead of the cursor, and the retry queue.
        """
        given_up = Ahead(self.extents, self.cursor, self._offsets.distributed, self._holes, False), self.retry
        self.cursor, self.passed = self._offsets.distributed, self._offsets.ordinary
        self.retry, self._holes = RetryQueue(), deque()
        self._extent = None
        return given_up

    # queries

    @property
    def can_deliver(self) -> bool:
        """Return True if a message is ready that is not held back."""
        return self.cursor < self._offsets.distributed or self.queued_count > self.held_count

    @property
    def cold(self) -> int:
        """Return the number of messages from the cursor to the distributed offset that are on disk only."""
        return self.extents.cold(self.cursor, self._offsets.distributed)

    @property
    def holes(self) -> list[tuple[int, int]]:
        """Return the spans (first, end) ahead of the cursor that it will skip."""
        return list(self._holes)

    def ahead(self, start: int, end: int = END_OF_ALL) -> Iterator[tuple[int, int]]:
        """Yield every (first, count) from `start` (at or past the cursor) to `end` that the cursor will take."""
        extents: Iterable[tuple[int, int, bool]] = self.extents.extents(start, min(end, self._offsets.distributed))
        for first, stop, delayed in extents:
            if not delayed:
                yield from ((low, high - low) for low, high in without(first, stop, self._holes))

    def check(self) -> None:
        """Raise AssertionError if an invariant of this class does not hold."""
        self.retry.check()
        positions = [position for position, _ in self.retry.entries()]
        assert positions == sorted(positions)
        assert max([self.cursor, *positions]) <= self._offsets.distributed
        assert self.passed <= self._offsets.ordinary + self.retry.size

    def __repr__(self) -> str:
        return f"<Backlog from {self.cursor} of {self._offsets.distributed}, {self.retry.size} come back>"
