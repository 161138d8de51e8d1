"""`penstock pipeline replay`: publishes archived messages of a period again, to another topic or to one channel of a topic.

It works batch by batch, each under a key of the replay. A batch that was cut short is published again, and nsqd drops
the messages that it knows already.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from typing import TYPE_CHECKING, Any

from pipeline.archive import server_options
from pipeline.lake import Batch, Lake, LakeError, say, write
from pipeline.session import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

JOB = "replay"
CHUNK = 100  # messages that are published together; at a low rate each chunk is followed by a pause


def run(given: argparse.Namespace) -> int:
    """Run the job and return the exit code. Raises LakeError, Missing, and the errors of the sink for wrong options."""
    topic, to, channel, since, until = given.topic, given.to, given.channel, given.since or "", given.until or ""
    if to == topic and not (given.same or channel):
        raise LakeError(
            f"--to {to} is the archived topic itself, and all of its channels would get the messages again:"
            " give --same to do this, or --channel for one channel"
        )
    lake = Lake(given.lake)
    lake.check()
    wanted = {"nodes": server_options(given), "topic": topic, "to": to, "channel": channel}
    done = _Done(lake, wanted | {"from": since, "until": until, "where": given.where})
    options = server_options(given) | {"topic": to, "chunkRecords": str(CHUNK)}
    options |= {"channel": channel} if channel else {}
    options |= {"recordsPerSecond": str(given.rate)} if given.rate else {}
    with lake.locked_by(JOB):
        done.load()
        left = done.left(lake, topic)
        if not left:
            say(f"everything was replayed before: remove {done.path} to replay it again")
            return 0
        spark = session("penstock replay", given.master)
        total = 0
        try:
            for batch in left:
                frame = chosen(spark.read.parquet(*lake.files([batch])), topic, since, until, given.where)
                count, empty = _publish(frame, options | {"jobName": f"{done.path.stem}-{batch.name}"})
                total += count
                done.add(batch)
                left_out = f"; skipped {empty:,} empty messages" if empty else ""
                say(f"{batch.name}: {count:,} messages, {total:,} in total{left_out}")
        finally:
            spark.stop()
        say(f"published {total:,} messages of {topic} to {f'channel {channel} of {to}' if channel else to}")
        return 0


class _Done:
    """The batches that a replay has published, in a file of the lake that is named after a hash of the request."""

    def __init__(self, lake: Lake, wanted: dict[str, Any]) -> None:
        name = hashlib.blake2b(json.dumps(wanted).encode(), digest_size=8).hexdigest()
        self.path = lake.root / "checkpoints" / f"replay-{name}.json"
        self._wanted = wanted
        self._batches: set[int] = set()

    def load(self) -> None:
        """Read the file if it exists."""
        self.path.parent.mkdir(exist_ok=True)
        if self.path.exists():
            self._batches.update(json.loads(self.path.read_text())["batches"])

    def add(self, batch: Batch) -> None:
        """Note in the file that the batch was published."""
        self._batches.update(batch.batches)
        write(self.path, {"wanted": self._wanted, "batches": sorted(self._batches)})

    def left(self, lake: Lake, topic: str) -> list[Batch]:
        """Return the batches with messages of the topic that are not published yet. Raises LakeError."""
        batches = [batch for batch in lake.batches() if any(one.topic == topic for one in batch.ranges)]
        if not batches:
            raise LakeError(f"{lake.root} has no messages of topic {topic!r}")
        left = [batch for batch in batches if not self._batches.issuperset(batch.batches)]
        if any(not self._batches.isdisjoint(batch.batches) for batch in left):
            raise LakeError(f"the lake was compacted after this replay started: remove {self.path} to start it again")
        return left


def _publish(frame: DataFrame, options: dict[str, str]) -> tuple[int, int]:
    """Publish the messages that are not empty; return their number and the number of empty ones.

    beanstalkd's jobs may be empty, and nsqd accepts no empty message. One task publishes in the order of offsets, so a
    batch that is published again has the same chunks, whatever the rate is then.
    """
    empty = frame.where("length(body) = 0").count()
    frame = frame.where("length(body) > 0")
    count = frame.count()
    ordered = frame.coalesce(1).sortWithinPartitions("node", "offset")
    ordered.select("body").write.format("nsq").mode("append").options(**options).save()
    return count, empty


def chosen(frame: DataFrame, topic: str, since: str, until: str, where: str) -> DataFrame:
    """Select the wanted messages. `where` is SQL over the archive's columns."""
    from pyspark.sql import functions as f

    frame = frame.where(f.col("topic") == topic)
    if since:
        frame = frame.where(f.col("timestamp") >= f.lit(since).cast("timestamp"))
    if until:
        frame = frame.where(f.col("timestamp") < f.lit(until).cast("timestamp"))
    return frame.where(where) if where else frame
