"""The table of messages on a disk: commits, replays, two writers, foreign tables; and how others open it."""

import json
import shutil
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.exceptions import CommitFailedError

from penstock import lake
from penstock.lake.files import DataFile, Files
from penstock.lake.location import Lake, LakeError, StoreError
from penstock.lake.progress import Advance
from penstock.lake.schema import COLUMNS
from penstock.lake.table import MessageTable, missing_messages, open_table
from penstock.spark.offsets import LogPosition, NodeTopic, TopicRange
from tests.cases import each
from tests.penstock.lake.test_files import MIDNIGHT, rows

PLACE = NodeTopic("a", "7")


@pytest.fixture
def where(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path / "lake"))


def opened(where: Lake, *, by_topic: bool = True) -> MessageTable:
    return MessageTable.open_or_create(where, by_topic=by_topic)


def written(where: Lake, first: int, count: int, topic: str = "a") -> list[DataFile]:
    files = Files(where, "messages", opened(where).partition_by)
    files.add(rows(topic, first, count, since=MIDNIGHT + timedelta(seconds=first)), topic)
    return files.close()


def batch(follows: int | None, first: int, end: int, log: str = "l") -> list[Advance]:
    return [Advance(PLACE, log, follows, first, end)]


def test_a_batch_is_added_once(where: Lake) -> None:
    table = opened(where)
    assert table.position(PLACE, TopicRange("h:1", "l", 0, 9)) is None
    assert not table.knows(PLACE)
    files = written(where, 0, 5)
    assert table.commit(files, batch(None, 0, 5), ())
    assert not table.commit(files, batch(None, 0, 5), ()), "its answer was lost, and it is repeated"
    again = opened(where)
    assert again.count() == 5
    assert again.knows(PLACE)
    assert again.position(PLACE, TopicRange("h:1", "l", 0, 9)) == LogPosition("l", 5)
    assert again.position(PLACE, TopicRange("h:1", "m", 0, 9, (("k", 2), ("l", 5)))) == LogPosition("l", 5), (
        "a restored log"
    )
    assert again.position(PLACE, TopicRange("h:1", "m", 0, 9)) is None


def test_compaction_and_other_commits_do_not_stop_an_archive(where: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = opened(where)
    for first in range(0, 40, 4):
        assert table.commit(written(where, first, 4), batch(first or None, first, first + 4), ())
    open_table(where, "messages").optimize.compact()
    assert table.commit(written(where, 40, 4), batch(40, 40, 44), ())
    commit, failures = DeltaTable.create_write_transaction, [CommitFailedError("version is there already")] * 3

    def other_first(self: DeltaTable, *arguments: object, **named: object) -> None:
        if failures:
            raise failures.pop()
        commit(self, *arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(DeltaTable, "create_write_transaction", other_first)
    assert table.commit(written(where, 44, 4), batch(44, 44, 48), ())
    failures += [CommitFailedError("the store is read-only\nand more")] * 99
    with pytest.raises(CommitFailedError, match="the store is read-only"):
        table.commit(written(where, 48, 4), batch(48, 48, 52), ())
    assert sorted(lake.arrow(where.url).column("offset").to_pylist()) == list(range(48))


def test_a_commit_whose_answer_is_lost_is_made_once(where: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table, commit = opened(where), DeltaTable.create_write_transaction

    def dies_after(self: DeltaTable, *arguments: object, **named: object) -> None:
        commit(self, *arguments, **named)  # type: ignore[arg-type]
        raise CommitFailedError("the connection was reset")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", dies_after)
    table.commit(written(where, 0, 3), batch(None, 0, 3), ())
    assert opened(where).count() == 3


def test_lost_messages_are_in_the_history(where: Lake) -> None:
    table = opened(where)
    table.commit(written(where, 4, 1), batch(None, 0, 5), ["1 of offsets 0 to 5 of a/7"])
    table.commit(written(where, 5, 1), batch(5, 5, 6), ())
    assert missing_messages(open_table(where, "messages")) == ["1 of offsets 0 to 5 of a/7"]


def test_polars_pyarrow_duckdb_and_pandas_open_it(where: Lake) -> None:
    table = opened(where)
    table.commit(written(where, 0, 5), batch(None, 0, 5), ())
    version = table.delta.version()
    table.commit(written(where, 5, 5), batch(5, 5, 10), ())
    table.commit(written(where, 0, 3, "b"), [Advance(NodeTopic("b", "7"), "l", None, 0, 3)], ())
    since, until = MIDNIGHT + timedelta(seconds=3), MIDNIGHT + timedelta(seconds=8)
    frame = lake.scan(where.url, "a", since, until).collect()
    assert sorted(frame["offset"]) == [3, 4, 5, 6, 7]
    assert dict(frame.schema)["timestamp"] == polars.Datetime("us", "UTC")
    assert polars.read_delta(where.table("messages")).height == 13
    found = lake.arrow(where.url, "a", since, until, columns=["offset", "headers"])
    assert sorted(found.column("offset").to_pylist()) == [3, 4, 5, 6, 7]
    assert found.column("headers").to_pylist()[0] == [("n", str(found.column("offset")[0].as_py()))]
    assert lake.arrow(where.url, at=version).num_rows == lake.scan(where.url, at=version).collect().height == 5
    assert lake.arrow(where.url, until=datetime(2026, 11, 21), at=datetime.now(UTC)).num_rows == 0, "UTC"
    files = open_table(where, "messages").file_uris()
    query = "SELECT topic, count(*) FROM read_parquet(?) GROUP BY topic ORDER BY topic"
    assert duckdb.execute(query, [files]).fetchall() == [("a", 10), ("b", 3)]


def test_foreign_tables_are_refused(where: Lake, tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="has no table messages: create it with penstock archive"):
        open_table(where, "messages")
    with pytest.raises(LakeError, match="has no table messages"):
        lake.scan(str(tmp_path / "nowhere"))
    write_deltalake(where.table("messages"), pa.table({"topic": [1], "dt": [2]}))
    with pytest.raises(LakeError, match="is not a table of messages: its column 'topic' is"):
        opened(where)


@each("protocol", [
    {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["future"], "writerFeatures": ["future"]},
    {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["future"]},
    {"minReaderVersion": 9, "minWriterVersion": 99}, {"minReaderVersion": 1, "minWriterVersion": 99},
])  # fmt: skip
def test_a_table_of_a_newer_protocol_ends_an_archive_at_once(protocol: dict[str, object]) -> None:
    with TemporaryDirectory() as place:
        where = Lake(place)
        table, files = opened(where), written(where, 0, 1)
        commit_path(where, 1).write_text(json.dumps({"protocol": protocol}))
        with pytest.raises(LakeError, match="was written by a newer library of Delta: upgrade deltalake") as raised:
            table.commit(files, batch(None, 0, 1), ())
        assert not isinstance(raised.value, StoreError), "which would be tried again"


def commit_path(where: Lake, version: int) -> Path:
    return Path(where.table("messages"), "_delta_log", f"{version:020d}.json")


@pytest.mark.parametrize("left", [0, 60], ids=["nothing", "half"])
def test_a_commit_that_a_power_failure_has_cut_is_made_again(where: Lake, left: int) -> None:
    table = opened(where)
    table.commit(written(where, 0, 5), batch(None, 0, 5), ())
    table.commit(written(where, 5, 5), batch(5, 5, 10), ())
    commit_path(where, 2).write_bytes(commit_path(where, 2).read_bytes()[:left])
    if left:
        with pytest.raises(
            LakeError, match=r"has cut its last commit: move .*/00000000000000000002\.json away, and its rows"
        ):
            opened(where)
        commit_path(where, 2).unlink()
    again = opened(where)
    assert again.position(PLACE, TopicRange("h:1", "l", 0, 20)) == LogPosition("l", 5)
    assert again.commit(written(where, 5, 9), batch(5, 5, 14), ())
    assert sorted(lake.arrow(where.url).column("offset").to_pylist()) == list(range(14))


@each("year", [1970, 2200])
def test_a_clock_that_is_wrong_changes_no_message(year: int) -> None:
    with TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        where, table = Lake(place), opened(Lake(place))
        patch.setattr(time, "time_ns", lambda: int(datetime(year, 1, 2, tzinfo=UTC).timestamp()) * 10**9)
        table.commit(written(where, 0, 5), batch(None, 0, 5), ())
        patch.undo()
        assert table.commit(written(where, 5, 5), batch(5, 5, 10), ())
        open_table(where, "messages").optimize.compact()
        assert open_table(where, "messages").vacuum(168, full=True) == []
        assert sorted(lake.scan(where.url, since=MIDNIGHT).collect()["offset"]) == list(range(10))


def test_a_directory_from_which_files_were_removed(where: Lake) -> None:
    """Files that are gone are named; the archive continues."""
    table = opened(where)
    table.commit(written(where, 0, 5), batch(None, 0, 5), ())
    (gone,) = Path(where.table("messages")).rglob("*.parquet")
    gone.unlink()
    assert table.commit(written(where, 5, 5), batch(5, 5, 10), ())
    for read in (lambda: lake.arrow(where.url), lambda: lake.scan(where.url).collect()):
        with pytest.raises(FileNotFoundError, match=gone.name):
            read()
    assert DeltaTable(where.table("messages")).repair()["files_removed"]
    assert sorted(lake.arrow(where.url).column("offset").to_pylist()) == list(range(5, 10))


def test_a_directory_from_which_the_log_was_removed_is_not_begun_again(where: Lake) -> None:
    opened(where).commit(written(where, 0, 5), batch(None, 0, 5), ())
    shutil.rmtree(Path(where.table("messages"), "_delta_log"))
    with pytest.raises(LakeError, match=r"has files of messages, such as topic=a/dt=.*\.parquet, and no table"):
        opened(where)


def test_a_column_that_came_later_is_added(where: Lake) -> None:
    older = COLUMNS.remove(COLUMNS.get_field_index("due"))
    DeltaTable.create(where.table("messages"), older, partition_by=["dt"])
    table = opened(where)
    assert table.commit(written(where, 0, 2), batch(None, 0, 2), ())
    assert lake.arrow(where.url).column("due").null_count == 2
    table.delta.alter.add_columns([Field("mine", "string")])  # type: ignore[arg-type]
    assert opened(where).commit(written(where, 2, 2), batch(2, 2, 4), ()), "a column of the user's"
    assert lake.scan(where.url).collect()["mine"].null_count() == 4


def test_a_removed_table_is_an_error(where: Lake) -> None:
    table = opened(where)
    files = written(where, 0, 2)
    shutil.rmtree(where.table("messages"))
    with pytest.raises(LakeError, match="was removed while an archive was writing to it"):
        table.commit(files, batch(None, 0, 2), ())
