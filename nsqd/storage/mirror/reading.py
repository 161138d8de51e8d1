"""A mirror's files under the names that they have in the log, so that a mirror is replayed and copied as a log is."""

from __future__ import annotations

from dataclasses import dataclass

from nsqd.storage.log.disk import Disk, File, read_from
from nsqd.storage.log.frozen import FrozenDisk
from nsqd.storage.log.records import HEADER_SIZE
from nsqd.storage.mirror.manifest import Manifest


class MirrorDisk(FrozenDisk):
    """The Disk of a mirror as its manifest names it. It is never changed."""

    def __init__(self, disk: Disk, manifest: Manifest) -> None:
        super().__init__(disk)
        self._names = {file.segment: file.name for file in manifest.files}

    def names(self) -> list[str]:
        return sorted(self._names)

    def open(self, name: str) -> File:
        return super().open(self._names.get(name, name))

    def size(self, name: str) -> int:
        return super().size(self._names.get(name, name))


@dataclass(frozen=True, slots=True)
class MirrorPart:
    """A file of a mirror, from some offset on. Implements nsqd.core.retention.backup.BackupPart."""

    disk: Disk
    file: str  # name of the file in the mirror
    name: str  # of the segment, with @<offset> if the part does not begin at 0
    offset: int
    size: int  # bytes

    def read(self, at: int, size: int) -> bytes:
        data = read_from(self.disk, self.file, self.offset + at, size)
        if len(data) != size:
            raise OSError(f"{self.file} is shorter than it was")
        return data


def mirror_parts(disk: Disk, manifest: Manifest, end: int, start: int = 0) -> list[MirrorPart]:
    """Return the parts of a mirror that ends at the position `end`, from the position `start` on. Raises OSError."""
    parts = []
    for place, file in enumerate(manifest.files):
        is_newest = place + 1 == len(manifest.files)
        if not is_newest and manifest.files[place + 1].base <= start:
            continue
        size = HEADER_SIZE + end - file.base if is_newest else disk.size(file.name)
        offset = HEADER_SIZE + start - file.base if start > file.base else 0
        name = f"{file.segment}@{offset}" if offset else file.segment
        if size > offset:
            parts.append(MirrorPart(disk, file.name, name, offset, size - offset))
    return parts
