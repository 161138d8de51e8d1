"""The lake's rows: `penstock archive` and the jobs, and what idle topics cost the source for Spark. CPU time, not time.

Jobs run in processes of their own, so their CPU includes the start of Python, a second or so.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory

import pyarrow as pa

from bench.pipeline import durable, http_address, retaining
from bench.rows import TOPIC, Effort, fill
from bench.server import ROOT, BenchError, Program
from bench.table import Line, number
from penstock.lake.files import DataFile, Files
from penstock.lake.location import MESSAGES, ROLLUP, Lake, lake_at
from penstock.lake.progress import Advance
from penstock.lake.schema import NODE
from penstock.lake.table import MessageTable, open_table
from penstock.spark.offsets import NodeTopic
from penstock.spark.options import read_options
from pipeline import counts, rollup

DAY = datetime(2026, 11, 1, tzinfo=UTC)
LOG = "0123456789abcdef0123456789abcdef"


@dataclass(frozen=True, slots=True)
class Archive:
    """A topic that is archived to a directory by one process, from its start to its end."""

    name: str = "lake-archive"
    messages: int = 10_000_000

    def measure(self, program: Program, go: Program | None, effort: Effort) -> list[Line]:
        messages = max(20_000, int(self.messages * effort.scale))
        with retaining(program).start() as server, TemporaryDirectory(prefix="penstock-bench-") as place:
            published = durable(server, fill(server, messages))
            before = server.cpu()
            cpu, _ = _job("archive", "--nsqd", http_address(server), "--topic", TOPIC, "--lake", place, "--once")
            nsqd = server.cpu() - before
        what = f"{number(published)} messages of 200 B"
        measured = f"CPU {cpu / published * 1e9:,.0f} ns a message, {cpu:.1f} s with its start"
        return [Line(self.name, what, measured, f"nsqd {nsqd / published:,.0f} ns a message", "<= 1,500 ns")]


@dataclass(frozen=True, slots=True)
class Commit:
    """Commits to a table that has many files, of one topic and of many, checkpoints of Delta's log included."""

    name: str = "lake-commit"
    files: int = 10_000
    commits: int = 100  # measured ones

    def measure(self, program: Program, go: Program | None, effort: Effort) -> list[Line]:
        files, commits = max(200, int(self.files * effort.scale)), max(5, int(self.commits * effort.scale))
        lines = []
        with TemporaryDirectory(prefix="penstock-bench-") as place:
            table = MessageTable.open_or_create(lake_at(place), by_topic=True)
            ends = Counter[NodeTopic]()
            for _ in range(files // 100):
                _commit(table, ends, 100)
            opened = _cpu(open_table, table.lake, MESSAGES)
            for topics in (1, 20):
                spent = [_cpu(_commit, table, ends, topics) for _ in range(commits)]
                what = f"{files:,} files: a commit of {topics} file{'s' if topics > 1 else ''}"
                measured = f"CPU {median(spent) * 1e3:.0f} ms, {mean(spent) * 1e3:.0f} ms on average"
                lines.append(Line(self.name, what, measured, "", "<= 150 ms"))
        return [*lines, Line(self.name, f"{files:,} files: opening the table", f"CPU {opened * 1e3:.0f} ms")]


@dataclass(frozen=True, slots=True)
class Compaction:
    """A table of many small batches that is compacted."""

    name: str = "lake-compact"
    batches: int = 1000
    size: int = 1_000_000  # bytes of a batch; its bodies do not compress

    def measure(self, program: Program, go: Program | None, effort: Effort) -> list[Line]:
        batches, rows = max(10, int(self.batches * effort.scale)), self.size // 200
        with TemporaryDirectory(prefix="penstock-bench-") as place:
            lake = lake_at(place)
            table = MessageTable.open_or_create(lake, by_topic=True)
            for first in range(0, batches * rows, rows):
                files = Files(lake, MESSAGES, table.partition_by)
                files.add(_messages(first, rows), "t")
                table.commit(files.close(), [Advance(NodeTopic("t", "7"), LOG, first or None, first, first + rows)], ())
            size = sum(file.stat().st_size for file in Path(lake.table(MESSAGES)).rglob("*.parquet"))
            cpu, took = _job("compact", "--lake", place)
        what = f"{size / 1e9:.2f} GB in {batches:,} batches"
        return [Line(self.name, what, f"CPU {cpu:.1f} s, {took:.1f} s", "", "<= 60 s")]


@dataclass(frozen=True, slots=True)
class Report:
    """Thirty days of rollups, by the minute, of twenty topics: a report of all, and one of a day."""

    name: str = "lake-report"
    days: int = 30
    topics: int = 20

    def measure(self, program: Program, go: Program | None, effort: Effort) -> list[Line]:
        minutes = max(60, int(1440 * effort.scale))
        with TemporaryDirectory(prefix="penstock-bench-") as place:
            lake = lake_at(place)
            MessageTable.open_or_create(lake, by_topic=True)
            for day in range(self.days):
                self._store(lake, DAY + timedelta(days=day), minutes)
            lines = []
            for days in (self.days, 1):
                period = ("--from", DAY.isoformat(), "--until", (DAY + timedelta(days=days)).isoformat())
                cpu, took = _job("report", "--lake", place, "--out", f"{place}/report.html", *period)
                what = f"{days} of {self.days} days, {self.topics} topics, {minutes:,} minutes a day"
                lines.append(Line(self.name, what, f"CPU {cpu:.1f} s, {took:.1f} s", "", "<= 2 s"))
        return lines

    def _store(self, lake: Lake, day: datetime, minutes: int) -> None:
        """Store the rollups of a day, as `penstock pipeline rollup` does."""
        rows = [
            (f"topic{topic}", day + timedelta(minutes=minute))
            for topic in range(self.topics)
            for minute in range(minutes)
        ]
        keys = {
            "topic": [topic for topic, _ in rows], "node": pa.repeat("7", len(rows)), "producer": pa.repeat("", len(rows)),
            "at": pa.array([at for _, at in rows], counts.AT),
        }  # fmt: skip
        sums = {"messages": 60, "bytes": 12_000, "largest": 300}
        table = pa.table(keys | {name: pa.repeat(value, len(rows)) for name, value in sums.items()})
        entries = [
            pa.table(keys | {"bucket": pa.repeat(bucket, len(rows)), "count": pa.repeat(12, len(rows))})
            for bucket in range(130, 135)
        ]
        made = counts.Counts(counts.MESSAGES, table, pa.concat_tables(entries))
        rollup.store(lake, ROLLUP, counts.MESSAGES, made, 0)


@dataclass(frozen=True, slots=True)
class IdleTopics:
    """The source for Spark, which asks for news of many topics that have none, by a pattern and by their names.

    The latter keeps the offsets of idle topics in a directory.
    """

    name: str = "lake-idle"
    topics: int = 2000
    polls: int = 20

    def measure(self, program: Program, go: Program | None, effort: Effort) -> list[Line]:
        from pyspark.sql.streaming.datasource import ReadAllAvailable

        from penstock.spark.source import NsqStreamReader

        topics, lines = [f"t{number_:04d}" for number_ in range(max(20, int(self.topics * effort.scale)))], []
        with retaining(program).start() as server, TemporaryDirectory(prefix="penstock-bench-") as place:
            server.create_all([f"/topic/create?topic={topic}" for topic in topics])
            for what, chosen in (
                ("by a pattern", {"topicPattern": ".*"}),
                ("by their names", {"topics": ",".join(topics), "offsetsLocation": place}),
            ):
                reader = NsqStreamReader(read_options({"nsqd": http_address(server), "pollMs": "0"} | chosen))
                start, limit = reader.initialOffset(), ReadAllAvailable()
                reader.latestOffset(start, limit)
                before, began, cpu = server.cpu(), time.monotonic(), time.process_time()
                for _ in range(self.polls):
                    if reader.latestOffset(start, limit) != start:
                        raise BenchError(f"{self.name}: an idle topic has news")
                spent, took = time.process_time() - cpu, time.monotonic() - began
                nsqd = (server.cpu() - before) / 1e9
                reader.stop()
                measured = f"CPU {spent / self.polls * 1e3:.0f} ms a poll, {took / self.polls * 1e3:.0f} ms"
                compared = f"nsqd {nsqd / self.polls * 1e3:.0f} ms, an offset of {len(json.dumps(start)):,} B"
                lines.append(Line(self.name, f"{len(topics):,} topics, {what}", measured, compared, "<= 300 ms"))
        return lines


def _messages(first: int, count: int) -> pa.RecordBatch:
    """Return messages of one topic and day, with bodies that do not compress."""
    columns = {
        "topic": pa.repeat("t", count), "node": pa.repeat("7", count), "log": pa.repeat(LOG, count),
        "offset": pa.array(range(first, first + count), pa.int64()),
        "message_id": pa.array([f"{one:016x}" for one in range(first, first + count)]),
        "timestamp": pa.array([DAY + timedelta(microseconds=one) for one in range(first, first + count)], counts.AT),
        "body": pa.array([os.urandom(200) for _ in range(count)]),
    }  # fmt: skip
    found = [columns.get(field.name, pa.nulls(count, field.type)) for field in NODE]
    return pa.RecordBatch.from_arrays(found, schema=NODE)


def _commit(table: MessageTable, ends: Counter[NodeTopic], topics: int) -> None:
    """Commit a batch of a file for each topic. The files are not there: a commit looks at none.

    `ends`: the messages that the table has of each topic.
    """
    files, advances = [], []
    for place in (NodeTopic(f"topic{topic}", "7") for topic in range(topics)):
        at = ends[place]
        ends[place] = end = at + 1000
        day = (DAY + timedelta(days=at // 1000 % 30)).date().isoformat()
        bounds = {"node": "7", "log": LOG, "offset": at, "timestamp": f"{day}T00:00:00Z"}
        statistics = {
            "numRecords": 1000,
            "minValues": bounds,
            "maxValues": bounds,
            "nullCount": dict.fromkeys(bounds, 0),
        }
        partition = {"topic": place.topic, "dt": day}
        path = f"topic={place.topic}/dt={day}/{uuid.uuid4().hex}.zstd.parquet"
        files.append(DataFile(path, 1 << 20, 1000, partition, json.dumps(statistics)))
        advances.append(Advance(place, LOG, at or None, at, end))
    if not table.commit(files, advances, ()):
        raise BenchError("lake-commit: the table has the batch already")


def _cpu(work: Callable[..., object], *arguments: object) -> float:
    """Call a function, and return the CPU seconds of this process and its threads."""
    before = time.process_time()
    work(*arguments)
    return time.process_time() - before


def _job(job: str, *words: str) -> tuple[float, float]:
    """Run a job of the lake, and return its CPU seconds and its seconds. Raises BenchError."""
    command = [sys.executable, "-m", "penstock.launch", "penstock", *(() if job == "archive" else ("pipeline",)), job]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run([*command, *words], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise BenchError(f"penstock {job}: {done.stderr[-300:]}")
    after, took = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - began
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, took


def lake() -> list[Archive | Commit | Compaction | Report | IdleTopics]:
    """Return all rows of the lake."""
    return [Archive(), Commit(), Compaction(), Report(), IdleTopics()]
