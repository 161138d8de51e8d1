"""The Store of a node that keeps what it acknowledged: in memory as before, and each verb a record in the commit log.

What is ephemeral is in memory only. FINs and cursors are collected, one record a channel and turn; a turn whose records promise
nobody anything waits for no sync. `durable` is what replies wait for: in the mode `always` a sync, else the write.
"""

from collections.abc import Callable, Iterable

from nsqd.core.store import Extent
from nsqd.storage.log import records
from nsqd.storage.log.cache import Cache, Read
from nsqd.storage.log.pieces import OVERHEAD, note
from nsqd.storage.log.records import Kind
from nsqd.storage.log.syncer import Durability, Syncer
from nsqd.storage.log.writer import Writer
from nsqd.storage.memory import Held, MemoryStore, Sequence
from penstock.protocol.names import is_ephemeral
from shared.log import log


class LogStore(MemoryStore):
    """Implements nsqd.core.store.Store."""

    def __init__(self, writer: Writer, syncer: Syncer, cache: Cache, recovered: MemoryStore) -> None:
        """`recovered` holds the messages that the log remembers; it is not used any more."""
        super().__init__(self._lease)
        self.take_over(recovered)
        self._writer = writer
        self._syncer = syncer
        self._cache = cache
        self._unplaced: list[tuple[int, list[Held]]] = []  # (messages, extents) of each PUBLISH that is not written yet
        self._now = self._wall = 0  # of the turn
        self._ephemeral: set[int] = set()  # numbers of topics and channels that are not logged
        self._known: set[int] = set()  # numbers whose making is in the log
        self._publish: tuple[int, int, list[bytes], int, int] | None = (
            None  # topic, first, frames, largest, due: not yet a record
        )
        self._finished: dict[tuple[int, int], list[tuple[int, int]]] = {}  # (topic, channel) -> runs of this turn
        self._cursors: dict[tuple[int, int], int] = {}  # likewise, how far it has delivered
        self._promised = False  # a record of this turn is one that somebody waits for
        self._published = 0  # messages of this turn
        self.leased = 0  # message ids below it may be issued
        self.after_commit: Callable[[], None] = lambda: None  # what a commit is followed by: checkpoints

    # the turn

    def begin(self, now: int, wall: int) -> None:
        self._now, self._wall = now, wall
        self._syncer.collect()
        for read in self._cache.collect():
            self._give_up(read)

    def commit(self) -> int:
        self._flush()
        position = self._writer.write()
        if self._unplaced:
            self._place()
        self._cache.keep_to_budget({held for _, extents in self._unplaced for held in extents})
        promised, self._promised = self._promised, False
        published, self._published = self._published, 0
        self._syncer.written(promised, published)
        self.after_commit()
        return position if promised else 0

    @property
    def durable(self) -> int:
        writer = self._writer
        return writer.durable if self._syncer.durability is Durability.ALWAYS else writer.written

    @property
    def refusal(self) -> str:
        return self._syncer.full or self._writer.failure

    @property
    def broken(self) -> bool:
        return self._writer.broken

    def promise(self) -> None:
        self._promised = True

    def know(self, numbers: Iterable[int]) -> None:
        """These topics and channels are in the log already."""
        self._known.update(numbers)

    def _lease(self, ceiling: int) -> bool:
        self.leased = ceiling
        self._append(Kind.LEASE, records.LEASE.pack(ceiling))
        position = self._writer.write()
        return self._syncer.now() and self._writer.durable >= position

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

    def _write_publish(self, distributed: bool) -> None:
        assert self._publish is not None
        topic, first, frames, largest, due = self._publish
        self._publish = None
        head = records.PUBLISH.pack(topic, first, len(frames), due, largest, distributed)
        self._writer.append(Kind.PUBLISH, head, b"".join(frames))

    def _place(self) -> None:
        """Note where messages of the groups just written stand; they may be given up in memory from now on."""
        places = self._writer.take_places()
        placed, self._unplaced = self._unplaced[: len(places)], self._unplaced[len(places) :]
        for (count, extents), (segment, start, end) in zip(placed, places, strict=True):
            for held in extents:
                note(held, segment, start, end)
                size = (end - start + count * OVERHEAD) // len(extents)
                held.size += size
                if held.extent is not None:  # else nobody owes it any more: dropped as soon as published
                    self._cache.added(held, size)

    def _give_up(self, read: Read) -> None:
        """What cannot be read back is lost to its channels: better said than waited for. What stands beside it is not."""
        why = str(read.failure or "damaged on disk")
        log.error("LOG: DAMAGE: %d messages of topic %d are lost: %s", len(read.lost), read.topic, why)
        read.sequence.without(read.held, read.lost)
        read.held.freed = read.held.count

    def known_sequence(self, topic: int) -> Sequence | None:
        """The topic's extents; None: it has none."""
        return self._topics.get(topic)

    def live(self) -> tuple[list[tuple[int, Held]], dict[int, int]]:
        """All extents of which something is owed, by topic; and up to where each topic's messages were given to channels."""
        live = [
            (topic, held)
            for topic, sequence in self._topics.items()
            if topic not in self._ephemeral
            for held in sequence.live()
        ]
        return live, {topic: sequence.edge for topic, sequence in self._topics.items()}

    def _until(self, due: int) -> int:
        """A monotonic time as the log has it."""
        return self._wall + due - self._now if due else 0

    # Store

    def create_topic(self, topic: int, name: str) -> None:
        if is_ephemeral(name):
            self._ephemeral.add(topic)
        elif topic not in self._known:
            self._known.add(topic)
            self._append(Kind.TOPIC, records.TOPIC.pack(topic) + name.encode())
            self._promised = True

    def create_channel(self, topic: int, channel: int, name: str, start: int) -> None:
        if topic in self._ephemeral or is_ephemeral(name):
            self._ephemeral.add(channel)
        elif channel not in self._known:
            self._known.add(channel)
            self._append(Kind.CHANNEL, records.CHANNEL.pack(topic, channel, start) + name.encode())
            self._promised = True

    def pause(self, topic: int, channel: int, paused: bool) -> None:
        if topic not in self._ephemeral and channel not in self._ephemeral:
            self._append(Kind.PAUSE, records.PAUSE.pack(topic, channel, paused))
            self._promised = True

    def publish(self, topic: int, first: int, frames: list[bytes], ids: bytes, largest: int, due: int) -> None:
        touched = self.sequence(topic).append(first, frames, ids, largest, due != 0)
        if topic in self._ephemeral:
            return
        if self._publish is not None:
            self._write_publish(distributed=False)
        self._unplaced.append((len(frames), touched))
        self._publish = topic, first, frames, largest, self._until(due)
        self._promised = True
        self._published += len(frames)

    def distribute(self, topic: int, first: int, end: int, channels: int) -> None:
        super().distribute(topic, first, end, channels)
        if topic in self._ephemeral:
            return
        open_one = self._publish
        if open_one is not None and open_one[0] == topic and open_one[1] == first and first + len(open_one[2]) == end:
            self._write_publish(distributed=True)
        else:
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
        if extent is None or (place + 1 < len(sequence.held) and sequence.held[place + 1].extent is None):
            self._cache.fetch(topic, sequence, place)
        return extent

    def requeue(self, topic: int, channel: int, ordinal: int, attempts: int, due: int) -> None:
        if channel not in self._ephemeral:
            self._write_cursor(topic, channel)
            returned = records.RETURNED.pack(ordinal, attempts, self._until(due))
            self._append(Kind.REQUEUE, records.CHANNEL_OF.pack(topic, channel) + returned)

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
            self._promised = True

    def hole(self, topic: int, first: int, end: int) -> None:
        sequence = self._topics.get(topic)
        held = [held for held, _, _ in sequence.present_spans(first, end)] if sequence is not None else []
        super().hole(topic, first, end)
        for one in held:
            if one.freed == one.count:
                self._cache.dropped(one)
        if topic not in self._ephemeral:
            self._append(Kind.HOLE, records.HOLE.pack(topic, first, end))
            self._promised = True

    def drop_channel(self, topic: int, channel: int) -> None:
        self._flush()
        if channel in self._ephemeral:
            self._ephemeral.discard(channel)
            return
        self._known.discard(channel)
        self._append(Kind.DROP_CHANNEL, records.CHANNEL_OF.pack(topic, channel))
        self._promised = True

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
        self._promised = True
