"""Retention of finished messages: how long they stay, for which cursors, and up to where they can be read back."""

from collections import deque
from collections.abc import Callable, Mapping

from nsqd.core.retention.cursors import Cursor
from nsqd.core.retention.policy import StoragePolicy
from nsqd.core.sequence.gate import Gate
from nsqd.storage.log.clocks import LogClock
from nsqd.storage.log.long_polls import LongPolls
from nsqd.storage.log.writer import Writer
from nsqd.storage.sequence import Sequence
from nsqd.storage.stored_extent import StoredExtent

UNBOUNDED = 1 << 62  # bytes
MOST_ENDS = 4096  # pairs of a DurableEnds, at most


class DurableEnds:
    """The ends of a topic's sequence over time, each with the log position that must be durable, or copied, for it.

    A message that was read back must not vanish in a power cut.
    """

    __slots__ = ("_end", "_waiting")

    def __init__(self, end: int) -> None:
        """Begin with everything before the ordinal `end` durable."""
        self._end = end
        self._waiting: deque[tuple[int, int]] = deque()

    def add(self, position: int, end: int) -> None:
        """Note that the sequence ends at ordinal `end` when the log ends at `position`."""
        # no sync for a long time: remember every other pair only, so the durable end is coarser
        if len(self._waiting) >= MOST_ENDS:
            self._waiting = deque(list(self._waiting)[1::2])
        self._waiting.append((position, end))

    def end_at(self, durable: int) -> int:
        """Return the ordinal up to which messages are durable, given that the log is durable up to `durable`."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= durable:
            self._end = waiting.popleft()[1]
        return self._end


class Retained:
    """A topic that retains finished messages."""

    __slots__ = ("_clock", "cursors", "durable", "gate", "policy", "sequence")

    def __init__(
        self, sequence: Sequence, policy: StoragePolicy, cursors: Mapping[str, Cursor], clock: LogClock
    ) -> None:
        self.sequence, self.policy = sequence, policy
        self.gate: Gate | None = None  # holds messages back until they have copies
        self.cursors = cursors  # the core's own mapping, which changes
        self._clock = clock
        self.durable = DurableEnds(sequence.end)  # ends of the sequence

    def retire(self, now: int) -> bool:
        """Release messages whose retention is over. `now`: monotonic ns. Returns True if there are any."""
        oldest = self._clock.at(now) - self.policy.retention if self.policy.retention else 0
        return self.sequence.retire(oldest, self.policy.retention_bytes or UNBOUNDED, self._holds(now))

    def is_overdue(self, now: int) -> bool:
        """Return True if some message is past the topic's retention time, and no cursor holds it."""
        kept = self.sequence.retained if self.policy.retention else []
        late = self._clock.at(now) - self.policy.retention
        return bool(kept) and kept[0].logged_last < late and not self._is_held_by_cursor(kept[0], now)

    def _holds(self, now: int) -> list[tuple[int, int, int]]:
        """Return (offset, oldest, bytes) for each cursor that holds messages.

        It holds those from `offset` on that were published at `oldest` (the log's time) or later and are in the newest `bytes`.
        """
        at = self._clock.at(now)
        return [
            (cursor.offset, at - cursor.hold if cursor.hold else 0, cursor.hold_bytes or UNBOUNDED)
            for cursor in self.cursors.values()
            if cursor.hold or cursor.hold_bytes
        ]

    def _is_held_by_cursor(self, stored: StoredExtent, now: int) -> bool:
        """Return True if a cursor holds a part of the extent, though the topic's own retention is over."""
        return any(offset < stored.end and stored.logged_last >= oldest for offset, oldest, _ in self._holds(now))


class Retention:
    """All topics that retain finished messages, by number."""

    def __init__(self, writer: Writer, clock: LogClock, want_sync: Callable[[], None]) -> None:
        self.topics: dict[int, Retained] = {}
        self.long_polls = LongPolls()
        self.clock = clock
        self.grown: set[int] = set()  # topics published to since the last group was written
        self._writer, self._want_sync = writer, want_sync

    def retire(self, now: int) -> list[int]:
        """Release messages that are retained for too long. Returns the topics that have such messages."""
        return [number for number, topic in self.topics.items() if topic.retire(now)]

    def is_overdue(self, now: int) -> bool:
        """Return True if some message is retained for longer than its topic says."""
        return any(topic.is_overdue(now) for topic in self.topics.values())

    def written(self, position: int) -> None:
        """Note that a group was written: its messages are durable when the log is durable up to `position`."""
        for number in self.grown:
            if topic := self.topics.get(number):
                topic.durable.end_at(self._writer.durable.position)  # so that few ends are kept
                topic.durable.add(position, topic.sequence.end)
        self.grown.clear()

    def durable_end(self, number: int, sequence: Sequence | None) -> int:
        """Return the ordinal up to which a topic's messages survive a power cut.

        For a topic that retains nothing this is the end of its sequence. If messages are not durable yet, this asks for a sync.
        """
        topic = self.topics.get(number)
        if topic is None or sequence is None:
            return sequence.end if sequence is not None else 0
        durable = self._writer.durable.position
        end = topic.durable.end_at(durable if topic.gate is None else topic.gate.readable(durable))
        if end < sequence.end:
            self._want_sync()  # the caller waits for these messages, whatever the topic's mode
        return end
