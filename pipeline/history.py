"""`penstock pipeline history`: the rollups of one topic, or of all, as JSON on standard output. nsqadmin shows it.

    {"grain": "hour", "step": 3600, "from": S, "messages": [7, 0, ...], "bytes": [...], "rolled_up": N, "archived": N,
     "topics": [{"topic", "messages", "bytes"}, ...], "producers": [{"producer", "messages", "bytes"}, ...],
     "channels": [{"channel", "finished", "attempts", "requeued", "timed_out", "buried", "depth", "latency_p50", "latency_p95",
     "latency_p99", "latency_max"}, ...]}

The counts are of the newest steps; the first step begins at `from`, in s since the epoch. Latencies are in ns and cover
all messages finished in these steps. `topics` has the 1,000 with the most messages. `producers` and `channels` have 100
each, and only if one topic is asked for. The job reads Parquet with pyarrow, without Spark.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from penstock.lake.location import DELIVERIES, MESSAGES, ROLLUP, lake_at
from penstock.lake.table import open_table
from pipeline.report import Delivered
from pipeline.rollups import STEPS, bounds, read_rows

LONGEST = timedelta(days=36_500)
MOST_TOPICS, MOST_NAMED = 1000, 100


def run(given: argparse.Namespace) -> int:
    """Print the JSON and return the exit code. Raises LakeError."""
    lake, topic, grain, last = lake_at(given.lake), given.topic, given.grain, given.last
    archived = open_table(lake, MESSAGES).count()
    period = bounds(lake, None, None)
    step = STEPS[grain]
    since = period[1] - (last - 1) * step if period is not None and last * step < LONGEST else None
    rows = read_rows(lake, ROLLUP, grain, since, None, topic)
    begin = min((row["at"] for row in rows), default=datetime.fromtimestamp(0, UTC))
    count = (max(row["at"] for row in rows) - begin) // step + 1 if rows else 0
    data: dict[str, Any] = {"grain": grain, "step": int(step.total_seconds()), "from": int(begin.timestamp())}
    for name in ("messages", "bytes"):
        values = [0] * count
        for row in rows:
            values[(row["at"] - begin) // step] += row[name]
        data[name] = values
    data["archived"] = archived
    data["rolled_up"] = sum(row["messages"] for row in read_rows(lake, ROLLUP, "day"))
    data["topics"] = _sums(rows, "topic", MOST_TOPICS)
    data["producers"] = _sums((row for row in rows if row["producer"]), "producer", MOST_NAMED) if topic else []
    data["channels"] = _channels(read_rows(lake, DELIVERIES, grain, since, None, topic)) if topic else []
    json.dump(data, sys.stdout)
    print()
    return 0


def _sums(rows: Iterable[dict[str, Any]], key: str, most: int) -> list[dict[str, Any]]:
    """Return messages and bytes by `key`, the largest first, `most` at most."""
    found: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for row in rows:
        found[row[key]][0] += row["messages"]
        found[row[key]][1] += row["bytes"]
    largest = sorted(found.items(), key=lambda item: (-item[1][0], item[0]))[:most]
    return [{key: name, "messages": messages, "bytes": size} for name, (messages, size) in largest]


def _channels(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    found: dict[str, Delivered] = defaultdict(Delivered)
    for row in rows:
        found[row["channel"]].add(row)
    largest = sorted(found.items(), key=lambda item: (-item[1].finished, item[0]))[:MOST_NAMED]
    return [
        {
            "channel": name, "finished": one.finished, "attempts": one.attempts, "requeued": one.requeued,
            "timed_out": one.timed_out, "buried": one.buried, "depth": one.depth, "latency_p50": one.percentile(0.5),
            "latency_p95": one.percentile(0.95), "latency_p99": one.percentile(0.99), "latency_max": one.longest,
        }
        for name, one in largest
    ]  # fmt: skip
