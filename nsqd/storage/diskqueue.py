"""Reading the files of NSQ's disk queues (go-diskqueue, specs/nsq.md e6). Changes nothing.

    <topic>.diskqueue.000000.dat             records: int32 length, then int64 timestamp ns, uint16 attempts, 16 bytes id, body
    <topic>:<channel>.diskqueue.000000.dat   likewise, what a channel has taken over
    <queue>.diskqueue.meta.dat               "<depth>\\n<read file>,<read position>\\n<write file>,<write position>\\n"

The metadata is written now and then, so files are read to their real end, and all there are behind the read position. Where a
length makes no sense the rest of that file is unreadable, and reading goes on with the next one, as NSQ does it.
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
LEAST = _HEAD.size  # bytes of a record behind its length: NSQ allows an empty body here


class QueueError(Exception):
    """A file is not what its name says; one line tells which."""


@dataclass(frozen=True, slots=True)
class QueuedMessage:
    """One record."""

    timestamp: int  # ns since the epoch
    attempts: int
    message_id: bytes
    body: bytes


@dataclass(slots=True)
class Queue:
    """The files of one queue."""

    topic: str
    channel: str  # "": the topic's own
    files: dict[int, Path]  # by number
    start: tuple[int, int] = (0, 0)  # file and position to be read from
    # (file, from, its size), once `messages` was read
    unreadable: list[tuple[Path, int, int]] = field(default_factory=list)

    def messages(self) -> Iterator[QueuedMessage]:
        """All there are, in order. Raises OSError."""
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


def find_queues(directory: Path) -> list[Queue]:
    """The queues in a data directory: those of channels first, for they hold what is older. Raises QueueError, OSError."""
    found: dict[str, Queue] = {}
    for path in sorted(directory.iterdir()):
        data, meta = _DATA.fullmatch(path.name), _META.fullmatch(path.name)
        match = data or meta
        if match is None or not path.is_file():
            continue
        queue = found.setdefault(match[1], _named(match[1], path))
        if data is not None:
            queue.files[int(data[2])] = path
        else:
            queue.start = _positions(path)
    return sorted(found.values(), key=lambda queue: (not queue.channel, queue.topic, queue.channel))


def _named(name: str, path: Path) -> Queue:
    topic, _, channel = name.partition(":")
    if not is_valid_name(topic) or (":" in name and not is_valid_name(channel)):
        raise QueueError(f"{path.name} is not named after a topic or channel of NSQ: move it out of the data path")
    return Queue(topic, channel, {})


def _positions(path: Path) -> tuple[int, int]:
    with path.open("rb") as file:
        match = _POSITIONS.fullmatch(file.read(200))
    if match is None:
        raise QueueError(f"{path.name} is no metadata of a disk queue: move it out of the data path, or restore it")
    return int(match[1]), int(match[2])
