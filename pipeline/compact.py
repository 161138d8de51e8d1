"""`penstock pipeline compact`: many small files to few. By the manifests each message is in the archive once at all times."""

from __future__ import annotations

import argparse
import shutil

from pipeline.archive import ranges_of
from pipeline.lake import Batch, Lake, LakeError, files_of, say
from pipeline.session import session

JOB = "compact"
LEAST = 2  # batches that are worth compacting


def run(given: argparse.Namespace) -> int:
    """Run the job and return the exit code. Raises LakeError, Missing."""
    lake = Lake(given.lake)
    lake.check()
    with (
        lake.locked_by(JOB),
        lake.locked_by("rollup"),
        lake.locked_by("replay"),
    ):  # they read the files that are removed
        lake.remove_compacted()  # remove what a killed run left behind
        fresh = [batch for batch in lake.batches() if not batch.is_compacted]
        if len(fresh) < LEAST:
            say(f"nothing to compact: {len(fresh)} new batches")
            return 0
        numbers = tuple(sorted(number for batch in fresh for number in batch.batches))
        name = f"{numbers[0]:010d}-{numbers[-1]:010d}"
        path = lake.root / "compact" / name
        spark = session("penstock compact", given.master)
        try:
            full = [batch for batch in fresh if batch.count]
            if full:
                from pyspark.sql import functions as f

                frame = spark.read.parquet(*lake.files(full)).withColumn("name", f.col("topic"))
                frame = frame.withColumn("dt", f.to_date("timestamp")).repartition("name", "dt")
                writer = frame.sortWithinPartitions("name", "dt", "node", "offset").write.mode("overwrite")
                writer.option("maxRecordsPerFile", given.rows).partitionBy("name", "dt").parquet(str(path))
            ranges = ranges_of(spark.read.parquet(*files_of(path))) if full else ()
        finally:
            spark.stop()
        made = Batch(name, f"compact/{name}", numbers, ranges)
        before = sum(batch.count for batch in fresh)
        if made.count != before:
            shutil.rmtree(path, ignore_errors=True)
            raise LakeError(
                f"compacting {before} messages gave {made.count}: nothing was changed;"
                " check that no other program writes to the lake"
            )
        lake.finish(made)
        lake.remove_compacted()
        say(f"compacted {len(fresh)} batches with {before:,} messages into {path}")
        return 0
