"""Make a log from a backup of another one: it has the same records at the same positions, and an id of its own.

The CRC of each record begins with a value that is made of the log's id, so each record gets another CRC. Nothing else of it is
changed. Wrong bytes of the backup are copied as they are, so a start finds the same in the new log as in the backup.

See docs/contributing/design/log.md#restored-logs.
"""

from __future__ import annotations

import errno
import zlib
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from struct import Struct

from nsqd.core.message.ids import LEASE, SAFE_LEASES
from nsqd.storage.log.disk import Disk, read_from
from nsqd.storage.log.frozen import FrozenDisk
from nsqd.storage.log.identity import StoredIdentity, write_identity
from nsqd.storage.log.opening import LogOptions, Simulated, open_log
from nsqd.storage.log.parent import Parent
from nsqd.storage.log.quarantine import Quarantine
from nsqd.storage.log.records import HEADER_SIZE, PREFIX_SIZE, SegmentHeader, decode
from nsqd.storage.log.scan import content_end, resume
from nsqd.storage.log.segments import LogFiles, Segment
from shared.topic_config import Durability

_CRC = Struct(">I")
_CRC_AT = 4  # offset of the CRC in a record
_BUDGET = 16 * 1024 * 1024  # bytes of messages in memory: none are read


@dataclass(frozen=True, slots=True)
class Restored:
    """The log that was made of the backup."""

    log_id: bytes  # of the new log
    parent: Parent  # the log of the backup
    node: int  # number of the node whose log the new one is
    first_id: int  # sequence of the next message id
    segments: int
    size: int  # bytes of all segments
    damage: int  # bytes that are corrupt: they are left out
    torn: int  # bytes that were cut off at the end


def restore(
    source: Disk,
    target: Disk,
    node: int | None,
    least_id: int,
    known_lease: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
    simulated: Simulated | None = None,
) -> Restored:
    """Make a new log on the empty disk `target` from the log on `source`, which is not changed. Raises LogError, OSError.

    `node`: number of the node that will have the new log, None: that of the log; `least_id`: sequence below which the new log
    issues no message id; `known_lease`: a lease of the node, known from elsewhere; `progress` is called with the number of
    segments done and of all.
    """
    parts = simulated or Simulated()
    frozen = FrozenDisk(source)
    files = LogFiles(frozen, Quarantine(frozen))
    if not files.found or files.identity is None:
        raise FileNotFoundError(errno.ENOENT, "the backup has no segment of a log")
    old, log_id = files.identity, parts.random(16)
    number = old.node if node is None else node
    write_identity(target, StoredIdentity(number, log_id, tuple(sorted(files.epochs))))
    size = 0
    for place, segment in enumerate(files.found):
        progress(place, len(files.found))
        later = files.found[place + 1 : place + 2]
        size += copy_segment(frozen, target, segment, log_id, later[0].base if later else None)
    target.sync_directory()
    progress(len(files.found), len(files.found))
    opened = open_log(target, LogOptions(number, Durability.OS, 0, _BUDGET), lambda: None, parts)
    try:
        results, snapshot = opened.start_results, opened.take_snapshot()
        ends = {topic.number: topic.end for topic in snapshot.topics} if snapshot is not None else {}
        parent = Parent(old.log_id, opened.writer.written.position, ends)
        first = max(least_id, max(known_lease, results.leased) + SAFE_LEASES * LEASE)
        opened.writer.state_parent(parent)
        if not opened.store.lease(first):
            raise OSError(opened.writer.failure or "the log cannot be synced")
    finally:
        opened.close()
    return Restored(log_id, parent, number, first, len(files.found), size, results.damage.size, results.torn)


def copy_segment(source: Disk, target: Disk, segment: Segment, log_id: bytes, end: int | None) -> int:
    """Copy a segment into the log with the id `log_id`, and sync it. Returns its bytes. Raises OSError.

    `end`: the position at which the segment ends; None: with its file.
    """
    size = source.size(segment.name)
    if end is not None:
        size = min(size, HEADER_SIZE + end - segment.base)
    data = read_from(source, segment.name, 0, size)
    header = replace(segment.header, log_id=log_id, former=0)
    with closing(target.create(segment.name)) as file:
        file.append([header.encode(), rewritten(data, segment.header, header)], 0)
        file.sync()
    return max(HEADER_SIZE, size)


def rewritten(data: bytes, old: SegmentHeader, new: SegmentHeader) -> bytes:
    """Return the bytes after the header of the segment `data`, whose header is `old`, for one with the header `new`.

    Zeros replace the bytes that the file held before it became this segment.
    """
    result = bytearray(len(data))
    at = HEADER_SIZE
    while at < len(data):
        stop = decode(data, at, old.seed)
        if stop:
            result[at:stop] = data[at:stop]
            crc = zlib.crc32(memoryview(data)[at + PREFIX_SIZE : stop], (new.seed ^ at) & 0xFFFFFFFF)
            _CRC.pack_into(result, at + _CRC_AT, crc)
        else:
            stop = resume(data, at, old.seed)
            end = stop if stop < len(data) else max(at, content_end(data, at, old))
            result[at:end] = data[at:end]
        at = stop
    return bytes(result[HEADER_SIZE:])
