"""Several whole nodes under one time, chosen by a seed: the beginning of the cluster's simulator.

The nodes know nothing of each other yet, so each has books of its own (bench/crash/ledger.py), and what it promised by itself
must hold whatever happens to the others. What can happen to one machine, WholeRun does: kills, power cuts, torn and lost
tails, SIGSTOP, clocks that are set. What only a cluster knows comes here: the power fails for all at once, a machine loses
its disk for good, or gets an old backup of it.
"""

from __future__ import annotations

from contextlib import ExitStack
from copy import deepcopy
from random import Random

from bench.crash.ledger import Ledger
from bench.crash.link import Link
from bench.crash.messages import Verdict
from bench.crash.mix import MS
from nsqd.core.retention.policy import Durability
from tests.nsqd.storage.sim_disk import PowerCut, SimDisk
from tests.nsqd.storage.stories import told_of
from tests.simulation.run import EVERYTHING, TOPICS, WINDOWS, Steps, WholeRun, small_steps


class Machine(WholeRun):
    """One node of a cluster, with its machine's clocks, its disk, its clients and the books of its promises."""

    def __init__(self, name: str, seed: int, durability: Durability) -> None:
        super().__init__(seed, durability)
        self.name = name
        self.works = False  # it can be struck now: a node runs, and it is not the final drain
        self.fate = ""  # what becomes of the disk at the next crash: "", "lost" or "restored"
        self.backup: tuple[SimDisk, Ledger] | None = None
        self.happened: list[str] = []  # what only a cluster does to a machine
        self._is_struck = False

    def strike(self) -> None:
        """The power fails with the next step."""
        self._is_struck = True

    def back_up(self) -> None:
        """Copy the disk and the books."""
        books = deepcopy(self.ledger)
        books._unsafe = {id(copy): copy for copy in books._unsafe.values()}
        books.crash(self.clock.true + 1)
        self.backup = self.disk.kill(), books
        self.happened.append("backup")

    def _live(self) -> Steps[None]:
        self.works = True
        yield from super()._live()
        self.works = False

    def _turn(self, node: object, until: int) -> None:
        if self._is_struck and self.works:
            self._is_struck = False
            self.happened.append("struck")
            raise PowerCut
        super()._turn(node, until)  # type: ignore[arg-type]

    def crash(self, links: list[Link], cut: bool) -> None:
        """As for a single node; then the disk may be another one."""
        super().crash(links, cut)
        if self.fate == "lost":
            self.disk = SimDisk(self.random, self.disk.block)
            self.ledger = Ledger(TOPICS, WINDOWS[self.durability], {"strict": 0, "loose": EVERYTHING})
            self.backup = None
        elif self.fate == "restored" and self.backup is not None:
            self.disk, self.ledger = self.backup
            self.backup = None
        else:
            return
        self.happened.append(self.fate)
        self.fate = ""


class ClusterRun:
    """One run of `count` nodes, each of which has its lives. The one whose time is behind takes the next step."""

    def __init__(self, seed: int, durability: Durability, count: int = 3) -> None:
        self.random = Random(seed)
        self.machines = [Machine(name, self.random.getrandbits(32), durability) for name in "abcdefg"[:count]]
        self.steps = 0

    def run(self) -> list[Verdict]:
        """All lives of all nodes. AssertionError if a promise was not kept."""
        with small_steps(), ExitStack() as stack:
            for machine in self.machines:
                stack.enter_context(told_of(machine.story))
            running = {machine: machine.steps() for machine in self.machines}
            while running:
                machine = min(running, key=lambda one: one.clock.true)
                self._happen(machine)
                self.steps += 1
                try:
                    next(running[machine])
                except StopIteration:
                    del running[machine]
                except AssertionError as error:
                    error.add_note(f"on the node {machine.name}, at {machine.clock.true // MS} ms")
                    raise
            return [machine.judge() for machine in self.machines]

    def _happen(self, machine: Machine) -> None:
        """Let something happen now and then that a single node does not know."""
        chance = self.random.random()
        if chance < 0.0002:
            for one in self.machines:
                one.strike()
        elif chance < 0.0008 and machine.works:
            machine.back_up()
        elif chance < 0.0014:
            machine.fate = self.random.choice(("lost", "restored"))
