"""The audit trail: which user did what from where, in memory, in a file of JSON lines, and in a topic.

A record is {"time" (RFC 3339), "user", "role", "address", "agent", "action", "target", "detail" (an object), "outcome"
("done", "duplicate", "refused: ...", or what failed)}. The file is opened for each record, so log rotation needs no signal.
A failure to write is logged, and hinders no user.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from operator import itemgetter
from typing import Any

from admin.users.outbox import MOST_WAITING, Outbox
from shared.files import append_whole
from shared.log import log

DONE = "done"
IN_MEMORY = 1000  # records that are kept in memory without a file
MOST_READ = 8 * 1024 * 1024  # bytes at the end of the file that a search reads
MOST_TEXT = 500  # characters of each text

Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Actor:
    """The user of a request, and where it comes from."""

    user: str  # proven or claimed, see Access; "": unknown
    remote_address: str
    user_agent: str
    url: str
    role: str = ""


class Audit:
    """Writes records of actions, and searches them."""

    def __init__(
        self, path: str, publish: Callable[[bytes], Awaitable[None]] | None, clock: Callable[[], float] = time.time
    ) -> None:
        self.path = path
        self._publish = publish
        self._clock = clock
        self._latest: deque[Record] = deque(maxlen=IN_MEMORY)
        # Failed logins and refused attempts, kept apart: they must not displace other records.
        self._refused: deque[Record] = deque(maxlen=IN_MEMORY)
        self._outbox = Outbox(self._deliver)
        self._failure = ""  # of the last record that was written to the file

    def problem(self) -> str:
        """Return the reason for which no record can be written to the file, or "". It asks the disk."""
        if not self.path or self._failure:
            return self._failure
        directory = os.path.dirname(self.path) or "."
        if not os.path.isdir(directory):
            return "its directory does not exist"
        return "" if os.access(self.path if os.path.exists(self.path) else directory, os.W_OK) else "not writable"

    def note(self, action: str, target: str, actor: Actor, outcome: str = DONE, **detail: object) -> None:
        """Record an action that was done or tried."""
        at = datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="milliseconds")
        texts = {
            "user": actor.user, "role": actor.role, "address": actor.remote_address, "agent": actor.user_agent,
            "action": action, "target": target,
        }  # fmt: skip
        record: Record = {"time": at} | {name: text[:MOST_TEXT] for name, text in texts.items()}
        record |= {"detail": detail, "outcome": outcome[:MOST_TEXT]}
        user = actor.user or "anonymous"
        log.info("ACTION: %s %r, by %s from %s: %s", action, target, user, actor.remote_address, outcome)
        (self._refused if outcome.startswith("refused") else self._latest).append(record)
        line = json.dumps(record).encode() + b"\n"
        if self.path:
            try:
                append_whole(self.path, line)
                self._failure = ""
            except OSError as error:
                self._failure = str(error.strerror)
                log.error("AUDIT: cannot write %s: %s", self.path, error)
        if self._publish is not None and not self._outbox.put(line[:-1]):
            log.error("AUDIT: dropped a record for the audit topic: the queue is full (%d)", MOST_WAITING)

    async def search(self, words: str, before: str = "", limit: int = 100) -> list[Record]:
        """Return the newest records first: those that contain all words, and are earlier than `before`."""
        wanted, records = words.lower().split(), reversed(await self._records())
        found = (one for one in records if (not before or one["time"] < before) and _has(one, wanted))
        return list(islice(found, limit))

    async def latest(self, action: str, target: str) -> Record | None:
        """Return the newest record of such an action to this target that was not refused and did not fail."""
        records = reversed(await self._records())
        found = (one for one in records if (one["action"], one["target"]) == (action, target))
        return next((one for one in found if not one["outcome"].startswith(("refused", "failed"))), None)

    async def _records(self) -> list[Record]:
        """Return the records in the file, or in memory without a file, the oldest first."""
        if self.path:
            return await asyncio.to_thread(_read_end, self.path)
        return sorted([*self._latest, *self._refused], key=itemgetter("time"))

    async def _deliver(self, line: bytes) -> None:
        assert self._publish is not None
        try:
            await self._publish(line)
        except Exception as error:  # of any kind: the next record is still published
            log.error("AUDIT: cannot publish a record to the audit topic: %s", error)


def _read_end(path: str) -> list[Record]:
    """Return the readable records in the last MOST_READ bytes of the file, in order."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - MOST_READ))
            lines = file.read(MOST_READ).split(b"\n")
    except FileNotFoundError:  # no record was written yet
        return []
    except OSError as error:
        log.error("AUDIT: cannot read %s: %s", path, error)
        return []
    records = []
    for line in lines[1:] if size > MOST_READ else lines:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if _is_record(record):
            records.append(record)
    return records


def _is_record(record: object) -> bool:
    names = ("time", "user", "role", "address", "agent", "action", "target", "outcome")
    return isinstance(record, dict) and all(isinstance(record.get(name), str) for name in names)


def _has(record: Record, texts: list[str]) -> bool:
    found = json.dumps(record, ensure_ascii=False).lower() if texts else ""
    return all(text in found for text in texts)
