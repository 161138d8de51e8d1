"""What operators of simulated nodes delete and empty, in some of the runs.

Only this much is known of a message that may have been thrown away: it does not have to be delivered. That holds for every
message of the topic that was published until then into a log that the node leads, or believes to own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING

from tests.simulation.cluster_node import CHANNEL, TOPICS, ClusterNode

if TYPE_CHECKING:
    from tests.simulation.cluster import ClusterRun
    from tests.simulation.machine import Machine

RUNS = 0.3  # part of the runs that have operators
RARELY = 0.04  # part of the turns with commands in which one does something


class Operators:
    def __init__(self, run: ClusterRun, seed: int) -> None:
        self._run, self._random = run, Random(f"operators {seed}")  # so that runs without them are as they were
        self.are_there = run.takes_over and self._random.random() < RUNS

    def commands(self, machine: Machine, node: ClusterNode) -> list[Callable[[], None]]:
        if not self.are_there or self._random.random() >= RARELY:
            return []
        name = self._random.choice(list(TOPICS))
        deed = self._random.choice((self._delete, self._empty))
        return [lambda: deed(machine, node, name)]

    def _delete(self, machine: Machine, node: ClusterNode, name: str) -> None:
        topic = node.broker.topics[name]
        promoted = node.promoted.promotions.logs.values()
        self._forget(machine, name, "deletes", [one.log_id for one in promoted if one.deletions is not None])
        node.broker.directory.delete_channel(topic, CHANNEL)
        topic.channel(CHANNEL)

    def _empty(self, machine: Machine, node: ClusterNode, name: str) -> None:
        self._forget(machine, name, "empties")
        node.broker.topics[name].channels[CHANNEL].empty()

    def _forget(self, machine: Machine, name: str, what: str, opening: Sequence[bytes] = ()) -> None:
        """Note that messages are no longer waited for. `opening`: logs not served yet that this reaches, too."""
        run, logs = self._run, {*machine.logs(), *opening}
        for publish in run.books.publishes:
            if publish.topic == name and publish.log_id in logs:
                publish.finished = True
        run.books.counts[f"operators: {what}"] += 1
        run.note(f"{machine.name} {what} {name}")
