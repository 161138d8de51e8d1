"""Select messages of a table with pyarrow: by topic and time."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds

if TYPE_CHECKING:
    from deltalake import DeltaTable


def selected(table: DeltaTable, topic: str, since: datetime | None, until: datetime | None) -> tuple[Any, Any]:
    """Return a dataset of pyarrow and the condition for its rows; None: all rows.

    `topic`: "" for all. `since` is inclusive and `until` exclusive; both have a time zone. By statistics and partitions pyarrow
    skips files.
    """
    conditions = []
    if topic:
        conditions.append(ds.field("topic") == topic)
    if since is not None:
        conditions += [ds.field("dt") >= since.date(), ds.field("timestamp") >= since]
    if until is not None:
        conditions += [ds.field("dt") <= until.date(), ds.field("timestamp") < until]
    condition = None
    for one in conditions:
        condition = one if condition is None else condition & one
    return table.to_pyarrow_dataset(), condition
