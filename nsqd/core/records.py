"""The contents of the log's records, field by field. The functions are pure: bytes in, bytes out.

The states of topics and readers (topic_state.py, and state.py of each kind of reader) apply these contents, and the store packs
them. How a record is framed, checked and placed in a segment is in nsqd/storage/log/records.py. All numbers are big-endian.
Times are ns of the log's own clock, which is near the time since the epoch; a time marked "wall" is ns since the epoch.
"""

from collections.abc import Collection
from enum import IntEnum
from struct import Struct

import msgpack

from nsqd.core.retention.cursors import Cursor
from nsqd.core.timing.pause import Pause
from shared.topic_config import TopicConfig, dump, load


class RecordKind(IntEnum):
    """The kind of a record. The fields of its content are those of the Struct below with the same name."""

    GROUP = 1  # a group of records, the commit of a turn, begins
    LEASE = 2  # ids below this may be issued
    TOPIC = 3  # a topic was made; the name follows the fields
    READER = 4  # a reader of a topic was made: a channel or another kind; the name follows
    PAUSE = 5
    # Messages were published. After the fields follow, if the record is OWNED, the number of channels that reference the
    # messages and the channels; then, if it is ATTRIBUTED, the length of the attributes and the attributes; then the frames, as
    # consumers get them.
    PUBLISH = 6
    DISTRIBUTE = 7  # messages first..end belong to the channels that exist now
    ADVANCE = 8  # the channel has delivered the messages before the cursor
    FINISH = 9  # the channel finished messages; their runs follow
    REQUEUE = 10  # messages were handed back, timed out, or delivered again; they follow
    BURY = 11  # a message was buried; the reason follows
    FINISH_ALL = 12  # the channel is done with everything before `end`
    HOLE = 13  # messages that no channel was given yet are dropped
    DROP_CHANNEL = 14
    DROP_TOPIC = 15
    # A checkpoint begins. Its fields concern the node: the highest number given to a topic or reader, and the lease.
    STATE = 16
    STATE_TOPIC = 17  # a topic as it is now (see state.py), including what was recorded of it since STATE
    STATE_END = 18  # the checkpoint is complete
    CONFIG = 19  # how a topic's messages are kept
    FIRST = 20  # finished messages before this ordinal may be released; UNRETAINED: all of them
    ANCHOR = 21  # the readings of the clocks
    CURSOR = 22  # a cursor of a topic was set; its name and its owner follow. Offset GONE: it was deleted
    SEEN = 23  # in a checkpoint: part of what a topic remembers of publishers follows, in msgpack
    JOB = 24  # jobs of a tube changed; for each follow its ordinal and row (job.py), due in log time
    # In a checkpoint: all jobs of a tube whose ordinals belong to one page. The rows follow; add `offset` to each due.
    JOBS = 25
    NEXT_ID = 26  # a clean stop gives back leased ids: the ids from this one on were never issued
    # In a checkpoint, before the topic's STATE_TOPIC, which may name it by its number: some of the messages that wait,
    # with the times of that STATE_TOPIC, or of those that are buried, packed as there (nsqd/core/written_chunks.py).
    CHUNK = 27
    EPOCH = 28  # an epoch of the log begins (nsqd/storage/log/epochs.py); in a checkpoint: each one that has a segment
    FOLLOWERS = 29  # which nodes keep a copy of the log that counts (nsqd/storage/log/followers.py)
    PARENT = 30  # the log was made from a backup of another one (nsqd/storage/log/parent.py)
    # The state of a batch, a message that is published when one is done, and which of these were: nsqd/core/batches/table.py.
    BATCH = 31
    FOLLOW_UP = 32
    FOLLOWED = 33
    SCHEDULE = 34  # a schedule was added, changed or removed: nsqd/core/scheduling/table.py
    TICKS = 35  # the messages of some ticks of schedules are in the log


EPOCH = Struct(">IH8sQ")  # number, node, random, log position at which it begins
# smallest and largest number of copies that publishes asked for; the numbers of the nodes follow, two bytes each
FOLLOWERS = Struct(">BB")
PARENT = Struct(">16sQ")  # log id, log position; the ends of topics follow
GROUP = Struct(">QQ")  # durable mark, time
LEASE = Struct(">Q")  # ceiling
NEXT_ID = Struct(">Q")  # id
TOPIC = Struct(">I")  # topic
READER = Struct(">IIQB")  # topic, reader, start, kind (nsqd/core/reader.py)
# topic, reader or 0, and whether it is paused (see below)
PAUSE = Struct(">IIB")
# If it is paused: when, and until when, in s since the epoch; who paused it follows.
_PAUSED = Struct(">QQ")
# Nothing is delivered; clients of Disque add nothing. Topics and channels are paused in the first way only.
_OUT, _INTO = 1, 2
PUBLISH = Struct(">IQIQIB")  # topic, first ordinal, count, due or 0, largest frame, flags
# Flags of a PUBLISH. DISTRIBUTED: the channels got the messages at once; ATTRIBUTED: the record has attributes
# (nsqd/core/message/attributes.py); OWNED: only the channels in the record reference the messages, and the others are done with
# them.
DISTRIBUTED, ATTRIBUTED, OWNED = 1, 2, 4
SIZE = Struct(">I")  # bytes of the attributes; also the number of owners, and the number of each owner
DISTRIBUTE = Struct(">IQQ")  # topic, first, end
ADVANCE = Struct(">IIQ")  # topic, channel, cursor
CHANNEL_OF = Struct(">II")  # topic, channel: the beginning of FINISH, REQUEUE, JOB and DROP_CHANNEL
CHUNK = Struct(">II")  # topic, number of the record among those of the topic
JOBS = Struct(">IIQq")  # topic, channel, number of the page, offset
ORDINAL = Struct(">Q")
RUN = Struct(">QI")  # first, count
RETURNED = Struct(">QIIQ")  # ordinal, attempts, failures, due or 0
_RETURNED = Struct(">IIQ")  # the same without the ordinal
BURY = Struct(">IIQIIQ16s")  # topic, channel, ordinal, attempts, failures, buried at (wall), message id
FINISH_ALL = Struct(">IIQ")  # topic, channel, end
HOLE = Struct(">IQQ")  # topic, first, end
STATE = Struct(">IQ")  # highest number, lease
# topic, durability (see below), ns and bytes of retention, number of copies, and of attempts; -1 in these four: the node's
CONFIG = Struct(">I")
FIRST = Struct(">IQ")  # topic, ordinal
CURSOR = Struct(">IQQQQB")  # topic, offset, hold in ns, hold in bytes, updated (wall), length of the name in bytes
SEEN = Struct(">I")  # topic
ANCHOR = Struct(">QQQ16s")  # time, wall, ns since the machine booted, id of that boot
UNRETAINED = GONE = (1 << 64) - 1


def pack_publish(
    topic: int,
    first: int,
    count: int,
    due: int,
    largest: int,
    distributed: bool,
    attributes: bytes,
    owners: Collection[int] | None = None,
) -> bytes:
    """Pack a PUBLISH record's content up to the frames. `owners`: the only channels that reference the messages; None: all."""
    flags = distributed | (ATTRIBUTED if attributes else 0) | (OWNED if owners is not None else 0)
    parts = [PUBLISH.pack(topic, first, count, due, largest, flags)]
    if owners is not None:
        parts += map(SIZE.pack, (len(owners), *owners))
    if attributes:
        parts += SIZE.pack(len(attributes)), attributes
    return b"".join(parts)


def pack_returned(ordinals: Collection[int], attempts: int, failures: int, due: int) -> bytes:
    """Pack the messages of a REQUEUE record, which have these numbers in common."""
    common = _RETURNED.pack(attempts, failures, due)  # half the cost of a RETURNED for each
    return common.join([*map(ORDINAL.pack, ordinals), b""])


def spans_of(content: bytes) -> list[tuple[int, int]]:
    """Return the spans (first, end) of the messages in a FINISH record."""
    return [(first, first + count) for first, count in RUN.iter_unpack(content[CHANNEL_OF.size :])]


def named_spans(kind: RecordKind, content: bytes) -> list[tuple[int, int]]:
    """Return the spans (first, end) of the messages in a FINISH, REQUEUE or BURY record; none for any other record."""
    if kind is RecordKind.FINISH:
        return spans_of(content)
    if kind is RecordKind.REQUEUE:
        entries = RETURNED.iter_unpack(content[CHANNEL_OF.size :])
        return [(ordinal, ordinal + 1) for ordinal, *_ in entries]
    if kind is RecordKind.BURY:
        ordinal = BURY.unpack_from(content)[2]
        return [(ordinal, ordinal + 1)]
    return []


def owners_of(data: bytes, content: int, flags: int) -> frozenset[int] | None:
    """Return the only channels that reference the messages of the PUBLISH record at byte `content` of `data`.

    None: all reference them.
    """
    if not flags & OWNED:
        return None
    at = content + PUBLISH.size
    (count,) = SIZE.unpack_from(data, at)
    return frozenset(SIZE.unpack_from(data, at + SIZE.size * (1 + index))[0] for index in range(count))


def attributes_of(data: bytes, content: int, flags: int) -> tuple[bytes, int]:
    """Return the attributes of the PUBLISH record whose content is at byte `content` of `data`, and where its frames begin."""
    at = content + PUBLISH.size
    if flags & OWNED:
        at += SIZE.size * (1 + SIZE.unpack_from(data, at)[0])
    if not flags & ATTRIBUTED:
        return b"", at
    (size,) = SIZE.unpack_from(data, at)
    at += SIZE.size
    return data[at : at + size], at + size


def pack_pause(topic: int, channel: int, pause: Pause | None) -> bytes:
    """Return the content of a PAUSE record. `channel`: 0 for the topic itself; `pause`: None: it was resumed."""
    if pause is None:
        return PAUSE.pack(topic, channel, 0)
    ways = (_OUT if pause.out else 0) | (_INTO if pause.into else 0)
    return PAUSE.pack(topic, channel, ways) + _PAUSED.pack(pause.at, pause.until) + pause.by.encode()


def unpack_pause(content: bytes) -> Pause | None:
    """Return the pause that a PAUSE record states; None: it was resumed."""
    ways = PAUSE.unpack_from(content)[2]
    if not ways:
        return None
    at, until = _PAUSED.unpack_from(content, PAUSE.size)
    return Pause(content[PAUSE.size + _PAUSED.size :].decode(), at, until, bool(ways & _OUT), bool(ways & _INTO))


def pack_config(topic: int, config: TopicConfig) -> bytes:
    """Pack the content of a CONFIG record for the topic with that number."""
    settings: bytes = msgpack.packb(dump(config))
    return CONFIG.pack(topic) + settings


def unpack_config(content: bytes) -> tuple[int, TopicConfig]:
    """Return the topic's number and the settings in a CONFIG record."""
    return CONFIG.unpack_from(content)[0], load(msgpack.unpackb(content[CONFIG.size :]))


def pack_cursor(topic: int, name: str, cursor: Cursor | None) -> bytes:
    """Pack the content of a CURSOR record. `cursor`: None if it was deleted."""
    named = name.encode()
    if cursor is None:
        return CURSOR.pack(topic, GONE, 0, 0, 0, len(named)) + named
    head = CURSOR.pack(topic, cursor.offset, cursor.hold, cursor.hold_bytes, cursor.updated, len(named))
    return head + named + cursor.owner.encode()


def unpack_cursor(content: bytes) -> tuple[int, str, Cursor | None]:
    """Return the topic's number, the cursor's name, and the cursor; None in its place if it was deleted."""
    topic, offset, hold, hold_bytes, updated, size = CURSOR.unpack_from(content)
    name = content[CURSOR.size : CURSOR.size + size].decode()
    owner = content[CURSOR.size + size :].decode()
    return topic, name, None if offset == GONE else Cursor(offset, owner, hold, hold_bytes, updated)


def runs(ranges: list[tuple[int, int]]) -> bytes:
    """Pack (first, count) pairs as FINISH holds them, and join pairs that adjoin."""
    if len(ranges) == 1:
        return RUN.pack(*ranges[0])
    packed: list[bytes] = []
    start = end = -1
    for first, count in ranges:
        if first == end:
            end += count
            continue
        if end > start:
            packed.append(RUN.pack(start, end - start))
        start, end = first, first + count
    if end > start:
        packed.append(RUN.pack(start, end - start))
    return b"".join(packed)
