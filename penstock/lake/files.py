"""Write messages as Parquet files below a table, with the statistics that the table keeps of each. Runs on executors.

A file that is not committed is not part of the table; `penstock pipeline vacuum` removes it.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.lake.location import Lake
from penstock.lake.schema import MEASURED
from penstock.spark.staging import sync_directory

ROWS, BYTES = 131_072, 16 << 20  # of a row group, about
FILE = 256 << 20  # bytes of a file, about
_WORDS = ("topic", "node", "log", "producer", "key")  # columns with few values


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file that is written and not committed."""

    path: str  # relative to the table
    size: int  # bytes
    rows: int
    partition: dict[str, str]
    statistics: str  # JSON, as Delta's log has it


class Files:
    """The files of one task: one at a time for each partition."""

    def __init__(self, lake: Lake, table: str, partition_by: tuple[str, ...]) -> None:
        self._lake = lake
        self._table = table
        self._partition_by = partition_by
        self._open: dict[tuple[str, ...], _Part] = {}
        self._topic = ""
        self._done: list[DataFile] = []

    def add(self, batch: pa.RecordBatch, topic: str) -> None:
        """Add messages of one topic; topics come one after the other."""
        if topic != self._topic and "topic" in self._partition_by:
            self._finish()
        self._topic = topic
        for day, rows in _by_day(batch):
            values = {"topic": topic, "dt": day.isoformat()}
            key = tuple(values[name] for name in self._partition_by)
            part = self._open.get(key)
            if part is None:
                partition = dict(zip(self._partition_by, key, strict=True))
                part = self._open[key] = _Part(self._lake, self._table, partition)
            part.add(rows)
            if part.is_full:
                self._done.append(self._open.pop(key).finish())

    def close(self) -> list[DataFile]:
        """Complete all files, durably, and return them. Raises OSError."""
        self._finish()
        return self._done

    def abandon(self) -> None:
        """Remove what was written, as far as that is possible."""
        for part in self._open.values():
            part.abandon()
        for file in self._done:
            with suppress(OSError):
                _remove(self._lake, self._table, file.path)
        self._open, self._done = {}, []

    def _finish(self) -> None:
        self._done += [part.finish() for part in self._open.values()]
        self._open = {}


@dataclass(slots=True)
class _Part:
    """A file that is being written."""

    lake: Lake
    table: str
    partition: dict[str, str]
    _path: str = ""
    _sink: IO[bytes] | None = None
    _writer: Any = None  # ParquetWriter
    _held: list[pa.RecordBatch] = field(default_factory=list)  # rows of the next row group
    _held_rows: int = 0
    _held_bytes: int = 0
    _rows: int = 0
    _bounds: dict[str, tuple[Any, Any]] = field(default_factory=dict)  # minimum and maximum of the measured columns

    @property
    def is_full(self) -> bool:
        """Return True if the file is as large as a file gets."""
        return self._sink is not None and self._sink.tell() >= FILE

    def add(self, rows: pa.RecordBatch) -> None:
        self._held.append(rows)
        self._held_rows += len(rows)
        self._held_bytes += rows.nbytes
        if self._held_rows >= ROWS or self._held_bytes >= BYTES:
            self._write_group()

    def finish(self) -> DataFile:
        """Complete the file and return it. Raises OSError."""
        if self._held:
            self._write_group()
        self._writer.close()
        assert self._sink is not None
        size = self._sink.tell()
        if self.lake.is_directory:
            self._sink.flush()
            os.fsync(self._sink.fileno())
        self._sink.close()
        if self.lake.is_directory:
            sync_directory(os.path.dirname(os.path.join(self.lake.table(self.table), self._path)))
        return DataFile(self._path, size, self._rows, self.partition, self._statistics())

    def abandon(self) -> None:
        if self._sink is not None:
            with suppress(OSError, pa.ArrowException):
                self._sink.close()
            with suppress(OSError):
                _remove(self.lake, self.table, self._path)

    def _write_group(self) -> None:
        table = pa.Table.from_batches(self._held)
        self._held, self._held_rows, self._held_bytes = [], 0, 0
        for name in MEASURED:
            low, high = pc.min_max(table.column(name)).as_py().values()
            before = self._bounds.get(name)
            self._bounds[name] = (min(low, before[0]), max(high, before[1])) if before else (low, high)
        table = table.drop_columns(list(self.partition.keys() & set(table.column_names)))
        if self._writer is None:
            self._begin(table.schema)
        self._writer.write_table(table, row_group_size=ROWS)
        self._rows += len(table)

    def _begin(self, schema: pa.Schema) -> None:
        folder = "/".join(f"{name}={value}" for name, value in self.partition.items())
        self._path = f"{folder}/{uuid.uuid4().hex}.zstd.parquet"
        self._sink = create(self.lake, self.table, self._path)
        measured = [name for name in MEASURED if name in schema.names]
        self._writer = pq.ParquetWriter(
            self._sink, schema, compression="zstd", use_dictionary=[name for name in _WORDS if name in schema.names],
            write_statistics=measured,
        )  # fmt: skip

    def _statistics(self) -> str:
        bounds = {name: pair for name, pair in self._bounds.items() if name not in self.partition}
        low, high = ({name: _json(pair[side]) for name, pair in bounds.items()} for side in (0, 1))
        nulls = dict.fromkeys(bounds, 0)
        return json.dumps({"numRecords": self._rows, "minValues": low, "maxValues": high, "nullCount": nulls})


def file_system(lake: Lake, table: str) -> Any:
    """Return the file system of pyarrow whose root is a table."""
    from deltalake.fs import DeltaStorageHandler
    from pyarrow.fs import LocalFileSystem, PyFileSystem, SubTreeFileSystem

    if lake.is_directory:
        return SubTreeFileSystem(lake.table(table), LocalFileSystem())
    return PyFileSystem(DeltaStorageHandler(lake.table(table)))


def create(lake: Lake, table: str, path: str) -> IO[bytes]:
    """Create a file below a table, and open it for writing. Raises OSError."""
    if not lake.is_directory:
        stream: IO[bytes] = file_system(lake, table).open_output_stream(path)
        return stream
    full = os.path.join(lake.table(table), path)
    os.makedirs(os.path.dirname(full), exist_ok=True)
    return open(full, "xb")


def _remove(lake: Lake, table: str, path: str) -> None:
    file_system(lake, table).delete_file(path)


def _by_day(batch: pa.RecordBatch) -> Iterator[tuple[date, pa.RecordBatch]]:
    """Yield the rows of each day (UTC)."""
    if not len(batch):
        return
    days = pc.cast(batch.column("timestamp"), pa.date32())
    first, last = pc.min_max(days).as_py().values()
    for day in [first] if first == last else sorted(pc.unique(days).to_pylist()):
        yield day, batch if first == last else batch.filter(pc.equal(days, pa.scalar(day, pa.date32())))


def _json(value: Any) -> Any:
    return value.isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else value
