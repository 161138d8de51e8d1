"""Read the rows of rollups, with pyarrow."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pyarrow.compute as pc
import pyarrow.dataset as ds

from penstock.lake.location import ROLLUP, Lake
from penstock.lake.table import dataset_of, exists, open_table

STEPS = {"minute": timedelta(minutes=1), "hour": timedelta(hours=1), "day": timedelta(days=1)}


def read_rows(
    lake: Lake, name: str, grain: str, since: datetime | None = None, until: datetime | None = None, topic: str = ""
) -> list[dict[str, Any]]:
    """Return the rows of a rollup table whose step overlaps the period; [] if there is no such table.

    `since` is inclusive and `until` exclusive; `topic`: "" for all. Raises LakeError.
    """
    if not exists(lake, name):
        return []
    dataset, condition = _selected(lake, name, grain, since, until)
    if topic:
        condition &= ds.field("topic") == topic
    rows: list[dict[str, Any]] = dataset.to_table(filter=condition).to_pylist()
    return rows


def bounds(lake: Lake, since: datetime | None, until: datetime | None) -> tuple[datetime, datetime] | None:
    """Return the first and the last minute of a period in which messages were published; None: none is rolled up.

    Raises LakeError.
    """
    if not exists(lake, ROLLUP):
        return None
    dataset, condition = _selected(lake, ROLLUP, "minute", since, until)
    first, last = pc.min_max(dataset.to_table(["at"], filter=condition).column("at")).as_py().values()
    return None if first is None else (first, last)


def _selected(lake: Lake, name: str, grain: str, since: datetime | None, until: datetime | None) -> tuple[Any, Any]:
    condition = ds.field("grain") == grain
    if since is not None:
        condition &= (ds.field("dt") >= since.date()) & (ds.field("at") > since - STEPS[grain])
    if until is not None:
        condition &= (ds.field("dt") <= until.date()) & (ds.field("at") < until)
    return dataset_of(lake, name, open_table(lake, name)), condition
