"""The Store of a node that keeps what it acknowledged: in memory as before, and each verb a record in the commit log.

What is ephemeral is in memory only. FINs and cursors are collected, one record a channel and turn; a turn whose records promise
nobody anything waits for no sync. What a promise waits for is its topic's to say: in the mode `always` a sync, else the write.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

from nsqd.core.retention.cursors import Cursor
from nsqd.core.retention.keeping import Durability, Keeping, TopicConfig
from nsqd.core.sequence.store import Extent
from nsqd.core.work_queue.job import time_of, with_time
from nsqd.storage.held import Held, add_piece
from nsqd.storage.log import records
from nsqd.storage.log.cache import Cache, Read
from nsqd.storage.log.clocks import LogClock
from nsqd.storage.log.marks import Marks
from nsqd.storage.log.pieces import OVERHEAD
from nsqd.storage.log.records import Kind
from nsqd.storage.log.syncer import Syncer
from nsqd.storage.log.watches import Watches
from nsqd.storage.log.writer import Writer
from nsqd.storage.memory import MemoryStore
from nsqd.storage.sequence import Sequence
from penstock.protocol.names import is_ephemeral
from shared.log import log

UNBOUNDED = 1 << 62  # bytes


class LogStore(MemoryStore):
    """Implements nsqd.core.sequence.store.Store."""

    def __init__(self, writer: Writer, syncer: Syncer, cache: Cache, clock: LogClock, recovered: MemoryStore) -> None:
        """`recovered` holds the messages that the log remembers; it is not used any more."""
        super().__init__(self._lease)
        self.take_over(recovered)
        self._writer = writer
        self._syncer = syncer
        self._cache = cache
        self._clock = clock
        self._unplaced: list[tuple[int, list[Held]]] = []  # (messages, extents) of each PUBLISH that is not written yet
        self._now = self._wall = 0  # of the turn
        self._ephemeral: set[int] = set()  # numbers of topics and channels that are not logged
        self._known: set[int] = set()  # numbers whose making is in the log
        # what is not yet a record: topic, first, frames, largest, due, attributes
        self._publish: tuple[int, int, list[bytes], int, int, bytes] | None = None
        self._finished: dict[tuple[int, int], list[tuple[int, int]]] = {}  # (topic, channel) -> runs of this turn
        self._cursors: dict[tuple[int, int], int] = {}  # likewise, how far it has delivered
        self._jobs: dict[tuple[int, int], list[bytes]] = {}  # likewise, ordinals and rows of jobs that have changed
        self._modes: dict[int, Durability] = {}  # of topics that are logged
        self._strict = 0  # of them, those whose records somebody has to sync
        self._retaining: dict[int, Keeping] = {}  # topics that keep finished messages
        self._cursors_of: dict[int, Mapping[str, Cursor]] = {}  # by topic: the core's own
        self._marks: dict[int, Marks] = {}  # of those: up to where they are durable
        self.watches = Watches()
        self._grown: set[int] = set()  # of those: published to since the last group was written
        self._strong = self._weak = False  # somebody waits for a record of this turn: to be synced; to be written
        self._unkept = False  # somebody waits for a record of earlier turns, which could not be written
        self._published = 0  # messages of this turn, of topics in the mode `interval`
        self.reshaped = 0  # how often extents that are older than the newest were replaced by others
        self.leased = 0  # message ids below it may be issued
        self.after_commit: Callable[[], None] = lambda: None  # what a commit is followed by: checkpoints

    # the turn

    def begin(self, now: int, wall: int) -> None:
        self._now, self._wall = now, wall
        self._syncer.collect()
        if self.watches:
            self.watches.look(now, self._is_readable)
        for read in self._cache.collect():
            self._give_up(read)

    def commit(self) -> int:
        self._flush()
        writer = self._writer
        if writer.has_records and self._clock.wants_anchor(self._now):
            self.write_anchor()
        position = writer.write()
        if self._unplaced:
            self._place()
        if self._grown and not writer.has_records:
            self._mark(position)
        self._cache.keep_to_budget({held for _, extents in self._unplaced for held in extents})
        strong, weak, self._strong, self._weak = self._strong, self._weak, False, False
        published, self._published = self._published, 0
        if writer.has_records:  # it could not be written
            self._unkept = strong = self._unkept or strong or weak
        elif self._unkept:
            self._unkept, strong = False, True
        self._syncer.written(strong, published)
        if self.watches:  # it may have been synced in this turn; if not, somebody has to
            self.watches.look(self._now, self._is_readable)
        self.after_commit()
        return position if strong else 0

    def write_anchor(self) -> None:
        """Note what the clocks tell."""
        self._writer.append_anchor()

    @property
    def durable(self) -> int:
        return self._writer.durable

    @property
    def stuck(self) -> bool:
        return self._writer.has_records

    @property
    def refusal(self) -> str:
        return self._syncer.space.full or self._writer.failure

    @property
    def broken(self) -> bool:
        return self._writer.broken

    def promise(self, topic: int) -> None:
        if self._modes.get(topic) is Durability.ALWAYS:
            self._strong = True
        else:
            self._weak = True

    def know(self, numbers: Iterable[int]) -> None:
        """These topics and channels are in the log already."""
        self._known.update(numbers)

    def _lease(self, ceiling: int) -> bool:
        self.leased = ceiling
        self._append(Kind.LEASE, records.LEASE.pack(ceiling))
        position = self._writer.write()
        return self._syncer.now() and self._writer.durable >= position

    def give_back(self, next_id: int) -> None:
        """The node stops: message ids from `next_id` on were never issued."""
        self._append(Kind.NEXT_ID, records.NEXT_ID.pack(next_id))
        self._writer.write()

    # records

    def _append(self, kind: Kind, content: bytes, frames: bytes = b"") -> None:
        if self._publish is not None:
            self._write_publish(distributed=False)
        self._writer.append(kind, content, frames)

    def _flush(self) -> None:
        """What was collected becomes records."""
        if self._publish is not None:
            self._write_publish(distributed=False)
        if self._cursors:
            cursors, self._cursors = self._cursors, {}
            for (topic, channel), cursor in cursors.items():
                self._writer.append(Kind.ADVANCE, records.ADVANCE.pack(topic, channel, cursor))
        if self._jobs:
            jobs, self._jobs = self._jobs, {}
            for (topic, channel), rows in jobs.items():
                self._writer.append(Kind.JOB, records.CHANNEL_OF.pack(topic, channel) + b"".join(rows))
        if self._finished:
            finished, self._finished = self._finished, {}
            for (topic, channel), runs in finished.items():
                head = records.CHANNEL_OF.pack(topic, channel)
                self._writer.append(Kind.FINISH, head + records.runs(runs))

    def _write_cursor(self, topic: int, channel: int) -> None:
        """What was delivered must be known to be before what came of it: a group may be cut off in the middle."""
        cursor = self._cursors.pop((topic, channel), None)
        if cursor is not None:
            self._append(Kind.ADVANCE, records.ADVANCE.pack(topic, channel, cursor))

    def _write_publish(self, distributed: bool, owners: Collection[int] | None = None) -> None:
        assert self._publish is not None
        topic, first, frames, largest, due, attributes = self._publish
        self._publish = None
        head = records.pack_publish(topic, first, len(frames), due, largest, distributed, attributes, owners)
        self._writer.append(Kind.PUBLISH, head, b"".join(frames))

    def _place(self) -> None:
        """Note where messages of the groups just written stand; they may be given up in memory from now on."""
        places = self._writer.take_places()
        placed, self._unplaced = self._unplaced[: len(places)], self._unplaced[len(places) :]
        wall, logged, added = self._wall, self._clock.at(self._now), self._cache.added
        for (count, extents), (segment, start, end) in zip(placed, places, strict=True):
            size = (end - start + count * OVERHEAD) // len(extents)
            for held in extents:
                add_piece(held.pieces, segment, 0, start, end)
                held.published(wall, logged)
                held.size += size
                if held.extent is not None:  # else nobody owes it any more: dropped as soon as published
                    added(held, size)

    def _mark(self, position: int) -> None:
        """What was published to these topics is durable when the log is durable up to there."""
        for topic in self._grown:
            marks = self._marks.get(topic)
            if marks is not None:
                marks.look(self._writer.durable)
                marks.add(position, self._topics[topic].end)
        self._grown.clear()

    def durable_end(self, topic: int) -> int:
        """Messages of the topic before it survive a power cut."""
        marks = self._marks.get(topic)
        if marks is None:
            sequence = self._topics.get(topic)
            return sequence.end if sequence is not None else 0
        end = marks.look(self._writer.durable)
        if end < self._topics[topic].end:
            self._syncer.want()  # whoever asks shall see it soon, in whatever mode the topic is
        return end

    def _is_readable(self, topic: int, end: int) -> bool:
        """Everything before `end` is durable, or the topic is gone. Nothing is synced before so much is published."""
        sequence = self._topics.get(topic)
        return sequence is None or (sequence.end >= end and self.durable_end(topic) >= end)

    def _give_up(self, read: Read) -> None:
        """What cannot be read back is lost to its channels: better said than waited for. What stands beside it is not."""
        why = str(read.failure or "damaged on disk")
        log.error("LOG: DAMAGE: %d messages of topic %d are lost: %s", len(read.lost), read.topic, why)
        read.sequence.without(read.held, read.lost)
        read.held.freed = read.held.count
        self.reshaped += 1

    def known_sequence(self, topic: int) -> Sequence | None:
        """The topic's extents; None: it has none."""
        return self._topics.get(topic)

    def logged(self) -> list[int]:
        """The topics whose messages are in the log."""
        return [topic for topic in self._topics if topic not in self._ephemeral]

    def retire(self) -> bool:
        """What is retained for longer than its topic says may go. True if there is something."""
        retired = False
        for topic, keeping in self._retaining.items():
            sequence = self._topics.get(topic)
            oldest = self._clock.at(self._now) - keeping.retention if keeping.retention else 0
            if sequence is not None and sequence.retire(
                oldest, keeping.retention_bytes or UNBOUNDED, self._holds(topic)
            ):
                self._write_first(topic, sequence)
                retired = True
        return retired

    def _holds(self, topic: int) -> list[tuple[int, int, int]]:
        """For each cursor that holds something: from where on, published since when, and how many bytes of the newest."""
        now = self._clock.at(self._now)
        return [
            (cursor.offset, now - cursor.hold if cursor.hold else 0, cursor.hold_bytes or UNBOUNDED)
            for cursor in self._cursors_of.get(topic, {}).values()
            if cursor.hold or cursor.hold_bytes
        ]

    @property
    def overdue(self) -> bool:
        """Something is retained for longer than its topic says."""
        now = self._clock.at(self._now)
        for topic, keeping in self._retaining.items():
            sequence = self._topics.get(topic)
            kept = sequence.kept if sequence is not None and keeping.retention else []
            if kept and kept[0].logged_last < now - keeping.retention and not self._is_held(topic, kept[0]):
                return True
        return False

    def _is_held(self, topic: int, held: Held) -> bool:
        """Some cursor holds a part of it, though the topic's own retention is over."""
        return any(offset < held.end and held.logged_last >= oldest for offset, oldest, _ in self._holds(topic))

    def _write_first(self, topic: int, sequence: Sequence) -> None:
        first = records.UNRETAINED if sequence.first is None else sequence.first
        self._append(Kind.FIRST, records.FIRST.pack(topic, first))

    @property
    def clock_offset(self) -> int:
        """From the monotonic clock to the log's."""
        return self._clock.offset

    # Store

    def create_topic(self, topic: int, name: str) -> None:
        if is_ephemeral(name):
            self._ephemeral.add(topic)
        elif topic not in self._known:
            self._known.add(topic)
            self._append(Kind.TOPIC, records.TOPIC.pack(topic) + name.encode())
            self._set_mode(topic, self._syncer.durability)
            self.promise(topic)

    def keep(self, topic: int, keeping: Keeping) -> None:
        if topic in self._ephemeral:
            return
        self._set_mode(topic, keeping.durability)
        if keeping.retains:
            self._retaining[topic] = keeping
            self.sequence(topic).keep(keeping)
            self._marks.setdefault(topic, Marks(self.sequence(topic).end))
        else:
            self._retaining.pop(topic, None)
            self._marks.pop(topic, None)
        known = self._topics.get(topic)
        if keeping.retains != (known is not None and known.first is not None):
            sequence = self.sequence(topic)
            sequence.retain(sequence.end if keeping.retains else None)
            self._write_first(topic, sequence)

    def _set_mode(self, topic: int, mode: Durability | None) -> None:
        """None: the topic is gone."""
        before = self._modes.pop(topic, Durability.OS)
        if mode is not None:
            self._modes[topic] = mode
        self._strict += (mode not in (None, Durability.OS)) - (before is not Durability.OS)
        self._syncer.relaxed = self._syncer.durability is Durability.OS and not self._strict

    def configure(self, topic: int, config: TopicConfig) -> None:
        if topic not in self._ephemeral:
            self._append(Kind.CONFIG, records.pack_config(topic, config))
            self.promise(topic)

    def hold(self, topic: int, cursors: Mapping[str, Cursor]) -> None:
        if topic not in self._ephemeral:
            self._cursors_of[topic] = cursors

    def set_cursor(self, topic: int, name: str, cursor: Cursor | None) -> None:
        if topic not in self._ephemeral:
            self._append(Kind.CURSOR, records.pack_cursor(topic, name, cursor))
            self.promise(topic)

    def create_channel(self, topic: int, channel: int, name: str, start: int) -> None:
        if topic in self._ephemeral or is_ephemeral(name):
            self._ephemeral.add(channel)
        elif channel not in self._known:
            self._known.add(channel)
            self._append(Kind.CHANNEL, records.CHANNEL.pack(topic, channel, start) + name.encode())
            self.promise(topic)

    def owe_again(self, topic: int, first: int, end: int) -> list[tuple[int, int, bool]]:
        sequence = self._topics[topic]
        for held in sequence.owe_again(first, end):
            self._cache.dropped(held)  # frames that nobody owed are gone in memory
        return list(sequence.kinds(first, end))

    def pause(self, topic: int, channel: int, paused: bool) -> None:
        if topic not in self._ephemeral and channel not in self._ephemeral:
            self._append(Kind.PAUSE, records.PAUSE.pack(topic, channel, paused))
            self.promise(topic)

    def publish(
        self, topic: int, first: int, frames: list[bytes], ids: bytes, largest: int, due: int, attributes: bytes = b""
    ) -> None:
        touched = self.sequence(topic).append(first, frames, ids, largest, due != 0)
        mode = self._modes.get(topic)
        if mode is None:  # it is ephemeral
            return
        if attributes:
            for held in touched:
                held.attributed = True
        if self._publish is not None:
            self._write_publish(distributed=False)
        if topic in self._retaining:
            self._grown.add(topic)
        self._unplaced.append((len(frames), touched))
        self._publish = topic, first, frames, largest, self._clock.at(due), attributes
        if mode is Durability.ALWAYS:
            self._strong = True
            return
        self._weak = True
        if mode is Durability.INTERVAL:
            self._published += len(frames)

    def distribute(
        self, topic: int, first: int, end: int, channels: int, owners: Collection[int] | None = None
    ) -> None:
        super().distribute(topic, first, end, channels, owners)
        if topic in self._ephemeral:
            return
        open_one = self._publish
        if open_one is not None and open_one[0] == topic and open_one[1] == first and first + len(open_one[2]) == end:
            self._write_publish(
                True, owners if owners is None else [one for one in owners if one not in self._ephemeral]
            )
        else:
            assert owners is None, "what is for some of the channels is given to them as it is published"
            self._append(Kind.DISTRIBUTE, records.DISTRIBUTE.pack(topic, first, end))

    def advance(self, topic: int, channel: int, cursor: int) -> None:
        if channel not in self._ephemeral:
            self._cursors[topic, channel] = cursor

    def finish(self, topic: int, channel: int, first: int, count: int) -> None:
        self._done(topic, first, count)
        if channel not in self._ephemeral:
            runs = self._finished.get((topic, channel))
            if runs is None:
                self._finished[topic, channel] = [(first, count)]
            else:
                runs.append((first, count))

    def _done(self, topic: int, first: int, count: int) -> None:
        """One channel less owes these."""
        sequence = self._topics[topic]
        for held, start, stop in sequence.spans(first, first + count):
            if held.finish(start, stop):
                self._cache.dropped(held)
                sequence.drop()

    def read(self, topic: int, ordinal: int) -> Extent | None:
        sequence = self._topics.get(topic)
        if sequence is None:
            return Extent(0, False)
        place = sequence.place(ordinal)
        if place == len(sequence.held):
            return sequence.nothing()
        extent = sequence.held[place].extent
        if extent is None:
            extent = self._cache.read_now(topic, sequence, sequence.held[place])
            if extent is not None:
                return extent
        if extent is None or (place + 1 < len(sequence.held) and sequence.held[place + 1].extent is None):
            self._cache.fetch(topic, sequence, place)
        return extent

    def file_number(self, topic: int, ordinal: int) -> int:
        sequence = self._topics.get(topic)
        held = sequence.holder(ordinal) if sequence is not None else None
        if held is None:
            return 0
        pieces = held.pieces or [(self._writer.base, 0, 0, 1)]
        at = (ordinal - held.first) * sum(end - start for _, _, start, end in pieces) // held.count  # about
        for base, _, start, end in pieces:
            at -= end - start
            if at < 0:
                return self._writer.number_of(base)
        return 0

    def requeue(self, topic: int, channel: int, ordinal: int, attempts: int, due: int) -> None:
        if channel not in self._ephemeral:
            self._write_cursor(topic, channel)
            returned = records.RETURNED.pack(ordinal, attempts, self._clock.at(due))
            self._append(Kind.REQUEUE, records.CHANNEL_OF.pack(topic, channel) + returned)

    def job(self, topic: int, channel: int, ordinal: int, row: bytes) -> None:
        rows = self._jobs.setdefault((topic, channel), [])
        due = time_of(row)
        rows += records.ORDINAL.pack(ordinal), with_time(row, self._clock.at(due)) if due else row

    def bury(self, topic: int, channel: int, ordinal: int, message_id: bytes, attempts: int, reason: str) -> None:
        if channel not in self._ephemeral:
            self._write_cursor(topic, channel)
            head = records.BURY.pack(topic, channel, ordinal, attempts, self._wall, message_id)
            self._append(Kind.BURY, head + reason.encode())

    def finish_all(self, topic: int, channel: int, end: int, owed: Iterable[tuple[int, int]]) -> None:
        self._flush()  # what was finished before is not finished by this
        for first, count in owed:
            self._done(topic, first, count)
        if channel not in self._ephemeral:
            self._append(Kind.FINISH_ALL, records.FINISH_ALL.pack(topic, channel, end))
            self.promise(topic)

    def hole(self, topic: int, first: int, end: int) -> None:
        sequence = self._topics.get(topic)
        held = [held for held, _, _ in sequence.present_spans(first, end)] if sequence is not None else []
        super().hole(topic, first, end)
        for one in held:
            if one.freed == one.count:
                self._cache.dropped(one)
        if topic not in self._ephemeral:
            self._append(Kind.HOLE, records.HOLE.pack(topic, first, end))
            self.promise(topic)

    def drop_channel(self, topic: int, channel: int) -> None:
        self._flush()
        if channel in self._ephemeral:
            self._ephemeral.discard(channel)
            return
        self._known.discard(channel)
        self._append(Kind.DROP_CHANNEL, records.CHANNEL_OF.pack(topic, channel))
        self.promise(topic)

    def drop_topic(self, topic: int) -> None:
        sequence = self._topics.get(topic)
        if sequence is not None:
            self._cache.forget(sequence)
        super().drop_topic(topic)
        self._flush()
        if topic in self._ephemeral:
            self._ephemeral.discard(topic)
            return
        self._known.discard(topic)
        self._append(Kind.DROP_TOPIC, records.TOPIC.pack(topic))
        self.promise(topic)
        self._set_mode(topic, None)
        self._retaining.pop(topic, None)
        self._marks.pop(topic, None)
        self._grown.discard(topic)
        self._cursors_of.pop(topic, None)
