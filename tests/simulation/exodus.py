"""Runs in which nodes leave and are forgotten during a partition, all at once.

The network is cut in halves. A node of one half is asked to leave. An operator of the other half has a node forgotten that does
not answer there: it may be down, or run on the far side, be the leader of logs and serve its clients. When the partition
ends, a node that was forgotten meanwhile is refused; its operator gives it an empty directory
(docs/troubleshooting/lost-node.md). What it had counts as lost, and nothing else does.
"""

from random import Random

from tests.nsqd.core.node import SECOND
from tests.simulation.cluster import ClusterRun
from tests.simulation.machine import Machine

OFTEN = 0.15  # part of the steps in which it begins, unless it is in progress
FEWEST = 4  # nodes; two stay


class ExodusRun(ClusterRun):
    plans = 0.0  # acknowledged ones may be lost
    rounds = 1

    def __init__(self, seed: int, nodes: int | None = None, has_jobs: bool | None = None) -> None:
        self.chance = Random(f"exodus {seed}")
        super().__init__(seed, nodes or self.chance.choice((FEWEST, 5, 5)), has_jobs)
        self._sides: tuple[list[Machine], list[Machine]] | None = None
        self._is_forgotten = False
        self._until = 0

    def _happen(self) -> None:
        super()._happen()
        if self._sides is None:
            if self.takes_over and self.chance.random() < OFTEN and len(self.members) >= FEWEST:
                self._part()
        elif self.now > self._until:
            self._sides = None
        else:
            self._forget_one(*self._sides)

    def _heal(self) -> None:
        self._sides = None
        super()._heal()

    def _part(self) -> None:
        """Cut the cluster in halves, and ask a node of the first one to leave."""
        members = list(self.members)
        self.chance.shuffle(members)
        size = self.chance.choice((1, 2, len(members) // 2))
        self._sides = near, far = members[:size], members[size:]
        self._until = self.cuts_until = self.now + self.chance.choice((8, 15, 30)) * SECOND
        self._is_forgotten = False
        pairs = [(one.address, other.address) for one in near for other in far]
        self.wires.cut.update(pairs, [(other, one) for one, other in pairs])
        self.blind([one.address for one in near])
        self.note(f"partition: {[one.name for one in near]}, {[one.name for one in far]}")
        self.books.counts["partitions with departures"] += 1
        leaving = self.chance.choice(self.chance.choice((near, far)))
        if leaving.node is not None and leaving.runs and not leaving.node.cluster.is_leaving:
            self.departures.leave(leaving, self.chance.choice((2, 20)) * SECOND)

    def _forget_one(self, near: list[Machine], far: list[Machine]) -> None:
        """Have a node of one half forgotten by the other half, as soon as it is suspected there."""
        if self._is_forgotten or self.chance.random() > 0.5:
            return
        here, there = self.chance.choice(((near, far), (far, near)))
        asked, doomed = self.chance.choice(here), self.chance.choice(there)
        node = asked.node
        is_used = not (doomed.is_away or doomed.is_forgotten or doomed.is_lost)
        if (
            node is None
            or not asked.runs
            or asked.is_forgotten
            or not is_used
            or len(self.members) <= FEWEST - 1
            or not self.may_lose()
        ):
            return
        try:
            node.cluster.forget(doomed.number, node.clock.now)
        except (KeyError, ValueError):
            self.budget += 1
            return
        self._is_forgotten = doomed.is_forgotten = True
        state = "running" if doomed.is_up else "down"
        self.note(f"{asked.name} forgets {doomed.name}, which is {state}")
        self.books.counts[f"forgotten while {state}"] += 1
        node.facts_file.keep(lambda is_kept: self.departures.note_forgotten(asked, doomed) if is_kept else None)
        node.events()
