"""`penstock pipeline archive`: topics to Parquet, each message once, whichever process is killed at any moment.

A micro-batch goes to a directory of its own, which a second try writes over. After that, its manifest names the offsets
in it. The cursor on nsqd then follows, so that nsqd shows the lag and may hold back retention.

See docs/contributing/design/spark.md#exactly-once.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.spark.ask import Asker
from penstock.spark.nodes import NoAnswer, Nodes, move_cursors
from penstock.spark.offsets import LogPosition, NodeTopic
from penstock.spark.options import ReadOptions, read_options
from pipeline.lake import Batch, Lake, Range, files_of, gaps, say
from pipeline.session import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

JOB = "archive"
FILE_ROWS = 2_000_000  # rows of a file, at most


def server_options(given: argparse.Namespace) -> dict[str, str]:
    """Return the options of the data source or the sink with the addresses of the servers."""
    return {name: value for name in ("nsqd", "lookupd") if (value := getattr(given, name))}


@dataclass(slots=True)
class Archiver:
    """Writes each micro-batch to the lake; Spark calls it with the rows and the batch number."""

    lake: Lake
    options: ReadOptions
    done: int = 0  # messages archived so far
    began: float = field(default_factory=time.monotonic)

    def __call__(self, frame: DataFrame, number: int) -> None:
        if self.lake.is_compacted(number):
            return  # the batch was written and compacted before Spark committed it
        name, began = f"batch={number:010d}", time.monotonic()
        path = self.lake.root / "archive" / name
        from pyspark.sql import functions as f

        dated = frame.withColumn("name", f.col("topic")).withColumn("dt", f.to_date("timestamp"))
        writer = dated.write.mode("overwrite").option("maxRecordsPerFile", FILE_ROWS)
        writer.partitionBy("name", "dt").parquet(str(path))  # the files hold `topic`, too: each can be read alone
        files = files_of(path)
        ranges = ranges_of(frame.sparkSession.read.parquet(*files)) if files else ()
        batch = Batch(name, f"archive/{name}", (number,), ranges)
        self.lake.finish(batch)
        self._move_cursors(ranges)
        self.done += batch.count
        took = time.monotonic() - began
        rate = batch.count / took if took else 0
        say(f"batch {number}: {batch.count:,} messages in {took:.1f} s ({rate:,.0f}/s), {self.done:,} since the start")

    def _move_cursors(self, ranges: tuple[Range, ...]) -> None:
        if not self.options.cursor:
            return
        to = {NodeTopic(one.topic, one.node): LogPosition(one.log, one.last + 1) for one in ranges}
        with Asker() as asker:
            topics = sorted({one.topic for one in ranges})
            try:
                found, _ = Nodes(self.options.nsqd, self.options.lookupd).ranges_of(asker, topics)
            except NoAnswer:
                return
            for failure in move_cursors(asker, found, to, self.options.cursor, ""):
                say(f"cannot advance the cursor: {failure}")


def ranges_of(frame: DataFrame) -> tuple[Range, ...]:
    """Return the range of offsets for each topic, node and log in the rows."""
    from pyspark.sql import functions as f

    moment = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'"
    rows = (
        frame.groupBy("topic", "node", "log")
        .agg(
            f.min("offset").alias("first"),
            f.max("offset").alias("last"),
            f.count("*").alias("count"),
            f.sum(f.length("body")).alias("size"),
            f.date_format(f.min("timestamp"), moment).alias("oldest"),
            f.date_format(f.max("timestamp"), moment).alias("newest"),
        )
        .collect()
    )
    found = [Range(**{**row.asDict(), "topic": str(row["topic"])}) for row in rows]
    return tuple(sorted(found, key=lambda one: (one.place, one.first)))


def run(given: argparse.Namespace) -> int:
    """Run the job and return the exit code.

    Raises LakeError, Missing, and the errors of the data source for wrong options.
    """
    from penstock.spark.source import NsqStreamReader

    lake, topics = Lake(given.out), ",".join(given.topic)
    options = server_options(given) | {
        "startingOffsets": given.start,
        "failOnDataLoss": str(not given.skip_lost).lower(),
    }
    for name, value in (
        ("topics", topics),
        ("topicPattern", given.topic_pattern),
        ("maxRecordsPerTrigger", given.max_records),
        ("cursorName", given.cursor),
        ("cursorHold", given.hold),
    ):
        options |= {name: str(value)} if value else {}
    parsed = read_options(options)
    NsqStreamReader(parsed).check()
    lake.create()
    with lake.locked_by(JOB):
        checkpoint = lake.checkpoint(JOB, {"topics": topics, "pattern": given.topic_pattern})
        spark = session("penstock archive", given.master)
        archiver = Archiver(lake, parsed)
        stream = spark.readStream.format("nsq").options(**options).load()
        writer = stream.writeStream.foreachBatch(archiver).option("checkpointLocation", str(checkpoint))
        pace = {"availableNow": True} if given.once else {"processingTime": f"{given.every:g} seconds"}
        query = writer.trigger(**pace).start()
        try:
            query.awaitTermination()
        except KeyboardInterrupt:
            query.stop()
        finally:
            spark.stop()
        return _report(lake, archiver)


def _report(lake: Lake, archiver: Archiver) -> int:
    batches = lake.batches()
    took = time.monotonic() - archiver.began
    counts: Counter[str] = Counter()
    for one in (one for batch in batches for one in batch.ranges):
        counts[one.topic] += one.count
    say(f"archived {archiver.done:,} messages in {took:.0f} s; {lake.root} now has {counts.total():,}:")
    for topic, count in sorted(counts.items()):
        say(f"  {topic}: {count:,}")
    for gap in gaps(batches):
        say(f"  MISSING: {gap}")
    return 0
