"""Turn a replica into a log that this node leads. After a kill between any two steps it is a replica, or becomes one again.

1. `check_replay`: replay must be able to begin in the replica where it would begin in the log.
2. `note_won`: the manifest records, durably, with which epoch this node is to lead the log. It is still a replica.
3. The directory is renamed by the caller.
4. `name_files`: its files get the names that they have in a log.
5. `drop_manifest`: the first record of the new epoch is durable, so the manifest is no longer needed and is removed.
   From now on it is a log that this node leads, and announces.

Before step 5 has ended, no other node knows of the epoch, and `name_replica_files` and a rename revert the steps: an
election does not outlive the run of its node.

See docs/contributing/design/cluster-protocol.md#promotion.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from nsqd.cluster.replication.manifest import NAME, Manifest, ReplicaDisk, read_manifest, write_manifest
from nsqd.core.records import RecordKind
from nsqd.storage.log.clocks import drop_note
from nsqd.storage.log.disk import Disk
from nsqd.storage.log.reader import LogRecords
from nsqd.storage.log.reading import interruptible
from nsqd.storage.log.records import HEADER_SIZE
from nsqd.storage.log.segments import LogError

_OF_REPLICA = re.compile(r"\d{20}\.\d{1,9}\.log\.\d+")


class ReplicaRefused(Exception):
    """The replica cannot become a log that this node leads. The text says why."""


def check_replay(disk: Disk, manifest: Manifest, interrupt: Callable[[], None] = lambda: None) -> None:
    """Raise Refused if replay of a replica would not begin at a complete checkpoint, or at the beginning of the log.

    The replica is durable to its end, and the manifest says so. A checkpoint counts only if no bytes are missing after it:
    then the state that follows from it is that of the log. `interrupt` as for LogReading. Raises OSError.
    """
    try:
        reader = LogRecords(ReplicaDisk(disk, manifest), manifest.mark)
    except LogError as error:
        raise ReplicaRefused(str(error)) from None
    if not reader.segments:
        raise ReplicaRefused("the replica is empty")
    gapless = _gapless_from(disk, manifest)
    for place in reader.roots():
        if place >= gapless and _is_complete(reader, place, interrupt):
            return
    if reader.segments[0].base or gapless:
        raise ReplicaRefused("the replica has no complete checkpoint, and does not go back to the beginning of the log")


def _gapless_from(disk: Disk, manifest: Manifest) -> int:
    """Return the index of the first file from which on each file holds everything up to the next one. Raises OSError."""
    first = 0
    for place, (file, following) in enumerate(zip(manifest.files, manifest.files[1:], strict=False), 1):
        is_whole = file.generation or disk.size(file.name) >= HEADER_SIZE + following.base - file.base
        first = first if is_whole else place
    return first


def _is_complete(reader: LogRecords, place: int, interrupt: Callable[[], None]) -> bool:
    """Return True if the segment at index `place` begins with a checkpoint that can be read to its end. Raises OSError."""
    if not reader.segments[place].header.state:
        return False
    root = reader.segments[place].base
    for record in interruptible(reader.records(place), interrupt):
        if reader.damage.spots or (record.kind == RecordKind.STATE and record.segment != root):
            return False
        if record.kind == RecordKind.STATE_END:
            return True
    return False


def note_won(disk: Disk, manifest: Manifest, number: int) -> None:
    """Note in a replica's manifest, durably, that this node is to lead the log in an epoch with this number. Raises OSError."""
    write_manifest(disk, replace(manifest, won=number))


def name_files(disk: Disk) -> Manifest | None:
    """Give the files of what was a replica the names that they have in a log, and remove what the manifest does not name.

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
        if _OF_REPLICA.fullmatch(name):
            disk.remove(name)  # it is of a resync that was never finished
    disk.sync_directory()
    return manifest


def name_replica_files(disk: Disk) -> Manifest | None:
    """Give the files of a log the names that they had when it was a replica, unless an epoch of this node has begun in it.

    A last segment without a record is left out: this node may have begun its epoch in a file of that name. A kill in the midst
    of it leaves a state that another call finishes. Other files are removed when the replica is opened. Returns the manifest;
    None if the epoch has begun. Raises ManifestError, OSError.
    """
    manifest = read_manifest(disk)
    if manifest is None:
        return None
    names, files = set(disk.names()), tuple(file for file in manifest.files if file.base < manifest.mark)
    for file in files:
        if file.segment in names and file.name not in names:
            disk.rename(file.segment, file.name)
    disk.sync_directory()
    manifest = replace(manifest, files=files, won=0)
    write_manifest(disk, manifest)
    return manifest


def drop_manifest(disk: Disk) -> None:
    """Remove the manifest: the first records of the log are durable. Raises OSError."""
    drop_note(disk)
    if NAME in disk.names():
        disk.remove(NAME)
        disk.sync_directory()
