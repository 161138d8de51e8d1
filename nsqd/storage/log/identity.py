"""The file `log.id`: a second copy of the log's identity and epochs. A corrupt segment header can be rebuilt from it.

    file, numbers big-endian
       0   8  magic "penlogid"
       8   2  format version: 1, before the first release of Penstock
      10   2  node number
      12  16  log id
      28   .  epochs (epochs.py) in which files of the log may have been written, 14 bytes each, ascending
    last   4  CRC-32 of everything before it

Each start writes the file before it begins its epoch. The file holds no position, so it can disagree with the segments only
about the log they belong to.
"""

import zlib
from dataclasses import dataclass
from struct import Struct

from nsqd.storage.log.disk import Disk, read_from, replace_file
from nsqd.storage.log.epochs import SIZE as EPOCH_SIZE
from nsqd.storage.log.epochs import Epoch, unpack

NAME = "log.id"
UNFINISHED = f"{NAME}.tmp"
MOST_EPOCHS = 10_000  # the oldest are left out: a log has fewer segments
_MAGIC, _VERSION = b"penlogid", 1
_HEAD = Struct(">8sHH16s")
_CRC = Struct(">I")


@dataclass(frozen=True, slots=True)
class LogIdentity:
    """The identity of a log: the node that owns it, the log's id, and the epoch in which this process writes."""

    node: int
    log_id: bytes  # 16 bytes
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class StoredIdentity:
    """The content of `log.id`: the identity of the log, and its epochs."""

    node: int
    log_id: bytes
    epochs: tuple[Epoch, ...] = ()


def encode_identity(stored: StoredIdentity) -> bytes:
    """Return the content of `log.id`, including the CRC."""
    epochs = [epoch.pack() for epoch in stored.epochs[-MOST_EPOCHS:]]
    content = b"".join([_HEAD.pack(_MAGIC, _VERSION, stored.node, stored.log_id), *epochs])
    return content + _CRC.pack(zlib.crc32(content))


def decode_identity(data: bytes) -> StoredIdentity | None:
    """Return the content of the file; None if it is corrupt or of another version."""
    end = len(data) - _CRC.size
    if end < _HEAD.size or (end - _HEAD.size) % EPOCH_SIZE or _CRC.pack(zlib.crc32(data[:end])) != data[end:]:
        return None
    magic, version, node, log_id = _HEAD.unpack_from(data)
    if magic != _MAGIC or version != _VERSION:
        return None
    return StoredIdentity(node, log_id, tuple(unpack(data, at) for at in range(_HEAD.size, end, EPOCH_SIZE)))


def read_identity(disk: Disk) -> StoredIdentity | None:
    """Return the content of the directory's `log.id`; None if the file is missing or corrupt. Raises OSError."""
    most = _HEAD.size + MOST_EPOCHS * EPOCH_SIZE + _CRC.size
    return decode_identity(read_from(disk, NAME, 0, most + 1)) if NAME in disk.names() else None


def write_identity(disk: Disk, stored: StoredIdentity) -> None:
    """Replace the directory's `log.id` durably. Raises OSError."""
    replace_file(disk, NAME, encode_identity(stored))
