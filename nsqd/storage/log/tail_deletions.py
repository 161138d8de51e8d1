"""Deletions in the tail of a log of topics and channels that existed at the common point, for the leader of the log.

The tail's records are read in order. A topic or channel that was created in the tail does not concern the leader, whatever its
name is: its number shows that. Where records of the tail are missing, because a segment was removed, rewritten or corrupt, a
topic may have been created. From then on only deletions count of numbers below one that was seen before: numbers ascend.

See docs/contributing/design/cluster-protocol.md#deletions.
"""

from __future__ import annotations

from struct import Struct

from nsqd.core import records
from nsqd.core.message.deletion import MOST_DELETIONS, Deletion, DeletionKind
from nsqd.core.records import RecordKind
from nsqd.storage.log.reader import Record

_TWO_NUMBERS = Struct(">II")
# records that name a reader after their topic
_OF_READERS = frozenset((
    RecordKind.READER, RecordKind.ADVANCE, RecordKind.FINISH, RecordKind.REQUEUE, RecordKind.BURY, RecordKind.FINISH_ALL,
    RecordKind.DROP_CHANNEL, RecordKind.JOB, RecordKind.PAUSE,
))  # fmt: skip
# other records that name a topic; of checkpoints, STATE has the highest number of all
_OF_TOPICS = frozenset((
    RecordKind.TOPIC, RecordKind.PUBLISH, RecordKind.DISTRIBUTE, RecordKind.HOLE, RecordKind.DROP_TOPIC,
    RecordKind.CONFIG, RecordKind.STATE,
))  # fmt: skip


class TailDeletions:
    """The deletions in the tail that begins at the position `common`."""

    def __init__(self, common: int) -> None:
        self._common = common
        self._next = -1  # position at which the next record must begin; -1: none was read
        self._is_whole = True  # nothing of the tail was missing so far
        self._highest = 0  # highest number that was seen while nothing was missing
        self._created: set[int] = set()  # numbers of topics and readers that were created in the tail
        self._topics: dict[int, None] = {}  # that were deleted, by number
        self._channels: dict[int, Deletion] = {}  # that were deleted or emptied, by number
        self._emptied: dict[int, int] = {}  # by number of a topic: the first ordinal of its undistributed messages

    def remember(self, record: Record, is_rewritten: bool) -> None:
        """Process the next record. Those of its segment before the common point must be included.

        `is_rewritten`: the record's segment was rewritten, with nothing but messages.
        """
        if is_rewritten or record.position > max(self._next, self._common):
            self._is_whole = False
        self._next = record.position + record.end - record.start
        if record.kind in _OF_READERS:
            self._remember(RecordKind(record.kind), record, _TWO_NUMBERS.unpack_from(record.content))
        elif record.kind in _OF_TOPICS:
            self._remember(RecordKind(record.kind), record, records.TOPIC.unpack_from(record.content))

    def _remember(self, kind: RecordKind, record: Record, numbers: tuple[int, ...]) -> None:
        if self._is_whole:
            self._highest = max(self._highest, *numbers)
        if record.position < self._common:
            return
        if kind in (RecordKind.TOPIC, RecordKind.READER):
            self._created.add(numbers[-1])
        elif all(number <= self._highest and number not in self._created for number in numbers):
            self._remember_deletion(kind, record.content, *numbers)

    def _remember_deletion(self, kind: RecordKind, content: bytes, topic: int, channel: int = 0) -> None:
        if kind is RecordKind.DROP_TOPIC:
            self._topics[topic] = None
        elif kind is RecordKind.HOLE:
            first = records.HOLE.unpack_from(content)[1]
            self._emptied[topic] = min(first, self._emptied.get(topic, first))
        elif kind is RecordKind.DROP_CHANNEL:
            self._channels[channel] = Deletion(DeletionKind.CHANNEL_DELETED, topic, channel)
        elif kind is RecordKind.FINISH_ALL:
            end = records.FINISH_ALL.unpack_from(content)[2]
            self._channels[channel] = Deletion(DeletionKind.CHANNEL_EMPTIED, topic, channel, end)

    def found(self) -> tuple[Deletion, ...]:
        """Return the deletions. Tubes count as channels, because the records do not distinguish them.

        Of more than MOST_DELETIONS some are left out, those of topics last.
        """
        topics = [Deletion(DeletionKind.TOPIC_DELETED, topic) for topic in self._topics]
        channels = [one for one in self._channels.values() if one.topic not in self._topics]
        emptied = [
            Deletion(DeletionKind.TOPIC_EMPTIED, topic, 0, first)
            for topic, first in self._emptied.items()
            if topic not in self._topics
        ]
        return (*topics, *channels, *emptied)[:MOST_DELETIONS]
