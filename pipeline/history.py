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
from typing import Any

from pipeline.lake import Lake
from pipeline.report import Delivered, read_rows
from pipeline.rollup import deliveries, runs

STEPS = {"minute": 60, "hour": 3600, "day": 86_400}  # s
MOST_TOPICS, MOST_NAMED = 1000, 100


def run(given: argparse.Namespace) -> int:
    """Print the JSON and return the exit code. Raises LakeError."""
    lake, topic, grain, last = Lake(given.lake), given.topic, given.grain, given.last
    lake.check()
    finished = runs(lake)
    rows = read_rows(lake, finished, grain, None, None)
    step = STEPS[grain]
    own = [row for row in rows if not topic or row["topic"] == topic]
    end = max((int(row["at"].timestamp()) for row in own), default=0)
    begin = max(end - (last - 1) * step, min((int(row["at"].timestamp()) for row in own), default=0))
    own = [row for row in own if int(row["at"].timestamp()) >= begin]
    data: dict[str, Any] = {"grain": grain, "step": step, "from": begin}
    count = (end - begin) // step + 1 if own else 0
    for name in ("messages", "bytes"):
        values = [0] * count
        for row in own:
            values[(int(row["at"].timestamp()) - begin) // step] += row[name]
        data[name] = values
    data["archived"] = sum(batch.count for batch in lake.batches())
    data["rolled_up"] = sum(run["messages"] for run in finished)
    data["topics"] = _sums(own, "topic", MOST_TOPICS)
    data["producers"] = _sums((row for row in own if row["producer"]), "producer", MOST_NAMED) if topic else []
    table = read_rows(lake, finished, deliveries(grain), None, None) if topic else []
    data["channels"] = _channels(
        row for row in table if row["topic"] == topic and int(row["at"].timestamp()) >= begin
    )  # fmt: skip
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
