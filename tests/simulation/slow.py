"""Runs in which one machine after the other fails slow: its disk and its network take 100 to 1000 times as long, and it lives.

In half of the runs nothing else happens. Then, while one machine of three or more is slow:

* a publish to another node that asks for two copies is neither refused nor given up, because another follower has it in time;
* no log gets another leader, because the slow node sends heartbeats.

In all runs every publish is answered in time, and what waits for the slow node is bounded, as ever.
"""

from random import Random

from nsqd.cluster.replication import sending
from nsqd.core.message.attributes import NONE, Attributes
from tests.nsqd.core.node import MS, SECOND
from tests.simulation.cluster import ClusterRun
from tests.simulation.cluster_node import ClusterNode, Reply
from tests.simulation.machine import Machine

USUAL = 5 * MS  # that a disk takes
LATE = 10 * SECOND  # for which a machine whose disk was slow may have to sync what it has not
FACTORS = (100, 300, 1000)
FINE = 50 * MS  # of a step while a node is slow and others are not: these answer each other within PATIENCE


class SlowRun(ClusterRun):
    rounds = 1

    def __init__(self, seed: int, nodes: int | None = None, has_jobs: bool | None = None) -> None:
        super().__init__(seed, nodes, has_jobs)
        self.slowness = Random(f"slow {seed}")
        self.is_calm = self.slowness.random() < 0.5
        if self.is_calm:
            self.violence, self.operators.are_there, self.departures.is_on = 0.0, False, False
            self.lateness, self.trouble.is_on, self.sizes.rate = 0.0, False, 0
            self.wires.latency, self.wires.window = min(self.wires.latency, 50 * MS), 100_000
        self._slow: Machine | None = None
        self._until = self.now

    def _round(self) -> None:
        if self.is_calm:  # as in nsqd, where publishes do not outrun replication; `small` restores them
            sending.MOST_LIVE, sending.MOST_BEHIND, sending.CHUNK = 1 << 20, 1 << 26, 1 << 18
        super()._round()

    def step(self, ns: int) -> None:
        most = FINE if self.is_calm and not self.is_healing else ns
        while ns > 0:
            super().step(min(ns, most))
            ns -= most
            self.are_clients_quiet = ns > 0

    def _happen(self) -> None:
        super()._happen()
        if self.now < self._until:
            return
        self._end()
        if self.now >= self._until and self.slowness.random() < 0.7:
            self._begin(self.slowness.choice(self.machines))
        else:
            self._until = max(self._until, self.now + self.slowness.choice((1, 5)) * SECOND)

    def _begin(self, machine: Machine) -> None:
        factor, kind = self.slowness.choice(FACTORS), self.slowness.choice(("disk", "network", "both"))
        self._slow = machine
        self._until = self.now + self.slowness.choice((3, 10, 30)) * SECOND
        if kind != "network":
            machine.slow, machine.is_sluggish = factor * USUAL, True
            machine.set_slowness()
        if kind != "disk":
            self.wires.slow[machine.address] = factor
        self.books.counts[f"slow: {kind}"] += 1
        self.note(f"{kind} of {machine.name} {factor} times as slow until {(self._until - self.now) // SECOND} s later")

    def _end(self) -> None:
        self.wires.slow.clear()
        if self._slow is not None and self._slow.is_sluggish:
            self._slow.slow, self._slow.is_sluggish = 0, False
            # what it has to sync may be in many files, and until then it is slow: another one is not to be that, too
            self._until = self._slow.late_until = self.now + LATE
            self._slow.set_slowness()
        self._slow = None

    def _heal(self) -> None:
        self._end()
        super()._heal()
        if self.is_calm:
            assert not self.books.counts["failovers"], "a slow node lost its log"

    def publish(
        self, machine: Machine, node: ClusterNode, name: str, n: int, attributes: Attributes = NONE
    ) -> Reply | None:
        n = max(n, node.broker.topics[name].config.replicate or 1)
        reply = super().publish(machine, node, name, n, attributes)
        slow = self._slow
        is_fast = self.is_calm and machine is not slow and n == 2 and self._copies() > 2
        if not is_fast or self.is_healing:
            return reply
        assert reply is not None or node.broker.refusal, f"{machine.name} refuses two copies, and one node is slow"
        if reply is not None:
            give_up = reply.give_up

            def judge() -> None:
                is_same = self._slow in (slow, None)  # otherwise two nodes were slow, one after the other
                states = node.leader_side.states()
                assert not is_same, f"{machine.name} gives up two copies, and one node is slow: {states}"
                give_up()

            reply.give_up = judge
            self.books.counts["two copies while a node is slow"] += self._slow is not None
        return reply
