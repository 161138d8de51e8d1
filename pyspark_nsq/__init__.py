"""Spark imports modules whose names begin with `pyspark_` when it looks for a format: this one registers `nsq`."""

from penstock.spark.source import NsqDataSource as DefaultSource

__all__ = ["DefaultSource"]
