"""A replica's files under the names that they have in the log, so that a replica is replayed and copied as a log is."""

from __future__ import annotations

from nsqd.cluster.replication.manifest import Manifest
from nsqd.storage.log.backup import LogPart
from nsqd.storage.log.disk import Disk, File
from nsqd.storage.log.frozen import FrozenDisk
from nsqd.storage.log.records import HEADER_SIZE


class ReplicaDisk(FrozenDisk):
    """The Disk of a replica as its manifest names it. It is never changed."""

    def __init__(self, disk: Disk, manifest: Manifest) -> None:
        super().__init__(disk)
        self._names = {file.segment: file.name for file in manifest.files}

    def names(self) -> list[str]:
        return sorted(self._names)

    def open(self, name: str) -> File:
        return super().open(self._names.get(name, name))

    def size(self, name: str) -> int:
        return super().size(self._names.get(name, name))


def replica_parts(disk: Disk, manifest: Manifest, end: int, start: int = 0) -> list[LogPart]:
    """Return the parts of a replica that ends at the position `end`, from the position `start` on. Raises OSError.

    A part that begins within a segment is named `<segment>@<offset>`.
    """
    parts = []
    for place, file in enumerate(manifest.files):
        is_newest = place + 1 == len(manifest.files)
        if not is_newest and manifest.files[place + 1].base <= start:
            continue
        size = HEADER_SIZE + end - file.base if is_newest else disk.size(file.name)
        offset = HEADER_SIZE + start - file.base if start > file.base else 0
        name = f"{file.segment}@{offset}" if offset else file.segment
        if size > offset:
            parts.append(LogPart(disk, name, size - offset, file.name, offset))
    return parts
