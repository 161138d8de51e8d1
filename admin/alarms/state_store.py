"""The state of nsqadmin over a restart, in a small SQLite file: nodes, snoozes, thresholds, and when alarms began.

The file can be deleted at any time: nsqadmin then learns the nodes again. One nsqadmin uses a file at a time. A thread of its
own writes it, so that no page waits for the disk. A failed write is only logged, and if the disk hangs, writes are dropped.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from admin.alarms.book import Id, Snooze
from admin.nodes.inventory import NodeRecord, restored, stored
from admin.nodes.upstreams import retrieve
from shared.files import public_problem
from shared.log import log

VERSION = 1
LOCKED = 2.0  # s to wait for another process
PATIENCE = 5.0  # s that a caller waits for a write
MOST_WAITING = 10  # writes that wait for the disk
_TABLES = (
    "CREATE TABLE IF NOT EXISTS nodes (address TEXT PRIMARY KEY, record TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS thresholds (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS snoozes (rule TEXT, subject TEXT, until INTEGER NOT NULL, by TEXT NOT NULL,"
    " reason TEXT NOT NULL, PRIMARY KEY (rule, subject))",
    "CREATE TABLE IF NOT EXISTS alarms (rule TEXT, subject TEXT, since INTEGER NOT NULL, PRIMARY KEY (rule, subject))",
)


class StateError(ValueError):
    """The file cannot be used. One line says why, and what to do."""


class StateStore:
    """The file of one cluster. Without a path nothing is kept."""

    def __init__(self, path: Path | None) -> None:
        """Open the file, and make it if there is none. Raises StateError."""
        self.path = path
        self._thread = ThreadPoolExecutor(1, "state")
        self._database: sqlite3.Connection | None = None
        self._failed = False
        self._waiting = 0  # writes that were begun and have not ended
        if path is not None:
            try:
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                _make_private(path)
                self._database = _opened(path)
            except (OSError, sqlite3.Error) as error:
                raise self._unusable(error) from None

    def nodes(self) -> list[NodeRecord]:
        """Return the nodes that were stored; invalid records are left out. Raises StateError, like all queries."""
        records = [_record(str(raw)) for (raw,) in self._rows("SELECT record FROM nodes")]
        return [one for one in records if one is not None]

    def thresholds(self) -> dict[str, str]:
        """Return the thresholds that were set on the page."""
        return {str(name): str(value) for name, value in self._rows("SELECT name, value FROM thresholds")}

    def snoozes(self) -> dict[Id, Snooze]:
        """Return the snoozes of alarms and of whole rules."""
        rows = self._rows("SELECT rule, subject, until, by, reason FROM snoozes")
        return {
            (str(rule), str(subject)): Snooze(until, str(by), str(reason))
            for rule, subject, until, by, reason in rows
            if isinstance(until, int)
        }

    def alarms(self) -> dict[Id, int]:
        """Return the beginnings of the alarms that were raised last, ns since the epoch."""
        rows = self._rows("SELECT rule, subject, since FROM alarms")
        return {(str(rule), str(subject)): since for rule, subject, since in rows if isinstance(since, int)}

    async def put_nodes(self, records: Mapping[str, NodeRecord | None]) -> None:
        """Store these records, by address, and delete those that are None."""
        # made where they are written: a node may have ten thousand topics
        puts = ((address, json.dumps(stored(one))) for address, one in records.items() if one is not None)
        drops = [(address,) for address, one in records.items() if one is None]
        await self._write(
            ("INSERT OR REPLACE INTO nodes VALUES (?, ?)", puts), ("DELETE FROM nodes WHERE address = ?", drops)
        )

    async def put_thresholds(self, values: Mapping[str, str]) -> None:
        """Store all thresholds that were set on the page."""
        rows = list(values.items())
        await self._write(("DELETE FROM thresholds", [()]), ("INSERT INTO thresholds VALUES (?, ?)", rows))

    async def put_snoozes(self, snoozes: Mapping[Id, Snooze]) -> None:
        """Store these snoozes in the place of those before."""
        rows = [(*key, one.until, one.by, one.reason) for key, one in snoozes.items()]
        await self._write(("DELETE FROM snoozes", [()]), ("INSERT INTO snoozes VALUES (?, ?, ?, ?, ?)", rows))

    async def put_alarms(self, since: Mapping[Id, int]) -> None:
        """Store the beginnings of all alarms that are raised."""
        rows = [(*key, at) for key, at in since.items()]
        await self._write(("DELETE FROM alarms", [()]), ("INSERT INTO alarms VALUES (?, ?, ?)", rows))

    def close(self) -> None:
        """Finish the writes, and close the file."""
        self._thread.shutdown(wait=True)
        if self._database is not None:
            self._database.close()

    def _rows(self, statement: str) -> list[tuple[object, ...]]:
        try:
            return self._database.execute(statement).fetchall() if self._database is not None else []
        except sqlite3.Error as error:  # a damaged file, or a database of another program
            raise self._unusable(error) from None

    def _unusable(self, error: Exception) -> StateError:
        return StateError(f"-state-dir: cannot use {self.path}: {error}. Move the file away, or name another directory")

    async def _write(self, *statements: tuple[str, Iterable[tuple[object, ...]]]) -> None:
        """Run statements, each for all of its rows, in one transaction."""
        if self._database is None:
            return
        if self._waiting >= MOST_WAITING:
            self._note_failure(f"{MOST_WAITING} writes wait for the disk")
            return
        self._waiting += 1
        loop = asyncio.get_running_loop()
        write = loop.run_in_executor(self._thread, self._execute, self._database, statements)
        write.add_done_callback(self._end_write)
        await asyncio.wait({write}, timeout=PATIENCE)
        if write.done():
            write.result()

    def _end_write(self, write: asyncio.Future[None]) -> None:
        self._waiting -= 1
        retrieve(write)

    def _execute(
        self, database: sqlite3.Connection, statements: tuple[tuple[str, Iterable[tuple[object, ...]]], ...]
    ) -> None:  # fmt: skip
        try:
            with database:
                for statement, rows in statements:
                    database.executemany(statement, rows)
        except sqlite3.Error as error:
            self._note_failure(error)
        else:
            self._failed = False

    def _note_failure(self, why: object) -> None:
        if not self._failed:  # once, and not every 15 seconds
            log.error("STATE: cannot write %s: %s", self.path, why)
        self._failed = True


def _record(raw: str) -> NodeRecord | None:
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return restored(data) if isinstance(data, dict) else None


def _make_private(path: Path) -> None:
    """Create the file for its owner only, or take the rights of others away. Raises OSError.

    SQLite gives its other files (-wal, -shm) the mode of this one.
    """
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    for one in (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm"))):
        if one.exists() and public_problem(one.stat()):
            one.chmod(0o600)


def _opened(path: Path) -> sqlite3.Connection:
    """Return the database with its tables. Raises sqlite3.Error."""
    database = sqlite3.connect(path, timeout=LOCKED, check_same_thread=False)
    try:
        found = database.execute("PRAGMA user_version").fetchone()[0]
        if found not in (0, VERSION):
            raise sqlite3.DatabaseError(f"it has version {found} of the format, not {VERSION}")
        database.execute("PRAGMA journal_mode = WAL")
        for statement in _TABLES:
            database.execute(statement)
        database.execute(f"PRAGMA user_version = {VERSION}")
        database.commit()
    except sqlite3.Error:
        database.close()
        raise
    return database
