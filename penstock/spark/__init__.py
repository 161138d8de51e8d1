"""Topics as tables for Spark: `spark.readStream.format("nsq")`, batch reads, and a sink. See docs/spark.md.

    from penstock import spark as nsq
    nsq.register(session)          # not needed where the package is installed on the driver: pyspark_nsq does it
    session.readStream.format("nsq").option("lookupd", "127.0.0.1:4161").option("topic", "orders").load()

Code that runs on executors imports the standard library, pyarrow and msgpack, and nothing of penstock but this package.
"""

from typing import TYPE_CHECKING

from penstock.spark.source import NsqDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["NsqDataSource", "register"]


def register(session: "SparkSession") -> None:
    """Register the format `nsq` with the session, and with executors that were given this package as a zip."""
    session.dataSource.register(NsqDataSource)
