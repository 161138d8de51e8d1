"""The nsqlookupds of a simulated cluster: they know the addresses of nodes, and the time of the last contact with each.

Nodes ask them for the addresses of others, and, before they are candidates for the log of an unresponsive node, for the time
of the last contact with it: one that is in contact with both sides of a partition postpones the election.

See docs/contributing/design/cluster-protocol.md#elections.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from nsqd.cluster.ownership.candidate import Attempt
from nsqd.cluster.ownership.elections import Elections
from tests.nsqd.core.node import MS, SECOND

if TYPE_CHECKING:
    from tests.simulation.cluster import ClusterRun
    from tests.simulation.cluster_node import ClusterNode
    from tests.simulation.machine import Machine

FIND_EVERY = 5 * SECOND
PING_EVERY = SECOND  # a third of SUSPECT_AFTER, as nsqd/discovery/lookupds.py has it
FORGETS_AFTER = 15 * SECOND  # without contact, until an nsqlookupd forgets a node
ANSWERS_WITHIN = 2 * SECOND  # longer than a candidate waits


class Lookup:
    def __init__(self, number: int) -> None:
        self.address = f"lookupd{number}:4161"
        self.contacts: dict[str, int] = {}  # by cluster address, when, true ns
        self.node_contacts: dict[int, int] = {}  # by node number, when, true ns


class Lookups:
    """All nsqlookupds of a run. All times are true ns."""

    def __init__(self, run: ClusterRun, count: int, random: Random) -> None:
        self._run, self._random = run, random
        self.all = [Lookup(number) for number in range(count)]
        self._ping_due: dict[Machine, int] = {}
        self._find_due: dict[Machine, int] = {}
        self._answers: list[tuple[int, Machine, ClusterNode, Callable[[], None]]] = []  # (when, for whom, what)
        # by node: its last election for which an nsqlookupd reported contact with the leader in time
        self._postponed: dict[ClusterNode, Attempt | None] = {}

    def addresses(self) -> list[str]:
        return [lookup.address for lookup in self.all]

    def serve(self, machine: Machine, node: ClusterNode) -> None:
        now = self._run.now
        if now >= self._ping_due.get(machine, 0):
            self._ping_due[machine] = now + PING_EVERY
            for lookup in self._reachable(machine):
                lookup.contacts[machine.address] = lookup.node_contacts[machine.number] = now
        if now >= self._find_due.get(machine, 0):
            self._find_due[machine] = now + FIND_EVERY
            contact_times = [one for lookup in self._reachable(machine) for one in lookup.contacts.items()]
            node.cluster.dials.set_found(
                dict.fromkeys(address for address, at in contact_times if now - at < FORGETS_AFTER)
            )
        due = [one for one in self._answers if one[0] <= now and one[1] is machine]
        self._answers = [one for one in self._answers if one not in due]
        for _, _, asker, deed in due:
            if asker is node:
                deed()

    def _reachable(self, machine: Machine) -> list[Lookup]:
        return [one for one in self.all if self._run.wires.connects(machine.address, one.address)]

    def ask(self, machine: Machine, node: ClusterNode, number: int, then: Callable[[int | None], None]) -> None:
        """Answer a node that asks for the last contact with another one, as nsqd.discovery.lookupds.Lookupds.ask_witnesses."""
        now = self._run.now
        contact_times = [at for one in self._reachable(machine) if (at := one.node_contacts.get(number)) is not None]
        ago = now - max(contact_times) if contact_times else None
        delay = self._random.choice((1, 100, 700)) * MS if contact_times else ANSWERS_WITHIN

        attempt = node.elections.candidate.attempt

        def answer() -> None:
            is_awaited = attempt is not None and attempt is node.elections.candidate.attempt and attempt.awaits_witness
            if is_awaited and ago is not None and ago < node.elections.cases.failover_after:
                self._postponed[node] = attempt
                self._run.books.counts["claims postponed"] += 1
            then(ago)

        self._answers.append((now + delay, machine, node, answer))

    def judge_claim(self, node: ClusterNode, elections: Elections) -> None:
        """Assert that no nsqlookupd has reported contact with the leader to a node that has won an election."""
        attempt = elections.candidate.attempt
        is_postponed = attempt is self._postponed.get(node)
        assert not is_postponed, f"node {attempt.lost.node} has contact, and its log has a candidate"
