"""The directories of the replicas, DATA-PATH/replicas/<log id in hex>, and of the diverged copies.

A promoted log of another node is in DATA-PATH/promoted/<log id in hex>/log. An old log of this node, which another one has
promoted, is in DATA-PATH/diverged/<log id in hex>, or with the suffix .1 and so on.
"""

from __future__ import annotations

import re
import shutil
from contextlib import suppress
from pathlib import Path

from nsqd.cluster.replication.manifest import ManifestError, read_manifest
from nsqd.cluster.replication.replica_to_log import name_replica_files
from nsqd.storage.log.disk import RESERVE_NAME, Disk, RealDisk
from shared.files import make_directory, sync_directory
from shared.log import log

NAME = "replicas"  # in the data directory
PROMOTED = "promoted"  # logs that this node has promoted
DIVERGED = "diverged"  # logs that this node had before
NOTE = ".salvaged"  # suffix of a diverged copy's name: the file that names the log made of it
_LOG_ID = re.compile(r"[0-9a-f]{32}")


class ReplicaDirectory:
    """The directory of a node's replicas, with one directory for each log. All methods raise OSError."""

    def __init__(self, data_path: Path) -> None:
        self.path = data_path / NAME

    def found(self) -> list[tuple[bytes, int]]:
        """Return the id of each log of which there is a replica, with the number of the node that publishes into it."""
        if not self.path.is_dir():
            return []
        logs = []
        for name in sorted(path.name for path in self.path.iterdir() if _LOG_ID.fullmatch(path.name)):
            try:
                manifest = read_manifest(RealDisk(self.path / name))
            except (ManifestError, OSError) as error:
                log.error("REPLICA: %s cannot be used: %s", self.path / name, error)
                continue
            if manifest is not None:
                logs.append((bytes.fromhex(name), manifest.node))
            else:  # an earlier run has begun it: its bytes count for nothing, and no node would ask for their removal
                shutil.rmtree(self.path / name, ignore_errors=True)
        return logs

    def open(self, log_id: bytes) -> Disk:
        """Return the directory of a log's replica, which is made if it does not exist."""
        make_directory(self.path)
        return RealDisk(self.path / log_id.hex())

    def keep_diverged(self, log_id: bytes) -> str:
        """Rename a replica, because it has bytes that the log lacks. Returns the new name."""
        return _keep_diverged(self.path, log_id)

    def remove(self, log_id: bytes) -> None:
        shutil.rmtree(self.path / log_id.hex())
        sync_directory(self.path)


class PromotedDirectory:
    """The directories of promoted logs, one for each log. All methods raise OSError."""

    def __init__(self, data_path: Path) -> None:
        self.path = data_path / PROMOTED
        self._replicas = data_path / NAME

    def found(self) -> list[bytes]:
        """Return the ids of the promoted logs."""
        if not self.path.is_dir():
            return []
        names = [path.name for path in self.path.iterdir() if _LOG_ID.fullmatch(path.name) and (path / "log").is_dir()]
        return [bytes.fromhex(name) for name in sorted(names)]

    def open(self, log_id: bytes) -> Disk:
        return RealDisk(self.place(log_id))

    def move_replica(self, log_id: bytes) -> Disk:
        """Make the directory of a replica that of a promoted log, in one step and durably."""
        target = self.place(log_id)
        for path in (self.path, target.parent):
            make_directory(path)
        (self._replicas / log_id.hex()).rename(target)
        sync_directory(target.parent)
        sync_directory(self._replicas)
        return RealDisk(target)

    def put_back(self, log_id: bytes) -> int | None:
        """Make a promoted log a replica again, durably, unless an epoch of this node has begun in it.

        Returns the number of the node that published into it; None: the epoch has begun. Raises ManifestError, OSError.
        """
        manifest = name_replica_files(self.open(log_id))
        if manifest is None:
            return None
        place, replica = self.place(log_id), self._replicas / log_id.hex()
        place.rename(replica)
        sync_directory(self._replicas)
        sync_directory(place.parent)
        return manifest.node

    def put_back_unfinished(self) -> None:
        """Make replicas again of logs whose promotion the last run has begun. A failure is retried when the log is opened."""
        for log_id in self.found():
            with suppress(ManifestError, OSError):
                if self.put_back(log_id) is not None:
                    log.warning(
                        "CLUSTER: the promotion of the log %s had not ended: it is a replica again", log_id.hex()
                    )

    def keep_diverged(self, log_id: bytes) -> str:
        """Rename a promoted log, because another node leads it now. Returns the new name."""
        return _keep_diverged(self.path, log_id)

    def remove(self, log_id: bytes) -> None:
        """Remove a closed log. Diverged copies of it stay: they may have bytes that its leader lacked."""
        path = self.path / log_id.hex()
        if path.is_dir():
            shutil.rmtree(path)
            sync_directory(self.path)

    def place(self, log_id: bytes) -> Path:
        """Return the directory of a log's files."""
        return self.path / log_id.hex() / "log"


class OldLogDirectory:
    """The diverged copies of logs that this node published into. All methods raise OSError."""

    def __init__(self, data_path: Path) -> None:
        self.path = data_path / DIVERGED

    def found(self) -> list[bytes]:
        """Return the ids of the logs of which there are copies."""
        return sorted({log_id for _, log_id in self._all()})

    def remove(self, log_id: bytes) -> None:
        for path in [path for path, found in self._all() if found == log_id]:
            shutil.rmtree(path)
        sync_directory(self.path)

    def _all(self) -> list[tuple[Path, bytes]]:
        """Return the directories, each with the id of its log. Several may be of one log."""
        if not self.path.is_dir():
            return []
        found = [(path, _LOG_ID.fullmatch(path.name.partition(".")[0])) for path in self.path.iterdir()]
        return [(path, bytes.fromhex(match[0])) for path, match in found if match]


def _keep_diverged(path: Path, log_id: bytes) -> str:
    """Rename the directory of a log below `path`, durably. Returns the new name. Raises OSError."""
    number = 1
    while (copy := path / f"{log_id.hex()}.diverged-{number}").exists() or (path / f"{copy.name}{NOTE}").exists():
        number += 1  # a note that was left is not about this copy
    (path / log_id.hex() / "log" / RESERVE_NAME).unlink(missing_ok=True)  # nothing more is written to it
    (path / log_id.hex()).rename(copy)
    sync_directory(path)
    return str(copy)
