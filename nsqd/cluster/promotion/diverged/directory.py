"""The diverged copies of a node, and the logs that it makes of them.

A copy is DATA-PATH/replicas/<log id>.diverged-N, or DATA-PATH/promoted/<log id>.diverged-N with the log in `log`. The log that
is made of its tail is written to DATA-PATH/promoted/salvage.partial, and renamed to <its id>.partial when it is complete and
durable. Then a note is written next to the copy, `<copy>.salvaged`, which names it: from now on it counts, and a last rename
puts it in its place, DATA-PATH/promoted/<its id>. A start that finds a note and a log that waits for that rename does it, and
removes what no note names.

See docs/contributing/design/cluster-protocol.md#diverged-copies.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

from nsqd.cluster.promotion.diverged.note import OWN_NOTE, CopyExtent, Note, read_note, write_note
from nsqd.cluster.replication.directory import DIVERGED, NAME, NOTE, PROMOTED
from nsqd.cluster.replication.manifest import ManifestError, ReplicaDisk, read_manifest
from nsqd.cluster.replication.replica import Replica, ReplicaError
from nsqd.cluster.replication.replica_to_log import ReplicaRefused, check_replay
from nsqd.storage.log.clocks import read_note as read_clocks
from nsqd.storage.log.disk import Disk, RealDisk
from nsqd.storage.log.frozen import FrozenDisk
from nsqd.storage.log.opening import Simulated
from nsqd.storage.log.reading import LogReading
from nsqd.storage.log.segments import LogError
from nsqd.storage.log.succession import Salvaged, salvage
from shared.files import sync_directory

BEGUN, WAITING = "salvage.partial", ".partial"
_COPY = re.compile(r"([0-9a-f]{32})")
_DIVERGED, _OLD_LOG = re.compile(r"([0-9a-f]{32})\.diverged-\d+"), re.compile(r"([0-9a-f]{32})(\.\d+)?")
_WAITING = re.compile(r"([0-9a-f]{32})\.partial")


class DivergedCopy(NamedTuple):
    """A diverged copy in the data directory."""

    name: str  # of its directory, below the data directory
    log_id: bytes
    note: Note | None
    is_own: bool = False  # this node had published into it


def read_copy(disk: Disk, log_id: bytes, is_replica: bool, interrupt: Callable[[], None] = lambda: None) -> CopyExtent:
    """Return the extent of a copy. A replica is synced, and cut to whole records. Raises OSError if no log can be made of it.

    `interrupt` is called now and then; what it raises ends the reading.
    """
    try:
        if is_replica:
            replica = Replica(disk, log_id, 0)
            replica.close()
            check_replay(disk, replica.manifest, interrupt)
            return CopyExtent(replica.end, replica.manifest.epochs)
        reading = LogReading(FrozenDisk(disk), interrupt=interrupt)
    except (ManifestError, ReplicaError, ReplicaRefused, LogError) as error:
        raise OSError(str(error)) from None
    if reading.identity is None or reading.identity.log_id != log_id:
        raise OSError("it does not hold that log")
    return CopyExtent(reading.log_records.end, tuple(reading.replay.epochs))


def make_log(
    disk: Disk,
    is_replica: bool,
    target: Disk,
    start: int,
    leader: int,
    simulated: Simulated | None = None,
    interrupt: Callable[[], None] = lambda: None,
) -> Salvaged | None:
    """Make a log on the empty disk `target` of the bytes of a copy after the position `start`, as `salvage`. Raises OSError.

    The copy was read by `read_copy`. `leader`: number of this node; `interrupt` as there.
    """
    try:
        noted = read_clocks(disk)
        manifest = read_manifest(disk) if is_replica else None
        if manifest is None:
            return salvage(disk, target, start, leader, 0, noted, simulated, interrupt)
        return salvage(ReplicaDisk(disk, manifest), target, start, leader, manifest.mark, noted, simulated, interrupt)
    except (ManifestError, LogError) as error:
        raise OSError(str(error)) from None


class DivergedDirectory:
    """The diverged copies in the data directory of a node. For any thread, one method at a time. All raise OSError."""

    def __init__(self, data_path: Path, number: int, interrupt: Callable[[], None] = lambda: None) -> None:
        """Begin. `number`: that of this node; `interrupt` is called while a copy is read; what it raises ends that."""
        self._path, self._number, self._interrupt = data_path, number, interrupt
        self._promoted = data_path / PROMOTED

    def finish(self) -> list[bytes]:
        """Do what a kill has interrupted: put logs in place that a note names, and remove what was only begun.

        Returns the ids of the logs that were put in place.
        """
        if not self._promoted.is_dir():
            return []
        noted = {one.note.log_id.hex() for one in self.found() if one.note is not None}
        made = []
        _remove(self._promoted / BEGUN)
        for path in sorted(self._promoted.iterdir()):
            match = _WAITING.fullmatch(path.name)
            if match is not None and match[1] in noted:
                path.rename(self._promoted / match[1])
                made.append(bytes.fromhex(match[1]))
            elif match is not None:
                shutil.rmtree(path)
        sync_directory(self._promoted)
        return made

    def found(self) -> list[DivergedCopy]:
        """Return the diverged copies on the disk, also those that are promoted already."""
        found = []
        for parent in (self._path / NAME, self._promoted, self._path / DIVERGED):
            is_own = parent.name == DIVERGED
            for path in sorted(parent.iterdir()) if parent.is_dir() else ():
                match = (_OLD_LOG if is_own else _DIVERGED).fullmatch(path.name)
                if match is None or not path.is_dir():
                    continue
                note = read_note(note_of(path))
                if note is not None or not is_own:  # of an own log, only the note shows what was salvaged
                    found.append(DivergedCopy(f"{parent.name}/{path.name}", bytes.fromhex(match[1]), note, is_own))
        return found

    def read(self, name: str) -> CopyExtent:
        """Return the extent of a copy, as `read_copy`."""
        disk, is_replica = self._disk(name)
        with closing(disk):
            return read_copy(disk, _log_id(name), is_replica, self._interrupt)

    def salvage(self, name: str, held: CopyExtent, start: int) -> Salvaged | None:
        """Make a promoted log of a copy from a position on, durably, and write the note next to the copy.

        Returns None if that part has no unfinished or retained messages: then only the note is written.
        """
        begun = self._promoted / BEGUN
        _remove(begun)
        for path in (self._promoted, begun):
            path.mkdir(mode=0o700, exist_ok=True)
            sync_directory(path.parent)
        try:
            made = self._make(name, begun / "log", start)
        except OSError:
            _remove(begun)  # the disk may be full
            raise
        if made is None:
            _remove(begun)
            write_note(note_of(self._path / name), Note(b"", start, held))
            return None
        place = self._promoted / made.log_id.hex()
        waiting = place.with_name(place.name + WAITING)
        begun.rename(waiting)
        sync_directory(self._promoted)
        self._note(name, Note(made.log_id, start, held), waiting)
        waiting.rename(place)
        sync_directory(self._promoted)
        return made

    def _make(self, name: str, path: Path, start: int) -> Salvaged | None:
        source, is_replica = self._disk(name)
        with closing(source), closing(RealDisk(path)) as target:
            return make_log(source, is_replica, target, start, self._number, interrupt=self._interrupt)

    def _note(self, name: str, note: Note, waiting: Path) -> None:
        """Write the note of a copy. If that fails, remove the log made of it, unless the note exists anyway."""
        path = note_of(self._path / name)
        try:
            write_note(path, note)
        except OSError:
            if read_note(path) != note:
                _remove(waiting)
            raise

    def remove(self, name: str) -> None:
        """Remove a copy and its note."""
        path = self._path / name
        _remove(path)
        sync_directory(path.parent)  # a copy without its note would be salvaged again
        note_of(path).unlink(missing_ok=True)

    def _disk(self, name: str) -> tuple[RealDisk, bool]:
        path = self._path / name
        if not path.is_dir():
            raise FileNotFoundError(f"{path} is gone")
        return RealDisk(path / "log" if path.parent.name == PROMOTED else path), path.parent.name == NAME


def _remove(path: Path) -> None:
    """Remove a directory, if it exists. Raises OSError."""
    with suppress(FileNotFoundError):
        shutil.rmtree(path)


def note_of(path: Path) -> Path:
    """Return the path of the note of a copy. A copy of the node's own log has it among its files."""
    return path / OWN_NOTE if path.parent.name == DIVERGED else path.with_name(path.name + NOTE)


def _log_id(name: str) -> bytes:
    match = _COPY.match(name.rpartition("/")[2])
    if match is None:
        raise FileNotFoundError(f"{name} is not the directory of a copy")
    return bytes.fromhex(match[1])
