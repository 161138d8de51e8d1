"""Encode and decode segment headers and records, byte for byte. The module is sans-IO: bytes go in, bytes come out.

A segment is a file that holds a header and then records, end to end. All numbers are big-endian.

    segment header, 64 bytes
       0   8  magic "penstock"
       8   2  format version: 1, before the first release of Penstock
      10   2  node number
      12   4  generation: how often the segment was rewritten
      16  16  log id, made with the log
      32   8  base: the log position of the segment's first record
      40   8  random part of the epoch (epochs.py) in which the file was written
      48   1  1 if the first record is a STATE
      49   4  if the file was a segment before (spare.py): the initial CRC value of the records that it held then; 0: it was new
      53   4  number of the epoch
      57   2  number of the node that led the log in the epoch
      59   1  zero
      60   4  CRC-32 of the 60 bytes before it

    header of a file that was a segment and waits to become another one, 64 bytes
       0   8  magic "penspare"
       8  41  zero
      49   4  the initial CRC value of the records in the file
      53   7  zero
      60   4  CRC-32 of the 60 bytes before it

    record
       0   4  length of everything after the CRC
       4   4  CRC-32 of everything after it. The initial value is the CRC-32 of log id, base, generation and epoch, XOR
              the record's offset in the file, so bytes copied from another segment, or from elsewhere in this one, do not pass
              as a record
       8   1  kind
       9   .  content, by kind

A log position counts the bytes of records over all segments. Every commit begins with a GROUP record. It states up to where the
log was known to be durable when the record was written, so that a reader can distinguish a torn tail (at or past the highest
such mark) from corruption. Times are ns of the log's own clock (clocks.py), which is near the time since the epoch; a time
called wall is ns since the epoch.

See docs/contributing/design/log.md#records.
"""

import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from struct import Struct

from nsqd.core.records import RecordKind
from nsqd.storage.log.epochs import Epoch

MAGIC = b"penstock"
SPARE_MAGIC = b"penspare"
VERSION = 1
HEADER_SIZE = 64
PREFIX_SIZE = 8  # length and CRC of a record
MAX_RECORD = 1 << 30  # bytes: no record is longer; the publishes of a turn are cut into records far below it

_KINDS = [bytes((kind,)) for kind in range(256)]
_PUBLISH = RecordKind.PUBLISH
_HEADER = Struct(">8sHHI16sQ8s?IIHx")
_SEED = Struct(">16sQI")
_CRC = Struct(">I")
_PREFIX = Struct(">II")

NewRecord = tuple[int, bytes, bytes]  # kind, content, frames


class NotASegment(Exception):
    """The header is not that of a segment of this log format, or it is corrupt."""


class WrongVersion(Exception):
    """The segment was written by another version of nsqd."""


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """The header of a segment, with its fields decoded."""

    node: int
    generation: int
    log_id: bytes
    base: int  # log position of the segment's first record
    epoch: Epoch  # in which the file was written: that of the records, or a later one if the segment was rewritten
    state: bool = False  # the segment's first record is a STATE: replay may begin here
    former: int = 0  # initial CRC value of the records that the file held before it became this segment; 0: it was new

    def encode(self) -> bytes:
        """Return the header as 64 bytes, including the CRC."""
        number, owner, random = self.epoch
        fields = self.node, self.generation, self.log_id, self.base, random, self.state, self.former, number, owner
        head = _HEADER.pack(MAGIC, VERSION, *fields)
        return head + _CRC.pack(zlib.crc32(head))

    @property
    def seed(self) -> int:
        """Return the initial CRC value of the segment's records."""
        return seed_of(self.log_id, self.base, self.generation, self.epoch)


def seed_of(log_id: bytes, base: int, generation: int, epoch: Epoch) -> int:
    """Return the initial CRC value of the records in the segment with this log id, base, generation and epoch."""
    return zlib.crc32(epoch.pack(), zlib.crc32(_SEED.pack(log_id, base, generation)))


def decode_header(data: bytes) -> SegmentHeader:
    """Return the header at the beginning of a file. Raises NotASegment, WrongVersion."""
    if len(data) < HEADER_SIZE or data[:8] != MAGIC:
        raise NotASegment("it does not begin like one")
    _, version, node, generation, log_id, base, random, state, former, number, owner = _HEADER.unpack_from(data)
    if not _is_right(data):
        raise NotASegment("its header is corrupt")
    if version != VERSION:
        known = f"this nsqd knows version {VERSION}: start the one that wrote it"
        raise WrongVersion(f"its format is version {version}; {known}")
    return SegmentHeader(node, generation, log_id, base, Epoch(number, owner, random), state, former)


def spare_header(former: int) -> bytes:
    """Return the header of a file whose old records have the initial CRC value `former`, and that waits to be reused."""
    head = _HEADER.pack(SPARE_MAGIC, 0, 0, 0, bytes(16), 0, bytes(8), False, former, 0, 0)
    return head + _CRC.pack(zlib.crc32(head))


def former_of_spare(data: bytes) -> int:
    """Return the initial CRC value of the old records in a file that waits to be reused; 0 if `data` is another header."""
    if len(data) < HEADER_SIZE or data[:8] != SPARE_MAGIC or not _is_right(data):
        return 0
    return int(_HEADER.unpack_from(data)[8])


def repaired(data: bytes) -> bytes:
    """Return the header with a single wrong bit corrected. If no single bit explains the error, return `data` unchanged."""
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
    """Return the buffers of one record that will begin at offset `at` of the file. `frames` follow the content, not copied."""
    return encode_all(seed, at, ((kind, content, frames),))[0]


def encode_all(seed: int, at: int, records: Iterable[NewRecord]) -> tuple[list[bytes], list[tuple[int, int]], int]:
    """Encode records that will follow one another from offset `at` of the file on.

    Returns the buffers to write, the start and end of each PUBLISH, and the end of the last record (offsets in the file).
    """
    buffers: list[bytes] = []
    published: list[tuple[int, int]] = []
    pack, crc32 = _PREFIX.pack, zlib.crc32
    for kind, content, frames in records:
        head = _KINDS[kind] + content
        size, crc = len(head), crc32(head, (seed ^ at) & 0xFFFFFFFF)
        if frames:
            size += len(frames)
            buffers += pack(size, crc32(frames, crc)), head, frames
        else:
            buffers += pack(size, crc), head
        end = at + PREFIX_SIZE + size
        if kind == _PUBLISH:
            published.append((at, end))
        at = end
    return buffers, published, at


def decode(data: bytes, at: int, seed: int, start: int = 0) -> int:
    """Return the end of the record at `at`, or 0 if no complete and correct record is there.

    `at` and the result are offsets in `data`; `start` is the offset of `data` in the file.
    """
    if at + PREFIX_SIZE > len(data):
        return 0
    length, crc = _PREFIX.unpack_from(data, at)
    end = at + PREFIX_SIZE + length
    if not 0 < length <= MAX_RECORD or end > len(data):
        return 0
    begin = (seed ^ (start + at)) & 0xFFFFFFFF
    return end if zlib.crc32(memoryview(data)[at + PREFIX_SIZE : end], begin) == crc else 0
