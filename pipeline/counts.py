"""Counts by time and by some keys, with a histogram: two tables of Arrow that add up. Pure.

A histogram is a table with a row for each bucket, so that adding counts is grouping; a stored row has it as a map.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

GRAINS = ("minute", "hour", "day")
AT = pa.timestamp("us", tz="UTC")
_ENTRIES = pa.list_(pa.struct([("bucket", pa.int64()), ("count", pa.int64())]))  # as Arrow has a map of a histogram


@dataclass(frozen=True, slots=True)
class Kind:
    """The columns of one kind of counts."""

    keys: tuple[str, ...]  # columns of text
    sums: tuple[str, ...]
    maxima: tuple[str, ...]
    histogram: str  # column with the counts by bucket

    @property
    def schema(self) -> pa.Schema:
        """Return the columns of the stored rows."""
        numbers = [(name, pa.int64()) for name in (*self.sums, *self.maxima)]
        buckets = (self.histogram, pa.map_(pa.int64(), pa.int64()))
        first = [("grain", pa.string()), ("dt", pa.date32()), ("at", AT)]
        return pa.schema([*first, *((name, pa.string()) for name in self.keys), *numbers, buckets])


MESSAGES = Kind(("topic", "node", "producer"), ("messages", "bytes"), ("largest",), "sizes")
COUNTED = ("finished", "attempts", "requeued", "timed_out", "buried")  # fields of nsqd's statistics that are summed
DELIVERIES = Kind(("topic", "channel", "producer"), (*COUNTED, "latency_sum"), ("depth", "latency_max"), "latencies")


@dataclass(frozen=True, slots=True)
class Counts:
    """The counts and histograms of messages or deliveries, by one grain of time."""

    kind: Kind
    table: pa.Table  # keys, `at`, sums and maxima: one row for the same keys and time
    buckets: pa.Table  # keys, `at`, `bucket`, `count`

    def at_grain(self, grain: str) -> Counts:
        """Return the counts of a coarser grain."""
        parts = []
        for table in (self.table, self.buckets):
            place = table.schema.get_field_index("at")
            parts.append(table.set_column(place, "at", pc.floor_temporal(table.column("at"), unit=grain).cast(AT)))
        return added(self.kind, [Counts(self.kind, *parts)])

    def rows(self, grain: str) -> pa.Table:
        """Return the rows that the rollup table stores of these counts."""
        keys = [*self.kind.keys, "at"]
        # Without threads, the lists have the order of the rows.
        lists = self.buckets.group_by(keys, use_threads=False).aggregate([("bucket", "list"), ("count", "list")])
        maps = pa.MapArray.from_arrays(
            _combined(lists, "bucket_list").offsets,
            _combined(lists, "bucket_list").flatten(),
            _combined(lists, "count_list").flatten(),
        )
        lists = lists.select(keys).append_column("place", pa.array(range(len(lists)), pa.int64()))
        table = self.table.join(lists, keys, join_type="left outer").combine_chunks()
        table = table.append_column(self.kind.histogram, maps.take(_combined(table, "place")))
        table = table.append_column("grain", pa.repeat(grain, len(table)))
        table = table.append_column("dt", table.column("at").cast(pa.date32()))
        return table.select(self.kind.schema.names).cast(self.kind.schema)


def stored(kind: Kind, rows: pa.Table) -> Counts:
    """Return the counts of stored rows of one grain."""
    keys = [*kind.keys, "at"]
    lists = _combined(rows.set_column(0, "lists", rows.column(kind.histogram).cast(_ENTRIES)), "lists")
    entries = pc.list_flatten(lists)
    buckets = rows.select(keys).take(pc.list_parent_indices(lists))
    buckets = buckets.append_column("bucket", entries.field("bucket")).append_column("count", entries.field("count"))
    return Counts(kind, rows.select([*keys, *kind.sums, *kind.maxima]), buckets)


def added(kind: Kind, counts: Iterable[Counts]) -> Counts:
    """Return the sum of counts of one grain."""
    found = list(counts)
    keys = [*kind.keys, "at"]
    tables = pa.concat_tables([one.table for one in found])
    totals = [*((name, "sum") for name in kind.sums), *((name, "max") for name in kind.maxima)]
    table = tables.group_by(keys).aggregate(totals)
    table = table.rename_columns([*keys, *kind.sums, *kind.maxima])
    buckets = pa.concat_tables([one.buckets for one in found]).group_by([*keys, "bucket"]).aggregate([("count", "sum")])
    return Counts(kind, table, buckets.rename_columns([*keys, "bucket", "count"]).sort_by("bucket"))


def _combined(table: pa.Table, name: str) -> Any:
    """Return a column as one array."""
    column = table.column(name).combine_chunks()
    return column if isinstance(column, pa.Array) else pa.concat_arrays(column.chunks)
