"""The repair of corrupt bytes of logs by those of replicas, in a simulated node: at once, as nsqd's thread would in the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nsqd.cluster.replication.repair import Ask, LogRepair, T
from nsqd.storage.log.opening import OpenLog

if TYPE_CHECKING:
    from tests.simulation.machine import Machine


class SimRepair(LogRepair):
    """Asks the nodes that run. Implements nsqd.storage.log.files.ByteRepair."""

    def __init__(self, machine: Machine, opened: OpenLog) -> None:
        log_id, writer = opened.identity.log_id, opened.writer

        def may_be_more(offered: int) -> bool:
            is_away = machine.node is None or machine.node.cluster.is_any_member_away
            return is_away or offered < len(writer.followers.numbers)

        super().__init__(
            opened.disk, log_id, machine.find_replicas, lambda: machine.clock.now, writer.epochs.at, may_be_more
        )
        self._machine = machine

    def _ask(self, place: tuple[str, int], ask: Ask[T]) -> T | bool | None:
        found: list[T | bool | None] = []
        self._try(place[0], ask, found)
        self._note(place, found[0])
        self._machine.run.books.counts["damage replaced" if found[0] else "damage not replaced"] += 1
        return found[0]
