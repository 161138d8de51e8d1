"""`penstock pipeline replay`: publishes archived messages of a period again, to another topic or to one channel of a topic.

Chunks are spread over the nodes, with the headers of their messages. The table keeps the progress of a replay in each log, as
application transactions. Messages that were published after the last of them are published again under the same keys, and
nsqd drops those that it knows already.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC
from functools import partial
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, QueryBuilder, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError

from penstock.lake.location import MESSAGES, LakeError, lake_at, one_line
from penstock.lake.table import open_table
from penstock.spark.ask import Asker
from penstock.spark.chunks import Chunker
from penstock.spark.nodes import NoAnswer, Nodes
from penstock.spark.options import WriteOptions, write_options
from penstock.spark.publishing import publish
from pipeline.archive import server_options
from pipeline.saying import say
from shared.counted import counted

CHUNK, CHUNK_BYTES = 100, 1 << 20  # messages and bytes that are published together, at most
PART = 100_000  # offsets that are selected together, after which the table notes the progress


def run(given: argparse.Namespace) -> int:
    """Run the job and return the exit code. Raises LakeError, OptionError, NoAnswer, Refused, Unreachable."""
    topic, to, channel = given.topic, given.to, given.channel
    if to == topic and not (given.same or channel):
        raise LakeError(
            f"--to {to} is the archived topic itself, and all of its channels would get the messages again:"
            " give --same to do this, or --channel for one channel"
        )
    options = write_options(server_options(given) | {"topic": to} | ({"channel": channel} if channel else {}))
    table = open_table(lake_at(given.lake), MESSAGES, given.at)
    progress = Progress(open_table(lake_at(given.lake), MESSAGES), _name(given))
    with Asker() as asker:
        addresses = sorted(Nodes(options.nsqd, options.lookupd).addresses(asker, to if channel else ""))
        if not addresses:
            raise NoAnswer(f"nsqlookupd knows no nsqd{f' with topic {to}' if channel else ''}")
        replay = Replay(asker, addresses, options, progress, given.rate)
        for one in _logs(table, given):
            replay.publish_log(one["node"], one["log"], partial(_rows, table, given, one), one["end"])
    where = f"channel {channel} of {to}" if channel else to
    left_out = f"; skipped {replay.empty:,} empty messages" if replay.empty else ""
    say(f"published {counted(replay.count, 'message')} of {topic} to {where}{left_out}")
    if not replay.count:
        say("everything was replayed before, or nothing was chosen")
    return 0


def _logs(table: DeltaTable, given: argparse.Namespace) -> list[dict[str, Any]]:
    """Return each log with chosen messages: `node`, `log` and `end`, the offset after the last one. Raises LakeError."""
    columns, groups = 'node, log, max("offset") + 1 AS "end"', "GROUP BY node, log ORDER BY node, log"
    found: list[dict[str, Any]] = _query(table, columns, _condition(given), groups).to_pylist()
    return found


def _rows(table: DeltaTable, given: argparse.Namespace, one: dict[str, Any], first: int, end: int) -> pa.Table:
    """Return the chosen messages of a log with offsets from `first` up to `end`, in their order. Raises LakeError."""
    part = f"node = '{one['node']}' AND log = '{one['log']}' AND \"offset\" >= {first} AND \"offset\" < {end}"
    found = _query(table, '"offset", headers, body', f"{part} AND {_condition(given)}", 'ORDER BY "offset"')
    return found.set_column(2, "body", found.column("body").cast(pa.binary()))  # DataFusion returns a view of bytes


def _condition(given: argparse.Namespace) -> str:
    """Return the condition for the chosen messages, as SQL."""
    parts = [f"topic = '{given.topic}'"]
    for moment, compares in ((given.since, ">="), (given.until, "<")):
        if moment is not None:
            utc = moment.astimezone(UTC)
            parts += [f"dt {compares[0]}= DATE '{utc.date()}'", f"timestamp {compares} TIMESTAMP '{utc.isoformat()}'"]
    return " AND ".join([*parts, f"({given.where})"] if given.where else parts)


def _query(table: DeltaTable, columns: str, condition: str, rest: str) -> pa.Table:
    sql = f"SELECT {columns} FROM messages WHERE {condition} {rest}"
    try:
        return pa.table(QueryBuilder().register("messages", table).execute(sql))
    except (DeltaError, ValueError, OSError) as error:
        raise LakeError(f"the messages cannot be selected: {one_line(error)}") from None


def _name(given: argparse.Namespace) -> str:
    """Return a name for the request, under which the progress is noted."""
    wanted = [given.topic, given.to, given.channel, str(given.since), str(given.until), given.where]
    return hashlib.blake2b(json.dumps(wanted).encode(), digest_size=8).hexdigest()


@dataclass(slots=True)
class Progress:
    """How far a replay is in each log, in the table of messages."""

    table: DeltaTable
    name: str

    def next_of(self, node: str, log: str) -> int:
        """Return the offset at which the replay continues in a log."""
        return self.table.transaction_version(self._id(node, log)) or 0

    def note(self, node: str, log: str, offset: int) -> None:
        """Note that everything before an offset is published. Raises LakeError."""
        properties = CommitProperties(app_transactions=[Transaction(self._id(node, log), offset)])
        try:
            partitions = list(self.table.metadata().partition_columns)
            self.table.create_write_transaction(
                [], "append", self.table.schema(), partitions, commit_properties=properties
            )
        except CommitFailedError as error:
            raise LakeError(f"the same replay runs twice: {one_line(error)}") from None

    def _id(self, node: str, log: str) -> str:
        return f"penstock/replay/{self.name}/{node}/{log}"


@dataclass(slots=True)
class Replay:
    """Publishes archived messages, spread over the nodes, and counts them."""

    asker: Asker
    addresses: list[str]
    options: WriteOptions
    progress: Progress
    rate: int  # messages a second; 0: no limit
    count: int = 0
    empty: int = 0  # messages that were left out: beanstalkd's jobs may be empty, and nsqd accepts no empty message
    _began: float = field(default_factory=time.monotonic)

    def publish_log(self, node: str, log: str, rows_of: Callable[[int, int], pa.Table], end: int) -> None:
        """Publish the chosen messages of one log up to `end`, and note the progress after each part.

        `rows_of` returns the messages from one offset up to another. Raises Refused, Unreachable, LakeError.
        """
        first = self.progress.next_of(node, log)
        while first < end:
            after = min(end, (first // PART + 1) * PART)
            for group, rows in _groups(rows_of(first, after)):
                self._publish(f"{self.progress.name}/{node}/{log}/{group}", group, rows)
            self.progress.note(node, log, after)
            first = after

    def _publish(self, name: str, group: int, rows: pa.Table) -> None:
        """Publish messages that follow each other; the same rows give the same chunks, at the same node."""
        address = self.addresses[group % len(self.addresses)]
        full = rows.filter(pc.greater(pc.binary_length(rows.column("body")), 0))
        self.empty += len(rows) - len(full)
        chunker = Chunker(self.options.topic, CHUNK, CHUNK_BYTES)
        chunks = [chunk for batch in full.combine_chunks().to_batches() for chunk in chunker.add(batch)]
        for number, chunk in enumerate([*chunks, *chunker.rest()]):
            publish(self.asker, address, chunk, self.options.channel, f"{name}/{number}")
            self.count += chunk.count
            if self.rate:
                time.sleep(max(0.0, self._began + self.count / self.rate - time.monotonic()))


def _groups(rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """Yield rows whose offsets are within the same CHUNK, with its number."""
    first = 0
    for group, run in groupby(offset // CHUNK for offset in rows.column("offset").to_pylist()):
        count = sum(1 for _ in run)
        yield group, rows.slice(first, count)
        first += count
