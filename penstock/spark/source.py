"""The data source `nsq` with its readers and writers, as Spark calls them.

Spark constructs readers twice and pickles them, so __init__ sets plain data only, and connections are made when they are
needed.

See docs/contributing/design/spark.md#how-spark-calls-a-source.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from penstock.spark.ask import Asker
from penstock.spark.channel import NsqChannelReader
from penstock.spark.follower import IDLE, Follower, Positions
from penstock.spark.frames import HEADERS, PLAIN, SCHEMA, WITH_HEADERS
from penstock.spark.nodes import NoAnswer
from penstock.spark.offset_files import OffsetFiles
from penstock.spark.offsets import LogPosition, Span, clipped, encode, ends, firsts_of, moved
from penstock.spark.options import (
    EARLIEST,
    LATEST,
    OptionError,
    ReadOptions,
    channel_options,
    from_comment,
    read_options,
    table_options,
    to_comment,
    write_options,
)
from penstock.spark.reading import read
from penstock.spark.sink import NsqBatchWriter, NsqStreamWriter

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql.types import StructType


class NsqDataSource(DataSource):
    """The format `nsq`: it makes the reader or writer that the options ask for.

    Spark passes the options of CREATE TABLE when the table is made, and not when it is read. So they become the comment of the
    column `topic`, which Spark keeps with the columns.
    """

    @classmethod
    def name(cls) -> str:
        return "nsq"

    def schema(self) -> str:
        of_table = table_options(self.options)
        options = of_table or self.options
        has_headers = channel_options(options) is None and read_options(options).headers
        columns = SCHEMA + (HEADERS if has_headers else "")
        if not of_table:
            return columns
        comment = to_comment(of_table).replace("\\", r"\\").replace("'", r"\'")
        return columns.replace("topic string", f"topic string COMMENT '{comment}'", 1)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = self._options_with(schema)
        if channel_options(options) is not None:
            raise OptionError("mode=channel is for streams: a channel's messages are gone once they are read")
        return NsqBatchReader(read_options(options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = self._options_with(schema)
        channel = channel_options(options)
        return NsqStreamReader(read_options(options)) if channel is None else NsqChannelReader(channel)

    def _options_with(self, schema: StructType) -> dict[str, str]:
        """Return the options of the table in the catalog, if it is one, and those of the query."""
        return _table_options(schema) | {name.lower(): value for name, value in self.options.items()}

    def writer(self, schema: StructType, overwrite: bool) -> NsqBatchWriter:
        if _table_options(schema):
            raise OptionError('tables of the catalog are for reading: use write.format("nsq")')
        return NsqBatchWriter(write_options(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> NsqStreamWriter:
        return NsqStreamWriter(write_options(self.options), schema, overwrite)


def _table_options(schema: StructType) -> dict[str, str]:
    """Return the options of a table in the catalog; {}: it is none. Raises OptionError."""
    comments = [column.metadata.get("comment", "") for column in schema if column.name == "topic"]
    return from_comment(comments[0]) if comments else {}


@dataclass(frozen=True)
class SpansPartition(InputPartition):
    """The part of a read that one task does."""

    spans: tuple[Span, ...]


class _Reading:
    """The common part of batch and stream readers."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """Read all messages of a partition, on an executor."""
        if not isinstance(partition, SpansPartition):
            return  # if a reader has no partitions, Spark makes one of its own
        schema = WITH_HEADERS if self._options.headers else PLAIN
        with Asker() as asker:
            for span in partition.spans:
                yield from read(asker, span, self._options, schema)


class NsqBatchReader(_Reading, DataSourceReader):
    """A table with the messages that the topics had when it was first read."""

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the read. Spark calls this once and uses the result for later actions too, so the table does not change."""
        with Asker() as asker:
            follower = Follower(self._options, asker)
            follower.ask_all()
            start = follower.resolve(self._options.starting, EARLIEST)
            end = follower.resolve(self._options.ending, LATEST)
            for place, at in end.items():
                if at.next < start[place].next:
                    first = start[place].next
                    raise OptionError(f"{place} would be read from {first} to {at.next}: the end is before the start")
            return [SpansPartition(task) for task in follower.plan(start, end)]


class NsqStreamReader(_Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream. One process of the driver calls every method but `read`, one call at a time."""

    def __init__(self, options: ReadOptions) -> None:
        super().__init__(options)
        self._offsets = OffsetFiles(options.offsets)
        self._made: Follower | None = None
        self._initial: dict[str, Any] | None = None
        self._target: Positions | None = None  # the end of Trigger.AvailableNow; None: another trigger
        self._oldest: datetime | None = None  # when the oldest message was published that no batch had read then
        self._done: Positions = {}  # the positions up to which batches are done, as the cursors were moved last

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_made": None}

    @property
    def _follower(self) -> Follower:
        if self._made is None:
            self._made = Follower(self._options, Asker())
        return self._made

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_records:
            return ReadMaxRows(self._options.max_records)
        return ReadMaxBytes(self._options.max_bytes) if self._options.max_bytes else ReadAllAvailable()

    def initialOffset(self) -> dict[str, Any]:
        """Return the offsets at which the stream begins.

        Spark calls this twice, and again after a first batch that failed. The named cursor makes the result the same
        each time. Raises OptionError for an end, which a stream does not have.
        """
        if self._options.has_end:
            raise OptionError("endingOffsets and endingTimestamp are for batch reads; a stream has no end")
        if self._initial is None:
            self._follower.ask_all(may_be_deleted=not self._options.fails_on_loss)
            start = self._follower.resolve(self._options.starting, LATEST)
            if self._options.cursor and not self._options.starting.word:
                start |= self._cursors(start)
            failures = self._follower.move_cursors(start)
            if failures:
                raise NoAnswer(f"option cursorName={self._options.cursor!r}: {'; '.join(failures)}")
            self._initial, self._done = self._offsets.store(start), start
        return self._initial

    def prepareForTriggerAvailableNow(self) -> None:
        self._follower.ask_all(may_be_deleted=not self._options.fails_on_loss)
        self._target = ends({}, self._follower.ranges)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next batch; wait for new messages up to pollMs, since Spark asks again at once.

        Spark calls this when the batches up to `start` are done.
        """
        begin, deadline = self._offsets.load(start), time.monotonic() + self._options.poll
        self._move_cursors(begin)
        while True:
            end = self._follower.end_after(begin, self._target)
            if end != begin or self._target is not None or time.monotonic() >= deadline:
                break
            time.sleep(IDLE)
        if isinstance(limit, ReadMaxRows):
            end = self._clipped(begin, end, limit.max_rows)
        elif isinstance(limit, ReadMaxBytes):
            new = {place for place, at in end.items() if at != begin.get(place)}
            end = self._clipped(begin, end, max(1, limit.max_bytes // self._follower.message_size(new)))
        self._oldest = self._follower.oldest_unread(begin, end)
        return self._offsets.store(end, start)

    def _clipped(self, begin: Positions, end: Positions, most: int) -> Positions:
        ranges = self._follower.ranges
        return clipped(moved(begin, end, ranges), end, firsts_of(ranges), most)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the last known end without asking the nodes: Spark calls this many times a second.

        Spark shows it as latestOffset of the progress; `behind` counts the messages after the last batch, and `oldestUnread` is
        when the oldest of them was published; null: there is none. With offsetsLocation, topics without such messages are left
        out.
        """
        follower = self._follower
        if not follower.ranges:
            return None
        latest, behind = ends({}, follower.ranges), follower.behind(self._done)
        if self._options.offsets:
            latest = {place: at for place, at in latest.items() if self._done.get(place) != at}
        oldest = self._oldest.isoformat(timespec="milliseconds") if behind and self._oldest is not None else None
        return encode(latest) | {"behind": behind, "oldestUnread": oldest}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Plan a batch.

        After a crash this is the first call. Executors then find the nodes themselves, unless the batch contains a new
        topic or node, whose first offset must be asked for, or another log, which may continue the one before.
        """
        begin, stop = self._offsets.load(start), self._offsets.load(end)
        self._follower.learn(begin, stop)
        return [SpansPartition(task) for task in self._follower.plan(begin, stop)]

    def commit(self, end: dict[str, Any]) -> None:
        """Move the named cursors: everything before `end` is processed. Spark calls this one batch late."""
        self._move_cursors(self._offsets.load(end))

    def stop(self) -> None:
        if self._made is not None:
            self._made.asker.close()

    # ---- named cursors, which show the lag and hold retention

    def _cursors(self, start: Positions) -> Positions:
        """Return the positions of the named cursor where it exists already."""
        found = {}
        for place, at in start.items():
            one = self._follower.ranges[place]
            answer = self._follower.asker.json(one.address, "/topic/cursors", {"topic": place.topic, "log": one.log})
            for cursor in answer["cursors"]:
                if cursor["name"] == self._options.cursor and cursor["offset"] >= one.first:
                    found[place] = LogPosition(at.log, int(cursor["offset"]))
        return found

    def _move_cursors(self, to: Positions) -> None:
        """Move the named cursors that are not there yet. One that stays behind is moved with the next batch."""
        known = self._follower.ranges
        new = {place: at for place, at in to.items() if place in known and self._done.get(place) != at}
        self._follower.move_cursors(new)
        self._done |= new
