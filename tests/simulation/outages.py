"""Runs in which the power of all machines is cut at once, again and again, and nothing else happens.

The loss of a cut is documented for each durability mode (docs/explanation/guarantees.md): nothing in the mode `always`; in
`interval` messages acknowledged since the last sync that finished began, so no more than the last 2 s; in `os` no more than
the last 10 s.
Here a sync takes SYNC at most, because turns and threads of a simulated node run late. Everything older must be on the disk of
its leader when the power is cut, whatever its followers have, and be delivered afterwards.
"""

from random import Random

from shared.topic_config import Durability
from tests.nsqd.core.node import MS, SECOND
from tests.simulation.books import Publish
from tests.simulation.cluster import ClusterRun
from tests.simulation.machine import Machine

OFTEN = 0.05  # part of the steps in which the power is cut
SYNC = 5 * SECOND
TIMER = {Durability.ALWAYS: SECOND, Durability.INTERVAL: 2 * SECOND, Durability.OS: SECOND}
COSTS = {Durability.INTERVAL: 2 * SECOND + SYNC, Durability.OS: 10 * SECOND + SYNC}


class OutageRun(ClusterRun):
    rounds = 1

    def __init__(self, seed: int, nodes: int | None = None, has_jobs: bool | None = None) -> None:
        super().__init__(seed, nodes, has_jobs)
        self.power = Random(f"power {seed}")
        self.violence, self.operators.are_there, self.departures.is_on = 0.0, False, False
        self._last_cut = self.now
        self.sizes.timer, self.sizes.is_punctual = TIMER[self.sizes.durability], True

    def _happen(self) -> None:
        super()._happen()
        if self.power.random() < OFTEN:
            self.cut_power()

    def cut_power(self) -> None:
        """Cut the power of all machines, some of which may be starting. They come back one after the other."""
        self.books.counts["power cuts of all machines"] += 1
        self.note("the power is cut")
        for machine in self.machines:
            machine.note_durable()
            self._judge_durable(machine)
            self.books.counts["power cuts while a node starts"] += machine.early is not None
            machine.crash(True, self.power.choice((1, 100, 3000, 10_000)) * MS)
        self._last_cut = self.now

    def _judge_durable(self, machine: Machine) -> None:
        """Assert that a machine has durably what it acknowledged long enough ago, except for what an earlier cut has cost."""
        durable = machine.durable.get(machine.log_id)
        if machine.node is None or durable is None:
            return
        for publish in self.books.publishes:
            is_new = publish.acked and publish.at > self._last_cut  # nodes start later
            if is_new and publish.log_id == machine.log_id and publish.position > durable:
                self._judge_cost(publish)

    def _judge_cost(self, publish: Publish) -> None:
        age = self.now - publish.at
        self.books.counts[f"lost at its leader: {publish.mode.value}"] += 1
        assert age <= COSTS.get(publish.mode, -1), f"not durable after {age // MS} ms: {publish}"
