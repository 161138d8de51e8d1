"""cluster.json of a running node: written whenever a fact in it has changed. Callers can wait until it is durable."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import trio

from nsqd.cluster.membership.cluster import TICK, Cluster
from nsqd.cluster.membership.cluster_json import facts_of, write_facts
from nsqd.cluster.membership.facts import NO_FACTS
from shared.log import log

KEEP_AGAIN = 10_000_000_000  # ns after which the file is written again when that has failed


class FactsFile:
    """The file, and the callers that wait until it has the current facts. All methods are for the reactor's thread."""

    def __init__(self, cluster: Cluster, directory: Path, wake: Callable[[], None]) -> None:
        """`wake` is called after the waiting callers were called."""
        self._cluster, self._directory, self._wake = cluster, directory, wake
        self._written = NO_FACTS  # as the file has it; none: the start may have found no space for it
        self._waiting: list[Callable[[bool], None]] = []
        self._due = 0  # when the file is written at the earliest, monotonic ns
        self._is_wanted = trio.Event()  # a caller waits

    def keep(self, then: Callable[[bool], None]) -> None:
        """Write the facts of the cluster, and call `then` when they are durable (True) or cannot be written."""
        self._waiting.append(then)
        self._due = 0
        self._is_wanted.set()

    async def run(self) -> None:
        """Write the file whenever something in it has changed, until cancelled. A disk that hangs holds up no heartbeat."""
        while True:
            await self._write()
            with trio.move_on_after(TICK / 1e9):
                await self._is_wanted.wait()

    async def _write(self) -> None:
        known = facts_of(self._cluster)
        self._is_wanted = trio.Event()
        if known != self._written and time.monotonic_ns() < self._due and not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        if known != self._written:
            try:
                await trio.to_thread.run_sync(partial(write_facts, self._directory, known))
            except OSError as error:
                log.error("CLUSTER: cannot write cluster.json: %s; trying again", error)
                self._due = time.monotonic_ns() + KEEP_AGAIN
            else:
                self._written = known
        for then in waiting:
            then(known == self._written)
        if waiting:
            self._wake()
