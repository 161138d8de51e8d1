"""A channel's messages in numbered files, which serve Spark as the offsets that a channel does not have. Plain files and Arrow.

    00000042.arrow    messages received together, never changed; created by link, so that one of two drivers fails

A message's FIN is sent when its file is durable. If the message is redelivered because its FIN was lost, it is recognized
by its id and timestamp as long as its file is kept: files that Spark has committed stay for `window` seconds.

See docs/contributing/design/spark.md#channels.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.spark.frames import PLAIN

_DIGITS = 8
Key = tuple[str, int]  # id and timestamp (us)


class StageError(Exception):
    """The directory cannot be used; one line says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Received:
    """A message that a consumer received."""

    id: str
    timestamp: int  # ns since the epoch
    attempts: int
    body: bytes

    @property
    def key(self) -> Key:
        """Return the id and timestamp by which a redelivered message is recognized."""
        return self.id, self.timestamp // 1000


@dataclass(slots=True)
class Stage:
    """The staging directory. One thread stages messages, and another one reads the state."""

    root: Path
    topic: str
    window: float  # s for which committed files stay
    last: int = 0  # the highest number of a file
    sizes: dict[int, int] = field(default_factory=dict)  # bytes of each existing file, by number
    committed: int = 0  # Spark has committed the files up to this number
    _seen: dict[Key, int] = field(default_factory=dict)  # the file number of each staged message, by key
    _keys: dict[int, list[Key]] = field(default_factory=dict)  # of the messages of each existing file

    def open(self) -> None:
        """Create the directory if needed, and read the files that are in it. Raises StageError."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            for path in sorted(self.root.glob("*.arrow")):
                number = int(path.stem)
                table = read_file(path)
                self._note(number, list(_keys_of(table)), path.stat().st_size)
            for left in self.root.glob("*.tmp"):
                left.unlink()
        except (OSError, ValueError, pa.ArrowInvalid) as error:
            raise StageError(f"option stagingLocation={str(self.root)!r}: {error}") from None

    def _note(self, number: int, keys: list[Key], size: int) -> None:
        self._keys[number] = keys
        self._seen.update(dict.fromkeys(keys, number))
        self.sizes[number] = size
        self.last = max(self.last, number)

    def add(self, messages: Sequence[Received]) -> int:
        """Stage the messages durably, except redelivered ones that are staged already.

        Return the number of messages staged. Raises StageError.
        """
        fresh = {one.key: one for one in messages if one.attempts <= 1 or one.key not in self._seen}
        if not fresh:
            return 0
        number = self.last + 1
        path, temporary = self.path(number), self.root / f"{os.getpid()}.tmp"
        try:
            with temporary.open("wb") as file:
                with pa.ipc.new_stream(file, PLAIN) as writer:
                    writer.write_batch(self._batch(list(fresh.values())))
                file.flush()
                os.fsync(file.fileno())
            os.link(temporary, path)  # fails if another driver created the file first
            temporary.unlink()
            sync_directory(self.root)
        except FileExistsError:
            raise StageError(f"another query stages to {self.root}: give each its own stagingLocation") from None
        except OSError as error:
            raise StageError(f"cannot stage to {self.root}: {error.strerror or error}") from None
        self._note(number, list(fresh), path.stat().st_size)
        return len(fresh)

    def _batch(self, messages: list[Received]) -> pa.RecordBatch:
        count = len(messages)
        nothing = pa.nulls(count, pa.string())
        stamps = pa.array([one.timestamp for one in messages], pa.timestamp("ns", tz="UTC"))
        columns = [
            pa.repeat(pa.scalar(self.topic, pa.string()), count),
            nothing,
            nothing,
            pa.nulls(count, pa.int64()),
            pa.array([one.id for one in messages], pa.string()),
            stamps.cast(pa.timestamp("us", tz="UTC"), safe=False),
            nothing,
            pa.array([one.attempts for one in messages], pa.int32()),
            pa.array([one.body for one in messages], pa.binary()),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=PLAIN)

    @property
    def waiting(self) -> int:
        """Return the bytes of files that Spark has not committed."""
        return sum(size for number, size in list(self.sizes.items()) if number > self.committed)

    def end_of(self, start: int, most: int) -> int:
        """Return the last file of a batch that begins behind file `start`: at most `most` messages, but at least one file."""
        end, count = start, 0
        while end < self.last and (end == start or count + len(self._keys.get(end + 1, ())) <= most):
            end += 1
            count += len(self._keys.get(end, ()))
        return end

    def paths(self, start: int, end: int) -> list[Path]:
        """Return the paths of the files behind `start` up to `end`. Raises StageError if one is missing."""
        found = [self.path(number) for number in range(start + 1, end + 1)]
        gone = next((path for path in found if not path.exists()), None)
        if gone is not None:
            raise StageError(
                f"{gone} is not there: the checkpoint belongs to another stagingLocation, or the directory to another query"
            )
        return found

    def commit(self, end: int) -> None:
        """Note that Spark has processed the files up to `end`, and remove those that are older than `window` seconds.

        The file with the highest number stays, since the next file's number follows from it.
        """
        self.committed = max(self.committed, end)
        oldest = time.time() - self.window
        for number in [one for one in list(self.sizes) if one <= self.committed and one < self.last]:
            path = self.path(number)
            try:
                if path.stat().st_mtime > oldest:
                    continue
                path.unlink()
            except OSError:
                continue
            for key in self._keys.pop(number, ()):
                if self._seen.get(key) == number:
                    del self._seen[key]
            self.sizes.pop(number, None)

    def path(self, number: int) -> Path:
        """Return the path of the file with this number."""
        return self.root / f"{number:0{_DIGITS}d}.arrow"


def read_file(path: Path) -> pa.Table:
    """Return the messages of a staged file. Runs on executors."""
    with path.open("rb") as file:
        return pa.ipc.open_stream(file).read_all()


def _keys_of(table: pa.Table) -> Iterator[Key]:
    stamps: Any = table.column("timestamp").cast(pa.int64()).to_pylist()
    return zip(table.column("message_id").to_pylist(), stamps, strict=True)


def sync_directory(path: str | os.PathLike[str]) -> None:
    """Make the entries of a directory durable. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
