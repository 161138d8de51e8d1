"""A lake's directory: manifests of the complete data, and locks of the jobs. Plain files; no Spark.

lake.json                          {"lake": 1}: marks the directory as a lake
archive/batch=0000000007/...       messages of a micro-batch, by topic and day
compact/0000000000-0000000041/...  messages of several batches, in few files
rollup/{minute,hour,day}/run=...   counts
manifests/*.json                   one for each of these, written last
checkpoints/...                    the progress of each job
"""

from __future__ import annotations

import fcntl
import json
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from shared.files import replace_file

VERSION = 1


class LakeError(Exception):
    """One line that says what is wrong, and what to do."""


@dataclass(frozen=True, slots=True)
class Range:
    """Messages of a topic on a node, in one log."""

    topic: str
    node: str
    log: str
    first: int
    last: int
    count: int
    size: int  # bytes of the bodies
    oldest: str  # RFC 3339, as is `newest`
    newest: str

    @property
    def place(self) -> tuple[str, str, str]:
        """Return topic, node and log, to which the offsets belong."""
        return self.topic, self.node, self.log


@dataclass(frozen=True, slots=True)
class Batch:
    """Archived messages of one micro-batch, or of several batches that were compacted."""

    name: str
    path: str  # relative to the lake
    batches: tuple[int, ...]
    ranges: tuple[Range, ...]

    @property
    def count(self) -> int:
        """Return the number of messages in the batch."""
        return sum(one.count for one in self.ranges)

    @property
    def is_compacted(self) -> bool:
        """Return True if the batch was made of several by compaction."""
        return "-" in self.name


class Lake:
    """The lake in the directory `root`, which `create` makes if it is missing."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def create(self) -> None:
        """Create the lake if its directory is missing or empty, or check the one that exists. Raises LakeError."""
        if (self.root / "lake.json").exists():
            self.check()
            return
        if self.root.exists() and not self.root.is_dir():
            raise LakeError(f"{self.root} is a file: choose a new or empty directory")
        if self.root.exists() and any(self.root.iterdir()):
            raise LakeError(f"{self.root} is not empty and not a lake: choose a new or empty directory")
        try:
            self.manifests.mkdir(parents=True)
            write(self.root / "lake.json", {"lake": VERSION})
        except OSError as error:
            raise LakeError(f"cannot create a lake in {self.root}: {error.strerror or error}") from None

    def check(self) -> None:
        """Raise LakeError if the directory is not a lake of this version."""
        try:
            version = json.loads((self.root / "lake.json").read_text())["lake"]
        except (OSError, ValueError, KeyError, TypeError):
            raise LakeError(f"{self.root} is not a lake: create one with penstock pipeline archive --out") from None
        if version != VERSION:
            raise LakeError(f"{self.root} is a lake of version {version!r}; this program supports version {VERSION}")

    @property
    def manifests(self) -> Path:
        """Return the directory of the manifests."""
        return self.root / "manifests"

    @contextmanager
    def locked_by(self, job: str) -> Iterator[None]:
        """Lock the lake for this kind of job while the context lasts. Raises LakeError if another process has the lock."""
        with (self.root / f"{job}.lock").open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise LakeError(f"another {job} is running in {self.root}: wait for it, or stop it") from None
            yield

    def checkpoint(self, job: str, identity: dict[str, Any]) -> Path:
        """Return the path of the job's checkpoint, and note `identity` next to a new one.

        Raises LakeError if the checkpoint belongs to a job with another identity.
        """
        path = self.root / "checkpoints" / job
        data = path.with_suffix(".json")
        try:
            before = json.loads(data.read_text()) if data.exists() else None
        except ValueError:
            before = {}
        if before is not None and before != identity:
            keys = sorted(key for key in before.keys() | identity.keys() if before.get(key) != identity.get(key))
            why = f"{path} belongs to a {job} with another {', '.join(keys)}: {before}"
            raise LakeError(f"{why}; use the same values, or another --out")
        if before is None:
            path.parent.mkdir(exist_ok=True)
            write(data, identity)
        return path

    # ---- archived messages

    def files(self, batches: Iterable[Batch]) -> list[str]:
        """Return the paths of all files of the batches."""
        return [file for batch in batches for file in files_of(self.root / batch.path)]

    def finish(self, batch: Batch) -> None:
        """Write the manifest of a batch whose data is complete; from now on the batch exists."""
        data = {"path": batch.path, "batches": batch.batches, "ranges": list(map(asdict, batch.ranges))}
        write(self.manifests / f"{batch.name}.json", data)

    def batches(self) -> list[Batch]:
        """Return all batches, the earliest first; a batch that was compacted appears only in the compacted one."""
        found = self._compacted()
        compacted = _numbers(found)
        for path in sorted(self.manifests.glob("batch=*.json")):
            batch = self._batch(path)
            if not compacted.issuperset(batch.batches):
                found.append(batch)
        return sorted(found, key=lambda batch: batch.batches)

    def is_compacted(self, number: int) -> bool:
        """Return True if the batch of that number is part of a compacted batch."""
        return number in _numbers(self._compacted())

    def _compacted(self) -> list[Batch]:
        return [self._batch(path) for path in sorted(self.manifests.glob("*-*.json"))]

    def _batch(self, path: Path) -> Batch:
        try:
            data = json.loads(path.read_text())
            ranges = tuple(Range(**one) for one in data["ranges"])
            return Batch(path.stem, data["path"], tuple(data["batches"]), ranges)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise LakeError(f"{path} is not a valid manifest: {error}") from None

    def remove_compacted(self) -> None:
        """Remove the batches that were compacted, their manifests first."""
        batches = self.batches()
        there = {batch.name for batch in batches}
        for manifest in self.manifests.glob("batch=*.json"):
            if manifest.stem not in there:
                manifest.unlink()
        compacted = _numbers(batch for batch in batches if batch.is_compacted)
        for directory in (self.root / "archive").glob("batch=*"):
            if int(directory.name.removeprefix("batch=")) in compacted:
                shutil.rmtree(directory)


def _numbers(batches: Iterable[Batch]) -> set[int]:
    return {number for batch in batches for number in batch.batches}


def files_of(path: Path) -> list[str]:
    """Return the paths of the Parquet files below `path`."""
    return sorted(str(file) for file in path.rglob("*.parquet"))


def gaps(batches: list[Batch]) -> list[str]:
    """Describe the messages that are missing within batches and between them, one line each.

    Retention passed them before they were read, or a node lost them.
    """
    found: list[str] = []
    ends: dict[tuple[str, str, str], int] = {}
    for one in (one for batch in batches for one in batch.ranges):
        end = ends.get(one.place)
        if end is not None and one.first > end + 1:
            found.append(f"{one.topic} on node {one.node}: offsets {end + 1} to {one.first - 1}")
        if one.count != one.last - one.first + 1:
            found.append(
                f"{one.topic} on node {one.node}: {one.last - one.first + 1 - one.count} of {one.first} to {one.last}"
            )
        ends[one.place] = max(end or 0, one.last)
    return found


def say(text: str) -> None:
    """Print the progress or the result of a job to standard error."""
    print(text, file=sys.stderr, flush=True)


def write(path: Path, data: dict[str, Any]) -> None:
    """Replace the file with `data` as JSON, durably and all or nothing."""
    replace_file(path, json.dumps(data, indent=1).encode(), 0o666)
