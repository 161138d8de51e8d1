"""Registers the format `nsq`: Spark imports modules whose names begin with `pyspark_` when it looks for a format.

`submit` is the file that spark-submit needs to run a job of the pipeline.
"""

from penstock.spark.source import NsqDataSource as DefaultSource

__all__ = ["DefaultSource"]
