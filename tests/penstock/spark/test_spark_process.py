"""The data source and the sink on Spark itself, against a real nsqd."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyspark.sql.functions import udf

from tests.daemons import Daemon, eventually

pytestmark = pytest.mark.process


def publish(node: Daemon, topic: str, bodies: list[str], **headers: str) -> None:
    named = {f"X-Nsq-Header-{name}": value for name, value in headers.items()}
    httpx.post(f"http://{node.http}/mpub?topic={topic}", content="\n".join(bodies), headers=named).raise_for_status()


def bodies(node: Daemon, topic: str) -> list[str]:
    lines = httpx.get(f"http://{node.http}/topic/read?topic={topic}&limit=1000000&max_bytes=8000000").text.splitlines()
    return [json.loads(line)["body"] for line in lines]


def table(spark: Any, node: Daemon, topic: str = "t", **options: str) -> Any:
    return spark.read.format("nsq").options(nsqd=node.http, topic=topic, **options).load()


def test_a_topic_is_a_table(spark: Any, node: Daemon) -> None:
    publish(node, "t", [f"line {number}" for number in range(1000)])
    publish(node, "t", ["traced"], Trace="abc")
    frame = table(spark, node, minPartitions="3", includeHeaders="true")
    assert frame.count() == 1001
    row = frame.where("offset = 1000").collect()[0]
    assert (row.topic, row.node, bytes(row.body), row.headers, row.attempts) == (
        "t",
        "7",
        b"traced",
        {"trace": "abc"},
        None,
    )
    assert frame.rdd.getNumPartitions() == 3
    publish(node, "t", ["later"])
    assert frame.count() == 1001  # a table does not grow under who looks at it


def test_a_topic_in_which_nothing_is_yet_is_a_table_without_rows(spark: Any, node: Daemon) -> None:
    httpx.post(f"http://{node.http}/topic/create?topic=empty").raise_for_status()
    frame = table(spark, node, "empty")
    assert frame.collect() == []
    frame.select("body").write.format("nsq").mode("append").options(nsqd=node.http, topic="copy").save()


def test_the_format_is_found_by_its_name_in_sql(spark: Any, node: Daemon) -> None:
    publish(node, "t", ["a", "b"])
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW v USING nsq OPTIONS (nsqd '{node.http}', topic 't')")
    assert [row.text for row in spark.sql("SELECT CAST(body AS STRING) AS text FROM v ORDER BY offset").collect()] == [
        "a",
        "b",
    ]


def test_a_stream_goes_on_where_it_was(spark: Any, node: Daemon, tmp_path: Path) -> None:
    found: dict[int, list[int]] = {}

    def collect(frame: Any, number: int) -> None:
        found[number] = sorted(row.offset for row in frame.select("offset").collect())

    def run() -> None:
        stream = spark.readStream.format("nsq").options(
            nsqd=node.http, topic="t", startingOffsets="earliest", maxRecordsPerTrigger="400", cursorName="test"
        )
        writer = stream.load().writeStream.foreachBatch(collect).option("checkpointLocation", str(tmp_path / "ck"))
        writer.trigger(availableNow=True).start().awaitTermination(60)

    publish(node, "t", [str(number) for number in range(1000)])
    run()
    publish(node, "t", [str(number) for number in range(100)])
    run()
    assert {number: len(offsets) for number, offsets in found.items()} == {0: 400, 1: 400, 2: 200, 3: 100}
    assert sorted(offset for offsets in found.values() for offset in offsets) == list(range(1100))
    cursors = httpx.get(f"http://{node.http}/topic/cursors?topic=t").json()["cursors"]
    assert [(one["name"], one["lag"]) for one in cursors] == [("test", 100)]  # Spark commits a batch late


def test_a_channel_becomes_rows_and_is_empty_then(spark: Any, node: Daemon, tmp_path: Path) -> None:
    httpx.post(f"http://{node.http}/topic/create?topic=t&retention=0s").raise_for_status()
    httpx.post(f"http://{node.http}/channel/create?topic=t&channel=c").raise_for_status()
    rows: list[str] = []

    def collect(frame: Any, number: int) -> None:
        rows.extend(bytes(row.body).decode() for row in frame.select("body").collect())

    def run() -> None:
        stream = spark.readStream.format("nsq").options(nsqd=node.http, topic="t", channel="c", mode="channel")
        writer = stream.option("stagingLocation", str(tmp_path / "stage")).load().writeStream.foreachBatch(collect)
        writer = writer.option("checkpointLocation", str(tmp_path / "ck")).trigger(availableNow=True)
        writer.start().awaitTermination(60)

    def channel() -> dict[str, Any]:
        (found,) = httpx.get(f"http://{node.http}/stats?format=json&topic=t").json()["topics"][0]["channels"]
        return dict(found)

    for first in (0, 400):
        publish(node, "t", [str(number) for number in range(first, first + 400)])
        run()
        eventually(lambda: not channel()["client_count"])  # what Spark has stopped receives for a moment more
    assert sorted(map(int, rows)) == list(range(800))
    assert (channel()["depth"], channel()["in_flight_count"]) == (0, 0)


def test_a_task_that_is_tried_again_publishes_each_row_once(spark: Any, node: Daemon, tmp_path: Path) -> None:
    mark = str(tmp_path / "failed")

    def late(number: int) -> str:  # the first try of the task fails behind some chunks
        if number == 700 and not os.path.exists(mark):
            Path(mark).touch()
            raise RuntimeError("once")
        return str(number)

    body = udf(late, "string", useArrow=False)
    frame = spark.range(0, 1000, 1, 1).select(body("id").alias("body"))
    frame.write.format("nsq").mode("append").options(nsqd=node.http, topic="out", chunkRecords="50").save()
    assert os.path.exists(mark)
    assert bodies(node, "out") == [str(number) for number in range(1000)]


def test_a_job_that_is_done_again_under_its_name_publishes_nothing(spark: Any, node: Daemon) -> None:
    frame = spark.range(500).selectExpr("CAST(id AS STRING) AS body", "'out' AS topic").coalesce(1)
    for _ in range(2):
        frame.write.format("nsq").mode("append").options(nsqd=node.http, jobName="once", chunkRecords="90").save()
    assert bodies(node, "out") == [str(number) for number in range(500)]


def test_a_streaming_copy_and_its_topics(spark: Any, node: Daemon, tmp_path: Path) -> None:
    publish(node, "t", [f"{number}" for number in range(300)])
    stream = spark.readStream.format("nsq").options(nsqd=node.http, topic="t", startingOffsets="earliest").load()
    routed = stream.selectExpr("body", "concat('to.', CAST(offset % 2 AS STRING)) AS topic")
    writer = routed.writeStream.format("nsq").options(nsqd=node.http).option("checkpointLocation", str(tmp_path / "ck"))
    writer.trigger(availableNow=True).start().awaitTermination(60)
    assert bodies(node, "to.0") == [str(number) for number in range(0, 300, 2)]
    assert bodies(node, "to.1") == [str(number) for number in range(1, 300, 2)]


@pytest.mark.parametrize(
    ("columns", "options", "why"),
    [
        ("CAST(id AS STRING) AS text", {"topic": "out"}, "expected a column body"),
        ("CAST(id AS STRING) AS body", {}, "expected option topic, or a column topic"),
        ("CAST(id AS STRING) AS body, id AS other", {"topic": "out"}, "column 'other' is unknown"),
        ("'' AS body", {"topic": "out"}, "nsqd accepts no empty message"),
    ],
)
def test_rows_that_are_no_messages_are_refused(
    spark: Any, node: Daemon, columns: str, options: dict[str, str], why: str
) -> None:
    frame = spark.range(1).selectExpr(*columns.split(", "))
    with pytest.raises(Exception, match=why):
        frame.write.format("nsq").mode("append").options(nsqd=node.http, **options).save()
    with pytest.raises(Exception, match=r'use \.mode\("append"\)'):
        spark.range(1).selectExpr("'a' AS body").write.format("nsq").mode("overwrite").options(
            nsqd=node.http, topic="o"
        ).save()
