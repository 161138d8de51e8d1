"""What the records of the log say, field by field. Pure: bytes in, bytes out.

The states of topics and readers (state.py beside each kind of reader) apply these contents, and the store packs them. How a
record is framed, checked and placed in a segment is in nsqd/storage/log/records.py. All numbers are big-endian.
Times are ns of the log's own clock, which is near the time since the epoch; where it says wall, since the epoch.
"""

from collections.abc import Collection, Iterable
from enum import IntEnum
from itertools import chain
from struct import Struct

from nsqd.core.retention.cursors import Cursor
from nsqd.core.retention.keeping import Durability, TopicConfig


class Kind(IntEnum):
    """What a record says. The content's fields are those of the Struct below that bears its name."""

    GROUP = 1  # a commit begins
    LEASE = 2  # ids below this may be issued
    TOPIC = 3  # a topic was made; then its name
    CHANNEL = 4  # format 5 and before: a channel was made, or a tube, which had a name of its own; then its name
    PAUSE = 5
    # Then, if it is OWNED, the number of channels that owe the messages, and the channels; then, if it is ATTRIBUTED, the
    # length of the attributes, and the attributes; then the frames, as they go to consumers.
    PUBLISH = 6
    DISTRIBUTE = 7  # messages first..end belong to the channels there are
    ADVANCE = 8  # the channel has delivered what is before this
    FINISH = 9  # then runs of finished messages
    REQUEUE = 10  # then the messages that were handed back or timed out
    BURY = 11  # then the message's id and the reason
    FINISH_ALL = 12  # the channel is done with everything before this
    HOLE = 13  # messages that no channel was given are dropped
    DROP_CHANNEL = 14
    DROP_TOPIC = 15
    # a checkpoint begins; then what it knows of all topics and channels: the highest number given, the lease
    STATE = 16
    STATE_TOPIC = 17  # a topic as it is now (see state.py); what was recorded of it since STATE is in it
    STATE_END = 18  # the checkpoint is complete
    CONFIG = 19  # how a topic's messages are kept
    FIRST = 20  # finished messages before this may go; at most UNRETAINED: all of them
    ANCHOR = 21  # what the clocks tell
    CURSOR = 22  # a cursor of a topic stands there; then its name's length, its name, its owner. At GONE: it is no more
    SEEN = 23  # in a checkpoint: what a topic remembers of publishers; then a part of that, in msgpack (see state.py)
    JOB = 24  # jobs of a tube are so from now on; then for each its ordinal and its row (jobs.py), due in log time
    # in a checkpoint: all jobs of a tube with ordinals of a page; then their rows, due to be moved by `offset`
    JOBS = 25
    NEXT_ID = 26  # a clean stop gives back what it had leased: ids from this one on were never issued
    READER = 27  # a reader of a topic was made: a channel, or another kind; then its name


GROUP = Struct(">QQ")  # durable mark, time
LEASE = Struct(">Q")  # ceiling
NEXT_ID = Struct(">Q")  # id
TOPIC = Struct(">I")  # topic
CHANNEL = Struct(">IIQ")  # topic, channel, start
READER = Struct(">IIQB")  # topic, reader, start, kind (nsqd/core/reader.py)
PAUSE = Struct(">IIB")  # topic, channel or 0, paused
PUBLISH = Struct(">IQIQIB")  # topic, first ordinal, count, due or 0, largest frame, flags
# Flags of a PUBLISH. DISTRIBUTED: the messages were given to the channels at once; ATTRIBUTED: there are attributes
# (nsqd/core/message/attributes.py); OWNED: only the channels in the record owe the messages, and the others are done with them.
DISTRIBUTED, ATTRIBUTED, OWNED = 1, 2, 4
SIZE = Struct(">I")  # bytes of the attributes; also how many owners there are, and each owner
DISTRIBUTE = Struct(">IQQ")  # topic, first, end
ADVANCE = Struct(">IIQ")  # topic, channel, cursor
CHANNEL_OF = Struct(">II")  # topic, channel: how FINISH, REQUEUE, JOB and DROP_CHANNEL begin
JOBS = Struct(">IIQq")  # topic, channel, number of the page, offset
ORDINAL = Struct(">Q")
RUN = Struct(">QI")  # first, count
RETURNED = Struct(">QHQ")  # ordinal, attempts, due or 0
BURY = Struct(">IIQHQ16s")  # topic, channel, ordinal, attempts, buried at (wall), message id
FINISH_ALL = Struct(">IIQ")  # topic, channel, end
HOLE = Struct(">IQQ")  # topic, first, end
STATE = Struct(">IQ")  # highest number, lease
CONFIG = Struct(">IBqq")  # topic, durability (see below), ns and bytes that it retains; -1 in the latter: as the node
FIRST = Struct(">IQ")  # topic, ordinal
CURSOR = Struct(">IQQQQB")  # topic, offset, hold, hold in bytes, updated (wall), bytes of the name
SEEN = Struct(">I")  # topic
ANCHOR = Struct(">QQQ16s")  # time, wall, ns since the machine was started, its boot's id
DURABILITIES = (None, Durability.ALWAYS, Durability.INTERVAL, Durability.OS)  # by number
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
    """A PUBLISH record's content before the frames. `owners`: the only channels that owe the messages; None: all of them."""
    if not attributes and owners is None:
        return PUBLISH.pack(topic, first, count, due, largest, distributed)
    flags = distributed | (ATTRIBUTED if attributes else 0) | (OWNED if owners is not None else 0)
    parts = [PUBLISH.pack(topic, first, count, due, largest, flags)]
    if owners is not None:
        parts += map(SIZE.pack, (len(owners), *owners))
    if attributes:
        parts += SIZE.pack(len(attributes)), attributes
    return b"".join(parts)


def ordinals_of(kind: Kind, content: bytes) -> Iterable[int]:
    """Return the messages of which a FINISH, REQUEUE or BURY record tells one by one; of another record none."""
    if kind is Kind.FINISH:
        return chain.from_iterable(
            range(first, first + count) for first, count in RUN.iter_unpack(content[CHANNEL_OF.size :])
        )
    if kind is Kind.REQUEUE:
        return [ordinal for ordinal, _, _ in RETURNED.iter_unpack(content[CHANNEL_OF.size :])]
    return (BURY.unpack_from(content)[2],) if kind is Kind.BURY else ()


def owners_of(data: bytes, content: int, flags: int) -> frozenset[int] | None:
    """The only channels that owe the messages of the PUBLISH record whose content begins there. None: all channels do."""
    if not flags & OWNED:
        return None
    at = content + PUBLISH.size
    (count,) = SIZE.unpack_from(data, at)
    return frozenset(SIZE.unpack_from(data, at + SIZE.size * (1 + index))[0] for index in range(count))


def attributes_of(data: bytes, content: int, flags: int) -> tuple[bytes, int]:
    """The attributes of the PUBLISH record whose content begins there, and where its frames begin."""
    at = content + PUBLISH.size
    if flags & OWNED:
        at += SIZE.size * (1 + SIZE.unpack_from(data, at)[0])
    if not flags & ATTRIBUTED:
        return b"", at
    (size,) = SIZE.unpack_from(data, at)
    at += SIZE.size
    return data[at : at + size], at + size


def pack_config(topic: int, config: TopicConfig) -> bytes:
    """A CONFIG record's content."""
    retention = -1 if config.retention is None else config.retention
    most = -1 if config.retention_bytes is None else config.retention_bytes
    return CONFIG.pack(topic, DURABILITIES.index(config.durability), retention, most)


def unpack_config(content: bytes) -> tuple[int, TopicConfig]:
    """The topic, and what it says."""
    topic, durability, retention, most = CONFIG.unpack_from(content)
    own = DURABILITIES[durability], None if retention < 0 else retention, None if most < 0 else most
    return topic, TopicConfig(*own)


def pack_cursor(topic: int, name: str, cursor: Cursor | None) -> bytes:
    """A CURSOR record's content."""
    named = name.encode()
    if cursor is None:
        return CURSOR.pack(topic, GONE, 0, 0, 0, len(named)) + named
    head = CURSOR.pack(topic, cursor.offset, cursor.hold, cursor.hold_bytes, cursor.updated, len(named))
    return head + named + cursor.owner.encode()


def unpack_cursor(content: bytes) -> tuple[int, str, Cursor | None]:
    """The topic, the cursor's name, and where it stands."""
    topic, offset, hold, hold_bytes, updated, size = CURSOR.unpack_from(content)
    name = content[CURSOR.size : CURSOR.size + size].decode()
    owner = content[CURSOR.size + size :].decode()
    return topic, name, None if offset == GONE else Cursor(offset, owner, hold, hold_bytes, updated)


def runs(ranges: Iterable[tuple[int, int]]) -> bytes:
    """(first, count) pairs as FINISH holds them; neighbours in one."""
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
