"""The data source `nsq` with its readers and writers, as Spark calls them.

Spark constructs readers twice and pickles them, so __init__ sets plain data only, and connections are made when they are
needed. An offset never goes beyond what nodes have reported as durable, so a batch that is read again is the same.

See docs/contributing/design/spark.md#how-spark-calls-a-source.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from penstock.spark.ask import Asker, Refused, Unreachable
from penstock.spark.channel import NsqChannelReader
from penstock.spark.frames import HEADERS, SCHEMA
from penstock.spark.holders import Holders
from penstock.spark.nodes import NoAnswer, Nodes, move_cursors, range_of
from penstock.spark.offsets import (
    OWN,
    PROMOTED,
    LogPosition,
    NodeTopic,
    Span,
    TopicRange,
    clipped,
    decode,
    encode,
    ends,
    is_behind,
    moved,
    old_log,
    spans,
)
from penstock.spark.options import (
    EARLIEST,
    LATEST,
    OptionError,
    ReadOptions,
    Start,
    channel_options,
    read_options,
    write_options,
)
from penstock.spark.reading import firsts_of, lost, read
from penstock.spark.sink import NsqBatchWriter, NsqStreamWriter

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql.types import StructType

IDLE = 1.0  # s between two rounds of requests, one for each topic and node, while nothing is new
REMEMBERED = 5.0  # s after which topics and nodes are looked up again


class NsqDataSource(DataSource):
    """The format `nsq`: it makes the reader or writer that the options ask for."""

    @classmethod
    def name(cls) -> str:
        return "nsq"

    def schema(self) -> str:
        if channel_options(self.options) is not None:
            return SCHEMA
        return SCHEMA + (HEADERS if read_options(self.options).headers else "")

    def reader(self, schema: StructType) -> DataSourceReader:
        if channel_options(self.options) is not None:
            raise OptionError("mode=channel is for streams: a channel's messages are gone once they are read")
        return NsqBatchReader(read_options(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        channel = channel_options(self.options)
        if channel is not None:
            return NsqChannelReader(channel)
        options = read_options(self.options)
        if options.ending != Start(word=LATEST):
            raise OptionError("endingOffsets and endingTimestamp are for batch reads; a stream has no end")
        return NsqStreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> NsqBatchWriter:
        return NsqBatchWriter(write_options(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> NsqStreamWriter:
        return NsqStreamWriter(write_options(self.options), schema, overwrite)


@dataclass(frozen=True)
class SpanPartition(InputPartition):
    """The part of a read that one task does."""

    span: Span


class _Reading:
    """The common part of batch and stream readers."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """Read all messages of a partition, on an executor."""
        if not isinstance(partition, SpanPartition):
            return iter(())  # if a reader has no partitions, Spark makes one of its own
        return read(partition.span, self._options)

    def _ask_ranges(self, asker: Asker, *, all_of_them: bool = False) -> tuple[dict[NodeTopic, TopicRange], list[str]]:
        nodes = Nodes(self._options.nsqd, self._options.lookupd)
        return nodes.ranges_of(asker, nodes.topics(asker, self._options, all_of_them=all_of_them))

    def check(self) -> None:
        """Check with the nodes, before any job starts, that the options can be served.

        Raises OptionError, NoAnswer, Refused, Unreachable, DataLoss.
        """
        with Asker() as asker:
            ranges = self._all_ranges(asker)
            self._resolve(asker, self._options.starting, ranges, EARLIEST)

    def _all_ranges(self, asker: Asker, *, may_be_deleted: bool = False) -> dict[NodeTopic, TopicRange]:
        """Return all topics on all nodes, if every node answers and there is something to read.

        `may_be_deleted`: some of the named topics may be missing. Raises NoAnswer, OptionError, Refused, Unreachable.
        """
        ranges, failures = self._ask_ranges(asker, all_of_them=True)
        if failures:
            raise NoAnswer("; ".join(failures))
        if self._options.pattern:
            ranges = {place: one for place, one in ranges.items() if self._is_retained(asker, place, one)}
            if not ranges:
                pattern = self._options.pattern
                raise OptionError(f"option topicPattern={pattern!r} matches no topic that retains messages")
        known = {place.topic for place in ranges}
        unknown = [topic for topic in self._options.topics if topic not in known]
        if unknown and known and may_be_deleted:
            lost(f"no node has the topic {unknown[0]!r}", self._options)
        elif unknown:
            raise OptionError(f"no node has the topic {unknown[0]!r}")
        for place, one in ranges.items():
            if not self._options.pattern and not self._is_retained(asker, place, one):
                url = f"http://{one.address}/topic/config?topic={place.topic}&retention=24h"
                raise OptionError(f"topic {place.topic!r} retains no messages on {one.address}: POST {url}")
        return ranges

    def _is_retained(self, asker: Asker, place: NodeTopic, ranges: TopicRange) -> bool:
        config = asker.json(ranges.address, "/topic/config", {"topic": place.topic})
        retained = config["retention"] != "0s" or config["retention_bytes"]
        if not retained and self._options.pattern:
            print(f"nsq: {place} retains no messages and is skipped", file=sys.stderr, flush=True)
        return bool(retained)

    def _resolve(
        self, asker: Asker, start: Start, ranges: dict[NodeTopic, TopicRange], default: str
    ) -> dict[NodeTopic, LogPosition]:
        """Turn the start or end that the user gave into offsets; `default` is the word to use if there is none.

        Raises OptionError, DataLoss, Refused, Unreachable.
        """
        strangers = start.offsets.keys() - {str(place) for place in ranges}
        if strangers:
            known = ", ".join(sorted(map(str, ranges)))
            raise OptionError(f"offsets name {sorted(strangers)[0]!r}, which is not there; there are {known}")
        found = {}
        for place, one in ranges.items():
            word = start.word or default
            offset = {EARLIEST: one.first, LATEST: one.next}[word]
            if start.time:
                arguments = {"topic": place.topic, "time": start.time, "log": one.log}
                offset = int(asker.json(one.address, "/topic/offsets", arguments)["offset"])
            offset = start.offsets.get(str(place), offset)
            if not one.first <= offset <= one.next:
                what = f"offset {offset} of {place}: there are {one.first} to {one.next}"
                if offset > one.next:
                    raise OptionError(what)
                lost(what, self._options)
                offset = one.first
            found[place] = LogPosition(one.log, offset)
        return found


class NsqBatchReader(_Reading, DataSourceReader):
    """A table with the messages that the topics had when it was first read."""

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the read. Spark calls this once and uses the result for later actions too, so the table does not change."""
        options = self._options
        with Asker() as asker:
            ranges = self._all_ranges(asker)
            start = self._resolve(asker, options.starting, ranges, EARLIEST)
            end = self._resolve(asker, options.ending, ranges, LATEST)
        for place, at in end.items():
            if at.next < start[place].next:
                first = start[place].next
                raise OptionError(f"{place} would be read from {first} to {at.next}: the end is before the start")
        parts = spans(start, end, firsts_of(ranges), options.min_partitions)
        return [SpanPartition(replace(part, address=ranges[part.place].address)) for part in parts]


class NsqStreamReader(_Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream. One process of the driver calls every method but `read`, one call at a time."""

    def __init__(self, options: ReadOptions) -> None:
        super().__init__(options)
        self._asker: Asker | None = None
        self._initial: dict[str, Any] | None = None
        # the end of Trigger.AvailableNow; None: another trigger
        self._target: dict[NodeTopic, LogPosition] | None = None
        self._ranges: dict[NodeTopic, TopicRange] = {}  # the last answers of the nodes
        self._looked = 0.0  # monotonic s when topics and nodes were last looked up
        self._deleted: set[NodeTopic] = set()  # places of the last offset whose topic was deleted on their node
        self._waited: dict[NodeTopic, float] = {}  # monotonic s until which an old log's messages are waited for

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_asker": None}

    @property
    def _ask(self) -> Asker:
        if self._asker is None:
            self._asker = Asker()
        return self._asker

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_records:
            return ReadMaxRows(self._options.max_records)
        return ReadMaxBytes(self._options.max_bytes) if self._options.max_bytes else ReadAllAvailable()

    def initialOffset(self) -> dict[str, Any]:
        """Return the offsets at which the stream begins.

        Spark calls this twice, and again after a first batch that failed. The named cursor makes the result the same
        each time.
        """
        if self._initial is None:
            ranges = self._ranges = self._all_ranges(self._ask, may_be_deleted=not self._options.fails_on_loss)
            start = self._resolve(self._ask, self._options.starting, ranges, LATEST)
            if self._options.cursor and not self._options.starting.word:
                start |= self._cursors(start)
            failures = self._move_cursors(start)
            if failures:
                raise NoAnswer(f"option cursorName={self._options.cursor!r}: {'; '.join(failures)}")
            self._initial = encode(start)
        return self._initial

    def prepareForTriggerAvailableNow(self) -> None:
        self._ranges = self._all_ranges(self._ask, may_be_deleted=not self._options.fails_on_loss)
        self._target = ends({}, self._ranges)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next batch; wait for new messages up to pollMs, since Spark asks again at once."""
        begin, deadline = decode(start), time.monotonic() + self._options.poll
        while True:
            if self._target is None:
                end = ends(begin, self._news(begin))
            else:
                old = self._old_logs(begin, self._ranges)
                self._note_deleted(begin, self._target.keys() | old.keys())
                end = {**begin, **self._target, **ends({}, old)}
            end = {place: at for place, at in end.items() if place not in self._deleted}
            end = {place: self._same_log(place, begin.get(place), at) for place, at in end.items()}
            if end != begin or self._target is not None or time.monotonic() >= deadline:
                break
            time.sleep(IDLE)
        firsts, begin = firsts_of(self._ranges), moved(begin, end, self._ranges)
        if isinstance(limit, ReadMaxRows):
            end = clipped(begin, end, firsts, limit.max_rows)
        elif isinstance(limit, ReadMaxBytes):
            end = clipped(begin, end, firsts, max(1, limit.max_bytes // self._message_size()))
        return encode(end)

    def _news(self, begin: Mapping[NodeTopic, LogPosition]) -> dict[NodeTopic, TopicRange]:
        """Ask the nodes for their offsets; a node that does not answer is left out and keeps the position it has.

        The rest of a log that its node no longer serves comes before the messages that the node has now.
        """
        if self._due():
            ranges, _ = self._ask_ranges(self._ask)
            ranges |= self._old_logs(begin, ranges)
            self._note_deleted(begin, ranges)
        else:
            ranges = self._ask_known()
        self._ranges |= ranges
        return ranges

    def _note_deleted(self, begin: Mapping[NodeTopic, LogPosition], found: Container[NodeTopic]) -> None:
        """Note the places that are not `found` because their node answers, and no longer has the topic.

        Raises DataLoss if it is not known that all messages were read, unless the user chose to continue.
        """
        nodes = Nodes(self._options.nsqd, self._options.lookupd)
        self._deleted &= begin.keys()
        for place, at in begin.items():
            if place in found:
                self._deleted.discard(place)
                continue
            address = "" if place in self._deleted else nodes.without(self._ask, place)
            if not address:
                continue
            known, what = self._ranges.pop(place, None), f"topic {place.topic!r} was deleted on node {place.node}"
            if known is not None and (known.log, known.next) == at:
                print(f"nsq: {what}, at {address}; all its messages were read", file=sys.stderr, flush=True)
            else:
                lost(f"{what}, at {address}; it was read up to offset {at.next}", self._options)
            self._deleted.add(place)

    def _old_logs(
        self, begin: Mapping[NodeTopic, LogPosition], ranges: Mapping[NodeTopic, TopicRange]
    ) -> dict[NodeTopic, TopicRange]:
        """Return the unread parts of logs that other nodes serve now.

        A place with a gap before the node's new log, which a node that does not answer may fill, keeps its position for
        nodeWaitMs.
        """
        found, holders_of_logs = {}, Holders(self._ask, Nodes(self._options.nsqd, self._options.lookupd))
        for place, at in begin.items():
            one = ranges.get(place)
            if not is_behind(at, one):
                self._waited.pop(place, None)
                continue
            holders, failures = holders_of_logs.of(place.topic, at.log)
            left = old_log(at, one, holders)
            if left is not None:
                found[place] = left
                self._waited.pop(place, None)
            elif one is not None and one.continues(at) and failures and self._may_wait(place):
                found[place] = TopicRange(one.address, at.log, at.next, at.next, 0, (), PROMOTED)
        return found

    def _may_wait(self, place: NodeTopic) -> bool:
        """Return True if a node that may have what is left of an old log has been waited for less than nodeWaitMs."""
        now = time.monotonic()
        return now < self._waited.setdefault(place, now + self._options.node_wait)

    def _due(self) -> bool:
        """Return True if topics and nodes must be looked up again."""
        now = time.monotonic()
        if self._ranges and now - self._looked < REMEMBERED:
            return False
        self._looked = now
        return True

    def _ask_known(self) -> dict[NodeTopic, TopicRange]:
        found = {}
        for place, one in self._ranges.items():
            other = {} if one.kind == OWN else {"log": one.log}
            try:
                answer = self._ask.json(one.address, "/topic/offsets", {"topic": place.topic, **other})
            except (Unreachable, Refused):
                continue
            if answer["log"] == one.log if other else str(answer["node"]) == place.node:
                found[place] = range_of(one.address, answer)
        return found

    def _same_log(self, place: NodeTopic, before: LogPosition | None, at: LogPosition) -> LogPosition:
        """Return `at`, and report loss if the node came back with another log, or with fewer messages than it had.

        Raises DataLoss, unless the user chose to continue.
        """
        if before is None or before == at:
            return at
        one = self._ranges.get(place)
        if before.log != at.log and not (one is not None and one.continues(before)):
            lost(f"{place} is in log {at.log} now, and was in {before.log} up to offset {before.next}", self._options)
        elif at.next < before.next:
            lost(f"{place} ends at offset {at.next}, and was read up to {before.next}", self._options)
        return at

    def _message_size(self) -> int:
        """Return the average size of a message in bytes, at least 1."""
        count = sum(one.next - one.first for one in self._ranges.values())
        return max(1, sum(one.size for one in self._ranges.values()) // count) if count else 1

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the last known end without asking the nodes: Spark calls this many times a second."""
        return encode(ends({}, self._ranges)) if self._ranges else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Plan a batch.

        After a crash this is the first call. Executors then find the nodes themselves, unless the batch contains a new
        topic or node, whose first offset must be asked for, or another log, which may continue the one before.
        """
        begin, stop = decode(start), decode(end)
        if not self._ranges and any(place not in begin or begin[place].log != at.log for place, at in stop.items()):
            self._ranges, _ = self._ask_ranges(self._ask)
        begin = moved(begin, stop, self._ranges)
        parts = spans(begin, stop, firsts_of(self._ranges), self._options.min_partitions)
        known = {place: one.address for place, one in self._ranges.items()}
        return [SpanPartition(replace(part, address=known.get(part.place, ""))) for part in parts]

    def commit(self, end: dict[str, Any]) -> None:
        """Move the named cursors: everything before `end` is processed. Spark calls this one batch late."""
        self._move_cursors(decode(end))

    def stop(self) -> None:
        if self._asker is not None:
            self._asker.close()

    # ---- named cursors, which show the lag and hold retention

    def _cursors(self, start: Mapping[NodeTopic, LogPosition]) -> dict[NodeTopic, LogPosition]:
        """Return the positions of the named cursor where it exists already."""
        found = {}
        for place, at in start.items():
            one = self._ranges[place]
            answer = self._ask.json(one.address, "/topic/cursors", {"topic": place.topic, "log": one.log})
            for cursor in answer["cursors"]:
                if cursor["name"] == self._options.cursor and cursor["offset"] >= one.first:
                    found[place] = LogPosition(at.log, int(cursor["offset"]))
        return found

    def _move_cursors(self, to: Mapping[NodeTopic, LogPosition]) -> list[str]:
        """Move the named cursors, and return the reasons for which some of them were not moved."""
        if not self._options.cursor:
            return []
        return move_cursors(self._ask, self._ranges, to, self._options.cursor, self._options.hold)
