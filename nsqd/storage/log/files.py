"""The file of each segment of an open log. Cleaning replaces files, and threads that read look here for the current one."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from nsqd.storage.log.records import SegmentHeader

_COUNTS = 30  # bits for the generations in an edition


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """The file that holds a segment's records."""

    name: str
    generation: int  # how often the segment was rewritten
    # Identifies this file among those of the same segment: 0 if the segment was never rewritten, otherwise made of the epoch's
    # number and the generation. Locations (stored_extent.py) name the edition in which they were noted.
    edition: int
    seed: int  # initial CRC value of the records
    node: int  # the node number under which the messages in it were published


class ByteRepair(Protocol):
    """Repair of corrupt bytes from other nodes: nsqd.cluster.replication.repair.LogRepair. Any thread may call it."""

    def __call__(self, base: int, file: SegmentFile, start: int, stop: int) -> bool:
        """Replace the bytes of the segment at `base` from offset `start` to `stop` of its file, which may take seconds.

        They are whole records. Returns False if that is not possible now.
        """

    def fetch(self, base: int, file: SegmentFile, start: int) -> tuple[bytes, int] | None:
        """Return all records of a segment that was rewritten here, as another node has them, with their initial CRC value.

        `start`: the offset in the file from which on records are corrupt. None: that is not possible, or not needed, now.
        """

    def is_awaited(self, file: SegmentFile, start: int) -> bool:
        """Return True if bytes from offset `start` of a file were not replaced because a replica was unreachable: try again."""


class SegmentFiles:
    """The files of an open log, by the segment's base. Any thread may ask; only the reactor's thread changes them."""

    def __init__(self, headers: Iterable[SegmentHeader] = ()) -> None:
        self._files: dict[int, SegmentFile] = {}
        self.repair: ByteRepair | None = None  # None: no other node has a copy
        for header in headers:
            self.put(header)

    def put(self, header: SegmentHeader) -> None:
        """Note the file with this header as that of its segment."""
        self._files[header.base] = file_of(header)

    def at(self, base: int) -> SegmentFile:
        """Return the file of the segment at `base`. Raises FileNotFoundError if there is none."""
        file = self._files.get(base)
        if file is None:
            raise FileNotFoundError(errno.ENOENT, "the log has no such segment", segment_name(base, 0))
        return file

    @property
    def bases(self) -> list[int]:
        """Return the positions at which the segments begin, in the order in which they were put."""
        return list(self._files)

    def drop(self, base: int) -> None:
        """Forget the file of a segment that was removed."""
        self._files.pop(base, None)


def file_of(header: SegmentHeader) -> SegmentFile:
    """Return the file that has this header."""
    generation = header.generation
    edition = header.epoch.number << _COUNTS | generation if generation else 0
    return SegmentFile(segment_name(header.base, generation), generation, edition, header.seed, header.node)


def segment_name(base: int, generation: int) -> str:
    """Return the file name of the segment with this base and generation."""
    return f"{base:020d}.{generation}.log"
