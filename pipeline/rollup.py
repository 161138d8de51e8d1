"""`penstock pipeline rollup`: counts by minute, hour and day, per topic, node and producer, from the archive.

Each run takes the messages after the last run's offsets, so none counts twice however batches are compacted. Counts and
histograms are sums, so messages that come late for a minute are one more row of it: nothing is dropped after a watermark.
Sizes are in buckets of 4 %: bucket b holds 1.04 ** b up to 1.04 ** (b + 1) bytes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.lake import Lake, LakeError, Range, say, write
from pipeline.session import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

JOB = "rollup"
BASE = 1.04  # ratio of neighboring buckets
GRAINS = ("minute", "hour", "day")
_COUNTED = ("finished", "attempts", "requeued", "timed_out", "buried")  # fields of nsqd's statistics that are summed
_STATISTICS = (
    f"at bigint, topic string, channel string, producer string, {', '.join(f'{name} bigint' for name in _COUNTED)},"
    " depth bigint, latency struct<sum: bigint, max: bigint, buckets: map<string, bigint>>"
)
Place = tuple[str, str, str]  # topic, node, log


def runs(lake: Lake) -> list[dict[str, Any]]:
    """Return the manifests of all runs, the first run first. Raises LakeError."""
    found = []
    for path in sorted(lake.manifests.glob("rollup=*.json")):
        try:
            found.append(json.loads(path.read_text()))
        except (OSError, ValueError) as error:
            raise LakeError(f"{path} is not a valid manifest: {error}") from None
    return found


def run(given: argparse.Namespace) -> int:
    """Run the job and return the exit code. Raises LakeError, Missing."""
    lake, statistics = Lake(given.lake), given.statistics_topic  # to which nsqd publishes its delivery statistics
    lake.check()
    with lake.locked_by(JOB):
        before = runs(lake)
        done: dict[Place, int] = {tuple(one[:3]): one[3] for one in (before[-1]["places"] if before else [])}
        batches = [batch for batch in lake.batches() if any(_is_new(one, done) for one in batch.ranges)]
        if not batches:
            say("nothing new is archived since the last rollup")
            return 0
        spark = session("penstock rollup", given.master)
        try:
            frame = spark.read.parquet(*lake.files(batches))
            counts, number = _behind(frame, done), len(before)
            table = _written(_counted(counts), lake, GRAINS[0], number)
            for grain in GRAINS[1:]:  # an hour is the sum of its minutes, a day of its hours
                table = _written(_coarser(table, grain, *_MESSAGES), lake, grain, number)
            messages = table.groupBy().sum("messages").collect()[0][0] or 0
            if any(one.topic == statistics for batch in batches for one in batch.ranges):
                table = _delivered(counts, statistics)
                for grain in GRAINS:
                    table = _written(_coarser(table, grain, *_DELIVERIES), lake, deliveries(grain), number)
        finally:
            spark.stop()
        for one in (one for batch in batches for one in batch.ranges):
            done[one.place] = max(done.get(one.place, 0), one.last + 1)
        data = {"run": number, "messages": messages, "places": [[*place, end] for place, end in sorted(done.items())]}
        write(lake.manifests / f"rollup={number:010d}.json", data)
        say(f"rolled up {messages:,} messages, {sum(run['messages'] for run in runs(lake)):,} in total")
        return 0


def _is_new(one: Range, done: dict[Place, int]) -> bool:
    return one.last >= done.get(one.place, 0)


def _behind(frame: DataFrame, done: dict[Place, int]) -> DataFrame:
    """Select the messages that no earlier run has counted."""
    from pyspark.sql import functions as f

    for (topic, node, log), end in done.items():
        same = (f.col("topic") == topic) & (f.col("node") == node) & (f.col("log") == log)
        frame = frame.where(~(same & (f.col("offset") < end)))
    return frame


def _written(table: DataFrame, lake: Lake, name: str, run: int) -> DataFrame:
    """Write the table to the lake as one file, and return it as it is read back."""
    path = str(run_path(lake, name, run))
    table.coalesce(1).write.mode("overwrite").parquet(path)
    return table.sparkSession.read.parquet(path)


def run_path(lake: Lake, name: str, run: int) -> Path:
    """Return the directory of a run's table of that name."""
    return lake.root / "rollup" / name / f"run={run:010d}"


def _counted(frame: DataFrame) -> DataFrame:
    """Count messages and bytes by minute, topic, node and producer."""
    from pyspark.sql import functions as f

    size = f.length("body")
    bucket = f.floor(f.log(f.greatest(size, f.lit(1))) / f.log(f.lit(BASE))).cast("int")
    keys = ["topic", "node", "producer", "at"]
    named = frame.withColumn("at", f.date_trunc("minute", "timestamp")).withColumn("bucket", bucket)
    named = named.withColumn("producer", f.coalesce("producer", f.lit("")))
    buckets = named.groupBy(*keys, "bucket").agg(
        f.count("*").alias("messages"), f.sum(size).alias("bytes"), f.max(size).alias("largest")
    )
    return buckets.groupBy(*keys).agg(
        f.sum("messages").alias("messages"),
        f.sum("bytes").alias("bytes"),
        f.max("largest").alias("largest"),
        f.map_from_entries(f.sort_array(f.collect_list(f.struct("bucket", "messages")))).alias("sizes"),
    )


def deliveries(grain: str) -> str:
    """Return the name of the deliveries' table of that grain."""
    return f"deliveries/{grain}"


def _delivered(frame: DataFrame, statistics: str) -> DataFrame:
    """Parse the statistics of channels that nsqd/tasks/deliveries.py publishes every second.

    Its latency buckets are kept. Single events in the topic are not counted again.
    """
    from pyspark.sql import functions as f

    data = f.from_json(f.col("body").cast("string"), _STATISTICS).alias("data")
    rows = frame.where(f.col("topic") == statistics).select(data).select("data.*")
    # Other messages of the topic are not statistics.
    rows = rows.where("topic IS NOT NULL AND channel IS NOT NULL AND at BETWEEN 0 AND 99999999999")
    entries = f.transform(
        f.filter(f.map_entries("latency.buckets"), lambda e: e.key.rlike("^[0-9]{1,18}$") & e.value.isNotNull()),
        lambda e: f.struct(e.key.cast("bigint").alias("key"), e.value.alias("value")),
    )
    return rows.select(
        f.timestamp_seconds("at").alias("at"),
        "topic",
        "channel",
        f.coalesce("producer", f.lit("")).alias("producer"),
        *(f.coalesce(name, f.lit(0)).alias(name) for name in _COUNTED),
        "depth",
        f.col("latency.sum").alias("latency_sum"),
        f.col("latency.max").alias("latency_max"),
        f.map_from_entries(entries).alias("latencies"),
    )


# of each kind of table: its keys, the columns that are summed, those whose maximum counts, and its histogram
_MESSAGES = ("topic", "node", "producer"), ("messages", "bytes"), ("largest",), "sizes"
_DELIVERIES = ("topic", "channel", "producer"), (*_COUNTED, "latency_sum"), ("depth", "latency_max"), "latencies"


def _coarser(
    table: DataFrame, grain: str, names: Sequence[str], sums: Sequence[str], maxima: Sequence[str], histogram: str
) -> DataFrame:
    """Sum a table to a coarser grain."""
    from pyspark.sql import functions as f

    keys = [*names, "at"]
    coarse = table.withColumn("at", f.date_trunc(grain, "at"))
    columns = [*(f.sum(name).alias(name) for name in sums), *(f.max(name).alias(name) for name in maxima)]
    buckets = coarse.select(*keys, f.explode(histogram).alias("bucket", "count"))
    counts = buckets.groupBy(*keys, "bucket").agg(f.sum("count").alias("count"))
    entries = f.map_from_entries(f.sort_array(f.collect_list(f.struct("bucket", "count"))))
    return coarse.groupBy(*keys).agg(*columns).join(counts.groupBy(*keys).agg(entries.alias(histogram)), keys, "left")
