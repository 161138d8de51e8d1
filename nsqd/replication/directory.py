"""The directories of the mirrors, DATA-PATH/mirrors/<log id in hex>, and of those that were set aside."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from nsqd.storage.log.disk import Disk, RealDisk
from nsqd.storage.mirror.manifest import ManifestError, read_manifest
from shared.files import sync_directory
from shared.log import log

NAME = "mirrors"  # in the data directory
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
        number = 1
        while (aside := self.path / f"{log_id.hex()}.parted-{number}").exists():
            number += 1
        (self.path / log_id.hex()).rename(aside)
        sync_directory(self.path)
        return str(aside)

    def remove(self, log_id: bytes) -> None:
        shutil.rmtree(self.path / log_id.hex())
        sync_directory(self.path)
