"""`schedules.json` and `schedule_ticks.json` in the data directory: the schedules of a node, and how far each has come.

They are two files, because bodies change seldom, and ticks at every second. See nsqd/core/scheduling.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from nsqd.core.retention.backup import SCHEDULES, TICKS
from nsqd.core.scheduling.recurrence import pack_recurrence, unpack_recurrence
from nsqd.core.scheduling.schedules import Key, Missed, Schedule
from nsqd.storage.directory import DirectoryError
from shared.files import replace_file
from shared.sealed_json import seal, unseal

T = TypeVar("T")


class ScheduleFiles:
    """The two files of a data directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def read(self) -> tuple[list[Schedule], dict[Key, int]]:
        """Return the schedules, and up to which time the ticks of each are done with. Raises DirectoryError."""
        schedules = self._read_list(SCHEDULES, "schedules", _schedule)
        ticks = self._read_list(TICKS, "ticks", lambda one: ((one[0], one[1]), int(one[2])))
        return schedules, dict(ticks)

    def write_schedules(self, schedules: Iterable[Schedule]) -> None:
        """Write the schedules durably. Raises OSError."""
        self._write(SCHEDULES, seal({"schedules": [_fields(schedule) for schedule in schedules]}))

    def write_ticks(self, ticks: Mapping[Key, int]) -> None:
        """Write durably up to which time the ticks of each schedule are done with. Raises OSError."""
        self._write(TICKS, seal({"ticks": [[*key, over] for key, over in ticks.items()]}))

    def _read_list(self, name: str, field: str, read: Callable[[Any], T]) -> list[T]:
        try:
            return [read(one) for one in unseal(self._read(name))[field]]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
            path = self._directory / name
            raise DirectoryError(f"failed to read {path} - {error}: remove it if it is corrupt") from None

    def _read(self, name: str) -> bytes:
        return (self._directory / name).read_bytes()

    def _write(self, name: str, content: bytes) -> None:
        replace_file(self._directory / name, content)


def _fields(schedule: Schedule) -> dict[str, Any]:
    return {
        "topic": schedule.topic,
        "name": schedule.name,
        "recurrence": pack_recurrence(schedule.recurrence),
        "missed": schedule.missed.value,
        "body": base64.b64encode(schedule.body).decode(),
        "headers": schedule.headers,
        "since": schedule.since,
        "paused": schedule.paused,
    }


def _schedule(fields: dict[str, Any]) -> Schedule:
    return Schedule(
        fields["topic"],
        fields["name"],
        unpack_recurrence(fields["recurrence"]),
        Missed(fields["missed"]),
        base64.b64decode(fields["body"]),
        tuple((name, value) for name, value in fields["headers"]),
        fields["since"],
        fields["paused"],
    )
