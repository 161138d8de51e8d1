"""What is on disk, byte for byte. Sans-IO: bytes in, bytes out.

A segment is a file: a header, then records, end to end. All numbers are big-endian.

    segment header, 64 bytes
       0   8  magic "penstock"
       8   2  format version, 5 (4: without the owners of a PUBLISH, and NEXT_ID; 3: without attributes, SEEN, JOB and JOBS;
              2: without CURSOR; 1: without CONFIG, FIRST and ANCHOR, a GROUP's time was the wall clock's)
      10   2  node number
      12   4  generation: how often the segment was rewritten
      16  16  log id, made with the log
      32   8  base: the log position of its first record
      40   8  made at, ns since the epoch
      48   1  1: its first record is a STATE
      49  11  zero
      60   4  CRC-32 of the 60 bytes before it

    record
       0   4  length of what follows the CRC
       4   4  CRC-32 of what follows it, begun with that of log id, base and generation, XOR the record's offset in the file:
              bytes of another segment, or from elsewhere in this one, are no record
       8   1  kind
       9   .  content, by kind

A log position counts bytes of records over all segments. Every commit begins with a GROUP record; it says up to where the log
was known to be durable when it was written, so that a torn tail (at or past the highest such mark) can be told from damage.
Times are ns of the log's own clock (clocks.py), which is near the time since the epoch; where it says wall, since the epoch.
"""

import zlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct

from nsqd.core.retention.cursors import Cursor
from nsqd.core.retention.keeping import Durability, TopicConfig

MAGIC = b"penstock"
VERSION = 5
_READABLE = (1, 2, 3, 4, 5)  # versions
HEADER_SIZE = 64
PREFIX_SIZE = 8  # length and CRC of a record
MAX_RECORD = 1 << 30  # bytes: no record is longer; a turn's publishes are cut into records far below it


class Kind(IntEnum):
    """What a record says. The content's fields are those of the Struct below that bears its name."""

    GROUP = 1  # a commit begins
    LEASE = 2  # ids below this may be issued
    TOPIC = 3  # a topic was made; then its name
    CHANNEL = 4  # a channel was made; then its name
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
    STATE = (
        16  # a checkpoint begins; then what it knows of all topics and channels: the highest number given, the lease
    )
    STATE_TOPIC = 17  # a topic as it is now (see state.py); what was recorded of it since STATE is in it
    STATE_END = 18  # the checkpoint is complete
    CONFIG = 19  # how a topic's messages are kept
    FIRST = 20  # finished messages before this may go; at most UNRETAINED: all of them
    ANCHOR = 21  # what the clocks tell
    CURSOR = 22  # a cursor of a topic stands there; then its name's length, its name, its owner. At GONE: it is no more
    SEEN = 23  # in a checkpoint: what a topic remembers of publishers; then a part of that, in msgpack (see state.py)
    JOB = 24  # jobs of a tube are so from now on; then for each its ordinal and its row (jobs.py), due in log time
    JOBS = (
        25  # in a checkpoint: all jobs of a tube with ordinals of a page; then their rows, due to be moved by `offset`
    )
    NEXT_ID = 26  # a clean stop gives back what it had leased: ids from this one on were never issued


_KINDS = [bytes((kind,)) for kind in range(256)]
_HEADER = Struct(">8sHHI16sQQ?11x")
_SEED = Struct(">16sQI")
_CRC = Struct(">I")
_PREFIX = Struct(">II")
GROUP = Struct(">QQ")  # durable mark, time
LEASE = Struct(">Q")  # ceiling
NEXT_ID = Struct(">Q")  # id
TOPIC = Struct(">I")  # topic
CHANNEL = Struct(">IIQ")  # topic, channel, start
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


Record = tuple[int, bytes, bytes]  # kind, content, frames


class NotASegment(Exception):
    """The header is none of ours, or damaged."""


class WrongVersion(Exception):
    """The segment was written by another version of nsqd."""


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """What a segment says of itself."""

    node: int
    generation: int
    log_id: bytes
    base: int  # log position of its first record
    made: int  # ns since the epoch
    state: bool = False  # its first record is a STATE: replay may begin here

    def encode(self) -> bytes:
        """64 bytes."""
        head = _HEADER.pack(MAGIC, VERSION, self.node, self.generation, self.log_id, self.base, self.made, self.state)
        return head + _CRC.pack(zlib.crc32(head))

    @property
    def seed(self) -> int:
        """With what the CRC of each of its records begins. It is known without the header, too: from the segment's name."""
        return seed_of(self.log_id, self.base, self.generation)


def seed_of(log_id: bytes, base: int, generation: int) -> int:
    """With what the CRC of each record of that segment begins."""
    return zlib.crc32(_SEED.pack(log_id, base, generation))


def decode_header(data: bytes) -> SegmentHeader:
    """The header at the beginning of a file. Raises NotASegment, WrongVersion."""
    if len(data) < HEADER_SIZE or data[:8] != MAGIC:
        raise NotASegment("it does not begin like one")
    _, version, node, generation, log_id, base, made, state = _HEADER.unpack_from(data)
    if not _is_right(data):
        raise NotASegment("its header is damaged")
    if version not in _READABLE:
        raise WrongVersion(f"its format is version {version}; this nsqd knows versions up to {VERSION}: upgrade it")
    return SegmentHeader(node, generation, log_id, base, made, state)


def repaired(data: bytes) -> bytes:
    """A header of which one bit may be wrong, with that bit put right; what cannot be helped is as it was."""
    if len(data) < HEADER_SIZE or _is_right(data) or not any(data):
        return data
    number = int.from_bytes(data, "big")
    for bit in range(HEADER_SIZE * 8):
        candidate = (number ^ 1 << bit).to_bytes(HEADER_SIZE, "big")
        if _is_right(candidate):
            return candidate
    return data


def _is_right(data: bytes) -> bool:
    (crc,) = _CRC.unpack_from(data, HEADER_SIZE - 4)
    return zlib.crc32(data[: HEADER_SIZE - 4]) == int(crc)


def encode(seed: int, at: int, kind: int, content: bytes, frames: bytes = b"") -> list[bytes]:
    """A record that will stand at `at` in the file, in pieces to be written one behind the other.

    `frames` follow the content, and are not copied.
    """
    return encode_all(seed, at, ((kind, content, frames),))[0]


def encode_all(seed: int, at: int, records: Iterable[Record]) -> tuple[list[bytes], list[tuple[int, int]], int]:
    """Encode records that will stand one behind the other from offset `at` of the file on.

    Returns the pieces to be written, where each PUBLISH begins and ends, and where the last record ends (offsets in the file).
    """
    pieces: list[bytes] = []
    published: list[tuple[int, int]] = []
    for kind, content, frames in records:
        head = _KINDS[kind] + content
        crc = zlib.crc32(head, (seed ^ at) & 0xFFFFFFFF)
        end = at + PREFIX_SIZE + len(head) + len(frames)
        if frames:
            pieces += _PREFIX.pack(len(head) + len(frames), zlib.crc32(frames, crc)), head, frames
        else:
            pieces += _PREFIX.pack(len(head), crc), head
        if kind == Kind.PUBLISH:
            published.append((at, end))
        at = end
    return pieces, published, at


def decode(data: bytes, at: int, seed: int, start: int = 0) -> int:
    """Where the record at `at` ends; 0 if there is no whole and right one. `start`: offset of `data` in the file."""
    if at + PREFIX_SIZE > len(data):
        return 0
    length, crc = _PREFIX.unpack_from(data, at)
    end = at + PREFIX_SIZE + length
    if not 0 < length <= MAX_RECORD or end > len(data):
        return 0
    begin = (seed ^ (start + at)) & 0xFFFFFFFF
    return end if zlib.crc32(memoryview(data)[at + PREFIX_SIZE : end], begin) == crc else 0


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
