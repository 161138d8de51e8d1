"""The file `log.id`: a second copy of the log's identity. A damaged segment header can be rebuilt from it.

    file, 32 bytes, numbers big-endian
       0   8  magic "penlogid"
       8   2  format version, 1
      10   2  node number
      12  16  log id
      28   4  CRC-32 of the 28 bytes before it

The file holds no position, so it can disagree with the segments only about the log they belong to.
"""

import zlib
from dataclasses import dataclass
from struct import Struct

from nsqd.storage.log.disk import Disk, read_from

NAME = "log.id"
UNFINISHED = f"{NAME}.tmp"
SIZE = 32  # bytes
_MAGIC, _VERSION = b"penlogid", 1
_HEAD = Struct(">8sHH16s")
_CRC = Struct(">I")


@dataclass(frozen=True, slots=True)
class LogIdentity:
    """The identity of a log: the node that owns it, and the log's id."""

    node: int
    log_id: bytes  # 16 bytes


def encode_identity(identity: LogIdentity) -> bytes:
    """Return the content of `log.id`: SIZE bytes, including the CRC."""
    head = _HEAD.pack(_MAGIC, _VERSION, identity.node, identity.log_id)
    return head + _CRC.pack(zlib.crc32(head))


def decode_identity(data: bytes) -> LogIdentity | None:
    """Return the identity in the file's content; None if the content is damaged or of another version."""
    if len(data) != SIZE or _CRC.pack(zlib.crc32(data[: _HEAD.size])) != data[_HEAD.size :]:
        return None
    magic, version, node, log_id = _HEAD.unpack_from(data)
    return LogIdentity(node, log_id) if (magic, version) == (_MAGIC, _VERSION) else None


def read_identity(disk: Disk) -> LogIdentity | None:
    """Return the identity in the directory's `log.id`; None if the file is missing or damaged. Raises OSError."""
    return decode_identity(read_from(disk, NAME, 0, SIZE + 1)) if NAME in disk.names() else None


def write_identity(disk: Disk, identity: LogIdentity) -> None:
    """Write `log.id` durably: a new file is synced, then renamed. Raises OSError."""
    file = disk.create(UNFINISHED)
    try:
        file.append([encode_identity(identity)], 0)
        file.sync()
    finally:
        file.close()
    disk.rename(UNFINISHED, NAME)
    disk.sync_directory()
