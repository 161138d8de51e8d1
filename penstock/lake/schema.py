"""The columns of the table of messages."""

from __future__ import annotations

import pyarrow as pa

from penstock.spark.frames import schema_of

NODE = schema_of(
    "topic", "node", "log", "offset", "message_id", "timestamp", "due", "producer", "key", "headers", "body"
)
COLUMNS = NODE.append(pa.field("dt", pa.date32()))  # the day of `timestamp`, UTC: a partition
# columns whose minimum and maximum the table knows for each file
MEASURED = ("topic", "node", "log", "offset", "timestamp")
BY_TOPIC, BY_DAY = ("topic", "dt"), ("dt",)  # partitions
MOST_TOPICS = 100  # beyond these a table is not partitioned by topic: it would have a directory and a file for each
