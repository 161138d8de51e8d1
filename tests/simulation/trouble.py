"""Further events of simulated clusters that promote logs, which aim at failovers.

New leaders die while they promote and afterwards, followers are paused until their replicas are out of date and then their
leader is lost, links flap, and restarts that are announced go through the whole cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from nsqd.cluster.promotion.promotions import SERVING
from tests.nsqd.core.node import MS, SECOND

if TYPE_CHECKING:
    from tests.simulation.cluster import ClusterRun
    from tests.simulation.machine import Machine

BACK_WITHIN = 200 * SECOND  # after an announced restart, all is well again


class Trouble:
    def __init__(self, run: ClusterRun) -> None:
        self._run, self._random = run, run.side
        self.is_on = True
        self._later: list[tuple[int, Callable[[], None]]] = []  # (when, what), true ns
        self._flap: set[tuple[str, str]] = set()  # directions that are cut now and then
        self._flap_due = self._flap_until = 0

    def begin(self) -> None:
        chosen = self._random.random()
        if not self.is_on:
            return
        if chosen < 0.3:
            self.roll()
        elif chosen < 0.6 and self._run.violence:
            self._leave_behind()

    def happen(self) -> None:
        run, random = self._run, self._random
        due = [deed for at, deed in self._later if at <= run.now]
        self._later = [one for one in self._later if one[0] > run.now]
        for deed in due:
            deed()
        self._go_on_flapping()
        promoting = [machine for machine, states in self._new_leaders() if any(state != SERVING for state in states)]
        if promoting and random.random() < 0.1 * run.violence:
            self._strike(random.choice(promoting), "while it promotes")
        if random.random() < 0.02 * run.violence:
            random.choice((self._strike_a_new_leader, self._leave_behind, self._leave_behind, self._begin_to_flap))()

    def end(self) -> None:
        self._later.clear()
        self._flap.clear()

    def _new_leaders(self) -> list[tuple[Machine, list[str]]]:
        """Return the machines that own or promote logs of others, with the states of these logs."""
        nodes = [(one, one.node) for one in self._run.machines if one.node is not None]
        found = [(machine, node.promoted.promotions.logs.values()) for machine, node in nodes]
        return [(machine, [one.state for one in logs]) for machine, logs in found if logs]

    def _strike(self, machine: Machine, when: str) -> None:
        run, random = self._run, self._random
        run.books.counts[f"struck {when}"] += 1
        run.note(f"{machine.name} is struck {when}")
        deed = random.choice(("kill", "cut", "stop"))
        if deed == "stop":
            machine.still_until = run.now + random.choice((500, 5000, 30_000)) * MS
        else:
            machine.crash(deed == "cut")

    def _strike_a_new_leader(self) -> None:
        if new_leaders := self._new_leaders():
            self._strike(self._random.choice(new_leaders)[0], "after it has promoted")

    # replicas that are out of date

    def _leave_behind(self) -> None:
        """A follower and the leader are partitioned for a while, and then the leader is lost with its disk.

        The other followers, which have more, may be paused then: so none of them is the first candidate.
        """
        run, random = self._run, self._random
        leader = random.choice(run.machines)
        if leader.node is None or not leader.node.leader_side.followers or not run.may_lose():
            return
        followers = [one for one in run.machines if one.number in leader.node.leader_side.followers]
        late = random.choice(followers)
        length = random.choice((1, 6, 9)) * SECOND
        run.wires.cut |= {(leader.address, late.address), (late.address, leader.address)}
        run.cuts_until = max(run.cuts_until, run.now + length)
        run.blind([leader.address])
        run.books.counts["left behind"] += 1
        run.note(f"{late.name} is partitioned from {leader.name} for {length // MS} ms, whose disk is lost then")

        def lose() -> None:
            if leader.is_away or leader.is_forgotten:
                return
            leader.lose_disk()
            leader.start_at = run.now + 30 * SECOND
            for other in followers:
                if other is not late:
                    other.still_until = max(other.still_until, run.now + random.choice((0, 2, 4)) * SECOND)

        self._later.append((run.now + length - random.choice((0, 300, 2000)) * MS, lose))

    def _begin_to_flap(self) -> None:
        run, random = self._run, self._random
        addresses = [machine.address for machine in run.machines]
        random.shuffle(addresses)
        kind = random.choice(("one way", "one pair", "one node"))
        others = addresses[1:2] if kind != "one node" else addresses[1:]
        self._flap = {(addresses[0], other) for other in others}
        if kind != "one way":
            self._flap |= {(other, one) for one, other in self._flap}
        run.blind(addresses[:1])
        self._flap_until = run.now + random.choice((10, 40)) * SECOND
        run.note(f"{kind} flaps: {addresses}")

    def _go_on_flapping(self) -> None:
        run, random = self._run, self._random
        if self._flap and run.now >= self._flap_due:
            run.wires.cut ^= self._flap
            run.cuts_until = max(run.cuts_until, run.now + 5 * SECOND)
            self._flap_due = run.now + random.choice((300, 3000, 4000)) * MS
            if run.now >= self._flap_until:
                run.wires.cut -= self._flap
                self._flap = set()

    def roll(self) -> None:
        """Restart all nodes, one after the other, while clients continue: no log is promoted."""
        run, random = self._run, self._random
        leaders = {log_id: [one.name for one in machines] for log_id, machines in run.leaders().items()}
        for machine in run.machines:
            most = run.wires.window // 2
            while any((way := wire.from_(machine)).size + len(way.waiting) > most for wire in machine.ends):
                run.step(100 * MS)  # the network takes the announcement
            if machine.node is None:
                continue
            run.restart(machine, random.choice((300, 3000, 8000)) * MS)
            for _ in range(random.choice((3, 15))):  # the others have clients, which it serves as well when it is up
                run.step(random.choice((20, 100, 400)) * MS)
            run.is_healing = True
            run.send_clients_away()
            deadline = run.now + BACK_WITHIN
            while not all(run.is_joined(one) for one in run.members):
                assert run.now < deadline, f"a restart that was announced does not end: {run.state()}"
                run.step(300 * MS)
            run.is_healing = False
        # a log that was made of a diverged copy meanwhile is no log that has changed its leader
        found = {log_id: [one.name for one in them] for log_id, them in run.leaders().items() if log_id in leaders}
        closed = {log_id for one in run.machines if one.node is not None for log_id in one.node.cluster.leaders.closed}
        led = {log_id: names for log_id, names in leaders.items() if log_id not in closed}
        assert found == led, f"announced restarts change leaders: {leaders}, {found}"
        run.books.counts["rolling restarts"] += 1
