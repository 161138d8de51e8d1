"""`penstock pipeline rollup`: counts by minute, hour and day, per topic, node and producer, from the archive.

A run counts the files that were archived since the last one. The rollup table keeps the version of the messages that it covers,
as an application transaction in the commit with the counts, so no message counts twice, and compaction changes nothing. Counts
and histograms are sums: late messages of a minute are added to its row. Sizes are in buckets of 4 %: bucket b holds
1.04 ** b up to 1.04 ** (b + 1) bytes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

from penstock.lake.files import file_system
from penstock.lake.location import DELIVERIES, MESSAGES, ROLLUP, Lake, LakeError, lake_at, one_line
from penstock.lake.table import dataset_of, exists, open_table
from pipeline import counts
from pipeline.counts import AT, COUNTED, GRAINS, Counts, Kind, added, stored
from pipeline.saying import say
from shared.counted import counted

BASE = 1.04  # ratio of neighboring buckets
UP_TO = "penstock/rollup"  # application transaction: the version of the messages up to which they are counted
KINDS = {ROLLUP: counts.MESSAGES, DELIVERIES: counts.DELIVERIES}  # by the name of the table


def run(given: argparse.Namespace) -> int:
    """Run the job and return the exit code. Raises LakeError."""
    lake = lake_at(given.lake)
    messages = open_table(lake, MESSAGES)
    total = 0
    for name, kind in KINDS.items():
        before = rolled_up_to(lake, name)
        if before == messages.version():
            continue
        made: Counts | None = None
        for rows in _rows(lake, messages, before, given.statistics_topic if name == DELIVERIES else ""):
            parts = _deliveries(rows) if name == DELIVERIES else _messages(rows)
            made = added(kind, [parts] if made is None else [made, parts])
            total += len(rows) if name == ROLLUP else 0
        store(lake, name, kind, made, messages.version())
    say(f"rolled up {counted(total, 'message')}" if total else "nothing new is archived since the last rollup")
    return 0


def rolled_up_to(lake: Lake, name: str) -> int | None:
    """Return the version of the messages that a rollup table covers; None: it does not exist."""
    if not exists(lake, name):
        return None
    return open_table(lake, name).transaction_version(UP_TO)


def _rows(lake: Lake, messages: DeltaTable, before: int | None, topic: str) -> Iterator[pa.Table]:
    """Yield the messages that were archived since version `before`, file by file. `topic`: "" for all. Raises LakeError."""
    system = file_system(lake, MESSAGES)
    names = ["topic", "timestamp", "body"] if topic else ["topic", "node", "timestamp", "producer", "body"]
    for path, partition in _files(system, messages, before):
        if topic and partition.get("topic", topic) != topic:
            continue
        try:
            with system.open_input_file(path) as file:
                table = pq.ParquetFile(file).read([name for name in names if name not in partition])
        except FileNotFoundError:
            raise LakeError(
                f"{path} was removed before it was rolled up: remove {lake.table(ROLLUP)} and {lake.table(DELIVERIES)}"
                " to count the whole lake again, and run rollup more often than vacuum"
            ) from None
        if "topic" in partition:
            table = table.append_column("topic", pa.repeat(partition["topic"], len(table)))
        yield table.filter(pc.equal(table.column("topic"), topic)) if topic else table


def _files(system: Any, messages: DeltaTable, before: int | None) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield path and partition of the files that were archived since version `before`; None: of all files."""
    if before is None:
        for add in pa.table(messages.get_add_actions()).select(["path", "partition"]).to_pylist():
            yield unquote(add["path"]), {name: str(value) for name, value in (add["partition"] or {}).items()}
        return
    for version in range(before + 1, messages.version() + 1):
        try:
            with system.open_input_file(f"_delta_log/{version:020d}.json") as file:
                lines = file.read().splitlines()
        except FileNotFoundError:
            raise LakeError(
                f"the log of version {version} is gone: run rollup more often, and now on a new lake"
            ) from None
        for add in (action["add"] for line in lines if "add" in (action := json.loads(line))):
            if add["dataChange"]:  # not the files of a compaction
                yield unquote(add["path"]), add["partitionValues"]


def _messages(rows: pa.Table) -> Counts:
    """Count messages and bytes by minute."""
    size = pc.binary_length(rows.column("body"))
    bucket = pc.floor(pc.logb(pc.max_element_wise(size, 1).cast(pa.float64()), BASE)).cast(pa.int64())
    table = pa.table(
        {
            "topic": rows.column("topic"),
            "node": rows.column("node"),
            "producer": pc.coalesce(rows.column("producer"), ""),
            "at": pc.floor_temporal(rows.column("timestamp"), unit="minute").cast(AT),
            "messages": pa.repeat(1, len(rows)),
            "bytes": size.cast(pa.int64()),
            "largest": size.cast(pa.int64()),
            "bucket": bucket,
            "count": pa.repeat(1, len(rows)),
        }
    )
    kind = counts.MESSAGES
    return added(
        kind,
        [Counts(kind, table.drop_columns(["bucket", "count"]), table.select([*kind.keys, "at", "bucket", "count"]))],
    )


def _deliveries(rows: pa.Table) -> Counts:
    """Add up the statistics of channels that nsqd/tasks/deliveries.py publishes every second.

    Its latency buckets are kept. Single events in the topic are not counted again, and other messages are not statistics.
    """
    kind = counts.DELIVERIES
    lines, buckets = list[dict[str, Any]](), list[dict[str, Any]]()
    for body in rows.column("body").to_pylist():
        line, found = _statistics(body)
        lines += line
        buckets += found
    keys = [(name, pa.string()) for name in kind.keys] + [("at", AT)]
    numbers = [(name, pa.int64()) for name in (*kind.sums, *kind.maxima)]
    table = pa.Table.from_pylist(lines, pa.schema([*keys, *numbers]))
    histogram = pa.Table.from_pylist(buckets, pa.schema([*keys, ("bucket", pa.int64()), ("count", pa.int64())]))
    return added(kind, [Counts(kind, table, histogram)])


def _statistics(body: bytes) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the row and the buckets of one message; nothing if it is not the statistics of a channel."""
    try:
        said = json.loads(body)
        names = {name: str(said[name]) for name in ("topic", "channel")}
        keys: dict[str, Any] = names | {
            "producer": str(said.get("producer") or ""),
            "at": int(said["at"]) // 60 * 60_000_000,
        }
        numbers = {name: int(said.get(name) or 0) for name in (*COUNTED, "depth")}
        latency = said.get("latency") or {}
        times = {f"latency_{name}": int(latency.get(name) or 0) for name in ("sum", "max")}
        buckets = [
            keys | {"bucket": int(name), "count": int(count)} for name, count in (latency.get("buckets") or {}).items()
        ]
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return [], []
    values = (
        keys["at"],
        *numbers.values(),
        *times.values(),
        *(number for one in buckets for number in (one["bucket"], one["count"])),
    )
    if not all(0 <= int(value) < 1 << 53 for value in values):
        return [], []
    return [keys | numbers | times], buckets


def store(lake: Lake, name: str, kind: Kind, made: Counts | None, version: int) -> None:
    """Add counts to the rows of their days, in one commit. Raises LakeError."""
    table, predicate = kind.schema.empty_table(), None
    if made is not None and len(made.table):
        days = sorted(set(made.table.column("at").cast(pa.date32()).to_pylist()))
        by_grain = {grain: made if grain == GRAINS[0] else made.at_grain(grain) for grain in GRAINS}
        if exists(lake, name):
            predicate = "dt IN ({})".format(", ".join(f"DATE '{day}'" for day in days))
            by_grain = _with_stored(lake, name, by_grain, [str(day) for day in days])
        table = pa.concat_tables([one.rows(grain) for grain, one in by_grain.items()])
    how: dict[str, Any] = {"mode": "overwrite", "predicate": predicate} if predicate else {"mode": "append"}
    properties = CommitProperties(max_commit_retries=0, app_transactions=[Transaction(UP_TO, version)])
    try:
        write_deltalake(lake.table(name), table, partition_by=["grain", "dt"], commit_properties=properties, **how)
    except CommitFailedError as error:
        raise LakeError(f"another rollup runs at the same time: {one_line(error)}") from None
    except DeltaError as error:
        raise LakeError(f"cannot write {lake.table(name)}: {one_line(error)}") from None


def _with_stored(lake: Lake, name: str, by_grain: dict[str, Counts], days: list[str]) -> dict[str, Counts]:
    """Add the counts that the table has of these days."""
    dataset = dataset_of(lake, name, open_table(lake, name), [("dt", "in", days)])
    found = {}
    for grain, new in by_grain.items():
        rows = dataset.to_table(filter=ds.field("grain") == grain).select(new.kind.schema.names)
        found[grain] = added(new.kind, [new, stored(new.kind, rows.cast(new.kind.schema))]) if len(rows) else new
    return found
