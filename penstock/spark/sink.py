"""Rows as messages: batch and streaming writes, each chunk of a partition published under a key of its own.

A task that Spark runs again publishes its chunks under the same keys, and nsqd drops the chunks that it knows
(-dedup-window). The key names query, batch, partition and chunk, and a digest of the chunk's content. If rows come in
another order the second time, the chunks differ and are published: duplicates are better than lost messages.

See docs/contributing/design/spark.md#the-sink.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from penstock.spark.ask import Asker
from penstock.spark.chunks import Chunk, Chunker
from penstock.spark.nodes import NoAnswer, Nodes
from penstock.spark.options import OptionError, WriteOptions
from penstock.spark.publishing import publish

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql.types import StructType


@dataclass
class Sent(WriterCommitMessage):
    """The counts of what one task has published."""

    messages: int
    duplicates: int  # messages among them that nsqd knew already


class _Writer:
    """The common part of both writers; raises OptionError for a schema that cannot be published."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise OptionError('messages can only be appended: use .mode("append")')
        types = {field.name: field.dataType.simpleString() for field in schema.fields}
        if types.get("body") not in ("binary", "string"):
            raise OptionError(f"expected a column body of type binary or string; there are {types}")
        if not options.topic and types.get("topic") != "string":
            raise OptionError("expected option topic, or a column topic of type string")
        wanted = {"headers": "map<string,string>", "key": "string"}
        for name, kind in wanted.items():
            if types.get(name, kind) != kind:
                raise OptionError(f"column {name} is {types[name]}: expected {kind}")
        strangers = sorted(types.keys() - {"body", "topic", *wanted})
        if strangers:
            raise OptionError(f"column {strangers[0]!r} is unknown: select body, and perhaps topic, headers and key")
        self._options = options

    def _publish(self, batches: Iterator[RecordBatch], job: str, partition: int) -> Sent:
        """Publish the rows of one partition, on an executor, and return the counts.

        Raises NoAnswer, Refused, Unreachable; ValueError for a row without a topic or a body.
        """
        sent, number, began = Sent(0, 0), 0, time.monotonic()
        with Asker() as asker:
            nodes, channel = Nodes(self._options.nsqd, self._options.lookupd), self._options.channel
            addresses = sorted(nodes.addresses(asker, self._options.topic if channel else ""))
            if not addresses:
                raise NoAnswer(f"nsqlookupd knows no nsqd{f' with topic {self._options.topic}' if channel else ''}")
            address = addresses[partition % len(addresses)]  # the same node when the task runs again
            for chunk in self._chunks(batches):
                sent.duplicates += publish(asker, address, chunk, channel, f"{job}/{partition}/{number}")
                sent.messages += chunk.count
                number += 1
                if self._options.rate:
                    time.sleep(max(0.0, began + sent.messages / self._options.rate - time.monotonic()))
        return sent

    def _chunks(self, batches: Iterator[RecordBatch]) -> Iterator[Chunk]:
        """Cut the rows into chunks of one topic each; the rows of a topic keep their order."""
        chunker = Chunker(self._options.topic, self._options.chunk_records, self._options.chunk_bytes)
        for batch in batches:
            yield from chunker.add(batch)
        yield from chunker.rest()


class NsqStreamWriter(_Writer, DataSourceStreamArrowWriter):
    """The writer of a stream; its keys begin with query and batch."""

    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        query, batch = (context.getLocalProperty(name) for name in ("sql.streaming.queryId", "streaming.sql.batchId"))
        return self._publish(iterator, f"{uuid.UUID(query).hex}/{batch}", context.partitionId())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing: all messages are published already."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing: published messages stay; Spark tries the batch again, and nsqd recognizes its chunks."""


class NsqBatchWriter(_Writer, DataSourceArrowWriter):
    """The writer of a table; its keys begin with the job's name, or a random one."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        super().__init__(options, schema, overwrite)
        self._job = options.job or uuid.uuid4().hex  # made once on the driver, so that it is the same in all tries

    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        return self._publish(iterator, self._job, context.partitionId())

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: all messages are published already."""

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: messages that were published stay."""
