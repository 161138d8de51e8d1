"""What a channel has ready: messages that come back, and its topic's sequence from the cursor on.

A message that comes back (requeued, timed out, or its delay over) waits in the retry lane until the cursor has passed as many
messages as --mem-queue-size, not behind ten million. A hole is a span ahead of the cursor that the channel is done with.
Nothing here blocks: what is not in memory is asked for, and `reading` says so until it has come.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Iterable, Iterator

from nsqd.core.message.frame import ID_SIZE
from nsqd.core.reader import Batch
from nsqd.core.sequence.edge import Edge
from nsqd.core.sequence.extent import Extent
from nsqd.core.sequence.journal import Extents
from nsqd.core.sequence.spans import without
from nsqd.core.timing.deferred import Message

END_OF_ALL = 1 << 63  # no ordinal is as high
LOST_AT_ONCE = 100  # messages of the retry lane that turn out to be lost before others get their turn: about 1 ms

Taken = tuple[Message | None, int, list[bytes], bytes]  # see Backlog.take


class Backlog:
    """See above. A channel has one."""

    __slots__ = ("_edge", "_extent", "_holes", "_mem_queue_size", "cursor", "extents", "passed", "reading", "retry")

    def __init__(self, edge: Edge, extents: Extents, mem_queue_size: int) -> None:
        """It is empty, and stands at the edge."""
        self._edge = edge
        self.extents = extents
        self._mem_queue_size = mem_queue_size  # messages
        self.cursor = edge.distributed  # ordinal of the next message that was never taken; <= edge.distributed
        self.passed = edge.ordinary  # of edge.ordinary, how many are behind the cursor or in a hole
        self.retry: deque[tuple[int, Message]] = deque()  # (cursor at which it is taken, message); cursors ascend
        self.reading = False  # True: what comes next is being read; nothing is taken meanwhile
        self._holes: deque[tuple[int, int]] = deque()  # spans ahead of the cursor, ascending, disjoint
        self._extent: Extent | None = None  # the one the cursor was in last

    # messages come

    def put_back(self, message: Message) -> None:
        """The message is ready again."""
        self.retry.append((min(self._edge.distributed, self.cursor + self._mem_queue_size), message))

    def put_first(self, message: Message) -> None:
        """After a restart: the message is ready, ahead of the sequence."""
        self.retry.append((self.cursor, message))

    def resume(self, cursor: int, ready: int) -> None:
        """After a restart: it stands at `cursor`, with `ready` messages from there to the edge."""
        self.cursor, self.passed = cursor, self._edge.ordinary - ready

    # messages go

    def take(self, count: int, room: int) -> Taken | None:
        """Take what comes next: a message of the retry lane, or at most `count` of the sequence, of `room` bytes in all.

        Returns the Message that came back, or None if they are of the sequence; the ordinal of the first; their frames, at
        least one; their ids, end to end. None if there is nothing, if it must be read first, or after LOST_AT_ONCE losses.
        """
        lost = 0
        while self.retry or self.cursor < self._edge.distributed:
            if self.retry and self.retry[0][0] <= self.cursor:
                taken = self._take_back()
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
            if extent.first > self.cursor:  # delayed messages, which came by the retry lane and are finished already
                self.cursor = min(extent.first, self._limit())
                continue
            if extent.delayed:  # the topic's delay lane hands these out
                self.cursor = min(extent.end, self._limit())
                continue
            return self._take_stretch(extent, min(count, max(1, room // extent.largest)))
        self.passed = self._edge.ordinary  # what was counted and did not come was damaged on disk: it never comes
        return None

    def _limit(self) -> int:
        """The ordinal before which the cursor must stop."""
        limit = self._edge.distributed
        if self.retry:
            limit = min(limit, self.retry[0][0])
        return min(limit, self._holes[0][0]) if self._holes else limit

    def _take_stretch(self, extent: Extent, count: int) -> Taken:
        first = self.cursor
        start = first - extent.first
        stop = min(start + count, self._limit() - extent.first, len(extent.frames))
        frames = extent.frames[start:stop]
        self.cursor += stop - start
        self.passed += stop - start
        if stop == len(extent.frames):
            self._extent = None  # an idle channel shall not keep what everybody has finished
        return None, first, frames, bytes(extent.ids[start * ID_SIZE : stop * ID_SIZE])

    def _take_back(self) -> Taken | None:
        """The first message of the retry lane. None while it is being read, or if it is damaged on disk."""
        message = self.retry[0][1]
        extent = self.extents.read(message.ordinal)
        if extent is None:
            self.reading = True
            return None
        self.retry.popleft()
        index = message.ordinal - extent.first
        if index < 0:
            return None
        ids = bytes(extent.ids[index * ID_SIZE : (index + 1) * ID_SIZE])
        return message, message.ordinal, [extent.frames[index]], ids

    def skip(self, first: int, end: int, ordinary: int) -> None:
        """Messages first..end, the last ones, are not for the channel; `ordinary` of them were counted as ready."""
        self.passed += ordinary
        if self._holes and self._holes[-1][1] == first:
            self._holes[-1] = (self._holes[-1][0], end)
        else:
            self._holes.append((first, end))

    def bound(self, batch: Batch) -> list[tuple[int, int]]:
        """Drop what exceeds mem-queue-size ready messages, the newest first, but only of `batch`, and none with a delay.

        Returns the spans (first, end) that were dropped, ascending. The edge has passed the batch just now.
        """
        excess = min(batch.ordinary, self._edge.ordinary - self.passed + len(self.retry) - self._mem_queue_size)
        if excess <= 0:
            return []
        spans = [(batch.end - excess, batch.end)]
        if batch.delayed:
            delayed = self._edge.lane.delayed()
            plain = [ordinal for ordinal in range(batch.first, batch.end) if ordinal not in delayed]
            spans = [(ordinal, ordinal + 1) for ordinal in plain[-excess:]]
        for first, end in spans:
            self.skip(first, end, end - first)
        return spans

    def pull(self, ordinal: int) -> bool:
        """Take a message out of the sequence ahead of the cursor. False if it is not there, or not to be given out by it."""
        spans = self.ahead(max(self.cursor, ordinal), ordinal + 1)
        if not any(first <= ordinal < first + count for first, count in spans):
            return False
        place = bisect_left(self._holes, (ordinal, ordinal + 1))
        self._holes.insert(place, (ordinal, ordinal + 1))
        self.passed += 1
        return True

    def take_retried(self, ordinals: Collection[int]) -> list[Message]:
        """Take these out of the retry lane. Walks it: for rare commands only."""
        taken = [message for _, message in self.retry if message.ordinal in ordinals]
        if taken:
            self.retry = deque(entry for entry in self.retry if entry[1].ordinal not in ordinals)
        return taken

    def clear(self) -> None:
        """Nothing is ready; the cursor stands at the edge."""
        self.cursor, self.passed = self._edge.distributed, self._edge.ordinary
        self.retry.clear()
        self._holes.clear()
        self._extent = None

    # queries

    @property
    def cold(self) -> int:
        """How many messages from the cursor on are on disk only."""
        return self.extents.cold(self.cursor, self._edge.distributed)

    @property
    def holes(self) -> list[tuple[int, int]]:
        """Spans (first, end) ahead of the cursor that are to be skipped."""
        return list(self._holes)

    def ahead(self, start: int, end: int = END_OF_ALL) -> Iterator[tuple[int, int]]:
        """Every (first, count) from `start` on, not before the cursor, that will be taken as the cursor comes by."""
        extents: Iterable[tuple[int, int, bool]] = self.extents.extents(start, min(end, self._edge.distributed))
        for first, stop, delayed in extents:
            if not delayed:
                yield from ((low, high - low) for low, high in without(first, stop, self._holes))

    def check(self) -> None:
        """Raise AssertionError if a sentence above is false."""
        positions = [position for position, _ in self.retry]
        assert positions == sorted(positions)
        assert max([self.cursor, *positions]) <= self._edge.distributed
        assert self.passed <= self._edge.ordinary + len(self.retry)

    def __repr__(self) -> str:
        return f"<Backlog from {self.cursor} of {self._edge.distributed}, {len(self.retry)} come back>"
