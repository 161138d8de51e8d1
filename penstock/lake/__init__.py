"""The archive of topics as a table of Delta Lake, which Polars, pandas, DuckDB, Spark and Trino open.

    from penstock import lake
    lake.scan("data/lake", topic="orders").collect()      # a frame of Polars
    lake.arrow("s3://bucket/lake", topic="orders")        # a table of pyarrow

`penstock archive` writes it. Read `location` (URLs) and `schema` (the columns), then `progress` (pure: may a batch follow?),
`table` (the commit), and `task` over `files` (they run on executors).

See docs/reference/lake.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

from penstock.lake.location import MESSAGES, LakeError, lake_at

if TYPE_CHECKING:
    import polars
    import pyarrow

__all__ = ["LakeError", "arrow", "scan"]


def scan(
    url: str,
    topic: str = "",
    since: datetime | None = None,
    until: datetime | None = None,
    at: int | datetime | None = None,
) -> polars.LazyFrame:
    """Return the messages of a lake as a lazy frame of Polars, which reads the files that a query needs.

    `url`: a directory, s3://, gs:// or az://. `topic`: "" for all. `since` (inclusive) and `until` (exclusive) are compared
    with the time of the publish; without a time zone they are UTC. `at`: the version or the time of the table to read; None:
    the newest. Raises LakeError.
    """
    import polars

    from penstock.lake.table import open_table

    frame = polars.scan_delta(open_table(lake_at(url), MESSAGES, at))
    condition = _selected(polars.col, topic, since, until)
    return frame if condition is None else frame.filter(condition)


def arrow(
    url: str,
    topic: str = "",
    since: datetime | None = None,
    until: datetime | None = None,
    at: int | datetime | None = None,
    columns: Sequence[str] | None = None,
) -> pyarrow.Table:
    """Return messages of a lake as a table of pyarrow, in memory.

    `columns`: None for all. The other arguments are those of `scan`. Raises LakeError.
    """
    from pyarrow.dataset import field

    from penstock.lake.table import dataset_of, open_table

    lake = lake_at(url)
    dataset = dataset_of(lake, MESSAGES, open_table(lake, MESSAGES, at))
    return dataset.to_table(columns, filter=_selected(field, topic, since, until))


def _selected(column: Callable[[str], Any], topic: str, since: datetime | None, until: datetime | None) -> Any:
    """Return the condition for the rows, by which files are skipped, as the library of `column` has it; None: all rows."""
    found = [column("topic") == topic] if topic else []
    if since is not None:
        found += [column("dt") >= _utc(since).date(), column("timestamp") >= _utc(since)]
    if until is not None:
        found += [column("dt") <= _utc(until).date(), column("timestamp") < _utc(until)]
    return reduce(and_, found) if found else None


def _utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
