"""A history of a cluster: a test gives the publishes, failures and returns; a seed chooses sizes and delays."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from nsqd.cluster.ownership.cases import Quorum
from tests.nsqd.core.node import MS, SECOND
from tests.simulation.books import Publish
from tests.simulation.cluster import ClusterRun, small_cluster
from tests.simulation.cluster_node import TOPICS, Reply
from tests.simulation.machine import Machine

LONG = 1000 * SECOND  # longer than any history


class History(ClusterRun):
    """A cluster in which nothing happens but what a test says."""

    plans = 0.0

    def __init__(self, seed: int, quorum: Quorum, nodes: int = 3, replicas: int = 2, has_jobs: bool = False) -> None:
        super().__init__(seed, nodes, has_jobs)
        self.seed = seed
        self.violence, self.operators.are_there = 0.0, False
        sizes = self.sizes
        sizes.quorum, sizes.replicas, sizes.unclean_after = quorum, replicas, 20 * SECOND
        sizes.replace_after, sizes.rate = 10 * SECOND, 0
        if replicas == 1:
            self.configs = {name: one for name, one in TOPICS.items() if name != "two"}  # it would have two followers
        self.cuts_until = LONG + self.now

    def play(self, script: Callable[[History], None]) -> History:
        """Form the cluster, let `script` happen, repair everything, and compare. AssertionError if something is wrong."""
        with small_cluster(self.random):
            try:
                self._heal()
                self.is_healing = True  # no other commands of clients
                script(self)
                self._heal()
                self._drain(set())
            except AssertionError as error:
                error.add_note("\n".join(self.lines[-60:]))
                raise
        return self

    def wait(self, seconds: float) -> None:
        for _ in range(int(seconds * 10)):
            self.step(100 * MS)

    def until(self, is_so: Callable[[], bool], within: int = 120) -> None:
        """Wait until a condition is true, which must be within the given number of seconds."""
        deadline = self.now + within * SECOND
        while not is_so():
            assert self.now < deadline, f"it does not come to that: {self.state()}"
            self.step(100 * MS)

    # machines by role

    def followers(self, leader: Machine) -> list[Machine]:
        """Return the machines with a replica of the log into which a machine publishes, the first candidate first."""
        numbers = leader.node.leader_side.followers
        return [machine for number in numbers for machine in self.machines if machine.number == number]

    def is_in_sync(self, leader: Machine) -> bool:
        """Return True if all followers of a node's log have all of it, and count."""
        node = leader.node
        return self.is_joined(leader) and self._is_copied(leader.log_id, node.leader_side)

    def leader_of(self, log_id: bytes) -> list[Machine]:
        """Return the machines that serve a log now: it should be one."""
        return self.leaders().get(log_id, [])

    def is_served(self, log_id: bytes, by: Iterable[Machine]) -> Callable[[], bool]:
        """Return whether one of some machines serves a log."""
        wanted = list(by)
        return lambda: any(machine in wanted for machine in self.leader_of(log_id))

    def publish_batch(
        self, machine: Machine, n: int, count: int = 5, name: str = "os", is_acked: bool = True
    ) -> list[Publish]:
        """Publish messages that ask for `n` copies, and wait until they are acknowledged. Returns them.

        `is_acked`: whether they must be; otherwise the answers do not come, or are not waited for.
        """
        node, before = machine.node, len(self.books.publishes)

        def publish() -> Reply | None:
            return self.publish(machine, node, name, n)

        if is_acked:
            self.until(lambda: node.may_publish(node.broker.topics[name], n) is not None, 30)
        node.turn(*[publish] * count)
        made = self.books.publishes[before:]
        if is_acked:
            assert len(made) == count, "publishes are refused"
            self.until(lambda: all(one.acked for one in made), 5)
        return made

    def do(self, machine: Machine, deed: Callable[[], object]) -> None:

        def command() -> None:
            deed()

        machine.node.turn(command)

    def finish_all(self, machine: Machine, name: str = "os") -> set[int]:
        """Let a consumer finish all messages of a topic that a machine delivers. Returns the numbers of their publishes."""
        node = machine.node
        consumer = node.subscribe(name, 1 << 20)
        self.wait(6)  # until what is deferred is due
        frames = list(consumer.seen)

        def finish() -> None:
            for frame in frames:
                self._finish(consumer, frame)

        node.turn(finish)
        self.wait(2)  # until the followers have it
        node.leave(consumer)
        return {int(frame[34:].removeprefix(b"message ")) for frame in frames}

    def kill(self, machine: Machine, is_cut: bool = False) -> None:
        """Kill a node, or let its power fail, until `start`."""
        machine.crash(is_cut, LONG)

    def start(self, *machines: Machine) -> None:
        """Start nodes that were killed, and wait until they serve their logs."""
        for machine in machines:
            machine.start_at = self.now
        self.until(lambda: all(machine.is_up for machine in machines))

    def part(self, *sides: Iterable[Machine], is_witnessed: bool = False) -> None:
        """Cut the network between some sides. It is whole otherwise. `is_witnessed`: nsqlookupds reach all nodes."""
        self.wires.cut.clear()
        lookups = [] if is_witnessed else self.lookups.addresses()
        self.wires.cut.update((machine.address, lookup) for machine in self.machines for lookup in lookups)
        groups = [[machine.address for machine in side] for side in sides]
        for place, group in enumerate(groups):
            for other in groups[:place] + groups[place + 1 :]:
                self.wires.cut.update((one, another) for one in group for another in other)

    def join(self) -> None:
        self.wires.cut.clear()
