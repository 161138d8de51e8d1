"""Which rows the sink takes, by their columns; tests/penstock/spark/test_spark_process.py writes them with Spark."""

import pytest
from pyspark.sql.types import LongType, StructType

from penstock.spark.options import OptionError, write_options
from penstock.spark.sink import NsqBatchWriter
from tests.cases import each

TEXT, TOPIC = StructType().add("body", "string"), {"topic": "out"}


@each("columns, options, overwrite, why", [
    (StructType().add("text", "string"), TOPIC, False, "expected a column body"),
    (StructType().add("body", LongType()), TOPIC, False, "expected a column body"),
    (TEXT, {}, False, "option topic, or a column"),
    (StructType().add("body", "string").add("other", LongType()), TOPIC, False, "column 'other' is unknown"),
    (StructType().add("body", "string").add("headers", "string"), TOPIC, False, "column headers is string"),
    (TEXT, TOPIC, True, r'use \.mode\("append"\)'),
])  # fmt: skip
def test_rows_that_are_no_messages_are_refused(
    columns: StructType, options: dict[str, str], overwrite: bool, why: str
) -> None:
    with pytest.raises(OptionError, match=why):
        NsqBatchWriter(write_options({"nsqd": "h:1", **options}), columns, overwrite)
