"""Compaction, vacuum, rollups, report and history of a lake that was written without a node."""

import json
import os
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock import lake
from penstock.lake.files import Files
from penstock.lake.location import Lake, LakeError
from penstock.lake.progress import Advance
from penstock.lake.schema import NODE
from penstock.lake.table import MessageTable, open_table
from penstock.spark.offsets import NodeTopic
from pipeline import compact, history, report, rollup, rollups, vacuum
from pipeline.command_line import parser

MORNING = datetime(2026, 11, 21, 10, 0, 30, tzinfo=UTC)
STATISTICS = {"at": int(MORNING.timestamp()), "topic": "t", "channel": "mail", "finished": 5, "attempts": 6, "requeued": 1,
              "latency": {"sum": 70, "max": 30, "buckets": {"10": 4, "30": 1}}}  # fmt: skip


@pytest.fixture
def where(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path / "lake"))


def archive(where: Lake, topic: str, bodies: list[bytes], first: int = 0, *, since: datetime = MORNING) -> None:
    table = MessageTable.open_or_create(where, by_topic=True)
    start = int(since.timestamp() * 1_000_000)
    messages = [
        {"topic": topic, "node": "7", "log": "l", "offset": first + place, "message_id": "m", "producer": "etl",
         "timestamp": start + place * 1_000_000, "body": body}
        for place, body in enumerate(bodies)
    ]  # fmt: skip
    files = Files(where, "messages", table.partition_by)
    files.add(pa.RecordBatch.from_pylist(messages, NODE), topic)
    end = first + len(bodies)
    table.commit(files.close(), [Advance(NodeTopic(topic, "7"), "l", first or None, first, end)], ())


def run(job: Any, where: Lake, *flags: str) -> None:
    name = job.__name__.rpartition(".")[2]
    assert job.run(parser().parse_args([name, "--lake", where.url, *flags])) == 0


def sums(where: Lake, grain: str) -> dict[tuple[datetime, str], tuple[int, int, int]]:
    rows = rollups.read_rows(where, "rollup", grain)
    return {(row["at"], row["topic"]): (row["messages"], row["bytes"], row["largest"]) for row in rows}


def test_each_message_counts_once_whatever_happens_between(where: Lake) -> None:
    archive(where, "t", [b"x" * 10] * 60)
    run(rollup, where)
    run(rollup, where)
    archive(where, "t", [b"y" * 20] * 30, 60)  # of the same minutes
    archive(where, "u", [b"z"])
    run(compact, where)
    run(rollup, where)
    run(compact, where, "--by-time")
    run(rollup, where)
    minute = MORNING.replace(second=0)
    assert sums(where, "minute") == {
        (minute, "t"): (60, 900, 20), (minute + timedelta(minutes=1), "t"): (30, 300, 10), (minute, "u"): (1, 1, 1)
    }  # fmt: skip
    assert sums(where, "hour") == {(minute, "t"): (90, 1200, 20), (minute, "u"): (1, 1, 1)}
    day = MORNING.replace(hour=0, minute=0, second=0)
    assert sums(where, "day") == {(day, "t"): (90, 1200, 20), (day, "u"): (1, 1, 1)}
    for row in rollups.read_rows(where, "rollup", "day", topic="t"):
        assert sorted(row["sizes"]) == [(58, 60), (76, 30)], "1.04 ** 58 <= 10 and 1.04 ** 76 <= 20"


def test_days_are_partitions_and_periods_are_chosen(where: Lake) -> None:
    for number in range(3):
        archive(where, "t", [b"x"] * 2, number * 2, since=MORNING + timedelta(days=number))
        run(rollup, where)
    second = MORNING + timedelta(days=1)
    rows = rollups.read_rows(where, "rollup", "hour", second, second + timedelta(hours=1))
    assert [row["dt"] for row in rows] == [date(2026, 11, 22)]
    assert rollups.bounds(where, second, None) == (
        second.replace(second=0),
        second.replace(second=0) + timedelta(days=1),
    )
    assert rollups.bounds(where, MORNING + timedelta(days=9), None) is None


def test_deliveries_are_counted_and_what_is_no_statistics_is_not(where: Lake) -> None:
    odd = [b"[", b'{"at":9e99}', b'{"at":1,"channel":"c","finished":1}', b'{"at":1,"topic":"t","channel":"c","latency":7}',
           json.dumps(STATISTICS | {"channel": "odd", "latency": {"buckets": {"x": 2}}}).encode(),
           json.dumps(STATISTICS | {"finished": 1 << 70}).encode(), b"\xff"]  # fmt: skip
    archive(where, "_statistics", [json.dumps(STATISTICS).encode(), *odd, json.dumps(STATISTICS).encode()])
    archive(where, "t", [b"x"])
    run(rollup, where)
    run(rollup, where)
    for grain in ("minute", "hour", "day"):
        (row,) = rollups.read_rows(where, "deliveries", grain)
        assert (row["channel"], row["finished"], row["attempts"], row["latency_max"]) == ("mail", 10, 12, 30)
        assert sorted(row["latencies"]) == [(10, 8), (30, 2)]


def test_the_report_and_the_history(where: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "report.html"
    archive(where, "t", [b"x" * 10] * 90)
    with pytest.raises(LakeError, match="are rolled up: run penstock pipeline rollup"):
        run(report, where, "--out", str(page))
    run(history, where)
    assert json.loads(capsys.readouterr().out)["messages"] == []
    archive(where, "_statistics", [json.dumps(STATISTICS).encode()])
    run(rollup, where)
    run(report, where, "--out", str(page), "--from", "2026-11-21T00:00:00Z")
    text = page.read_text()
    assert "<b>91</b> messages" in text
    assert "2 topics, 1 node<" in text
    assert "<td>mail<td class=n>5<td class=n>1.20" in text
    assert "<svg" in text
    assert "http" not in text.replace("http-equiv", ""), "it loads nothing"
    capsys.readouterr()
    run(history, where, "--topic", "t", "--grain", "minute", "--last", "5")
    found = json.loads(capsys.readouterr().out)
    assert (found["messages"], found["archived"], found["rolled_up"]) == ([30, 60], 91, 91)
    assert found["producers"] == [{"producer": "etl", "messages": 90, "bytes": 900}]
    assert found["channels"][0]["latency_p50"] == 10


def test_vacuum_removes_what_no_version_needs_and_is_old(where: Lake) -> None:
    archive(where, "t", [b"x"])
    archive(where, "t", [b"y"], 1)
    folder = Path(where.table("messages"), "topic=t", "dt=2026-11-21")
    (folder / "of-a-dead-task.parquet").touch()
    (folder / "being-written.parquet").touch()
    os.utime(folder / "of-a-dead-task.parquet", (1, 1))
    run(vacuum, where, "--dry-run")
    assert (folder / "of-a-dead-task.parquet").exists()
    run(vacuum, where)
    assert not (folder / "of-a-dead-task.parquet").exists()
    assert (folder / "being-written.parquet").exists()
    version = open_table(where, "messages").version()
    run(compact, where)
    run(vacuum, where)
    assert lake.arrow(where.url, at=version).num_rows == lake.arrow(where.url).num_rows == 2


def test_a_rollup_that_comes_too_late_says_so(where: Lake) -> None:
    archive(where, "t", [b"x"])
    run(rollup, where)
    archive(where, "t", [b"y"], 1)
    for file in Path(where.table("messages"), "topic=t").rglob("*.parquet"):
        file.unlink()
    with pytest.raises(LakeError, match="was removed before it was rolled up"):
        run(rollup, where)
