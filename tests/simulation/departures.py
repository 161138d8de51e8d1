"""Nodes of a simulated cluster that leave it permanently or are forgotten, and what becomes of their machines.

A node that has left loses nothing: its machine stays away, or comes back with its old directory, or with an empty one. What
its machine had counts as a copy no more; of each log that it led, the new leader has one instead. A node that is forgotten
loses what it had. It, too, may come back, and with its old log it must be refused.

See docs/contributing/design/cluster-protocol.md#leaving and docs/contributing/design/cluster-protocol.md#membership.
"""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

from nsqd.cluster.ownership.leaving import LeavingState
from tests.nsqd.core.node import MS, SECOND
from tests.simulation.books import Loss

if TYPE_CHECKING:
    from tests.simulation.cluster import ClusterRun
    from tests.simulation.machine import Machine

NEVER = 1 << 62  # ns: such a machine is not started
LINGER = 3 * SECOND  # after a node has left, its process ends
FEWEST = 2  # members that a cluster keeps


class Departures:
    def __init__(self, run: ClusterRun, random: Random) -> None:
        self._run, self._random = run, random
        # nodes leave in this run; without failovers, an operator would have to act after the new leader's disk is lost
        self.is_on = random.random() < 0.5 and run.takes_over
        self._ends: dict[Machine, tuple[int, bool]] = {}  # when the process ends, true ns; whether the node has left
        self._doomed: Machine | None = None  # it is down, and an operator wants it to be forgotten
        self._is_being_kept = False  # a node writes that it is forgotten
        # by log that is forgotten with its node: which machine has said so to an operator, and when, true ns
        self.forgotten: dict[bytes, tuple[int, int]] = {}

    # while anything may happen

    def happen(self) -> None:
        random, run = self._random, self._run
        if not self.is_on:
            return
        if random.random() < 0.015:
            self._leave(random.choice(run.machines))
        if random.random() < 0.015 and run.takes_over:
            self._doom(random.choice(run.machines))
        if self._doomed is not None:
            self._forget(self._doomed)

    def end(self) -> None:
        """Forget no machine from now on: a machine that was to be forgotten, and is not, starts again."""
        if self._doomed is not None:
            self._doomed.start_at = self._run.now
            self._doomed = None

    def _has_enough(self) -> bool:
        return len(self._run.members) > FEWEST

    def _leave(self, machine: Machine) -> None:
        leaving = [one for one in self._run.machines if one.node is not None and one.node.cluster.is_leaving]
        if machine.node is None or not machine.runs or not self._has_enough() or leaving:
            return
        self.leave(machine, self._random.choice((2, 20, 60)) * SECOND)

    def leave(self, machine: Machine, limit: int) -> None:
        node = machine.node
        self._run.books.counts["leaves begun"] += 1
        self._run.note(f"{machine.name} leaves within {limit // SECOND} s")
        node.leaving.begin(limit, node.clock.now)

    def ended(self, machine: Machine, is_left: bool) -> None:
        self._run.note(f"{machine.name} {'has left' if is_left else 'gives up leaving'}")
        self._ends[machine] = self._run.now + LINGER, is_left

    def look_at(self, machine: Machine) -> None:
        """Let the process of a machine end, if it is time."""
        if machine.node is None or machine.node.leaving.state not in (LeavingState.LEFT, LeavingState.GAVE_UP):
            return
        at, is_left = self._ends[machine]
        if self._run.now < at:
            return
        del self._ends[machine]
        if is_left:
            self._hand_over_copies(machine)
        machine.stop(self._random.choice((1, 10, 60)) * SECOND)
        if is_left:
            self._run.books.counts["leaves"] += 1
            self._choose_future(machine)
        else:
            self._run.books.counts["leaves given up"] += 1

    def _hand_over_copies(self, machine: Machine) -> None:
        """Stop counting the disk of a machine: of the logs that its node led, the new leader has a copy instead."""
        run, node = self._run, machine.node
        leaders = {log_id: run.names[epoch.node] for log_id, epoch in node.cluster.leaders.epochs.items()}
        for publish in run.books.publishes:
            if machine.name in publish.holders - run.books.lost_by(publish):
                others = publish.holders - {machine.name}
                leader = leaders.get(publish.log_id, machine.name)
                publish.holders = others | {leader} if leader != machine.name else others
                publish.n = min(publish.n, len(publish.holders))

    def _choose_future(self, machine: Machine) -> None:
        future = self._random.choice(("away", "back", "back", "empty"))
        self._run.note(f"the machine of {machine.name}: {future}")
        self._run.books.counts[f"left, and then {future}"] += 1
        if future == "away":
            machine.is_away, machine.start_at = True, NEVER
        elif future == "empty":
            machine.begin_anew(self._number_for(machine))

    def _number_for(self, machine: Machine) -> int:
        """Return the number of a node with an empty directory: its own one, or one that was never used."""
        return self._random.choice((machine.number, self._run.next_number()))

    def _doom(self, machine: Machine) -> None:
        is_down = machine.node is None and machine.early is None and not machine.is_away and not machine.is_forgotten
        if self._doomed is None and is_down and self._has_enough() and self._run.may_lose():
            self._doomed, machine.start_at = machine, NEVER

    def _forget(self, machine: Machine) -> None:
        """Ask a node to forget another one. It is forgotten when the node that was asked has written that."""
        if machine.node is not None:  # a power cut of all machines has started it
            self._doomed = None
            return
        running = [one for one in self._run.members if one.runs and one.node is not None and one is not machine]
        if not running or self._is_being_kept:
            # the machine that was asked may be down
            self._is_being_kept = self._is_being_kept and self._random.random() < 0.8
            return
        asked = self._random.choice(running)
        node = asked.node
        try:
            node.cluster.forget(machine.number, node.clock.now)
        except (KeyError, ValueError):
            return
        self._is_being_kept = True

        def kept(is_kept: bool) -> None:
            if is_kept and self._doomed is machine:
                self.note_forgotten(asked, machine)
                self._forgotten(machine)

        node.facts_file.keep(kept)
        node.events()

    def forget_lost(self) -> None:
        """Have members forgotten that no machine runs, at any node that suspects them (docs/troubleshooting/lost-node.md).

        Their machines have other numbers now, or they left while no other node was in contact, so that they count as members.
        """
        present = {one.number for one in self._run.members}
        for node in [one.node for one in self._run.members if one.node is not None and one.runs]:
            for number in {one.number for one in node.cluster.membership.members} - present:
                with suppress(KeyError, ValueError):
                    node.cluster.forget(number, node.clock.now)
                    node.facts_file.keep(lambda is_kept: None)
                    node.events()

    def note_forgotten(self, asked: Machine, machine: Machine) -> None:
        """Note that a machine's node has reported to an operator that another node is forgotten, with the log it knew of."""
        log_id = asked.node.cluster.membership.records[machine.number].node.log_id
        self.forgotten[log_id] = asked.name, self._run.now

    def _forgotten(self, machine: Machine) -> None:
        run, self._doomed, self._is_being_kept = self._run, None, False
        run.note(f"{machine.name} is forgotten")
        run.books.counts["forgotten"] += 1
        run.books.losses.append(Loss(run.now, machine.name, {}, False))
        future = self._random.choice(("away", "back", "empty"))
        run.books.counts[f"forgotten, and then {future}"] += 1
        if future == "away":
            machine.is_away = True
        elif future == "back":  # with a log that no node accepts
            machine.is_forgotten, machine.start_at = True, run.now + self._random.choice((300, 20_000)) * MS
        else:
            machine.begin_anew(self._number_for(machine))
            machine.start_at = run.now + self._random.choice((300, 20_000)) * MS

    def replace_directory(self, machine: Machine) -> None:
        """An operator reads the log of a node that was forgotten: it gets an empty directory."""
        machine.crash(False, 0)
        self._run.books.losses.append(Loss(self._run.now, machine.name, {}, False))
        machine.is_forgotten = False
        machine.begin_anew(self._number_for(machine))

    def judge(self) -> None:
        """Assert that no node serves or publishes into a log that was forgotten with its node."""
        # perhaps before others were notified
        lost = [(one.node, one.at) for one in self._run.books.losses if not one.kept]
        forgotten = self.forgotten.items()
        known = {
            log_id for log_id, (name, at) in forgotten if not any(node == name and then >= at for node, then in lost)
        }
        for machine in self._run.members:
            forgotten = machine.node.cluster.membership.forgotten.keys() | known
            back = [one.name for one in self._run.members if one.log_id in forgotten]
            assert not back, f"{back} publish into logs that were forgotten"
