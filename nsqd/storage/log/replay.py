"""Replay: records are turned back into the state that existed when the last one was written.

Replay knows no rules of topics and readers: it passes each record to the topic's state (nsqd/core/topic_state.py) and maintains
the topic's extents. Of messages it notes only the locations on disk; they are read when a reader needs them.

Ephemeral topics and channels are never logged. No reader references a message that was distributed to an ephemeral channel
only.

See docs/contributing/design/log.md#replay-and-checkpoints.
"""

from collections.abc import Callable, Iterable

from nsqd.core import records
from nsqd.core.batches.table import BatchTable
from nsqd.core.message.attributes import unpack
from nsqd.core.message.frame import HEADER_SIZE, STAMP
from nsqd.core.reader import ReaderKind
from nsqd.core.records import RecordKind
from nsqd.core.scheduling.table import ScheduleTable
from nsqd.core.sequence.finished import Span
from nsqd.core.topic_state import TopicState
from nsqd.storage.log.clocks import Anchor
from nsqd.storage.log.epochs import Epoch, EpochTable
from nsqd.storage.log.followers import Followers
from nsqd.storage.log.followers import unpack as unpack_followers
from nsqd.storage.log.locations import OVERHEAD
from nsqd.storage.log.parent import MOST_PARENTS, Parent
from nsqd.storage.log.parent import unpack as unpack_parent
from nsqd.storage.log.reader import Record
from nsqd.storage.log.state import MissingChunk, decode_topic
from nsqd.storage.sequence import Sequence
from nsqd.storage.stored_extent import add_location
from shared.values import SECOND


class Replay:
    """The state that the records applied so far describe. Call `apply` for every record, in order, and then `conclude`."""

    def __init__(self) -> None:
        self.topics: dict[int, TopicState] = {}  # by number; their times are in the log's time
        self.sequences: dict[int, Sequence] = {}  # messages of each of these topics, by the topic's number
        self.lease = 1  # message ids below this may have been issued
        # ids from this one on were never issued, because a clean stop followed the last lease; 0: there is no such stop
        self.next_id = 0
        self.stopped_in = -1  # base of the segment that holds the last clean stop's record; -1: none
        self.last = 0  # time of the last group, when the node was last alive; 0: there was none
        self.anchor: Anchor | None = None  # the last anchor
        self.messages = 0  # number of messages published
        self.complete = False  # True: a checkpoint was read to its end
        self.highest = 0  # highest number of a topic or reader
        self.batches = BatchTable()
        self.schedules = ScheduleTable()
        self.epochs = EpochTable()
        self.followers = Followers()
        self.parents: dict[
            bytes, Parent
        ] = {}  # the logs that this one was restored from, by their ids, the oldest first
        # contents of the checkpoint's CHUNK records whose STATE_TOPIC was not read yet, by numbers of topic and record
        self._chunks: dict[int, dict[int, bytes]] = {}

    def apply(self, record: Record) -> bool:
        """Apply a record. Returns False if its kind is unknown."""
        if record.kind == RecordKind.PUBLISH:
            self._publish(record)
            return True
        kind = _OF_A_TOPIC.get(record.kind)
        if kind is not None:
            (number,) = records.TOPIC.unpack_from(record.content)
            topic = self.topics.get(number)
            if topic is not None:
                self._release(number, topic.apply(kind, record.content))
            return True
        if record.kind in _OF_A_TABLE:
            kind = _OF_A_TABLE[record.kind]
            (self.schedules if kind in _OF_A_SCHEDULE else self.batches).apply(kind, record.content)
            return True
        handler = _HANDLERS.get(record.kind)
        if handler is None:
            return False
        if record.kind == RecordKind.NEXT_ID:
            self.stopped_in = record.segment
        handler(self, record.content)
        return True

    def conclude(self) -> None:
        """Derive the final state of all topics after every record was applied. More records may be applied afterwards."""
        for number in self.topics:
            self.concluded(number)
        self.batches.keep_topics(self.topics)

    def concluded(self, number: int) -> TopicState | None:
        """Return a topic's state in its final form; None if there is no such topic.

        More records may be applied afterwards. Do not call this before the end of the checkpoint that replay began with.
        """
        topic = self.topics.get(number)
        if topic is not None:
            self._release(number, topic.conclude(self.sequences[number].kinds))
        return topic

    def _release(self, number: int, spans: Iterable[Span]) -> None:
        """Note that one reader no longer references each span of a topic's messages. Some may have been lost as corrupt."""
        for first, end in spans:
            sequence = self.sequences[number]
            for stored, start, stop in sequence.present_spans(first, end):
                if stored.released < stored.count:
                    sequence.drop_references(stored.first + start, stored.first + stop)

    # Records of the log itself

    def _group(self, content: bytes) -> None:
        self.last = records.GROUP.unpack_from(content)[1]

    def _anchor(self, content: bytes) -> None:
        self.anchor = Anchor(*records.ANCHOR.unpack_from(content))

    def _epoch(self, content: bytes) -> None:
        *epoch, start = records.EPOCH.unpack_from(content)
        self.epochs.begin(Epoch(*epoch), start)

    def _followers(self, content: bytes) -> None:
        self.followers = unpack_followers(content)

    def _parent(self, content: bytes) -> None:
        parent = unpack_parent(content)
        self.parents[parent.log_id] = parent
        while len(self.parents) > MOST_PARENTS:
            del self.parents[next(iter(self.parents))]

    def _lease(self, content: bytes) -> None:
        self.lease = max(self.lease, records.LEASE.unpack_from(content)[0])
        self.next_id = 0

    def _next_id(self, content: bytes) -> None:
        (self.next_id,) = records.NEXT_ID.unpack_from(content)

    def _state(self, content: bytes) -> None:
        highest, lease = records.STATE.unpack_from(content)
        self._chunks.clear()
        self.highest = max(self.highest, highest)
        self.lease = max(self.lease, lease)

    def _state_topic(self, content: bytes) -> None:
        """Load a topic from a checkpoint. Its state includes the earlier records of the topic."""
        try:
            state, sequence = decode_topic(content, self.topics, self._chunks)
        except MissingChunk:  # the earlier state of the topic, to which all records since were applied, stays
            return
        self._chunks.pop(state.number, None)
        self.topics[state.number], self.sequences[state.number] = state, sequence

    def _note_chunk(self, content: bytes) -> None:
        topic, number = records.CHUNK.unpack_from(content)
        self._chunks.setdefault(topic, {})[number] = content[records.CHUNK.size :]

    def _state_end(self, content: bytes) -> None:
        self.complete = True

    # Records of topics that concern their extents

    def _topic(self, content: bytes) -> None:
        (number,) = records.TOPIC.unpack_from(content)
        self.topics[number] = TopicState(number, content[records.TOPIC.size :].decode())
        self.sequences[number] = Sequence()
        self.highest = max(self.highest, number)

    def _drop_topic(self, content: bytes) -> None:
        (number,) = records.TOPIC.unpack_from(content)
        self.topics.pop(number, None)
        self.sequences.pop(number, None)

    def _reader(self, content: bytes) -> None:
        number, reader, start, kind = records.READER.unpack_from(content)
        name = content[records.READER.size :].decode()
        topic = self.topics.get(number)
        if topic is not None:
            sequence = self.sequences[number]
            if start < topic.distributed:
                sequence.add_references(start, topic.distributed)
            topic.create_reader(ReaderKind(kind), reader, name, start, sequence.kinds)
        self.highest = max(self.highest, reader)

    def _publish(self, record: Record) -> None:
        """Add messages to a topic. Their frames stay on disk until a reader needs them."""
        content = record.content
        number, first, count, due, _, flags = records.PUBLISH.unpack_from(content)
        topic = self.topics.get(number)
        if topic is None:
            return
        sequence, size = self.sequences[number], record.end - record.start
        extents = sequence.append_cold(first, count, due != 0, size)
        attributes, at = records.attributes_of(content, 0, flags)
        created = int.from_bytes(content[at : at + HEADER_SIZE][STAMP], "big")
        for stored in extents:
            stored.note_published(created, self.last)
            stored.attributed |= bool(attributes)
            add_location(stored.locations, record.segment, 0, record.start, record.end)
            stored.size += (size + count * OVERHEAD) // len(extents)
        self.messages += count
        topic.end = first + count
        self.batches.note_published(attributes, number, first, count, created // SECOND)
        if due or attributes:
            topic.publish(content, at, unpack(attributes, first), created, self.last)
        if not flags & records.DISTRIBUTED:
            return
        if not flags & records.OWNED and len(extents) == 1 and topic.readers:  # this is nearly always the case
            topic.distributed = sequence.distributed = topic.end
            extents[0].set_references(extents[0].count - count, extents[0].count, len(topic.readers))
        else:
            self._give(topic, first, topic.end, records.owners_of(content, 0, flags))

    def _distribute(self, content: bytes) -> None:
        number, first, end = records.DISTRIBUTE.unpack_from(content)
        topic = self.topics.get(number)
        if topic is not None:
            self._give(topic, first, end, None)

    def _give(self, topic: TopicState, first: int, end: int, owners: frozenset[int] | None) -> None:
        """Distribute messages first..end. `owners`: the only readers that reference them, by number; None: all."""
        references, sequence = topic.distribute(first, end, owners), self.sequences[topic.number]
        sequence.distributed = end
        for stored, start, stop in sequence.present_spans(first, end):
            stored.set_references(start, stop, max(1, references))
        if not references:  # only ephemeral readers existed, and the log does not remember them
            self._release(topic.number, [(first, end)])

    def _hole(self, content: bytes) -> None:
        number, first, end = records.HOLE.unpack_from(content)
        topic = self.topics.get(number)
        if topic is not None:
            self.sequences[number].remove_from(first)
            topic.hole(first, end)

    def _first(self, content: bytes) -> None:
        number, first = records.FIRST.unpack_from(content)
        if number in self.topics:
            self.sequences[number].retain(None if first == records.UNRETAINED else first)


# Kinds of records that a topic's state applies; each content begins with the topic's number.
_OF_A_TOPIC: dict[int, RecordKind] = {kind: kind for kind in (
    RecordKind.FINISH, RecordKind.ADVANCE, RecordKind.REQUEUE, RecordKind.BURY, RecordKind.FINISH_ALL,
    RecordKind.DROP_CHANNEL, RecordKind.JOB, RecordKind.JOBS, RecordKind.PAUSE, RecordKind.CONFIG, RecordKind.CURSOR,
    RecordKind.SEEN,
)}  # fmt: skip
_OF_A_SCHEDULE = (RecordKind.SCHEDULE, RecordKind.TICKS)
_OF_A_TABLE: dict[int, RecordKind] = {
    kind: kind for kind in (RecordKind.BATCH, RecordKind.FOLLOW_UP, RecordKind.FOLLOWED, *_OF_A_SCHEDULE)
}
# The handlers are not bound to a Replay: it may hold much memory, and this way it is in no reference cycle.
_HANDLERS: dict[int, Callable[[Replay, bytes], None]] = {
    RecordKind.GROUP: Replay._group,
    RecordKind.EPOCH: Replay._epoch,
    RecordKind.FOLLOWERS: Replay._followers,
    RecordKind.PARENT: Replay._parent,
    RecordKind.LEASE: Replay._lease,
    RecordKind.NEXT_ID: Replay._next_id,
    RecordKind.ANCHOR: Replay._anchor,
    RecordKind.STATE: Replay._state,
    RecordKind.CHUNK: Replay._note_chunk,
    RecordKind.STATE_TOPIC: Replay._state_topic,
    RecordKind.STATE_END: Replay._state_end,
    RecordKind.TOPIC: Replay._topic,
    RecordKind.DROP_TOPIC: Replay._drop_topic,
    RecordKind.READER: Replay._reader,
    RecordKind.DISTRIBUTE: Replay._distribute,
    RecordKind.HOLE: Replay._hole,
    RecordKind.FIRST: Replay._first,
}
