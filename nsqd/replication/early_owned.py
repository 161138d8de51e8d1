"""What a node that starts says of the logs that it has adopted, before it has opened them.

A node that starts at the same time must hear who owns its log: otherwise both would serve it. Until a log has been read, the
answer says that it is being opened, and the other node asks again.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nsqd.storage.log.disk import RealDisk
from nsqd.storage.log.epochs import NO_EPOCH
from nsqd.storage.log.frozen import FrozenDisk
from nsqd.storage.log.reading import LogReading
from nsqd.storage.log.segments import LogError
from shared.log import log

NAME = "adopted"  # in the data directory: LOG-ID/log is the log with that id
_LOG_ID = re.compile(r"[0-9a-f]{32}")


class EarlyOwned:
    """The adopted logs of a data directory. One thread reads them, and any thread may ask for `states`."""

    def __init__(self, data_path: Path) -> None:
        path = data_path / NAME
        names = [one.name for one in path.iterdir() if _LOG_ID.fullmatch(one.name)] if path.is_dir() else []
        self._logs = {name: path / name / "log" for name in sorted(names) if (path / name / "log").is_dir()}
        self._states: dict[str, dict[str, Any]] = {name: {"log_id": name, "opening": True} for name in self._logs}

    def read_all(self, is_over: Callable[[], bool]) -> None:
        """Read the logs until `is_over`, without a change to any. What cannot be read stays one that is being opened."""
        for name, path in self._logs.items():
            if is_over():
                return
            try:
                self._states[name] = _state(name, LogReading(FrozenDisk(RealDisk(path))))
            except (LogError, OSError) as error:
                log.error("CLUSTER: cannot read the adopted log in %s: %s", path, error)

    def states(self) -> list[dict[str, Any]]:
        """Return an entry for each log, as /cluster has it in `owned`."""
        return list(self._states.values())


def _state(name: str, reading: LogReading) -> dict[str, Any]:
    epochs = list(reading.replay.epochs)
    latest = max([*reading.epochs, *(epoch for epoch, _ in epochs)], default=NO_EPOCH)
    return {
        "log_id": name,
        "node": latest.node,
        "epochs": [[epoch.pack().hex(), start] for epoch, start in epochs],
        "end": reading.log_records.end,
    }
