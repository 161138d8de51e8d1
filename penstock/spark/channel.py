"""Channel mode: a consumer in the driver, for nodes that retain nothing, including the original nsqd.

A thread receives messages, stages them durably and sends FIN, whatever Spark is doing; a batch is a range of staged
files. So a slow batch loses no message to a timeout, and a redelivered message is not staged again.

See docs/contributing/design/spark.md#channels.
"""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from penstock.spark.access import access
from penstock.spark.ask import Asker, Refused, Unreachable
from penstock.spark.nodes import NoAnswer, Nodes
from penstock.spark.offsets import parts
from penstock.spark.options import ChannelOptions
from penstock.spark.staging import Received, Stage, StageError, read_file

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from penstock.client import Consumer

VERSION = 1
GATHER = 0.05  # s for which messages are collected for one file
MOST = 20_000  # messages in one file
QUIET = 1.0  # s without a message after which Trigger.AvailableNow takes the channel as read
CONNECT = 10.0  # s in which Trigger.AvailableNow does not take a channel as read that no node has connected
LONGEST = 120.0  # s that Trigger.AvailableNow waits for such a pause


@dataclass(frozen=True)
class FilesPartition(InputPartition):
    """The staged files that one task reads."""

    paths: tuple[str, ...]


class Receiver:
    """The thread that receives and stages messages. Start it once; `failure` holds the error that ended it."""

    def __init__(self, options: ChannelOptions, stage: Stage) -> None:
        self._options = options
        self._stage = stage
        self._stopped = threading.Event()
        self.failure: Exception | None = None
        self.quiet_since = math.inf  # monotonic s of the connection, or of the last message; inf: not connected
        self.news = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="nsq-stage", daemon=True)

    def start(self) -> None:
        """Start the thread, which receives messages until `stop`."""
        self._thread.start()

    def stop(self) -> None:
        """Stop receiving; messages in flight are requeued."""
        self._stopped.set()
        self._thread.join(10)

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                if self._stage.waiting >= self._options.most_staged:
                    self._stopped.wait(GATHER)
                    continue
                self.quiet_since = math.inf
                with self._consumer() as consumer:
                    self._receive(consumer)
        except Exception as error:
            self.failure = error
        with self.news:
            self.news.notify_all()

    def _consumer(self) -> Consumer:
        """Connect a consumer to the channel. Raises NoAnswer."""
        from penstock.client import Consumer, Settings  # executors import this module, and do not have the client

        options, shown = self._options, access()
        settings = Settings(auth_secret=shown.token, tls_v1=bool(shown.authority), tls_root_ca_file=shown.authority)
        with Asker(shown) as asker:
            tcp = [] if options.lookupd else [_tcp_of(asker, address) for address in options.nsqd]
            lookupds = [asker.url_of(address) for address in options.lookupd]
        return Consumer(options.topic, options.channel, tcp, lookupds, options.max_in_flight, settings)

    def _receive(self, consumer: Consumer) -> None:
        """Receive and stage until the thread is stopped or most_staged bytes wait for Spark."""
        while not self._stopped.is_set() and self._stage.waiting < self._options.most_staged:
            messages = consumer.poll(GATHER)
            if self.quiet_since == math.inf and consumer.msg_timeout_ms:
                self.quiet_since = time.monotonic()
            most = min(MOST, self._options.max_in_flight)  # nsqd sends no more before a FIN
            until = time.monotonic() + GATHER
            while messages and len(messages) < most and (left := until - time.monotonic()) > 0:
                more = consumer.poll(left)
                if not more:
                    break
                messages = [*messages, *more]
            if not messages:
                continue
            self._stage.add([Received(one.id.decode(), one.timestamp, one.attempts, one.body) for one in messages])
            for one in messages:
                one.finish()
            consumer.flush()
            self.quiet_since = time.monotonic()
            with self.news:
                self.news.notify_all()


def _tcp_of(asker: Asker, address: str) -> str:
    """Ask any nsqd (Penstock's or the original) over HTTP for the address of its TCP port. Raises NoAnswer."""
    try:
        return f"{address.rpartition(':')[0]}:{asker.json(address, '/info', {})['tcp_port']}"
    except (Unreachable, Refused, KeyError, TypeError) as error:
        raise NoAnswer(f"{address} reports no TCP port: {error}") from None


class NsqChannelReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream reader of channel mode. Its offsets are numbers of staged files."""

    def __init__(self, options: ChannelOptions) -> None:
        self._options = options
        self._opened: tuple[Stage, Receiver] | None = None
        self._pid = os.getpid()  # of the process in which the receiver runs
        self._deadline: float | None = None  # monotonic s that ends Trigger.AvailableNow's wait; None: another trigger
        self._target: int | None = None  # the last file of Trigger.AvailableNow, once it is known

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}

    def _open(self, begin: int) -> tuple[Stage, Receiver]:
        """Begin to receive if that has not happened; Spark has processed the files up to number `begin`.

        Raises NoAnswer, StageError, and the error that ended the receiver.
        """
        if self._opened is None:
            options = self._options
            with Asker() as asker:
                if options.lookupd:
                    Nodes((), options.lookupd).addresses(asker)
                for address in options.nsqd:
                    _tcp_of(asker, address)
            stage = Stage(Path(options.stage), options.topic, options.window)
            stage.open()
            if stage.last < begin:  # otherwise new files would get numbers that Spark has passed
                where = f"option stagingLocation={options.stage!r}"
                raise StageError(
                    f"{where} has {stage.last} files, and the checkpoint has read {begin}: it belongs to another one"
                )
            stage.committed = begin
            self._opened, self._pid = (stage, Receiver(options, stage)), os.getpid()
            self._opened[1].start()
        if os.getpid() != self._pid:
            raise StageError("messages are received by the process that forked this one: only it can plan batches")
        stage, receiver = self._opened
        if receiver.failure is not None:
            raise receiver.failure
        return stage, receiver

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.max_records) if self._options.max_records else ReadAllAvailable()

    def initialOffset(self) -> dict[str, Any]:
        return _offset(0)

    def prepareForTriggerAvailableNow(self) -> None:
        """Begin Trigger.AvailableNow, which reads the messages that come before the channel pauses for QUIET seconds."""
        self._deadline = time.monotonic() + LONGEST

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        begin = _number(start)
        stage, receiver = self._open(begin)
        stage.committed = max(stage.committed, begin)
        if self._deadline is None:
            with receiver.news:
                receiver.news.wait_for(lambda: stage.last > begin or receiver.failure is not None, self._options.poll)
            self._open(begin)
        elif self._target is None and self._is_quiet(self._deadline, begin):
            self._target = stage.last
        end = max(begin, stage.last if self._target is None else self._target)
        if isinstance(limit, ReadMaxRows):
            end = min(end, stage.end_of(begin, limit.max_rows))
        return _offset(end)

    def _is_quiet(self, deadline: float, begin: int) -> bool:
        """Wait until no more messages come and return True; the deadline also ends the wait.

        Return False as soon as most_staged bytes wait for Spark: a batch must make room first.
        """
        stage, receiver = self._open(begin)
        began = time.monotonic()
        while (now := time.monotonic()) < max(began, min(receiver.quiet_since, began + CONNECT)) + QUIET:
            if now > deadline:
                channel = f"{self._options.topic}/{self._options.channel}"
                why = f"messages of {channel} came for {LONGEST:g} s without a pause"
                print(f"nsq: {why}: later messages are left for the next run", file=sys.stderr, flush=True)
                return True
            if stage.waiting >= self._options.most_staged:
                return False
            self._open(begin)  # raises the receiver's error
            time.sleep(GATHER)
        return True

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return _offset(self._opened[0].last) if self._opened is not None else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        first, last = _number(start), _number(end)
        paths = Stage(Path(self._options.stage), self._options.topic, 0).paths(first, last)
        spans = parts(len(paths), max(self._options.min_partitions, 1))
        return [FilesPartition(tuple(map(str, paths[begin:stop]))) for begin, stop in spans]

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """Read the staged files of a partition, on an executor."""
        assert isinstance(partition, FilesPartition)
        for path in partition.paths:
            yield from read_file(Path(path)).to_batches()

    def commit(self, end: dict[str, Any]) -> None:
        if self._opened is not None:
            self._opened[0].commit(_number(end))

    def stop(self) -> None:
        if self._opened is not None and os.getpid() == self._pid:
            self._opened[1].stop()


def _offset(number: int) -> dict[str, Any]:
    return {"staged": number, "v": VERSION}


def _number(offset: dict[str, Any]) -> int:
    """Return the file number in an offset. Raises StageError if the offset is not of a channel."""
    if offset.get("v") != VERSION or not isinstance(offset.get("staged"), int):
        raise StageError(f"the checkpoint is not of a channel: {offset}")
    return int(offset["staged"])
