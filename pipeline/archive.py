"""`penstock pipeline archive`: topics to Parquet, each message once, whatever is killed when.

A micro-batch goes to a directory of its own, which a second try writes over; its manifest says afterwards which offsets it has.
The cursor then follows, so nsqd tells the lag, and may hold back retention.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.spark.ask import Asker, Refused, Unreachable
from penstock.spark.nodes import Nobody, Nodes
from pipeline.lake import Batch, Lake, Range, files_of, gaps
from pipeline.session import prepare, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

JOB = "archive"
FILE_ROWS = 2_000_000  # of a file, at most


@dataclass(frozen=True, slots=True)
class Source:
    """Where messages come from, as the command line says."""

    nsqd: str = ""
    lookupd: str = ""
    topics: str = ""
    pattern: str = ""

    def options(self) -> dict[str, str]:
        """Of the data source."""
        given = {"nsqd": self.nsqd, "lookupd": self.lookupd, "topics": self.topics, "topicPattern": self.pattern}
        return {name: value for name, value in given.items() if value}


@dataclass(slots=True)
class Archiver:
    """See above. Called with each micro-batch."""

    lake: Lake
    source: Source
    cursor: str
    done: int = 0  # messages
    began: float = field(default_factory=time.monotonic)

    def __call__(self, frame: DataFrame, number: int) -> None:
        if any(number in batch.batches for batch in self.lake.batches() if "-" in batch.name):
            return  # it was written, and compacted, before it was committed
        name, began = f"batch={number:010d}", time.monotonic()
        path = self.lake.root / "archive" / name
        from pyspark.sql import functions as f

        dated = frame.withColumn("name", f.col("topic")).withColumn("dt", f.to_date("timestamp"))
        writer = dated.write.mode("overwrite").option("maxRecordsPerFile", FILE_ROWS)
        writer.partitionBy("name", "dt").parquet(str(path))  # `topic` is in the files, too: each can be read by itself
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
        if not self.cursor:
            return
        nodes = Nodes(_words(self.source.nsqd), _words(self.source.lookupd))
        with Asker() as asker:
            try:
                there, _ = nodes.look(asker, sorted({one.topic for one in ranges}))
            except Nobody:
                return
            addresses = {(place.topic, place.node, one.log): one.address for place, one in there.items()}
            for one in ranges:
                address = addresses.get(one.place)
                arguments = {"topic": one.topic, "name": self.cursor, "to": str(one.last + 1), "log": one.log}
                if address is not None:
                    try:
                        asker.post(address, "/topic/cursor", arguments)
                    except (Refused, Unreachable) as error:
                        say(f"the cursor stays behind: {error}")


def ranges_of(frame: DataFrame) -> tuple[Range, ...]:
    """What is in it."""
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


def archive(
    lake: Lake,
    source: Source,
    *,
    once: bool,
    every: float,
    start: str,
    max_records: int,
    cursor: str,
    hold: str,
    goes_on: bool,
    master: str,
) -> int:
    """The exit code. Raises LakeError, Missing, and what the source says of its options."""
    prepare()
    from penstock.spark.options import read_options
    from penstock.spark.source import NsqStreamReader

    options = source.options() | {"startingOffsets": start, "failOnDataLoss": str(not goes_on).lower()}
    options |= {"maxRecordsPerTrigger": str(max_records)} if max_records else {}
    options |= {"cursorName": cursor} if cursor else {}
    options |= {"cursorHold": hold} if cursor and hold else {}
    NsqStreamReader(read_options(options)).check()
    lake.create()
    with lake.held_by(JOB):
        checkpoint = lake.checkpoint(JOB, {"topics": source.topics, "pattern": source.pattern})
        spark = session("penstock archive", master)
        archiver = Archiver(lake, source, cursor)
        stream = spark.readStream.format("nsq").options(**options).load()
        writer = stream.writeStream.foreachBatch(archiver).option("checkpointLocation", str(checkpoint))
        writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=f"{every:g} seconds")
        query = writer.start()
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
    counts: dict[str, int] = {}
    for one in (one for batch in batches for one in batch.ranges):
        counts[one.topic] = counts.get(one.topic, 0) + one.count
    say(f"{archiver.done:,} messages archived in {took:.0f} s; {lake.root} has {sum(counts.values()):,}:")
    for topic, count in sorted(counts.items()):
        say(f"  {topic}: {count:,}")
    for gap in gaps(batches):
        say(f"  MISSING: {gap}")
    return 0


def say(text: str) -> None:
    """To whoever watches."""
    print(text, file=sys.stderr, flush=True)


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip().removeprefix("http://").rstrip("/") for word in text.split(",") if word.strip())
