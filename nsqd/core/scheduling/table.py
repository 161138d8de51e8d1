"""The durable state of all schedules of a log: how the log's records change it, and what a checkpoint has of it.

The records are in msgpack:

    SCHEDULE  [topic, name, is new, over, recurrence, missed, body, headers, since, paused]; or [topic, name]: it is gone
    TICKS     [[topic, name, over], ...]: the ticks of these schedules up to that time are done with

A checkpoint has one SCHEDULE of each, which is not new. Each can be applied to a state that includes it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

import msgpack

from nsqd.core.message.attributes import Attributes
from nsqd.core.records import RecordKind
from nsqd.core.scheduling.recurrence import Recurrence, pack_recurrence, unpack_recurrence
from penstock.protocol.headers import Headers

Key = tuple[str, str]  # topic and name


class Missed(Enum):
    """How many messages are published for missed ticks: none, one for all of them together, or one for each."""

    SKIP = "skip"
    ONCE = "once"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Schedule:
    """A message, and when it is published."""

    topic: str
    name: str
    recurrence: Recurrence
    missed: Missed
    body: bytes
    headers: Headers
    since: int  # ticks up to this time are not published: it was created, or its pause ended
    paused: bool = False

    @property
    def key(self) -> Key:
        return self.topic, self.name

    @property
    def size(self) -> int:
        """Return the number of bytes that it publishes."""
        return len(self.body) + sum(len(name) + len(value) for name, value in self.headers)

    def attributes(self, tick: int) -> Attributes:
        """Return the attributes of the message of a tick. Its key has the tick published once, over crashes and restarts."""
        return Attributes(self.headers, key=f"schedule:{self.name}:{tick}")


class ScheduleTable:
    """All schedules of a log, as its records state them."""

    def __init__(self) -> None:
        self.known: dict[Key, Schedule] = {}
        # of each: the time up to which its ticks are done with, and their messages in the log
        self.noted: dict[Key, int] = {}

    def apply(self, kind: RecordKind, content: bytes) -> None:
        """Apply a SCHEDULE or TICKS record. TICKS of unknown schedules precede the state in a checkpoint."""
        if kind is RecordKind.TICKS:
            for topic, name, over in msgpack.unpackb(content):
                if (topic, name) in self.known:
                    self.noted[topic, name] = over
            return
        topic, name, *fields = msgpack.unpackb(content)
        if not fields:
            self.known.pop((topic, name), None)
            self.noted.pop((topic, name), None)
            return
        _, over, recurrence, missed, body, headers, since, paused = fields
        named = tuple((one, value) for one, value in headers)
        schedule = Schedule(topic, name, unpack_recurrence(recurrence), Missed(missed), body, named, since, paused)
        self.known[schedule.key], self.noted[schedule.key] = schedule, over

    def keep_only(self, keys: Container[Key]) -> None:
        """Keep the schedules with these keys, and drop all others."""
        self.known = {key: schedule for key, schedule in self.known.items() if key in keys}
        self.noted = {key: over for key, over in self.noted.items() if key in keys}

    def dump(self) -> Iterator[tuple[RecordKind, bytes]]:
        """Yield the records of a checkpoint. The schedules may change meanwhile."""
        for key in list(self.known):
            if key in self.known:
                yield RecordKind.SCHEDULE, pack_schedule(self.known[key], self.noted[key], is_new=False)


def pack_schedule(schedule: Schedule, over: int, is_new: bool = True) -> bytes:
    """Return the content of a SCHEDULE record of a schedule whose ticks up to `over` are done with."""
    one, recurrence = schedule, pack_recurrence(schedule.recurrence)
    changing = is_new, over, recurrence, one.missed.value
    fields = one.topic, one.name, *changing, one.body, one.headers, one.since, one.paused
    packed: bytes = msgpack.packb(fields)
    return packed


def pack_removed(key: Key) -> bytes:
    """Return the content of the SCHEDULE record of a schedule that is gone."""
    packed: bytes = msgpack.packb(key)
    return packed


def pack_ticks(ticks: Iterable[tuple[str, str, int]]) -> bytes:
    """Return the content of a TICKS record."""
    packed: bytes = msgpack.packb(list(ticks))
    return packed


def new_schedule(content: bytes) -> Key | None:
    """Return which schedule a SCHEDULE record adds or changes; None: it is of a checkpoint, or says that one is gone."""
    fields: list[Any] = msgpack.unpackb(content)
    return (fields[0], fields[1]) if fields[2:3] == [True] else None
