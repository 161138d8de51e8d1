"""The repair of corrupt bytes of logs by those of replicas, in a simulated node: at once, as nsqd's thread would in the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nsqd.cluster.replication.repair import LogRepair
from nsqd.storage.log.files import SegmentFile
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

        super().__init__(opened.disk, log_id, machine.find_replicas, lambda: machine.clock.now, may_be_more)
        self._machine = machine

    def __call__(self, base: int, file: SegmentFile, start: int, stop: int) -> bool:
        if file.generation:
            return False
        found: list[bool | None] = []
        self._ask(found, (base, file.name, file.seed), start, stop)
        self._note((file.name, start), found[0])
        self._machine.run.books.counts["damage replaced" if found == [True] else "damage not replaced"] += 1
        return found == [True]
