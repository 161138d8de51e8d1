"""A mirror becomes a log that this node owns. A kill between any two steps leaves the one or the other.

1. `check_replay`: replay must be able to begin in the mirror where it would begin in the log.
2. `claim`: the manifest says, durably, with which epoch this node is to own the log. It is still a mirror.
3. The directory is renamed by whoever knows where directories are. From now on it is a log that this node owns.
4. `name_files`: its files get the names that they have in a log. Each start does that again until step 5.
5. `drop_manifest`: the first record of the new epoch is durable, so the log tells all that the manifest told, which goes.

See docs/design/cluster.md#adoption.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from nsqd.core.records import RecordKind
from nsqd.storage.log.disk import Disk, read_from
from nsqd.storage.log.epochs import NO_EPOCH, Epoch
from nsqd.storage.log.identity import read_identity
from nsqd.storage.log.reader import LogRecords
from nsqd.storage.log.records import HEADER_SIZE, NotASegment, SegmentHeader, WrongVersion, decode_header
from nsqd.storage.log.segments import LogError
from nsqd.storage.mirror.manifest import NAME, Manifest, read_manifest, write_manifest
from nsqd.storage.mirror.reading import MirrorDisk

_OF_MIRROR = re.compile(r"\d{20}\.\d{1,9}\.log\.\d+")
_OF_LOG = re.compile(r"\d{20}\.(\d{1,9})\.log")


class Refused(Exception):
    """The mirror cannot become a log that this node owns. The text says why."""


def check_replay(disk: Disk, manifest: Manifest) -> None:
    """Raise Refused if replay of a mirror would not begin at a complete checkpoint, or at the beginning of the log.

    The mirror is durable to its end, and the manifest says so. A checkpoint counts only if no bytes are missing behind it: then
    the state that follows from it is that of the log. Raises OSError.
    """
    try:
        reader = LogRecords(MirrorDisk(disk, manifest), manifest.mark)
    except LogError as error:
        raise Refused(str(error)) from None
    if not reader.segments:
        raise Refused("the mirror is empty")
    gapless = _gapless_from(disk, manifest)
    for place in reader.roots():
        if place >= gapless and _is_complete(reader, place):
            return
    if reader.segments[0].base or gapless:
        raise Refused("the mirror has no complete checkpoint, and does not go back to the beginning of the log")


def _gapless_from(disk: Disk, manifest: Manifest) -> int:
    """Return the index of the first file from which on each file holds everything up to the next one. Raises OSError."""
    first = 0
    for place, (file, following) in enumerate(zip(manifest.files, manifest.files[1:], strict=False), 1):
        is_whole = file.generation or disk.size(file.name) >= HEADER_SIZE + following.base - file.base
        first = first if is_whole else place
    return first


def _is_complete(reader: LogRecords, place: int) -> bool:
    """Return True if the segment at index `place` begins with a checkpoint that can be read to its end. Raises OSError."""
    if not reader.segments[place].header.state:
        return False
    root = reader.segments[place].base
    for record in reader.records(place):
        if reader.damage.spots or (record.kind == RecordKind.STATE and record.segment != root):
            return False
        if record.kind == RecordKind.STATE_END:
            return True
    return False


def claim(disk: Disk, manifest: Manifest, number: int) -> Manifest:
    """Note in a mirror's manifest, durably, that this node is to own the log in an epoch with this number. Raises OSError."""
    claimed = replace(manifest, won=number)
    write_manifest(disk, claimed)
    return claimed


def name_files(disk: Disk) -> Manifest | None:
    """Give the files of what was a mirror the names that they have in a log, and remove what the manifest does not name.

    Returns the manifest; None if this node has opened the log since. Raises ManifestError, OSError.
    """
    manifest = read_manifest(disk)
    if manifest is None:
        return None
    names = set(disk.names())
    for file in manifest.files:
        if file.name in names:
            disk.rename(file.name, file.segment)
    wanted = {file.name for file in manifest.files}
    for name in names - wanted:
        if _OF_MIRROR.fullmatch(name):
            disk.remove(name)  # it was written aside, for a state of the mirror that never came
    disk.sync_directory()
    return manifest


def drop_manifest(disk: Disk) -> None:
    """Remove what the log itself tells now: its own first record is durable. Raises OSError."""
    if NAME in disk.names():
        disk.remove(NAME)
        disk.sync_directory()


@dataclass(frozen=True, slots=True)
class LogFacts:
    """What can be told of a log that this node owns before it is read."""

    node: int  # number of the node that published into it
    log_id: bytes
    epochs: tuple[tuple[Epoch, int], ...]  # each with the base of the first segment of it that is left, or 0; ascending
    end: int  # position up to which it may be written: more is not there


def facts_of(disk: Disk) -> LogFacts:
    """Return what the files of a log tell at a glance. Raises LogError if there is no log, OSError."""
    stored = read_identity(disk)
    headers = {name: header for name in disk.names() if (header := _header(disk, name)) is not None}
    if not headers:
        raise LogError("the directory holds no log")
    name, newest = max(headers.items(), key=lambda item: (item[1].base, item[1].generation))
    starts: dict[Epoch, int] = dict.fromkeys(stored.epochs if stored else (), 0)
    for header in sorted(headers.values(), key=lambda header: header.base, reverse=True):
        if header.epoch != NO_EPOCH:
            starts[header.epoch] = header.base
    end = newest.base + disk.size(name) - HEADER_SIZE
    return LogFacts(stored.node if stored else newest.node, newest.log_id, tuple(sorted(starts.items())), end)


def _header(disk: Disk, name: str) -> SegmentHeader | None:
    """Return the header of a segment, also under the name that it had in a mirror; None if the file has none."""
    if not (_OF_LOG.fullmatch(name) or _OF_MIRROR.fullmatch(name)):
        return None
    try:
        return decode_header(read_from(disk, name, 0, HEADER_SIZE))
    except (NotASegment, WrongVersion):
        return None
