"""Make a log of the tail of another one: of what a copy holds behind the common point with the owner's.

The owner has the old log up to the common point, and delivers what that part owes. Of the old log's messages, the new log has
those that were published behind the common point, the tail. Each keeps its id, its ordinal and its place in the file; each is
owed by the readers that owed it at the old log's end. What the tail says of earlier messages is left out, and counted.

`succeed` makes the log with which a node goes on when another node owns its own one: it has all topics, readers, pauses,
settings, cursors and the deduplication memory of the old log. `salvage` makes a log into which nobody publishes, of a
diverged copy: it has the topics of which messages are left, and there is none if none is left.

What the tail deletes of what existed at the common point is returned (tail_deletions.py): the owner is to be told.

The new log is a copy of the tail's segments under an id of its own, with two checkpoints behind them. The old log is not
changed.

See docs/design/cluster.md#return-after-a-failover and docs/design/cluster.md#diverged-copies.
"""

from __future__ import annotations

import errno
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

from nsqd.core import records
from nsqd.core.message.deletion import LogDeletions
from nsqd.core.message.ids import LEASE, SAFE_LEASES
from nsqd.core.records import RecordKind
from nsqd.core.topic_state import TopicState
from nsqd.core.work_queue.job import ROW
from nsqd.storage.log.checkpoint import SLICE_BYTES, begin_state
from nsqd.storage.log.clocks import Anchor, LogClock
from nsqd.storage.log.disk import Disk
from nsqd.storage.log.epochs import RANDOM_SIZE, Epoch
from nsqd.storage.log.files import SegmentFiles
from nsqd.storage.log.followers import Followers
from nsqd.storage.log.frozen import FrozenDisk
from nsqd.storage.log.identity import LogIdentity, StoredIdentity, write_identity
from nsqd.storage.log.opening import Simulated
from nsqd.storage.log.parent import MOST_PARENTS, Parent
from nsqd.storage.log.reader import LogRecords, Record
from nsqd.storage.log.reading import LogReading
from nsqd.storage.log.restore import copy_segment
from nsqd.storage.log.segments import Segment
from nsqd.storage.log.sources import AppliedSource, contents
from nsqd.storage.log.space import Space
from nsqd.storage.log.state import decode_topic, encode_topic
from nsqd.storage.log.tail_deletions import TailDeletions
from nsqd.storage.log.writer import Writer
from nsqd.storage.sequence import Sequence

CHECKPOINTS = 2  # as many as a log keeps: replay uses the older one if the newest is damaged


@dataclass(frozen=True, slots=True)
class Succession:
    """What was made of a log that another node owns."""

    log_id: bytes  # of the new log
    parent: Parent  # the old log
    common: int  # log position up to which the owner of the old log has it
    first_id: int  # sequence of the next message id
    messages: int  # of the tail that a reader owes, or that no reader was given yet
    # what the tail says of messages before the common point and is left out: the number of messages by the name of the record
    dropped: Counter[str]
    is_exact: bool  # False: messages of a rewritten segment count as the tail's though the owner may have them
    deletions: LogDeletions | None = None  # what the tail deletes of what the owner has; None: nothing
    epochs: tuple[tuple[Epoch, int], ...] = ()  # of the old log, with the position at which each begins


@dataclass(frozen=True, slots=True)
class Salvaged:
    """What was made of the tail of a diverged copy."""

    log_id: bytes  # of the new log
    node: int  # number of the node that published into the old one
    messages: int  # that a reader owes, or that no reader was given yet
    # what the tail says of messages before the common point and is left out, as in Succession
    dropped: Counter[str]


def succeed(
    source: Disk,
    target: Disk,
    find_common: Callable[[list[tuple[bytes, int]], int], int],
    least_id: int,
    known_lease: int = 0,
    simulated: Simulated | None = None,
) -> Succession:
    """Make the new log on the empty disk `target` from the log on `source`, which is not changed. Everything is synced.

    `find_common`: a function from the old log's epochs, packed, each with the position at which it begins, and the log's end to
    the position up to which the owner has the log; `least_id`: sequence below which the new log issues no
    message id; `known_lease`: a lease of the node, known from elsewhere. Raises LogError, OSError.
    """
    parts = simulated or Simulated()
    clock = LogClock(parts.clocks)
    old = _OldLog(source, find_common, clock)
    old.replay.lease = max(least_id, max(known_lease, old.replay.lease) + SAFE_LEASES * LEASE)
    log_id = _write(old, target, old.identity.node, Followers(), clock, parts)
    deleted = old.tail.deletions.found()
    return Succession(
        log_id,
        old.parent,
        old.common,
        old.replay.lease,
        old.messages,
        old.tail.dropped,
        old.tail.is_exact,
        LogDeletions(old.replay.epochs.at(old.common - 1), old.common, deleted) if deleted else None,
        old.epochs,
    )


def salvage(
    source: Disk,
    target: Disk,
    start: int,
    owner: int,
    durable: int = 0,
    noted: Anchor | None = None,
    simulated: Simulated | None = None,
    interrupt: Callable[[], None] | None = None,
) -> Salvaged | None:
    """Make a log on the empty disk `target` of what the copy on `source` holds behind the position `start`. All is synced.

    Returns None, and writes nothing, if that part owes and retains no message. `owner`: number of the node that will own the
    new log; `durable`: position up to which the files are known to be durable, whatever the log states; `noted`: as in
    LogClock.resume; `interrupt` as for LogReading. The copy is not changed. Raises LogError, OSError.
    """
    parts = simulated or Simulated()
    clock = LogClock(parts.clocks)
    old = _OldLog(source, lambda epochs, end: start, clock, durable, noted, interrupt)
    for number in [one for one, sequence in old.replay.sequences.items() if not holds_any(sequence)]:
        del old.replay.topics[number], old.replay.sequences[number]
    if not old.replay.topics:
        return None
    followers = old.replay.followers._replace(numbers=())  # of the new log there is no copy yet
    log_id = _write(old, target, owner, followers, clock, parts)
    return Salvaged(log_id, old.identity.node, old.messages, old.tail.dropped)


def holds_any(sequence: Sequence) -> bool:
    """Return True if a topic has a message that is owed, or retained."""
    return bool(sequence.live() or sequence.all_retained())


class _OldLog:
    """A log that was read to its end, with those of its messages that are behind the common point."""

    def __init__(
        self,
        source: Disk,
        find_common: Callable[[list[tuple[bytes, int]], int], int],
        clock: LogClock,
        durable: int = 0,
        noted: Anchor | None = None,
        interrupt: Callable[[], None] | None = None,
    ) -> None:
        """Read the log, and let the clock go on from its last time. Raises LogError, OSError."""
        self.disk = FrozenDisk(source)
        self.reading = reading = LogReading(self.disk, durable, interrupt)
        if reading.identity is None:
            raise FileNotFoundError(errno.ENOENT, "the log was not found")
        self.identity, self.end, self.replay = reading.identity, reading.log_records.end, reading.replay
        reading.resume(clock, noted)
        self.epochs = tuple(self.replay.epochs)
        self.common = find_common([(epoch.pack(), start) for epoch, start in self.epochs], self.end)
        self.segments = tail_segments(reading.log_records.segments, self.common, self.end)
        self.tail = TailRecords(self.disk, self.segments, self.common)
        ends = {number: topic.end for number, topic in self.replay.topics.items()}
        self.parent = Parent(self.identity.log_id, self.end, ends)
        self._leave_out()

    def _leave_out(self) -> None:
        """Leave out the messages before the common point."""
        replay, since = self.replay, self.segments[0].base if self.segments else self.end
        for number, state in list(replay.topics.items()):
            boundary = self.tail.firsts.get(number, state.end)
            replay.topics[number], replay.sequences[number] = tail_of(state, replay.sequences[number], boundary, since)
            replay.concluded(number)
            replay.sequences[number].sweep()

    @property
    def messages(self) -> int:
        """Return how many messages are left that a reader owes, or that no reader was given yet."""
        sequences = self.replay.sequences.values()
        return sum(one.count - one.released for sequence in sequences for one in sequence.live())


def _write(old: _OldLog, target: Disk, owner: int, followers: Followers, clock: LogClock, parts: Simulated) -> bytes:
    """Write a log with what is left of an old one, durably, and return its id. Raises OSError.

    `owner`: number of the node that begins its first epoch; `followers`: what the log states of those that count.
    """
    reading, log_id = old.reading, parts.random(16)
    epoch = Epoch(reading.highest_epoch + 1, owner, parts.random(RANDOM_SIZE))
    identity = LogIdentity(old.identity.node, log_id, epoch)
    write_identity(target, StoredIdentity(identity.node, log_id, (*reading.epochs, epoch)))
    copied = _copy(old.disk, target, old.segments, log_id, old.end)
    writer = _writer(target, identity, reading, copied, clock, parts)
    writer.parents = [*old.replay.parents.values(), old.parent][-MOST_PARENTS:]
    writer.followers = followers
    try:
        for _ in range(CHECKPOINTS):
            _write_checkpoint(writer, AppliedSource(old.replay))
    finally:
        writer.close()
    return log_id


def tail_segments(segments: list[Segment], common: int, end: int) -> list[Segment]:
    """Return the segments that may hold records from the position `common` on, of a log that ends at `end`."""
    if common >= end:
        return []
    return segments[max(0, bisect_right([segment.base for segment in segments], common) - 1) :]


class TailRecords:
    """What the records behind the common point say."""

    def __init__(self, disk: Disk, segments: list[Segment], common: int) -> None:
        """Read the segments, which `tail_segments` has returned. Raises LogError, OSError.

        Of a segment that was rewritten, no record tells where it stood before. So all of them count as the tail's if the common
        point is in it: a message may then be delivered twice, and none is lost.
        """
        self.firsts: dict[
            int, int
        ] = {}  # for each topic, by its number: the first ordinal that was published in the tail
        self.dropped: Counter[str] = Counter()
        self.deletions = TailDeletions(common)
        self.is_exact = not segments or not segments[0].header.generation or segments[0].base >= common
        if not segments:
            return
        reader = LogRecords(disk)
        rewritten = {segment.base for segment in segments if segment.header.generation}
        place = next(at for at, one in enumerate(reader.segments) if one.base == segments[0].base)
        for record in reader.records(place):
            self.deletions.remember(record, record.segment in rewritten)
            if record.position >= common or record.segment in rewritten:
                self._note(record)

    def _note(self, record: Record) -> None:
        if record.kind == RecordKind.PUBLISH:
            number, first, *_ = records.PUBLISH.unpack_from(record.content)
            self.firsts[number] = min(first, self.firsts.get(number, first))
        elif record.kind in _OF_MESSAGES:
            (number,) = records.TOPIC.unpack_from(record.content)
            boundary = self.firsts.get(number, _BEHIND_ALL)
            spans = _spans(RecordKind(record.kind), record.content)
            count = sum(min(end, boundary) - first for first, end in spans if first < boundary)
            if count:
                self.dropped[RecordKind(record.kind).name] += count


_BEHIND_ALL = 1 << 64  # every ordinal is below this
_OF_MESSAGES = (RecordKind.FINISH, RecordKind.REQUEUE, RecordKind.BURY, RecordKind.JOB)


def _spans(kind: RecordKind, content: bytes) -> list[tuple[int, int]]:
    """Return the spans (first, end) of the messages that a record names."""
    if kind is not RecordKind.JOB:
        return records.named_spans(kind, content)
    step = records.ORDINAL.size + ROW.size
    ordinals = [
        records.ORDINAL.unpack_from(content, at)[0] for at in range(records.CHANNEL_OF.size, len(content), step)
    ]
    return [(ordinal, ordinal + 1) for ordinal in ordinals]


def tail_of(state: TopicState, sequence: Sequence, boundary: int, since: int) -> tuple[TopicState, Sequence]:
    """Return a topic's state and messages without its messages before the ordinal `boundary`. The state must be settled.

    `since`: base of the first segment that is kept. The arguments are used up.
    """
    for reader in state.readers.values():
        reader.finish(0, boundary)
    state.distributed = max(state.distributed, boundary)
    state.delayed = {ordinal: due for ordinal, due in state.delayed.items() if ordinal >= boundary}
    state.cursors = {
        name: replace(cursor, offset=max(cursor.offset, boundary)) for name, cursor in state.cursors.items()
    }
    if sequence.first is not None:
        sequence.retain(max(sequence.first, boundary))
    state.conclude(sequence.kinds)
    encoded = encode_topic(state, sequence, 0)  # what is loaded from it counts anew who owes what
    kept, messages = decode_topic(encoded, {state.number: state}, {})
    for stored in (*messages.extents, *messages.retained):
        stored.locations = [location for location in stored.locations if location[0] >= since]
    return kept, messages


def _copy(source: Disk, target: Disk, segments: list[Segment], log_id: bytes, end: int) -> list[Segment]:
    """Copy the segments of a log that ends at the position `end`, and return those of the new log. Raises OSError."""
    for segment, stop in zip(segments, [*(segment.base for segment in segments[1:]), end], strict=False):
        copy_segment(source, target, segment, log_id, stop)
    target.sync_directory()
    return [Segment(one.name, replace(one.header, log_id=log_id, former=0)) for one in segments]


def _writer(
    disk: Disk, identity: LogIdentity, reading: LogReading, copied: list[Segment], clock: LogClock, parts: Simulated
) -> Writer:
    """Return the Writer that goes on behind the copied segments."""
    end = reading.log_records.end
    return Writer(
        disk,
        identity,
        end,
        clock,
        Space(disk),
        parts.spare(disk, parts.segment_size),
        parts.segment_size,
        [segment.base for segment in copied],
        end,  # the copies are synced
        end,
        SegmentFiles(segment.header for segment in copied),
        reading.replay.epochs,
    )


def _write_checkpoint(writer: Writer, source: AppliedSource) -> None:
    """Write a checkpoint and make it durable, and then state that it is. Raises OSError."""
    begin_state(writer, source)
    size = 0
    for kind, content in contents(source):
        writer.append(kind, content)
        size += len(content)
        if size >= SLICE_BYTES:
            writer.write()
            size = 0
    writer.write()
    if writer.group or not writer.sync():
        raise OSError(writer.failure or "the log cannot be written")
    writer.append(RecordKind.LEASE, records.LEASE.pack(source.leased))
    writer.write()
    if writer.group or not writer.sync():
        raise OSError(writer.failure or "the log cannot be written")
