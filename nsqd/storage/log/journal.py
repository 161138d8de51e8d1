"""Journals of a topic and its readers: each verb of the core becomes a record in the commit log.

FINs, cursors and jobs are collected: one record of each kind for a reader and turn. The topic's durability mode decides what a
promise waits for: a sync in the mode `always`, otherwise the write. Ephemeral topics and readers use nsqd/storage/memory.py
instead of this module.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import repeat
from typing import Protocol

from nsqd.core import records
from nsqd.core.records import RecordKind
from nsqd.core.retention.cursors import Cursor
from nsqd.core.retention.policy import StoragePolicy
from nsqd.core.sequence.extent import Extent
from nsqd.core.sequence.gate import NOT_WRITTEN, Gate
from nsqd.core.sequence.mark import Mark
from nsqd.core.timing.pause import Pause
from nsqd.core.work_queue.job import delayed_by
from nsqd.storage.log.cache import Cache
from nsqd.storage.log.clocks import LogClock
from nsqd.storage.log.retention import DurableEnds, Retained, Retention
from nsqd.storage.log.writer import Writer
from nsqd.storage.memory import MemoryReader, RetainedExtents
from nsqd.storage.sequence import Sequence
from penstock.protocol.names import is_ephemeral
from shared.topic_config import Durability, TopicConfig

_NO_CURSOR = -1


class Modes(Protocol):
    """The durability modes of all topics, for the code that decides when to sync."""

    def set_mode(self, topic: int, mode: Durability | None, replicate: int = 1) -> tuple[Mark, ...]:
        """Set the topic's mode (None: the topic is deleted) and copies. Returns the marks that its replies wait for."""

    def gate(self, mode: Durability, replicate: int) -> Gate | None:
        """Return the gate that holds messages back until `replicate` nodes have them; None for one node."""

    def marks_of(self, mode: Durability, replicate: int, has_limit: bool = False) -> tuple[Mark, ...]:
        """Return the marks that replies wait for which ask for `replicate` copies, this node's included.

        `has_limit`: the replies wait for the last of the marks, that of the copies, until a limit of their own.
        """

    def leaving(self, mode: Durability, replicate: int) -> Mark:
        """Return the mark up to which messages may leave that ask for `replicate` copies, 2 or more."""


class Recorder:
    """The records of the current turn of one log, and the promises that they must keep."""

    __slots__ = (
        "append", "awaited", "cache", "clock", "collecting", "created", "has_delivered", "interval", "shut", "wall", "writer",
    )  # fmt: skip

    def __init__(self, writer: Writer, clock: LogClock, cache: Cache) -> None:
        self.writer = writer
        self.append = writer.group.append  # appends a record to the turn's group
        self.clock = clock
        self.wall = 0  # time of the turn, ns since the epoch
        self.cache = cache
        self.awaited: list[tuple[Mark, ...]] = []  # marks that replies of this turn wait for
        self.interval = 0  # messages of this turn in topics of the mode `interval`
        self.collecting: list[Callable[[], None]] = []  # `flush` of each reader that collects changes in this turn
        self.has_delivered = False  # True: a message was delivered in this turn, or a job changed
        # `note_written` of each topic with publishes that need copies and are not written yet: called with the log's end
        self.shut: list[Callable[[int], None]] = []
        self.created: set[int] = set()  # numbers of topics and readers whose creation is in the log

    def promise(self, marks: tuple[Mark, ...]) -> None:
        """Note that a reply waits until these marks reach the turn's records."""
        if not self.awaited or self.awaited[-1] is not marks:
            self.awaited.append(marks)

    def flush(self) -> None:
        """Turn all collected changes into records."""
        collecting, self.collecting = self.collecting, []
        for flush in collecting:
            flush()


class LogTopic(RetainedExtents):
    """The journal of a logged topic. Implements TopicJournal."""

    __slots__ = (
        "_copied", "_cursors", "_is_noted", "_logged", "_mode", "_modes", "_recorder", "_retained", "_retention", "gate",
        "marks", "number",
    )  # fmt: skip

    def __init__(
        self, number: int, sequence: Sequence, recorder: Recorder, retention: Retention, modes: Modes, mode: Durability
    ) -> None:
        super().__init__(sequence)
        self.number, self._recorder, self._retention, self._modes, self._mode = number, recorder, retention, modes, mode
        self._cursors: Mapping[str, Cursor] = {}
        self._retained: Retained | None = None  # not None: the topic retains finished messages
        self._logged: set[int] = set()  # numbers of the readers that are not ephemeral
        self.gate: Gate | None = None
        self._copied = DurableEnds(0)  # where messages end that the gate may hold back
        self._is_noted = False  # True: `note_written` will be called for something that needs copies
        self.marks = modes.set_mode(number, mode)  # marks that replies about the topic wait for

    # Reading

    def read(self, ordinal: int) -> Extent | None:
        sequence = self.sequence
        extents, place = sequence.extents, sequence.index_of(ordinal)
        if place == len(extents):
            return sequence.empty_extent()
        extent = extents[place].extent
        if extent is None:
            extent = self._recorder.cache.read_now(self.number, sequence, extents[place])
            if extent is not None:
                return extent
        if extent is None or (place + 1 < len(extents) and extents[place + 1].extent is None):
            self._recorder.cache.fetch(self.number, sequence, place)
        return extent

    def file_number(self, ordinal: int) -> int:
        stored, writer = self.sequence.extent_of(ordinal), self._recorder.writer
        if stored is None:
            return 0
        locations = stored.locations or [(writer.base, 0, 0, 1)]
        # an estimate of the byte at which the message begins
        at = (ordinal - stored.first) * sum(end - start for _, _, start, end in locations) // stored.count
        for base, _, start, end in locations:
            at -= end - start
            if at < 0:
                return writer.number_of(base)
        return 0

    # Messages

    def promise(self) -> None:
        self._recorder.promise(self.marks)

    def publish(
        self, first: int, frames: list[bytes], ids: bytes, largest: int, due: int, attributes: bytes, references: int,
        owners: Collection[int] | None = None,
    ) -> None:  # fmt: skip
        recorder, count = self._recorder, len(frames)
        counted = references if owners is None else len(owners)
        touched = self.sequence.append(first, frames, ids, largest, due != 0, counted)
        if attributes:
            for stored in touched:
                stored.attributed = True
                stored.keep_headers(first, first + count, attributes)
        if due:
            due = recorder.clock.at(due)
        if owners is not None:
            owners = [one for one in owners if one in self._logged]
        if attributes or owners is not None:
            head = records.pack_publish(self.number, first, count, due, largest, references > 0, attributes, owners)
        else:
            head = records.PUBLISH.pack(self.number, first, count, due, largest, references > 0)
        recorder.append((RecordKind.PUBLISH, head, frames[0] if count == 1 else b"".join(frames)))
        recorder.cache.unplaced.append((count, touched))
        if self._retained is not None:
            self._retention.grown.add(self.number)
        gate = self.gate
        if gate is not None and gate.usual is not None:
            gate.shut(gate.usual)
            self._await_writing()
        awaited = recorder.awaited
        if not awaited or awaited[-1] is not self.marks:
            awaited.append(self.marks)
        if self._mode is Durability.INTERVAL:
            recorder.interval += count

    def ask_for_copies(self, count: int, has_limit: bool = False) -> tuple[Mark, ...]:
        recorder, modes = self._recorder, self._modes
        if self.gate is None:
            self.gate = Gate(None, recorder.promise, 0)
            if self._retained is not None:
                self._retained.gate = self.gate
        self._note_before()
        self.gate.shut(modes.leaving(self._mode, count))
        self._await_writing()
        marks = modes.marks_of(self._mode, count, has_limit)
        recorder.promise(marks)
        return marks

    def await_copies(self, count: int) -> tuple[Mark, ...]:
        marks = self._modes.marks_of(self._mode, count, has_limit=True)
        self._recorder.promise(marks)
        return marks

    def _await_writing(self) -> None:
        if not self._is_noted:
            self._is_noted = True
            self._recorder.shut.append(self.note_written)

    def note_written(self, position: int) -> None:
        """Note that the messages of this turn that need copies are written, and that the log ends at `position`."""
        self._is_noted = False
        if self.gate is not None:
            self.gate.written(position)
            self._copied.end_at(self._readable)  # so that few ends are kept
        self._copied.add(position, self.sequence.end)

    def _note_before(self) -> None:
        """Note that the messages published until now do not need the copies that the gate will ask for from now on.

        Does nothing if a message of this turn needs copies itself: `note_written` notes all of them.
        """
        if self._is_noted:
            return
        self._copied.add(self._recorder.writer.written.position, self.sequence.end)
        self._copied.end_at(self._readable)

    @property
    def _readable(self) -> int:
        """Return the log position up to which messages have their copies; NOT_WRITTEN if none waits for copies."""
        return NOT_WRITTEN if self.gate is None else self.gate.readable(NOT_WRITTEN)

    def copied_end(self) -> int:
        position = self._readable
        return self.sequence.end if position == NOT_WRITTEN else self._copied.end_at(position)

    def distribute(self, first: int, end: int, references: int) -> None:
        self.sequence.distribute(first, end, references)
        self._recorder.append((RecordKind.DISTRIBUTE, records.DISTRIBUTE.pack(self.number, first, end), b""))

    def add_references(self, first: int, end: int) -> list[tuple[int, int, bool]]:
        for stored in self.sequence.add_references(first, end):
            # frames that no reader referenced are gone in memory, so the extent is read back
            self._recorder.cache.forget_extent(stored)
        return list(self.sequence.kinds(first, end))

    def hole(self, first: int, end: int) -> None:
        self.sequence.remove_from(first)
        self.record(RecordKind.HOLE, records.HOLE.pack(self.number, first, end))

    def record(self, kind: RecordKind, content: bytes) -> None:
        """Append a record that a reply waits for."""
        self._recorder.append((kind, content, b""))
        self.promise()

    # Readers

    def reader(self, number: int, name: str, kind: int, start: int) -> "LogReader | MemoryReader":
        if is_ephemeral(name):
            return MemoryReader(self.sequence)
        if number not in self._recorder.created:
            self._recorder.created.add(number)
            self.record(RecordKind.READER, records.READER.pack(self.number, number, start, kind) + name.encode())
        self._logged.add(number)
        return LogReader(self, number)

    # The topic itself

    def pause(self, paused: Pause | None) -> None:
        self.record(RecordKind.PAUSE, records.pack_pause(self.number, 0, paused))

    def configure(self, config: TopicConfig) -> None:
        self.record(RecordKind.CONFIG, records.pack_config(self.number, config))

    def hold(self, cursors: Mapping[str, Cursor]) -> None:
        self._cursors = cursors

    def set_cursor(self, name: str, cursor: Cursor | None) -> None:
        self.record(RecordKind.CURSOR, records.pack_cursor(self.number, name, cursor))

    def set_policy(self, policy: StoragePolicy) -> tuple[Mark, ...]:
        self._mode = policy.durability
        self.marks = self._modes.set_mode(self.number, policy.durability, policy.replicate)
        self._note_before()
        self.gate = self._modes.gate(policy.durability, policy.replicate)
        sequence = self.sequence
        if policy.retains:
            if self._retained is None:
                self._retained = Retained(sequence, policy, self._cursors, self._recorder.clock)
                self._retention.topics[self.number] = self._retained
            self._retained.policy, self._retained.gate = policy, self.gate
            sequence.set_policy(policy)
        else:
            self._retained = None
            self._retention.topics.pop(self.number, None)
        if policy.retains != (sequence.first is not None):
            sequence.retain(sequence.end if policy.retains else None)
            self.write_first()
        return self.marks

    def write_first(self) -> None:
        """Append a record of the ordinal from which on finished messages are retained."""
        first = records.UNRETAINED if self.sequence.first is None else self.sequence.first
        self._recorder.append((RecordKind.FIRST, records.FIRST.pack(self.number, first), b""))

    def drop(self) -> None:
        recorder = self._recorder
        recorder.flush()
        recorder.created.discard(self.number)
        self.record(RecordKind.DROP_TOPIC, records.TOPIC.pack(self.number))
        self._modes.set_mode(self.number, None)
        self._retention.topics.pop(self.number, None)
        self._retention.grown.discard(self.number)

    def reclaim(self) -> Iterator[None]:
        for extents in self.sequence.take_apart():
            for stored in extents:
                self._recorder.cache.forget_extent(stored)
                stored.released = stored.count
            yield

    def __repr__(self) -> str:
        return f"<LogTopic {self.number}: {self._mode.value}>"


class LogReader:
    """The journal of a logged reader. Implements ReaderJournal."""

    __slots__ = ("_cursor", "_finished", "_is_collecting", "_jobs", "_number", "_recorder", "_sequence", "_topic")

    def __init__(self, topic: LogTopic, number: int) -> None:
        self._topic, self._number = topic, number
        self._recorder, self._sequence = topic._recorder, topic.sequence
        self._is_collecting = False  # True: the recorder will call `flush` in this turn
        self._cursor = _NO_CURSOR  # ordinal up to which the reader has delivered in this turn
        self._finished: list[tuple[int, int]] = []  # runs (first, count) finished in this turn
        self._jobs: list[bytes] = []  # ordinals and rows of the jobs that changed in this turn

    def promise(self) -> tuple[Mark, ...]:
        self._topic.promise()
        return self._topic.marks

    # Collected

    def finish(self, first: int, count: int) -> None:
        self._sequence.drop_references(first, first + count)
        self._finished.append((first, count))
        if not self._is_collecting:
            self._collect()

    def finish_each(self, ordinals: list[int]) -> None:
        self._sequence.drop_each(ordinals)
        self._finished += zip(ordinals, repeat(1))
        if not self._is_collecting:
            self._collect()

    def advance(self, cursor: int) -> None:
        self._cursor = cursor
        if not self._is_collecting:
            self._collect()

    def job(self, ordinal: int, row: bytes) -> None:
        self._jobs += records.ORDINAL.pack(ordinal), delayed_by(row, self._recorder.clock.offset)
        if not self._is_collecting:
            self._collect()

    def _collect(self) -> None:
        self._is_collecting = True
        self._recorder.collecting.append(self.flush)

    def flush(self) -> None:
        """Append the records of the collected changes to the group."""
        self._is_collecting = False
        topic, number, append = self._topic.number, self._number, self._recorder.append
        self._write_cursor()
        if self._jobs:
            jobs, self._jobs = self._jobs, []
            self._recorder.has_delivered = True
            append((RecordKind.JOB, records.CHANNEL_OF.pack(topic, number) + b"".join(jobs), b""))
        if self._finished:
            finished, self._finished = self._finished, []
            append((RecordKind.FINISH, records.CHANNEL_OF.pack(topic, number) + records.runs(finished), b""))

    def _write_cursor(self) -> None:
        """Append the cursor's record: before the consequences of a delivery, because a torn group may end in the middle."""
        if self._cursor != _NO_CURSOR:
            content = records.ADVANCE.pack(self._topic.number, self._number, self._cursor)
            self._cursor = _NO_CURSOR
            self._recorder.has_delivered = True
            self._recorder.append((RecordKind.ADVANCE, content, b""))

    # Recorded at once

    def requeue(self, ordinals: Collection[int], attempts: int, failures: int, due: int) -> None:
        self._write_cursor()
        returned = records.pack_returned(ordinals, attempts, failures, self._recorder.clock.at(due))
        content = records.CHANNEL_OF.pack(self._topic.number, self._number) + returned
        self._recorder.append((RecordKind.REQUEUE, content, b""))

    def bury(self, ordinal: int, message_id: bytes, attempts: int, failures: int, reason: str) -> None:
        self._write_cursor()
        wall = self._recorder.wall
        head = records.BURY.pack(self._topic.number, self._number, ordinal, attempts, failures, wall, message_id)
        self._recorder.append((RecordKind.BURY, head + reason.encode(), b""))

    def finish_all(self, end: int) -> None:
        self._recorder.flush()  # FINs collected earlier in the turn are recorded before this
        self._topic.record(RecordKind.FINISH_ALL, records.FINISH_ALL.pack(self._topic.number, self._number, end))

    def release(self, first: int, end: int) -> None:
        self._sequence.drop_present_references(first, end)

    def pause(self, paused: Pause | None) -> None:
        self._topic.record(RecordKind.PAUSE, records.pack_pause(self._topic.number, self._number, paused))

    def drop(self) -> None:
        self._recorder.flush()
        self._recorder.created.discard(self._number)
        self._topic._logged.discard(self._number)
        self._topic.record(RecordKind.DROP_CHANNEL, records.CHANNEL_OF.pack(self._topic.number, self._number))

    # Nothing is recorded

    def resume(self, cursor: int, holes: list[tuple[int, int]]) -> None: ...
    def detach(self) -> None: ...

    def __repr__(self) -> str:
        return f"<LogReader {self._number} of topic {self._topic.number}>"
