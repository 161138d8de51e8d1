"""What is kept over a restart, and files that cannot be used."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from admin.alarm_book import Snooze
from admin.state_store import StateError, StateStore
from tests.admin.looks import NOW, record


def test_round_trips(tmp_path: Path) -> None:
    store = StateStore(tmp_path / "made" / "s.sqlite")

    async def write() -> None:
        await store.put_nodes({"n:1": record(), "m:1": record("m")})
        await store.put_nodes({"m:1": None})
        await store.put_thresholds({"buried.messages": "5"})
        await store.put_snoozes({("buried", ""): Snooze(NOW, "a", "b")})
        await store.put_alarms({("buried", "t/c"): NOW})

    asyncio.run(write())
    store.close()
    again = StateStore(store.path)
    assert again.nodes() == [record(is_named=False)]
    assert again.thresholds() == {"buried.messages": "5"}
    assert again.snoozes() == {("buried", ""): Snooze(NOW, "a", "b")}
    assert again.alarms() == {("buried", "t/c"): NOW}
    again.close()


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "s").write_bytes(b"no database" * 100)
    with pytest.raises(StateError, match="Move the file away"):
        StateStore(tmp_path / "s")
