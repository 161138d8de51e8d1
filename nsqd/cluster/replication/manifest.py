"""`manifest.json` of a replica: which files are the replica, how far they were durable at least, and the epochs of the log.

A start takes only what the manifest names. It is replaced atomically, so a replica becomes another one in one step.
`ReplicaDisk` presents the files with the names that they have in the log, so a replica is replayed and copied as a log is.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace

from nsqd.storage.log.backup import LogPart
from nsqd.storage.log.disk import Disk, File, read_from
from nsqd.storage.log.epochs import Epoch, unpack
from nsqd.storage.log.files import segment_name
from nsqd.storage.log.frozen import FrozenDisk
from nsqd.storage.log.records import HEADER_SIZE
from shared.sealed_json import seal, unseal

NAME = "manifest.json"
_TEMPORARY = f"{NAME}.tmp"
MOST = 16 * 1024 * 1024  # bytes of a manifest


class ManifestError(Exception):
    """The manifest cannot be read. The text says why."""


@dataclass(frozen=True, slots=True)
class ReplicaFile:
    """The file that holds one segment of a replica."""

    base: int  # log position of its first record
    generation: int  # how often the leader had rewritten the segment
    copy: int  # distinguishes the files of a segment that was fetched more than once

    @property
    def name(self) -> str:
        """Return the name of the file: that of the segment in the log, and the number of the copy."""
        return f"{self.segment}.{self.copy}"

    @property
    def segment(self) -> str:
        """Return the name that the file has in the log."""
        return segment_name(self.base, self.generation)


@dataclass(frozen=True, slots=True)
class Manifest:
    """What `manifest.json` says of a replica."""

    log_id: bytes
    node: int  # number of the node that publishes into the log
    files: tuple[ReplicaFile, ...] = ()  # ascending by base
    mark: int = 0  # position up to which the files were durable, at least
    epochs: tuple[tuple[Epoch, int], ...] = ()  # of the log, each with the position at which it begins; ascending
    won: int = 0  # number of the epoch in which this node is to lead the log (replica_to_log.py); 0: it keeps a replica

    def with_epoch(self, epoch: Epoch, start: int) -> Manifest:
        """Return the manifest with an epoch that begins at `start`, unless it is known."""
        if any(known == epoch for known, _ in self.epochs):
            return self
        return replace(self, epochs=(*self.epochs, (epoch, start)))


def read_manifest(disk: Disk) -> Manifest | None:
    """Return the manifest in a directory; None if there is none. Raises ManifestError, OSError."""
    if NAME not in disk.names():
        return None
    data = read_from(disk, NAME, 0, MOST)
    try:
        content = unseal(data)
        return Manifest(
            bytes.fromhex(content["log_id"]),
            int(content["node"]),
            tuple(ReplicaFile(*map(int, file)) for file in content["files"]),
            int(content["mark"]),
            tuple((unpack(bytes.fromhex(epoch)), int(start)) for epoch, start in content["epochs"]),
            int(content["won"]),
        )
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ManifestError(f"{NAME} is corrupt: {error}") from None


def write_manifest(disk: Disk, manifest: Manifest) -> None:
    """Replace the manifest, durably. Raises OSError."""
    content = {
        "log_id": manifest.log_id.hex(),
        "node": manifest.node,
        "mark": manifest.mark,
        "epochs": [(epoch.pack().hex(), start) for epoch, start in manifest.epochs],
        "files": [(file.base, file.generation, file.copy) for file in manifest.files],
        "won": manifest.won,
    }
    with closing(disk.create(_TEMPORARY)) as file:
        file.append([seal(content)], 0)
        file.sync()
    disk.rename(_TEMPORARY, NAME)
    disk.sync_directory()


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
