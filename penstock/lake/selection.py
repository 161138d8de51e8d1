"""Select messages of a table with pyarrow: by topic and time."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pyarrow.dataset as ds


def selected(topic: str, since: datetime | None, until: datetime | None) -> Any:
    """Return the condition for the rows of a dataset, by which pyarrow skips files; None: all rows.

    `topic`: "" for all. `since` is inclusive and `until` exclusive; both have a time zone.
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
    return condition
