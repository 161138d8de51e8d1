"""What a node that starts says of the logs that it has promoted, before it has opened them.

A node that starts at the same time must hear who leads its log: otherwise both would serve it. Until a log has been read, the
answer says that it is being opened, and the other node asks again.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from nsqd.cluster.promotion.opening import Interrupted, until
from nsqd.cluster.replication.directory import PromotedDirectory
from nsqd.storage.log.epochs import NO_EPOCH
from nsqd.storage.log.frozen import FrozenDisk
from nsqd.storage.log.reading import LogReading
from nsqd.storage.log.segments import LogError
from shared.log import log


class EarlyLed:
    """The promoted logs of a data directory. One thread reads them, and any thread may ask for `states`."""

    def __init__(self, data_path: Path) -> None:
        self._promoted = PromotedDirectory(data_path)
        self._logs = self._promoted.found()
        self._states: dict[bytes, dict[str, Any]] = {one: {"log_id": one.hex(), "opening": True} for one in self._logs}

    def read_all(self, is_over: Callable[[], bool]) -> None:
        """Read the logs until `is_over`, without a change to any. What cannot be read stays one that is being opened."""
        for log_id in self._logs:
            try:
                disk = FrozenDisk(self._promoted.open(log_id))
                self._states[log_id] = _state(log_id, LogReading(disk, interrupt=until(is_over)))
            except Interrupted:
                return
            except (LogError, OSError) as error:
                log.error("CLUSTER: cannot read the promoted log in %s: %s", self._promoted.place(log_id), error)

    def states(self) -> list[dict[str, Any]]:
        """Return an entry for each log, as /cluster has it in `led`."""
        return list(self._states.values())


def _state(log_id: bytes, reading: LogReading) -> dict[str, Any]:
    epochs = list(reading.replay.epochs)
    latest = max([*reading.epochs, *(epoch for epoch, _ in epochs)], default=NO_EPOCH)
    return {
        "log_id": log_id.hex(),
        "node": latest.node,
        "epochs": [[epoch.pack().hex(), start] for epoch, start in epochs],
        "end": reading.log_records.end,
    }
