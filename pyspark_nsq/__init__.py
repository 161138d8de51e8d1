"""Registers the format `nsq`: Spark imports modules whose names begin with `pyspark_` when it looks for a format."""

from penstock.spark.source import NsqDataSource as DefaultSource

__all__ = ["DefaultSource"]
