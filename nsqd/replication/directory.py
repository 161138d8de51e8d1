"""The directories of the mirrors, DATA-PATH/mirrors/<log id in hex>, and of those that were set aside.

A log of another node that this one has taken over is in DATA-PATH/adopted/<log id in hex>/log.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from nsqd.storage.log.disk import Disk, RealDisk
from nsqd.storage.mirror.manifest import ManifestError, read_manifest
from shared.files import sync_directory
from shared.log import log

NAME = "mirrors"  # in the data directory
ADOPTED = "adopted"  # likewise
_LOG_ID = re.compile(r"[0-9a-f]{32}")


class MirrorDirectory:
    """The directory of a node's mirrors. Implements nsqd.replication.mirrors.Directory."""

    def __init__(self, data_path: Path) -> None:
        self.path = data_path / NAME

    def found(self) -> list[tuple[bytes, int]]:
        if not self.path.is_dir():
            return []
        logs = []
        for name in sorted(path.name for path in self.path.iterdir() if _LOG_ID.fullmatch(path.name)):
            try:
                manifest = read_manifest(RealDisk(self.path / name))
            except (ManifestError, OSError) as error:
                log.error("MIRROR: %s cannot be used: %s", self.path / name, error)
                continue
            if manifest is not None:
                logs.append((bytes.fromhex(name), manifest.node))
        return logs

    def open(self, log_id: bytes) -> Disk:
        if not self.path.is_dir():
            self.path.mkdir(mode=0o700)
            sync_directory(self.path.parent)
        return RealDisk(self.path / log_id.hex())

    def set_aside(self, log_id: bytes) -> str:
        return _set_aside(self.path, log_id)

    def remove(self, log_id: bytes) -> None:
        shutil.rmtree(self.path / log_id.hex())
        sync_directory(self.path)


class AdoptedDirectory:
    """The directories of the logs that a node has taken over. Implements nsqd.replication.adoption.Directory."""

    def __init__(self, data_path: Path) -> None:
        self.path = data_path / ADOPTED
        self._mirrors = data_path / NAME

    def found(self) -> list[bytes]:
        if not self.path.is_dir():
            return []
        names = [path.name for path in self.path.iterdir() if _LOG_ID.fullmatch(path.name) and (path / "log").is_dir()]
        return [bytes.fromhex(name) for name in sorted(names)]

    def open(self, log_id: bytes) -> Disk:
        return RealDisk(self.place(log_id))

    def move_mirror(self, log_id: bytes) -> Disk:
        target = self.place(log_id)
        for path in (self.path, target.parent):
            if not path.is_dir():
                path.mkdir(mode=0o700)
                sync_directory(path.parent)
        (self._mirrors / log_id.hex()).rename(target)
        sync_directory(target.parent)
        sync_directory(self._mirrors)
        return RealDisk(target)

    def set_aside(self, log_id: bytes) -> str:
        return _set_aside(self.path, log_id)

    def place(self, log_id: bytes) -> Path:
        """Return where the files of a log are."""
        return self.path / log_id.hex() / "log"


def _set_aside(path: Path, log_id: bytes) -> str:
    """Rename the directory of a log below `path`, durably. Returns the new name. Raises OSError."""
    number = 1
    while (aside := path / f"{log_id.hex()}.parted-{number}").exists():
        number += 1
    (path / log_id.hex()).rename(aside)
    sync_directory(path)
    return str(aside)
