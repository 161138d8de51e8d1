"""The cluster port before this node has read its log: it replies to visitors, and refuses all other connections.

Nodes that start at the same time ask each other for the ends of their logs; if a node read its own log first, all others
would wait for it. Replies name the promoted logs as well: otherwise such a log could get two leaders. Until a promoted log has
been read, its end is unknown, and the visitor asks again.

See docs/contributing/design/cluster-protocol.md#visits.
"""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from nsqd.cluster.membership.cluster_json import describe_closed, read_facts
from nsqd.cluster.promotion.opening import Interrupted, until
from nsqd.cluster.replication.answers import Answers
from nsqd.cluster.replication.directory import PromotedDirectory, ReplicaDirectory
from nsqd.cluster.replication.follower import AtOnce
from nsqd.cluster.replication.replicas import Replicas
from nsqd.cluster.wire.frames import PeerError
from nsqd.cluster.wire.visit import Visits
from nsqd.storage.log.epochs import NO_EPOCH
from nsqd.storage.log.frozen import FrozenDisk
from nsqd.storage.log.reading import LogReading
from nsqd.storage.log.segments import LogError
from shared.log import log

MOST_AT_ONCE = 32  # visitors
PATIENCE = 5.0  # s for a step of a handshake, and between two requests
CHECK_EVERY = 0.05  # s between two checks whether the start is over


class EarlyPort:
    """A context manager in which visitors are answered at the listening socket of the cluster port."""

    def __init__(self, sock: socket.socket, visits: Visits, data_path: Path) -> None:
        self._socket, self._visits = sock, visits
        self._replicas = Replicas(
            ReplicaDirectory(data_path), AtOnce(), time.monotonic_ns, lambda number, log_id: False
        )
        self.led = EarlyLed(data_path)
        self._closed = [describe_closed(record) for record in read_facts(data_path).closed]
        self._answers = Answers(self._replicas, self._figures, lambda number: None, AtOnce())
        self._over = threading.Event()
        self._free = threading.BoundedSemaphore(MOST_AT_ONCE)
        self._thread = threading.Thread(target=self._serve, name="early cluster port", daemon=True)
        reading = partial(self.led.read_all, self._over.is_set)
        self._reader = threading.Thread(target=reading, name="early promoted logs", daemon=True)

    def _figures(self) -> dict[str, Any]:
        return {"replicas": self._replicas.states(), "led": self.led.states(), "closed": self._closed}

    def __enter__(self) -> EarlyPort:
        self._replicas.open_all()
        self._reader.start()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Accept no more connections. Visitors that are connected may continue to ask."""
        self._over.set()
        self._thread.join()
        self._reader.join()  # it ends with the current record
        self._replicas.close()

    def _serve(self) -> None:
        while not self._over.is_set():
            if select.select([self._socket], [], [], CHECK_EVERY)[0] and self._free.acquire(timeout=CHECK_EVERY):
                try:
                    connection, _ = self._socket.accept()
                except OSError:
                    self._free.release()
                    continue
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        connection.setblocking(True)
        try:
            with suppress(OSError, PeerError):  # the visitor has gone, or is none: a node that starts has no log of it
                self._visits.answer(connection, self._answers, PATIENCE)
        finally:
            connection.close()
            self._free.release()


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
