"""Reading a topic back from the log: planned in the reactor's thread, read from the files in any other thread.

A plan names byte ranges of segments. Their frames are returned as they are in the file, a record at a time: there is no work
for each message. If a segment was cleaned in the meantime, it is found under its new name, or another plan is made.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from nsqd.core.message.frame import that_fit
from nsqd.core.retention.history import Amount, MessageBatch, MessagesGone, OffsetRange
from nsqd.storage.log.disk import Disk
from nsqd.storage.log.files import SegmentFiles
from nsqd.storage.log.locations import read_publishes
from nsqd.storage.log.long_polls import LongPoll, LongPolls
from nsqd.storage.log.parent import Parent
from nsqd.storage.log.retention import UNBOUNDED
from nsqd.storage.sequence import Sequence
from nsqd.storage.stored_extent import Location, StoredExtent


@dataclass(frozen=True, slots=True)
class LogPlan:
    """A plan to read messages of one topic. Implements nsqd.core.retention.history.Plan."""

    disk: Disk
    files: SegmentFiles  # they change while the plan is read
    topic: int
    start: int
    end: int
    most: int  # bytes to read, at most
    locations: list[Location]  # each location once, in the order of the messages
    upto: int  # ordinal before which all messages are in the locations

    def read(self) -> tuple[list[MessageBatch], int]:
        batches: list[MessageBatch] = []
        room, position = self.most, self.start
        for location in self.locations:
            for batch in self._in(location, position):
                extra = len(batch.packed)  # bytes of attributes, which the response may repeat for each message
                if room < len(batch.frames) + extra * batch.count:
                    count = max(that_fit(batch.frames, batch.count, batch.largest, room, extra), 0 if batches else 1)
                    return [*batches, batch.part(0, count)] if count else batches, batch.first + count
                batches.append(batch)
                room -= len(batch.frames) + extra * batch.count
                position = batch.end
        return batches, max(position, self.upto)

    def _in(self, location: Location, first: int) -> Iterator[MessageBatch]:
        """Yield the batches of messages first..end in a location. Raises MessagesGone if the segment's file is missing."""
        try:
            file = self.files.at(location[0])
            data, found = read_publishes(self.disk, file, location, self.topic, self.files.repair)
        except FileNotFoundError:
            raise MessagesGone from None
        for published in found:
            if published is None:
                continue
            ordinal, count, largest, attributes, at, stop = published
            low, high = max(first, ordinal), min(self.end, ordinal + count)
            if low < high:
                batch = MessageBatch(ordinal, count, largest, data[at:stop], attributes)
                yield batch.part(low - ordinal, high - ordinal)


def log_of(log_id: bytes, topic: int) -> str:
    """Return the name of the log that the offsets of a topic belong to, for clients."""
    return f"{log_id.hex()}-{topic}"


class Readable(Protocol):
    """The messages of a log: nsqd.storage.log.store.LogStore for one that is open."""

    @property
    def long_polls(self) -> LongPolls:
        """Return the readers that wait for messages."""

    def find_sequence(self, topic: int) -> Sequence | None:
        """Return the topic's extents; None if the log has no such topic."""

    def durable_end(self, topic: int) -> int:
        """Return the ordinal up to which the topic's messages survive a power cut."""


class Files(Protocol):
    """Where a log is: nsqd.storage.log.writer.Writer for one that is open."""

    files: SegmentFiles
    parents: list[Parent]


class LogHistory:
    """The messages that can be read back from the log. Implements nsqd.core.retention.history.History."""

    def __init__(self, store: Readable, disk: Disk, log_id: bytes, writer: Files) -> None:
        self._store, self._disk, self.log_id = store, disk, log_id
        self._parents = writer.parents
        self._files = writer.files

    def window(self, topic: int) -> OffsetRange:
        log = log_of(self.log_id, topic)
        parents = tuple((log_of(one.log_id, topic), one.ends[topic]) for one in self._parents if topic in one.ends)
        sequence = self._store.find_sequence(topic)
        end = self._store.durable_end(topic)
        if sequence is None or sequence.first is None:
            return OffsetRange(log, end, end, parents)
        return OffsetRange(log, sequence.first, max(sequence.first, end), parents)

    def amount(self, topic: int) -> Amount:
        window, sequence = self.window(topic), self._store.find_sequence(topic)
        entries = list(sequence.readable(window.first, window.next)) if sequence is not None else []
        if not entries:
            return Amount(0, 0, 0)
        return Amount(sum(stored.size for stored in entries), entries[0].oldest, entries[-1].newest)

    def await_messages(self, topic: int, end: int, until: int, ready: Callable[[], None]) -> None:
        self._store.long_polls.add(LongPoll(topic, end, until, ready))

    def end_waiting(self) -> None:
        """Call `ready` of all that await messages, now and from now on: the node stops."""
        self._store.long_polls.end()

    def plan(self, topic: int, start: int, end: int, most: int) -> LogPlan:
        sequence = self._store.find_sequence(topic)
        chosen, room = [], most
        if sequence is not None:
            for stored in sequence.readable(start, end):
                chosen.append(stored)
                room -= stored.size * (min(end, stored.end) - max(start, stored.first)) // stored.count
                if room <= 0:
                    break
        return self._plan(topic, start, end, most, chosen)

    def plans_of(self, topic: int, ordinals: list[int]) -> list[LogPlan]:
        sequence = self._store.find_sequence(topic)
        chosen: dict[StoredExtent, list[int]] = {}
        for ordinal in ordinals:
            stored = sequence.extent_of(ordinal) if sequence is not None else None
            if stored is not None:
                chosen.setdefault(stored, []).append(ordinal)
        return [self._plan(topic, min(of), max(of) + 1, UNBOUNDED, [stored]) for stored, of in chosen.items()]

    def plan_for(self, topic: int, stamp: int) -> tuple[int, LogPlan]:
        window, sequence = self.window(topic), self._store.find_sequence(topic)
        for stored in sequence.readable(window.first, window.next) if sequence is not None else ():
            if stored.newest >= stamp:
                end = min(stored.end, window.next)
                return end, self._plan(topic, max(stored.first, window.first), end, UNBOUNDED, [stored])
        return window.next, self._plan(topic, window.next, window.next, 0, [])

    def _plan(self, topic: int, start: int, end: int, most: int, chosen: list[StoredExtent]) -> LogPlan:
        # one record may belong to several extents
        locations = dict.fromkeys(location for stored in chosen for location in stored.locations)
        upto = max(start, min(end, chosen[-1].end)) if chosen else end
        return LogPlan(self._disk, self._files, topic, start, end, most, list(locations), upto)
