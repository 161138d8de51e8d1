"""Messages as Parquet files: partitions, sizes, statistics, and what is left when a task fails."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.lake import files
from penstock.lake.files import DataFile, Files
from penstock.lake.location import Lake
from penstock.lake.schema import BY_TOPIC, NODE

MIDNIGHT = datetime(2026, 11, 21, tzinfo=UTC)


def rows(topic: str, first: int, count: int, *, since: datetime = MIDNIGHT, body: bytes = b"x") -> pa.RecordBatch:
    start = int(since.timestamp() * 1_000_000)
    return pa.RecordBatch.from_pylist(
        [
            {
                "topic": topic, "node": "7", "log": "l", "offset": number, "message_id": f"{number:016x}",
                "timestamp": start + (number - first) * 1_000_000, "headers": [("n", str(number))], "body": body,
            }
            for number in range(first, first + count)
        ],
        NODE,
    )  # fmt: skip


def read(root: Path, file: DataFile) -> pa.Table:
    return pq.ParquetFile(root / "messages" / file.path).read()


def test_each_topic_and_day_has_a_file_with_its_bounds(tmp_path: Path) -> None:
    made = Files(Lake(str(tmp_path)), "messages", BY_TOPIC)
    evening = datetime(2026, 11, 20, 23, 59, 58, tzinfo=UTC)
    made.add(rows("a", 5, 4, since=evening), "a")
    made.add(rows("b", 0, 1), "b")
    found = made.close()
    assert [(file.partition, file.rows) for file in found] == [
        ({"topic": "a", "dt": "2026-11-20"}, 2), ({"topic": "a", "dt": "2026-11-21"}, 2),
        ({"topic": "b", "dt": "2026-11-21"}, 1),
    ]  # fmt: skip
    assert json.loads(found[1].statistics) == {
        "numRecords": 2,
        "minValues": {"node": "7", "log": "l", "offset": 7, "timestamp": "2026-11-21T00:00:00Z"},
        "maxValues": {"node": "7", "log": "l", "offset": 8, "timestamp": "2026-11-21T00:00:01Z"},
        "nullCount": {"node": 0, "log": 0, "offset": 0, "timestamp": 0},
    }
    table = read(tmp_path, found[0])
    assert "topic" not in table.column_names, "a partition's value is in the path"
    assert table.column("offset").to_pylist() == [5, 6]
    assert table.column("headers").to_pylist() == [[("n", "5")], [("n", "6")]]
    assert found[0].size == (tmp_path / "messages" / found[0].path).stat().st_size
    column = pq.ParquetFile(tmp_path / "messages" / found[0].path).schema.column(4)
    assert (column.name, column.physical_type) == ("timestamp", "INT64")


def test_a_file_that_is_large_is_followed_by_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "ROWS", 10)
    monkeypatch.setattr(files, "FILE", 2000)
    made = Files(Lake(str(tmp_path)), "messages", BY_TOPIC)
    for first in range(0, 60, 5):
        made.add(rows("a", first, 5), "a")
    found = made.close()
    assert len(found) > 1
    assert [number for file in found for number in read(tmp_path, file).column("offset").to_pylist()] == list(range(60))
    groups = [pq.ParquetFile(tmp_path / "messages" / file.path).metadata for file in found]
    assert {group.row_group(0).num_rows for group in groups} == {10}


def test_bodies_of_no_byte_and_of_a_mebibyte(tmp_path: Path) -> None:
    made = Files(Lake(str(tmp_path)), "messages", BY_TOPIC)
    made.add(rows("a", 0, 1, body=b""), "a")
    made.add(rows("a", 1, 1, body=bytes(1 << 20)), "a")
    made.add(rows("a", 2, 0), "a")
    (file,) = made.close()
    assert [len(body) for body in read(tmp_path, file).column("body").to_pylist()] == [0, 1 << 20]


def test_a_task_that_fails_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "ROWS", 10)
    made = Files(Lake(str(tmp_path)), "messages", BY_TOPIC)
    made.add(rows("a", 0, 1), "a")
    made.add(rows("b", 0, files.ROWS), "b")
    made.abandon()
    assert made.close() == []
    assert not list(tmp_path.rglob("*.parquet"))
