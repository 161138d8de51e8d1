"""Spark as the load of the pipeline's rows: a process with a session on two cores that takes jobs line by line.

    python -m bench.spark_load DIRECTORY     then on standard input JSON: {"do": JOB, "nsqd": "h:p", "topic": "t", ...}

Each job is answered by a line of JSON: {"rows": N, "seconds": S}. `idle` is answered once its query is started.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.session import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CORES = 2
BODY = 200  # bytes
_WARM = 1000  # rows that are written before the first measurement


class Work:
    """The jobs that can be requested; each returns its number of rows."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self._spark = spark
        self._directory = directory
        self._count = 0

    def noop(self, given: dict[str, Any]) -> int:
        """Read a whole topic and drop the rows."""
        self._table(given).write.format("noop").mode("overwrite").save()
        return int(given["rows"])

    def parquet(self, given: dict[str, Any]) -> int:
        """Write a whole topic to Parquet."""
        path = str(self._directory / "parquet")
        self._table(given).write.mode("overwrite").parquet(path)
        return self._spark.read.parquet(path).count()

    def bodies(self, given: dict[str, Any]) -> int:
        """Make the rows that `sink` publishes."""
        from pyspark.sql import functions as f

        rows = self._spark.range(int(given["rows"]), numPartitions=CORES)
        body = f.rpad(f.col("id").cast("string"), BODY, ".").cast("binary")
        rows.select(body.alias("body")).write.mode("overwrite").parquet(str(self._directory / "bodies"))
        return int(given["rows"])

    def sink(self, given: dict[str, Any]) -> int:
        """Publish the rows of the Parquet files that `bodies` made."""
        frame = self._spark.read.parquet(str(self._directory / "bodies"))
        count = frame.count()
        frame.write.format("nsq").mode("append").options(nsqd=given["nsqd"], topic=given["topic"]).save()
        return count

    def channel(self, given: dict[str, Any]) -> int:
        """Stage and read a whole channel, and drop the rows."""
        place = self._fresh("channel")
        stream = self._spark.readStream.format("nsq").options(
            nsqd=given["nsqd"],
            topic=given["topic"],
            channel=given["channel"],
            mode="channel",
            stagingLocation=f"{place}/stage",
        )
        query = self._start(stream.load(), place, once=True)
        query.awaitTermination()
        return sum(int(one["numInputRows"]) for one in query.recentProgress)

    def idle(self, given: dict[str, Any]) -> int:
        """Start a query that waits for new messages."""
        stream = self._spark.readStream.format("nsq").options(nsqd=given["nsqd"], topic=given["topic"])
        self._start(stream.load(), self._fresh("idle"), once=False)
        return 0

    def _table(self, given: dict[str, Any]) -> DataFrame:
        options = {"nsqd": given["nsqd"], "topic": given["topic"], "minPartitions": str(CORES)}
        return self._spark.read.format("nsq").options(**options).load()

    def _start(self, frame: DataFrame, place: Path, *, once: bool) -> Any:
        writer = frame.writeStream.format("noop").option("checkpointLocation", f"{place}/checkpoint")
        return (writer.trigger(availableNow=True) if once else writer).start()

    def _fresh(self, name: str) -> Path:
        self._count += 1
        return self._directory / f"{name}{self._count}"


def main(directory: str) -> None:
    """Run the process; see the head of this file."""
    os.environ.setdefault("PYSPARK_SUBMIT_ARGS", "--driver-memory 2g pyspark-shell")
    spark = session("bench", f"local[{CORES}]")
    spark.range(_WARM).write.format("noop").mode("overwrite").save()
    work = Work(spark, Path(directory))
    print("ready", flush=True)
    for line in sys.stdin:
        given = json.loads(line)
        job: Callable[[dict[str, Any]], int] = getattr(work, given["do"])
        began = time.perf_counter()
        rows = job(given)
        print(json.dumps({"rows": rows, "seconds": time.perf_counter() - began}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
