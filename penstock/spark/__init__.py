"""Topics as tables for Spark: `spark.readStream.format("nsq")`, batch reads, and a sink. See docs/reference/spark.md.

    from penstock import spark as nsq
    nsq.register(session)          # not needed where the package is installed on the driver: pyspark_nsq does it
    session.readStream.format("nsq").option("lookupd", "127.0.0.1:4161").option("topic", "orders").load()

Read `source` (the format as Spark calls it), then `follower` (what to read next), `offsets`, `offset_files` and `options`,
`reading` over `frames` (what runs on executors), `sink` and `publishing` over `chunks` (rows as messages), `channel` over
`staging` (channels). `nodes` and `ask` find and ask nsqd with what `access` says, `holders` finds the logs of lost nodes.
`penstock.lake` uses the same without Spark: only `source`, `sink` and `channel` import pyspark.

Code that runs on executors imports the standard library, pyarrow and msgpack, and nothing of penstock but this package. Only
`channel` may import penstock.client.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(session: "SparkSession") -> None:
    """Register the format `nsq` with the session, and with executors that were given this package as a zip."""
    from penstock.spark.source import NsqDataSource

    session.dataSource.register(NsqDataSource)
