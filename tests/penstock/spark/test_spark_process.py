"""The data source and the sink on Spark itself, against a real nsqd."""

import json
import os
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from pathlib import Path
from typing import Any

import httpx
import pytest
from deltalake import DeltaTable
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from pyspark.sql.functions import spark_partition_id, udf

from penstock.lake.location import Lake
from tests.daemons import Daemon, eventually
from tests.pipeline.test_jobs import MORNING, archive

pytestmark = pytest.mark.process


def publish(node: Daemon, topic: str, bodies: list[str], **headers: str) -> None:
    named = {f"X-Nsq-Header-{name}": value for name, value in headers.items()}
    httpx.post(f"http://{node.http}/mpub?topic={topic}", content="\n".join(bodies), headers=named).raise_for_status()


def bodies(node: Daemon, topic: str) -> list[str]:
    lines = httpx.get(f"http://{node.http}/topic/read?topic={topic}&limit=1000000&max_bytes=8000000").text.splitlines()
    return [json.loads(line)["body"] for line in lines]


def table(spark: Any, node: Daemon, topic: str = "t", **options: str) -> Any:
    return spark.read.format("nsq").options(nsqd=node.http, topic=topic, **options).load()


def finished(writer: Any) -> Any:
    """The query, which has ended. It is started again if its Python worker has not started within Spark's fixed 10 s."""
    for is_last in (False, False, True):
        query = writer.start()
        try:
            assert query.awaitTermination(60)
        except StreamingQueryException as error:
            if is_last or "Python worker failed to connect back" not in str(error):
                raise
        else:
            break
    return query


def test_a_topic_is_a_table(spark: Any, node: Daemon) -> None:
    publish(node, "t", [f"line {number}" for number in range(1000)])
    publish(node, "t", ["traced"], Trace="abc")
    frame = table(spark, node, minPartitions="3", includeHeaders="true").withColumn("part", spark_partition_id())
    rows = sorted(frame.collect(), key=lambda row: row.offset)
    assert [row.offset for row in rows] == list(range(1001))
    last = rows[-1]
    assert (last.topic, last.node, bytes(last.body), last.headers) == ("t", "7", b"traced", {"trace": "abc"})
    assert last.attempts is None
    assert {row.part for row in rows} == {0, 1, 2}
    publish(node, "t", ["later"])
    assert len(frame.collect()) == 1001  # a table does not grow under who looks at it


def test_the_format_is_found_by_its_name_in_sql_and_an_empty_topic_has_no_rows(spark: Any, node: Daemon) -> None:
    publish(node, "t", ["a", "b"])
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW v USING nsq OPTIONS (nsqd '{node.http}', topic 't')")
    rows = spark.sql("SELECT CAST(body AS STRING) AS text FROM v ORDER BY offset").collect()
    assert [row.text for row in rows] == ["a", "b"]
    httpx.post(f"http://{node.http}/topic/create?topic=empty").raise_for_status()
    frame = table(spark, node, "empty").select("body")
    assert frame.collect() == []
    frame.write.format("nsq").mode("append").options(nsqd=node.http, topic="copy").save()


def test_a_table_of_the_catalog_keeps_its_options(spark: Any, node: Daemon, tmp_path: Path) -> None:
    publish(node, "orders.t", ["a", "b"], Trace="it's")
    options = (
        f"""nsqd '{node.http}', topicPattern 'orders\\\\.[^\\']*', startingOffsets 'earliest', includeHeaders 'true'"""
    )
    spark.sql(f"CREATE TABLE orders USING nsq OPTIONS ({options})")
    (row,) = spark.sql("SELECT CAST(body AS STRING) AS text, headers FROM orders WHERE offset = 1").collect()
    assert (row.text, row.headers) == ("b", {"trace": "it's"})
    assert spark.sql("SELECT count(*) FROM orders WITH (startingOffsets = 'latest')").collect()[0][0] == 0
    seen: list[int] = []
    stream = spark.readStream.table("orders").writeStream.foreachBatch(lambda frame, _: seen.append(frame.count()))
    finished(stream.option("checkpointLocation", str(tmp_path / "ck")).trigger(availableNow=True))
    assert seen == [2]
    with pytest.raises(PySparkException, match="tables of the catalog are for reading"):
        spark.sql("INSERT INTO orders (body) VALUES (X'61')")
    with pytest.raises(AnalysisException, match="option 'topik' is not known; did you mean topic"):
        spark.sql("CREATE TABLE wrong USING nsq OPTIONS (nsqd 'h:1', topik 't')")
    spark.sql("DROP TABLE orders")


def test_a_lake_is_read_by_its_files(spark: Any, tmp_path: Path) -> None:
    where = Lake(str(tmp_path / "lake"))
    archive(where, "t", [b"a", b"b"])
    archive(where, "u", [b"c"])
    files = DeltaTable(where.table("messages")).file_uris()
    frame = spark.read.option("basePath", where.table("messages")).parquet(*files)
    rows = frame.selectExpr("topic", "CAST(dt AS STRING) AS dt", "offset", "CAST(body AS STRING) AS body").collect()
    day = str(MORNING.date())
    assert sorted(map(tuple, rows)) == [("t", day, 0, "a"), ("t", day, 1, "b"), ("u", day, 0, "c")]


def test_a_streaming_copy_goes_on_where_it_was(spark: Any, node: Daemon, tmp_path: Path) -> None:
    def run() -> list[int]:
        stream = spark.readStream.format("nsq").options(
            nsqd=node.http, topic="t", startingOffsets="earliest", maxRecordsPerTrigger="400", cursorName="test"
        )
        routed = stream.load().selectExpr(
            "body", "concat('to.', CAST(offset % 2 AS STRING)) AS topic", "CAST(offset AS STRING) AS key",
            "map('part', CAST(floor(offset / 100) AS STRING)) AS headers",
        )  # fmt: skip
        writer = routed.writeStream.format("nsq").options(nsqd=node.http)
        query = finished(writer.option("checkpointLocation", str(tmp_path / "ck")).trigger(availableNow=True))
        batches = [batch for batch in query.recentProgress if batch.numInputRows]
        metrics = [json.loads(batch.sources[0].latestOffset) for batch in batches]
        assert [one["behind"] for one in metrics] == [*accumulate(one.numInputRows for one in batches[::-1])][::-1]
        times = [datetime.fromisoformat(one["oldestUnread"]) for one in metrics]
        assert begun - timedelta(milliseconds=1) <= min(times) <= max(times) <= datetime.now(UTC)
        return [batch.numInputRows for batch in batches]

    begun = datetime.now(UTC)
    publish(node, "t", [str(number) for number in range(600)])
    assert run() == [400, 200]
    publish(node, "t", [str(number) for number in range(600, 700)])
    assert run() == [100]
    for rest in (0, 1):
        assert bodies(node, f"to.{rest}") == [str(number) for number in range(rest, 700, 2)]
    cursors = httpx.get(f"http://{node.http}/topic/cursors?topic=t").json()["cursors"]
    assert [(one["name"], one["lag"]) for one in cursors] == [("test", 0)]
    lines = httpx.get(f"http://{node.http}/topic/read?topic=to.0&limit=1").json()
    assert (lines["headers"], lines["key"]) == ({"part": "0"}, "0")


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
        finished(writer)

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
