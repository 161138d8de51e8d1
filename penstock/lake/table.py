"""The Delta table of messages: opened, made, checked, and extended by one commit for each batch."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction, Transaction
from pyarrow.fs import FileSelector

from penstock.lake.files import DataFile, file_system
from penstock.lake.location import MESSAGES, Lake, LakeError, StoreError, one_line
from penstock.lake.progress import KNOWN, Advance, is_done, log_id, place_id
from penstock.lake.schema import BY_DAY, BY_TOPIC, COLUMNS, MEASURED
from penstock.spark.offsets import LogPosition, NodeTopic, TopicRange
from penstock.spark.staging import sync_directory

TRIES = 10  # to commit while others, such as a compaction, commit to the same table
MISSING = "penstock.missing"  # metadata of a commit: lines about messages that were lost before they were archived
_SCHEMA = Schema.from_arrow(COLUMNS)
# in errors about the protocol of a table
_NEWER = re.compile("Kernel error: Unsupported|Unsupported table features|features must be specified")
_SETTINGS = {
    "delta.dataSkippingStatsColumns": ",".join(MEASURED),  # a compaction measures the same columns
    "delta.checkpointInterval": "50",  # commits between two checkpoints of Delta's log; what follows one is read line by line
}


def exists(lake: Lake, name: str) -> bool:
    """Return True if a lake has a table."""
    return bool(DeltaTable.is_deltatable(lake.table(name)))


def open_table(lake: Lake, name: str, at: int | datetime | None = None) -> DeltaTable:
    """Open a table of a lake, as it was at a version or a time. Raises LakeError, StoreError."""
    try:
        table = DeltaTable(lake.table(name))
        if at is not None:
            table.load_as_version(at)
    except TableNotFoundError:
        raise LakeError(f"{lake.url} has no table {name}: create it with penstock archive --lake") from None
    except (DeltaError, OSError, ValueError) as error:
        reason = one_line(error)
        if _NEWER.search(reason):
            raise _too_new(lake, name, reason) from None
        if cut := _cut_commit(lake, name):
            what = f"cannot open {lake.table(name)}: a power failure has cut its last commit: move {cut} away"
            raise LakeError(f"{what}, and its rows are added again") from None
        raise StoreError(f"cannot open {lake.table(name)}: {reason}") from None
    return table


def _too_new(lake: Lake, name: str, reason: str) -> LakeError:
    return LakeError(f"{lake.table(name)} was written by a newer library of Delta: upgrade deltalake here: {reason}")


def _cut_commit(lake: Lake, name: str) -> str:
    """Return the path of the last commit of a directory if it is not JSON, which no writer leaves, else ""."""
    if not lake.is_directory:
        return ""
    last = max(Path(lake.table(name), "_delta_log").glob("*.json"), default=None)
    try:
        for line in last.read_bytes().splitlines() if last else ():
            json.loads(line)
    except ValueError:
        return str(last)
    return ""


def _check_is_new(lake: Lake) -> None:
    """Raise LakeError if there are files of messages already, whose table is gone. Raises OSError."""
    found = file_system(lake, MESSAGES).get_file_info(FileSelector("", allow_not_found=True, recursive=True))
    left = next((one.path for one in found if one.path.endswith(".parquet")), "")
    if left and not exists(lake, MESSAGES):  # which another archive may have created just now
        what = f"{lake.table(MESSAGES)} has files of messages, such as {left}, and no table: its _delta_log was removed"
        raise LakeError(
            f"{what}. Restore that, or choose another --lake: retention may have passed what the files have"
        )


def dataset_of(lake: Lake, name: str, table: DeltaTable, pruning: list[tuple[str, str, Any]] | None = None) -> Any:
    """Return a dataset of pyarrow with the files of a table of the lake. `pruning`: a condition of partitions; None: all.

    pyarrow reads a directory by itself: its threads may outlive the interpreter, and abort it if they call Python then.
    """
    system = file_system(lake, name) if lake.is_directory else None
    return table.to_pyarrow_dataset(filesystem=system, file_pruning_predicate=pruning)


@dataclass(slots=True)
class MessageTable:
    """The messages of a lake, for a writer. It belongs to one thread."""

    lake: Lake
    delta: DeltaTable
    # Application transactions at a version: Delta's library reads its log for each of them, which takes about a millisecond.
    _known: dict[str, int | None] = field(default_factory=dict)
    _known_at: int = -1

    @classmethod
    def open_or_create(cls, lake: Lake, *, by_topic: bool) -> MessageTable:
        """Open the table, or create an empty one with a partition for each day, and with `by_topic` for each topic.

        Adds columns that a table of an earlier Penstock lacks. Raises LakeError if the table has columns of other types.
        """
        try:
            if not exists(lake, MESSAGES):
                _check_is_new(lake)
                partition_by = list(BY_TOPIC if by_topic else BY_DAY)
                DeltaTable.create(
                    lake.table(MESSAGES), _SCHEMA, mode="ignore", partition_by=partition_by, configuration=_SETTINGS
                )
        except (DeltaError, OSError, ValueError) as error:
            raise StoreError(f"cannot create a lake in {lake.url}: {one_line(error)}") from None
        found = cls(lake, open_table(lake, MESSAGES))
        found._check_columns()
        return found

    def _check_columns(self) -> None:
        have = {field.name: field.type for field in self.delta.schema().fields}
        wrong = [field.name for field in _SCHEMA.fields if have.get(field.name, field.type) != field.type]
        if wrong or self.partition_by not in (BY_DAY, BY_TOPIC):
            what = (
                f"its column {wrong[0]!r} is {have[wrong[0]]}" if wrong else f"it is partitioned by {self.partition_by}"
            )
            raise LakeError(f"{self.delta.table_uri} is not a table of messages: {what}. Choose another --lake")
        missing = [field for field in _SCHEMA.fields if field.name not in have]
        if missing:
            self.delta.alter.add_columns(missing)

    @property
    def partition_by(self) -> tuple[str, ...]:
        """Return the columns by which the table is partitioned."""
        return tuple(self.delta.metadata().partition_columns)

    def position(self, place: NodeTopic, one: TopicRange) -> LogPosition | None:
        """Return the end of the table in the log that a node has now, or in one that this continues; None: it has neither."""
        for log in (one.log, *(parent for parent, _ in reversed(one.parents))):
            at = self._version_of(log_id(place, log))
            if at is not None:
                return LogPosition(log, at)
        return None

    def knows(self, place: NodeTopic) -> bool:
        """Return True if the table has had messages of the topic on the node, in whatever log."""
        return self._version_of(place_id(place)) is not None

    def count(self) -> int:
        """Return the number of messages in the table, as it was loaded last."""
        return int(self.delta.count())

    def commit(self, files: Iterable[DataFile], advances: Sequence[Advance], missing: Sequence[str]) -> bool:
        """Add the files of a batch, and return False if the table has the batch already.

        Raises Overlap if another archive was there, LakeError if the table is gone, and DeltaError for failures of the store,
        after which the same batch may be committed again.
        """
        now = time.time_ns() // 1_000_000
        actions: list[AddAction | RemoveAction] = [
            AddAction(one.path, one.size, one.partition, now, True, one.statistics) for one in files
        ]
        changed = _transactions(advances)
        transactions = [Transaction(name, version) for name, version in changed.items()]
        properties = CommitProperties({MISSING: json.dumps(missing)} if missing else None, 0, transactions)
        cause: Exception | None = None
        for _ in range(TRIES):
            try:
                self.delta.update_incremental()
                before = self.delta.version()
                if is_done(advances, self._version_of):
                    self._sync(before - 1, {})
                    return False
                self.delta.create_write_transaction(
                    actions, "append", _SCHEMA, list(self.partition_by), commit_properties=properties
                )
            except DeltaError as error:
                if _NEWER.search(str(error)):
                    raise _too_new(self.lake, MESSAGES, one_line(error)) from None
                if isinstance(error, CommitFailedError):
                    cause = error  # another commit came first, or this one did and its answer was lost
                elif exists(self.lake, MESSAGES):
                    raise
                else:
                    uri = self.lake.table(MESSAGES)
                    raise LakeError(f"{uri} was removed while an archive was writing to it") from None
            else:
                self._sync(before, changed)
                return True
        assert cause is not None
        raise cause

    def _version_of(self, name: str) -> int | None:
        """Return the version of an application transaction in the version of the table that is loaded; None: there is none."""
        if self._known_at != self.delta.version():
            self._known, self._known_at = {}, self.delta.version()
        if name not in self._known:
            self._known[name] = self.delta.transaction_version(name)
        return self._known[name]

    def _sync(self, before: int, changed: dict[str, int]) -> None:
        """Load the commit after version `before`, and make it durable: Delta's library leaves that to the operating system."""
        self.delta.update_incremental()
        if self._known_at == before == self.delta.version() - 1:  # no other writer has committed
            self._known |= changed
            self._known_at += 1
        if self.lake.is_directory:
            log = os.path.join(self.lake.table(MESSAGES), "_delta_log")
            for version in range(before + 1, self.delta.version() + 1):
                with open(os.path.join(log, f"{version:020d}.json"), "rb") as file:
                    os.fsync(file.fileno())
            sync_directory(log)


def _transactions(advances: Iterable[Advance]) -> dict[str, int]:
    found: dict[str, int] = {}
    for one in advances:
        found |= {place_id(one.place): KNOWN, log_id(one.place, one.log): one.end}
    return found


def missing_messages(table: DeltaTable) -> list[str]:
    """Return lines about messages that were lost before they were archived, as far back as the table's history reaches."""
    found: list[str] = []
    for commit in table.history():
        value: Any = commit.get(MISSING)
        if isinstance(value, str):
            found += json.loads(value)
    return found
