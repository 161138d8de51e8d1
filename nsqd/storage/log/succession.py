"""Make a log of the tail of another one: of the records in a copy after the common point with the leader's log.

The leader has the old log up to the common point, and delivers that part. Of the old log's messages, the new log has those that
were published after the common point, the tail. Each keeps its id, its ordinal and its place in the file, and is unfinished for
the readers for which it was at the old log's end. Records of the tail about earlier messages are left out, and counted.

`succeed` makes the log with which a node continues when another node leads its own one: it has all topics, readers, pauses,
settings, cursors and the deduplication memory of the old log. `salvage` makes a log of a diverged copy, without new publishes:
it has the topics of which messages are left, and there is none if none is left.

Deletions in the tail of topics and channels that existed at the common point are returned for the leader (tail_deletions.py).

The new log is a copy of the tail's segments under an id of its own, followed by two checkpoints. The old log is not changed.

See docs/contributing/design/cluster-protocol.md#return-after-a-failover and
docs/contributing/design/cluster-protocol.md#diverged-copies.
"""

from __future__ import annotations

import errno
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

from nsqd.core import records
from nsqd.core.batches.table import unpack_follow_up
from nsqd.core.message.deletion import LogDeletions
from nsqd.core.message.ids import LEASE, SAFE_LEASES
from nsqd.core.records import RecordKind
from nsqd.core.scheduling.table import Key, new_schedule
from nsqd.core.topic_state import TopicState
from nsqd.core.work_queue.job import ROW
from nsqd.storage.log.checkpoint import SLICE_BYTES, begin_state
from nsqd.storage.log.clocks import Anchor, LogClock
from nsqd.storage.log.disk import Disk
from nsqd.storage.log.epochs import RANDOM_SIZE, Epoch
from nsqd.storage.log.files import SegmentFiles
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

CHECKPOINTS = 2  # as many as a log keeps: replay uses the older one if the newest is corrupt
FindCommon = Callable[[list[tuple[bytes, int]], int], int]  # see `succeed`


@dataclass(frozen=True, slots=True)
class Succession:
    """The log that was made of the tail of a log that another node leads."""

    log_id: bytes  # of the new log
    parent: Parent  # the old log
    common: int  # log position up to which the leader of the old log has it
    first_id: int  # sequence of the next message id
    messages: int  # of the tail that a reader has not finished, or that are undistributed
    dropped: Counter[
        str
    ]  # messages before the common point in records of the tail that are left out, by the record's name
    is_exact: bool  # False: messages of a rewritten segment count as the tail's though the leader may have them
    deletions: LogDeletions | None = None  # deletions in the tail that concern the leader; None: there are none
    epochs: tuple[tuple[Epoch, int], ...] = ()  # of the old log, with the position at which each begins


@dataclass(frozen=True, slots=True)
class Salvaged:
    """The log that was made of the tail of a diverged copy."""

    log_id: bytes  # of the new log
    node: int  # number of the node that published into the old one
    messages: int  # as in Succession
    dropped: Counter[str]  # as in Succession


def succeed(
    source: Disk, target: Disk, find_common: FindCommon, least_id: int, known_lease: int = 0,
    simulated: Simulated | None = None,
) -> Succession:  # fmt: skip
    """Make the new log on the empty disk `target` from the log on `source`, which is not changed. Everything is synced.

    `find_common`: a function from the old log's epochs, packed, each with the position at which it begins, and the log's end to
    the position up to which the leader has the log; `least_id`: sequence below which the new log issues no message id;
    `known_lease`: a lease of the node, known from elsewhere. Raises LogError, OSError.
    """
    parts = simulated or Simulated()
    clock = LogClock(parts.clocks)
    old = _OldLog(source, find_common, clock)
    old.replay.lease = max(least_id, max(known_lease, old.replay.lease) + SAFE_LEASES * LEASE)
    log_id = _write(old, target, old.identity.node, clock, parts)
    deleted = old.tail.deletions.found()
    deletions = LogDeletions(old.replay.epochs.at(old.common - 1), old.common, deleted) if deleted else None
    return Succession(
        log_id, old.parent, old.common, old.replay.lease, old.messages, old.tail.dropped, old.tail.is_exact, deletions,
        old.epochs,
    )  # fmt: skip


def salvage(
    source: Disk, target: Disk, start: int, owner: int, durable: int = 0, noted: Anchor | None = None,
    simulated: Simulated | None = None, interrupt: Callable[[], None] | None = None,
) -> Salvaged | None:  # fmt: skip
    """Make a log on the empty disk `target` of the copy on `source` from the position `start` on. Everything is synced.

    Returns None, and writes nothing, if that part has no unfinished or retained message. `owner`: number of the node that will
    lead the new log; `durable`: position up to which the files are known to be durable, whatever the log states; `noted`: as in
    LogClock.resume; `interrupt` as for LogReading. The copy is not changed. Raises LogError, OSError.
    """
    parts = simulated or Simulated()
    clock = LogClock(parts.clocks)
    old = _OldLog(source, lambda epochs, end: start, clock, durable, noted, interrupt)
    for number in [one for one, sequence in old.replay.sequences.items() if not holds_any(sequence)]:
        del old.replay.topics[number], old.replay.sequences[number]
    if not (old.replay.topics or old.replay.batches.known or old.replay.schedules.known):
        return None
    log_id = _write(old, target, owner, clock, parts)
    return Salvaged(log_id, old.identity.node, old.messages, old.tail.dropped)


def holds_any(sequence: Sequence) -> bool:
    """Return True if a topic has an unfinished or retained message."""
    return bool(sequence.live() or sequence.all_retained())


class _OldLog:
    """A log that was read to its end, with those of its messages that are after the common point."""

    def __init__(
        self, source: Disk, find_common: FindCommon, clock: LogClock, durable: int = 0, noted: Anchor | None = None,
        interrupt: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        """Read the log, and let the clock continue from its last time. Raises LogError, OSError."""
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
        self.replay.batches.keep_tail(self.tail.firsts, self.tail.follow_ups)
        if self.common and self.tail.is_whole:  # the new leader has the others
            self.replay.schedules.keep_only(self.tail.schedules)
        self.parent = Parent(self.identity.log_id, self.end, ends)
        self._drop_earlier()

    def _drop_earlier(self) -> None:
        """Drop the messages before the common point."""
        replay, since = self.replay, self.segments[0].base if self.segments else self.end
        for number, state in list(replay.topics.items()):
            boundary = self.tail.firsts.get(number, state.end)
            replay.topics[number], replay.sequences[number] = tail_of(state, replay.sequences[number], boundary, since)
            replay.concluded(number)
            replay.sequences[number].sweep()

    @property
    def messages(self) -> int:
        """Return the number of messages left that a reader has not finished, or that are undistributed."""
        sequences = self.replay.sequences.values()
        return sum(one.count - one.released for sequence in sequences for one in sequence.live())


def _write(old: _OldLog, target: Disk, owner: int, clock: LogClock, parts: Simulated) -> bytes:
    """Write a log with the rest of an old one, durably, and return its id. Raises OSError.

    `owner`: number of the node that begins its first epoch.
    """
    reading, log_id = old.reading, parts.random(16)
    epoch = Epoch(reading.highest_epoch + 1, owner, parts.random(RANDOM_SIZE))
    identity = LogIdentity(old.identity.node, log_id, epoch)
    write_identity(target, StoredIdentity(identity.node, log_id, (*reading.epochs, epoch)))
    files = _copy(old.disk, target, old.segments, log_id, old.end)
    spare = parts.spare(target, parts.segment_size)
    writer = Writer(
        target, identity, old.end, clock, Space(target), spare, parts.segment_size,
        old.end, old.end, files, old.replay.epochs,
    )  # fmt: skip
    writer.parents = [*old.replay.parents.values(), old.parent][-MOST_PARENTS:]
    # its messages need as many copies, and there is none yet
    writer.followers = old.replay.followers._replace(numbers=())
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
    """The content of the records after the common point."""

    def __init__(self, disk: Disk, segments: list[Segment], common: int) -> None:
        """Read the segments, which `tail_segments` has returned. Raises LogError, OSError.

        The former positions of the records in a rewritten segment are unknown. So all of them count as the tail's if the common
        point is in it: a message may then be delivered twice, and none is lost.
        """
        self.firsts: dict[int, int] = {}  # the first ordinal that was published in the tail, by the topic's number
        self.follow_ups: set[tuple[str, int]] = (
            set()
        )  # batches, and numbers of the follow-ups that the tail adds to them
        self.schedules: set[Key] = set()  # that the tail adds or changes
        self.dropped: Counter[str] = Counter()
        self.deletions = TailDeletions(common)
        self.is_exact = not segments or not segments[0].header.generation or segments[0].base >= common
        rewritten = {segment.base for segment in segments if segment.header.generation}
        # False: records are gone from the tail, such as those of new schedules
        self.is_whole = not rewritten and (not segments or segments[0].base <= common)
        if not segments:
            return
        reader = LogRecords(disk)
        place = next(at for at, one in enumerate(reader.segments) if one.base == segments[0].base)
        for record in reader.records(place):
            self.deletions.remember(record, record.segment in rewritten)
            if record.position >= common or record.segment in rewritten:
                self._note(record)

    def _note(self, record: Record) -> None:
        if record.kind == RecordKind.PUBLISH:
            number, first, *_ = records.PUBLISH.unpack_from(record.content)
            self.firsts[number] = min(first, self.firsts.get(number, first))
        elif record.kind == RecordKind.FOLLOW_UP:
            self.follow_ups.add(unpack_follow_up(record.content)[:2])
        elif record.kind == RecordKind.SCHEDULE:
            if (key := new_schedule(record.content)) is not None:
                self.schedules.add(key)
        elif record.kind in _OF_MESSAGES:
            (number,) = records.TOPIC.unpack_from(record.content)
            boundary = self.firsts.get(number, _PAST_ALL)
            spans = _spans(RecordKind(record.kind), record.content)
            count = sum(min(end, boundary) - first for first, end in spans if first < boundary)
            if count:
                self.dropped[RecordKind(record.kind).name] += count


_PAST_ALL = 1 << 64  # every ordinal is below this
_OF_MESSAGES = (RecordKind.FINISH, RecordKind.REQUEUE, RecordKind.BURY, RecordKind.JOB)


def _spans(kind: RecordKind, content: bytes) -> list[tuple[int, int]]:
    """Return the spans (first, end) of the messages that a record names."""
    if kind is not RecordKind.JOB:
        return records.named_spans(kind, content)
    step = records.ORDINAL.size + ROW.size
    starts = range(records.CHANNEL_OF.size, len(content), step)
    return [(one, one + 1) for (one,) in (records.ORDINAL.unpack_from(content, at) for at in starts)]


def tail_of(state: TopicState, sequence: Sequence, boundary: int, since: int) -> tuple[TopicState, Sequence]:
    """Return a topic's state and messages without its messages before the ordinal `boundary`. The state must be settled.

    `since`: base of the first segment that is kept. The arguments are used up.
    """
    for reader in state.readers.values():
        reader.finish(0, boundary)
    state.distributed = max(state.distributed, boundary)
    state.delayed = {ordinal: due for ordinal, due in state.delayed.items() if ordinal >= boundary}
    state.waiting.remove_span(0, boundary)
    for name, cursor in state.cursors.items():
        state.cursors[name] = replace(cursor, offset=max(cursor.offset, boundary))
    if sequence.first is not None:
        sequence.retain(max(sequence.first, boundary))
    state.conclude(sequence.kinds)
    encoded = encode_topic(state, sequence, 0)  # loading it counts the references again
    kept, messages = decode_topic(encoded, {state.number: state}, {})
    for stored in (*messages.extents, *messages.retained):
        stored.locations = [location for location in stored.locations if location[0] >= since]
    return kept, messages


def _copy(source: Disk, target: Disk, segments: list[Segment], log_id: bytes, end: int) -> SegmentFiles:
    """Copy the segments of a log that ends at the position `end`, and return the files of the new log. Raises OSError."""
    for segment, stop in zip(segments, [*(segment.base for segment in segments[1:]), end], strict=False):
        copy_segment(source, target, segment, log_id, stop)
    target.sync_directory()
    return SegmentFiles(replace(one.header, log_id=log_id, former=0) for one in segments)


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
    _write_durably(writer)
    writer.append(RecordKind.LEASE, records.LEASE.pack(source.leased))
    _write_durably(writer)


def _write_durably(writer: Writer) -> None:
    writer.write()
    if writer.group or not writer.sync():
        raise OSError(writer.failure or "the log cannot be written")
