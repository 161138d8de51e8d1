"""State over a restart, and files that cannot be used."""

import asyncio
import logging
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from admin.alarms import state_store
from admin.alarms.book import Snooze
from admin.alarms.state_store import MOST_WAITING, VERSION, StateError, StateStore
from tests.admin.looks import NOW, record
from tests.cases import each

SNOOZES = {("buried", ""): Snooze(NOW, "a", "b"), ("buried", "t/'c\";--"): Snooze(NOW, "ü", "x'y")}


@contextmanager
def opened(path: Path | None) -> Iterator[StateStore]:
    with closing(StateStore(path)) as store:
        yield store


async def fill(store: StateStore) -> None:
    await store.put_nodes({"n:1": record(), "m:1": record("m")})
    await store.put_nodes({"m:1": None, "x:1": None})
    await store.put_thresholds({"buried.messages": "5"})
    await store.put_snoozes(SNOOZES)
    await store.put_alarms({("buried", "t/c"): NOW, ("paused", "t"): NOW})
    await store.put_alarms({("buried", "t/c"): NOW})


def query(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute(statement)
        database.commit()


def test_round_trips(tmp_path: Path) -> None:
    path = tmp_path / "made" / "s.sqlite"
    with opened(path) as store:
        assert (store.nodes(), store.thresholds(), store.snoozes(), store.alarms()) == ([], {}, {}, {})
        asyncio.run(fill(store))
    with opened(path) as again:
        assert again.nodes() == [record(is_named=False)]
        assert again.thresholds() == {"buried.messages": "5"}
        assert again.snoozes() == SNOOZES
        assert again.alarms() == {("buried", "t/c"): NOW}
    with opened(None) as store:
        asyncio.run(fill(store))
        assert (store.nodes(), store.thresholds(), store.snoozes(), store.alarms()) == ([], {}, {}, {})


def test_a_file_that_is_no_database_of_nsqadmin_is_not_touched(tmp_path: Path) -> None:
    path, advice = tmp_path / "s", r"Move the file away, or name another directory"
    path.write_bytes(b"no database" * 100)
    with pytest.raises(StateError, match=rf"-state-dir: cannot use .*/s: .*\. {advice}"):
        StateStore(path)
    assert path.read_bytes() == b"no database" * 100
    path.unlink()
    StateStore(path).close()
    query(path, f"PRAGMA user_version = {VERSION + 1}")
    with pytest.raises(StateError, match=f"it has version {VERSION + 1} of the format, not {VERSION}"):
        StateStore(path)
    query(tmp_path / "other", "CREATE TABLE nodes (other TEXT)")
    with opened(tmp_path / "other") as store, pytest.raises(StateError, match=rf"no such column: record.*{advice}"):
        store.nodes()


def test_a_place_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "directory").mkdir()
    for name in ("file/below/s", "directory"):
        with pytest.raises(StateError, match="Move the file away, or name another directory"):
            StateStore(tmp_path / name)

    def refuse(self: Path, **more: bool) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "mkdir", refuse)  # root may write everywhere
    with pytest.raises(StateError, match=r"Permission denied.*name another directory"):
        StateStore(tmp_path / "made" / "s")


def test_records_and_rows_that_make_no_sense_are_left_out(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        asyncio.run(fill(store))
    raw = ["", "{", "[]", "5", '{"producer": 5}', "[" * 100_000, '{"producer": {"hostname": 1}}']
    for number, record_ in enumerate(raw):
        query(tmp_path / "s", f"INSERT INTO nodes VALUES ('x:{number}', '{record_}')")
    query(tmp_path / "s", "INSERT INTO alarms VALUES ('buried', 'x', 'soon')")
    query(tmp_path / "s", "INSERT INTO snoozes VALUES ('buried', 'x', 'soon', 'a', 'b')")
    with opened(tmp_path / "s") as again:
        assert again.nodes() == [record(is_named=False)]
        assert again.snoozes() == SNOOZES
        assert again.alarms() == {("buried", "t/c"): NOW}


def test_a_write_that_fails_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(state_store, "LOCKED", 0.0)
    path = tmp_path / "s"
    with opened(path) as store, closing(sqlite3.connect(path, isolation_level=None)) as other:
        caplog.set_level(logging.ERROR, "penstock")
        monkeypatch.setattr(logging.getLogger("penstock"), "propagate", True)
        other.execute("BEGIN IMMEDIATE")
        for _ in range(3):
            asyncio.run(store.put_thresholds({"paused": "off"}))
        other.execute("ROLLBACK")
        assert [one.getMessage() for one in caplog.records] == [f"STATE: cannot write {path}: database is locked"]
        asyncio.run(store.put_thresholds({"paused": "off"}))
        assert store.thresholds() == {"paused": "off"}
        other.execute("BEGIN IMMEDIATE")
        asyncio.run(store.put_thresholds({}))
        other.execute("ROLLBACK")
        assert len(caplog.records) == 2, "it failed again, after it had worked"
        assert store.thresholds() == {"paused": "off"}, "a write that fails changes nothing"


def test_a_disk_that_hangs_delays_no_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(state_store, "PATIENCE", 0.0)
    monkeypatch.setattr(logging.getLogger("penstock"), "propagate", True)
    goes, written = threading.Event(), StateStore._execute

    def hang(self: StateStore, *given: Any) -> None:
        goes.wait()
        written(self, *given)

    monkeypatch.setattr(StateStore, "_execute", hang)

    async def work(store: StateStore) -> None:
        for number in range(2 * MOST_WAITING):
            await store.put_thresholds({"buried.messages": str(number)})
        assert [one.getMessage() for one in caplog.records] == [
            f"STATE: cannot write {store.path}: {MOST_WAITING} writes wait for the disk"
        ]
        goes.set()
        while store._waiting:
            await asyncio.sleep(0)
        monkeypatch.setattr(state_store, "PATIENCE", 60.0)
        assert store.thresholds() == {"buried.messages": str(MOST_WAITING - 1)}
        await store.put_thresholds({})
        assert store.thresholds() == {}

    with opened(tmp_path / "s") as store:
        asyncio.run(work(store))


def test_a_second_process_can_use_the_file(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as one, opened(tmp_path / "s") as other:
        asyncio.run(one.put_thresholds({"paused": "off"}))
        assert other.thresholds() == {"paused": "off"}
        asyncio.run(other.put_thresholds({"paused": "on"}))
        assert one.thresholds() == {"paused": "on"}


def test_what_was_put_is_stored_before_the_file_is_closed(tmp_path: Path) -> None:
    async def put_and_leave(store: StateStore) -> None:
        task = asyncio.create_task(store.put_thresholds({"paused": "off"}))
        await asyncio.sleep(0)
        store.close()
        await task

    asyncio.run(put_and_leave(StateStore(tmp_path / "s")))
    with opened(tmp_path / "s") as again:
        assert again.thresholds() == {"paused": "off"}


@each("before", [None, 0o644, 0o666])
def test_only_its_owner_may_read_it_whatever_the_umask(tmp_path: Path, before: int | None) -> None:
    path, was = tmp_path / "state" / "s.sqlite", os.umask(0)
    try:
        if before is not None:  # of an earlier version
            with opened(path) as store:
                asyncio.run(fill(store))
            path.chmod(before)
        with opened(path) as store:
            asyncio.run(fill(store))
            modes = {one.name: one.stat().st_mode & 0o777 for one in path.parent.iterdir()}
        assert modes == {"s.sqlite": 0o600, "s.sqlite-wal": 0o600, "s.sqlite-shm": 0o600}
        assert path.parent.stat().st_mode & 0o777 == 0o700
    finally:
        os.umask(was)


def test_what_a_group_may_read_by_the_operators_will_stays_so(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    with opened(path):
        path.chmod(0o640)
    with opened(path):
        assert path.stat().st_mode & 0o777 == 0o640
