"""Read the files of NSQ's disk queues (go-diskqueue). This module changes nothing on disk.

    <topic>.diskqueue.000000.dat             records: int32 length, then int64 timestamp ns, uint16 attempts, 16 bytes id, body
    <topic>:<channel>.diskqueue.000000.dat   the same, for messages that a channel has taken over
    <queue>.diskqueue.meta.dat               "<depth>\\n<read file>,<read position>\\n<write file>,<write position>\\n"

NSQ writes the metadata only from time to time. So this module reads each file to its real end, and all files after the read
position. After an invalid length the rest of that file is unreadable, and reading continues with the next file, as in NSQ.

See docs/contributing/design/nsq-programs.md#disk-queues.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct

from penstock.protocol.names import is_valid_name

_DATA = re.compile(r"(.+)\.diskqueue\.(\d{6,18})\.dat")
_META = re.compile(r"(.+)\.diskqueue\.meta\.dat")
_POSITIONS = re.compile(rb"-?\d{1,19}\n(\d{1,18}),(\d{1,18})\n(\d{1,18}),(\d{1,18})\n")
_LENGTH = Struct(">i")
_HEAD = Struct(">qH16s")
LEAST = _HEAD.size  # bytes of a record after its length: NSQ allows an empty body here


class QueueError(Exception):
    """The content of a file contradicts its name. The one-line text names the file."""


@dataclass(frozen=True, slots=True)
class QueuedMessage:
    """One record of a disk queue, which is one message."""

    timestamp: int  # ns since the epoch
    attempts: int
    message_id: bytes
    body: bytes


@dataclass(slots=True)
class DiskQueue:
    """The files of one disk queue, and where to begin reading."""

    topic: str
    channel: str  # "": the queue is the topic's own
    files: dict[int, Path]  # data files by number
    start: tuple[int, int] = (0, 0)  # number of the file and offset in it at which reading begins
    # unreadable ranges (file, from, size of the file), known once `messages` is exhausted
    unreadable: list[tuple[Path, int, int]] = field(default_factory=list)

    def messages(self) -> Iterator[QueuedMessage]:
        """Yield all messages of the queue, in order. Raises OSError."""
        for number in sorted(self.files):
            if number >= self.start[0]:
                yield from self._in(self.files[number], self.start[1] if number == self.start[0] else 0)

    def _in(self, path: Path, at: int) -> Iterator[QueuedMessage]:
        size = path.stat().st_size
        with path.open("rb") as file:
            file.seek(at)
            while at < size:
                head = file.read(_LENGTH.size)
                length = _LENGTH.unpack(head)[0] if len(head) == _LENGTH.size else -1
                if not LEAST <= length <= size - at - _LENGTH.size:
                    self.unreadable.append((path, at, size))
                    return
                record = file.read(length)
                timestamp, attempts, message_id = _HEAD.unpack_from(record)
                yield QueuedMessage(timestamp, attempts, message_id, record[LEAST:])
                at += _LENGTH.size + length


def find_queues(directory: Path) -> list[DiskQueue]:
    """Return the queues in a data directory, those of channels first: their messages are older. Raises QueueError, OSError."""
    found: dict[str, DiskQueue] = {}
    for path in sorted(directory.iterdir()):
        data, meta = _DATA.fullmatch(path.name), _META.fullmatch(path.name)
        if (match := data or meta) is None or not path.is_file():
            continue
        queue = found.setdefault(match[1], _named(match[1], path))
        if data is not None:
            queue.files[int(data[2])] = path
        else:
            queue.start = _positions(path)
    return sorted(found.values(), key=lambda queue: (not queue.channel, queue.topic, queue.channel))


def _named(name: str, path: Path) -> DiskQueue:
    topic, _, channel = name.partition(":")
    if not is_valid_name(topic) or (":" in name and not is_valid_name(channel)):
        raise QueueError(f"{path.name} is not named after a topic or channel of NSQ: move it out of the data path")
    return DiskQueue(topic, channel, {})


def _positions(path: Path) -> tuple[int, int]:
    with path.open("rb") as file:
        match = _POSITIONS.fullmatch(file.read(200))
    if match is None:
        why = "is not the metadata of a disk queue: move it out of the data path, or restore it"
        raise QueueError(f"{path.name} {why}")
    return int(match[1]), int(match[2])
