"""A cluster of 3 to 7 whole nodes in one simulated world, chosen by a seed: whatever happens, what was promised holds.

Nodes find each other through simulated nsqlookupds, copy their logs, die, lose their disks and their power, and return. A run
has rounds: first anything happens, then all is repaired, and soon every node must be in sync with its followers. Then

* each publish that was acknowledged with n copies is delivered, if at most n - 1 of the nodes that had it lost it;
* no message id was used twice;
* each replica is the log of its leader, cut where the replica ends: the same bytes, and the same state after a replay;
* nothing waits that cannot come, and nothing piles up;
* what departures.py, governed.py, planned.py, wide.py, jobs.py, job_books.py and bounds.py say.

Before the next round all that is left counts as acknowledged with all copies.

See docs/contributing/testing.md#the-simulated-cluster.
"""

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from random import Random

import pytest

from nsqd.cluster import joined
from nsqd.cluster.ownership.cases import Quorum
from nsqd.cluster.ownership.elections import Elections
from nsqd.cluster.promotion.promoted_log import SERVING
from nsqd.cluster.replication import repair as mending
from nsqd.cluster.replication.leader import LeaderSide
from nsqd.cluster.replication.manifest import Manifest
from nsqd.cluster.replication.replica import Replica
from nsqd.core.message import ids
from nsqd.core.message.attributes import NONE, Attributes
from nsqd.core.message.epoch import Epoch
from nsqd.storage.log import cache
from tests.nsqd.cluster.replication.archive import Archive
from tests.nsqd.cluster.replication.copied import judge_bytes, judge_state
from tests.nsqd.cluster.replication.sides import small
from tests.nsqd.cluster.wires import Wires
from tests.nsqd.core.node import MS, SECOND
from tests.nsqd.storage.sim_disk import PowerCut, SimDisk
from tests.simulation.books import Books, Loss, Publish, number_of
from tests.simulation.bounds import judge_bounds, judge_drained
from tests.simulation.cluster_node import PATIENCE, TOPICS, ClusterNode, Consumer, Reply, Sizes
from tests.simulation.departures import Departures
from tests.simulation.governed import Governed
from tests.simulation.jobs import Jobs
from tests.simulation.lookup import Lookups
from tests.simulation.machine import CAPACITY, Machine
from tests.simulation.operators import Operators
from tests.simulation.planned import Planned
from tests.simulation.trouble import Trouble
from tests.simulation.wide import JOBS, Wide

Judge = Callable[[Archive, SimDisk, Manifest, int], object]
HEALED_WITHIN = 200 * SECOND
COPIED_WITHIN = MS  # for each byte of the longest log: the smallest windows allow 2 to 3 bytes a ms
STEPS = 120  # of a round, before it is healed
ROUNDS = 2
MOST_BACKLOG = 200_000  # bytes that wait for one node
QUORUMS = (Quorum.NONE, Quorum.MAJORITY, Quorum.MAJORITY, Quorum.ANY)
REPLY_WITHIN = PATIENCE + 5 * SECOND  # every publish is answered, if the node runs


@contextmanager
def small_cluster(random: Random) -> Iterator[None]:
    """Let happen in small logs what happens at large sizes."""
    with small(random), pytest.MonkeyPatch.context() as patch:
        patch.setattr(joined, "LEASE", ids.LEASE)
        patch.setattr(cache, "PAUSE", 0)  # no thread sleeps
        patch.setattr(mending, "PATIENCE", HEALED_WITHIN // 2)
        yield


class ClusterRun:
    rounds = ROUNDS
    healed_within = HEALED_WITHIN
    copied_within = COPIED_WITHIN
    lateness = 0.2  # how often a node that runs does nothing in a step
    plans = 0.25  # share of the runs with schedules and batches

    def __init__(self, seed: int, nodes: int | None = None, has_jobs: bool | None = None) -> None:
        """`nodes`: how many there are; `has_jobs`: whether there are clients of Disque. None: the seed chooses."""
        self.random = random = Random(seed)
        self.now = 1_800_000_000 * SECOND
        self.side = Random(f"side {seed}")  # for failovers, so that seeds without them do what they did
        chosen = random.choice((3, 3, 3, 3, 4, 5, 7))
        count = nodes or chosen
        self.sizes = Sizes(random, count)
        self.sizes.quorum = self.side.choice(QUORUMS)
        self.sizes.unclean_after = self.side.choice((5, 20)) * SECOND
        latency, window = random.choice((2, 50, 400)) * MS, random.choice((3000, 100_000))
        self.wires = Wires(random, lambda: self.now, latency, window)
        self.books = Books(logs_of=lambda name: self.machines[name].logs())
        self.archives: dict[tuple[bytes, int], Archive] = {}  # by log id and leader's machine
        self.numbers: dict[tuple[bytes, int], int] = {}  # the machine that promoted a log by an epoch of that number
        # (log id, number) of the votes of machines that lost their disk since
        self.lost_votes: set[tuple[bytes, int]] = set()
        self.led_by: set[tuple[bytes, Epoch]] = set()  # announced epochs of new leaders, by log id
        self.luck = Random(f"luck {seed}")  # for witnesses, and hosts that are down
        self.governed = Governed(self, Random(f"governed {seed}"))
        self.configs = TOPICS | self.governed.topics
        self.lookups = Lookups(self, random.choice((1, 2)), self.luck)
        self.names: dict[int, int] = {}  # of the machines, by the numbers that their nodes have or had
        self.made: set[bytes] = set()  # ids of the logs that were made of diverged copies
        self.has_seeds = random.random() < 0.3
        self.machines = [Machine(self, number) for number in range(count)]
        self.seeds = [machine.address for machine in self.machines[:2]]
        self._last_number = count - 1
        self.violence = random.choice((0.0, 0.3, 1.0, 2.0))
        self.budget = 0  # machines that may still lose something in this round
        self.cuts_until = 0
        self.trouble, self.operators = Trouble(self), Operators(self, seed)
        self.wide = Wide(self, Random(f"wide {seed}"))
        self.planned = Planned(self, Random(f"planned {seed}"))
        self.jobs = Jobs(self, Random(f"jobs {seed}"), has_jobs)
        if self.jobs.is_on:  # as in every cluster
            self.sizes.limits = replace(self.sizes.limits, whole_job_ids=True)
        self.departures = Departures(self, Random(f"departures {seed}"))
        self.lines: list[str] = []  # what happened
        self.is_healing = self.are_clients_quiet = False
        self._asked: list[tuple[int, Machine, ClusterNode, Publish]] = []  # publishes without an answer

    @property
    def takes_over(self) -> bool:
        return self.sizes.quorum is not Quorum.NONE

    @property
    def members(self) -> list[Machine]:
        """Return the machines whose nodes belong to the cluster, or should."""
        return [machine for machine in self.machines if not machine.is_away]

    def next_number(self) -> int:
        self._last_number += 1
        return self._last_number

    def archives_of(self, log_id: bytes) -> list[Archive]:
        return [archive for (one, _), archive in self.archives.items() if one == log_id]

    def any_archive(self, log_id: bytes) -> Archive | None:
        return next(iter(self.archives_of(log_id)), None)

    def archive_of(self, log_id: bytes, machine: Machine) -> Archive:
        known = self.archives.get((log_id, machine.name))
        if known is not None:
            return known
        other = self.any_archive(log_id)
        archive = Archive(partial(self.undamaged, log_id)) if other is None else other.branch()
        if other is not None:
            self.archives[log_id, machine.name] = archive
        return archive

    def failed_over(self, log_id: bytes, epoch: Epoch, machine: Machine) -> None:
        if self.sizes.quorum is Quorum.MAJORITY and not machine.is_forgotten:  # else its votes are of another cluster
            first = self.numbers.setdefault((log_id, epoch.number), machine.name)
            is_voted_again = (log_id, epoch.number) in self.lost_votes
            assert first == machine.name or is_voted_again, (
                f"nodes {first} and {machine.name} both lead a log by epoch {epoch.number}"
            )
        self.led_by.add((log_id, epoch))
        self.books.upset([log_id], self.now)
        self.books.counts["failovers"] += 1
        self.note(f"{machine.name} leads {log_id.hex()[:6]}")

    def fenced(self, log_id: bytes, epoch: Epoch, machine: Machine) -> None:
        is_led = epoch.node == machine.number or (log_id, epoch) in self.led_by
        assert is_led, f"{machine.name} is fenced by node {epoch.node}, which has not promoted the log"

    def won(self, log_id: bytes, elections: Elections, node: ClusterNode, is_clean: bool) -> None:
        self.planned.is_lossy |= not is_clean
        self.lookups.judge_claim(node, elections)
        connected = frozenset(self.names[one] for one in (*node.cluster.links, node.number))
        self.jobs.books.failovers.append((log_id, self.now, self.names[node.number], connected))
        self.books.counts[f"won {elections.candidate.attempt.stage.name.lower()}"] += 1

    def note(self, text: str) -> None:
        self.lines.append(f"{(self.now - 1_800_000_000 * SECOND) // MS} ms: {text}")

    def run(self) -> Books:
        with small_cluster(self.random):
            try:
                self._heal()  # the cluster is formed
                for _ in range(self.rounds):
                    self._round()
                judge_bounds(self)
                judge_drained(self)
                for machine in self.machines:
                    machine.count_duplicates()
            except AssertionError as error:
                error.add_note("\n".join(self.lines[-60:]))
                raise
        return self.books

    def _round(self) -> None:
        self.budget = self.random.choice((0, 1, 1, 2))
        if self.takes_over:
            self.trouble.begin()
        for _ in range(STEPS // 2 if self.takes_over else STEPS):
            self._happen()
            self.step(self.random.choice((1, 5, 20, 100, 400)) * MS)
            for _ in range(self.side.choice((0, 0, 2, 5)) if self.takes_over else 0):
                self.step(300 * MS)
        self._heal()
        self._drain(self.jobs.settle())

    def step(self, ns: int) -> None:
        """Let time pass, and run all nodes and clients."""
        self.now += ns
        for machine in self.machines:
            machine.clock.advance(ns)
        for machine in self.machines:
            self._run(machine)
        self.departures.forget_lost()
        self.wires.sweep()
        self._bounded()

    def _run(self, machine: Machine) -> None:
        if machine.node is None:
            if machine.early is not None:
                machine.step_start()
            elif 0 <= machine.start_at <= self.now and (not machine.is_lost or machine.recover()):
                machine.begin_start()
            return
        if not machine.runs or (not self.is_healing and self.random.random() < self.lateness):
            return
        node = machine.node
        try:
            self._turn(machine, node)
        except PowerCut:
            machine.crash(self.random.random() < 0.7)
        if machine.node is node and (node.log.writer.durable.broken or node.log.writer.failure) and self.is_healing:
            machine.crash(False, 0)
        if machine.node is node and node.fence is not None:
            machine.begin_again(node.fence)
        if machine.node is node and node.cluster.refused_itself and self.is_healing:  # an operator reads the log
            if machine.is_forgotten:
                self.departures.replace_directory(machine)
            else:
                machine.crash(False, 0)
        if machine.node is node:
            self.departures.look_at(machine)

    def _turn(self, machine: Machine, node: ClusterNode) -> None:
        random = self.random
        if node.jobs_part is not None:  # frames about jobs are handled within a turn
            node.broker.begin(node.clock.now, node.clock.wall)
        if self.wires.deliver_to(machine):
            node.events()
        for address in node.tick():
            self._dial(machine, node, address)
        self.lookups.serve(machine, node)
        node.step_threads()
        busy = not (self.is_healing or self.are_clients_quiet) and random.random() < 0.6
        commands = [*self._commands(machine, node), *self.operators.commands(machine, node)] if busy else []
        self.planned.step(node)
        node.turn(*commands)
        if machine.slow and not machine.is_sluggish and node.syncer.job is not None and random.random() < 0.5:
            machine.still_until = self.now + machine.slow
        node.step_threads()
        node.events()
        machine.note_durable()
        for consumer in list(node.consumers):
            self._read(consumer)
        self.wide.note_fresh(node)
        if random.random() < 0.2 or self.is_healing:
            machine.disks.facts = node.facts()

    def _dial(self, machine: Machine, node: ClusterNode, address: str) -> None:
        other = next((one for one in self.machines if one.address == address), None)
        is_reached = other is not None and self.wires.connects(machine.address, address)
        if other is None or other.node is None or not is_reached:
            is_refused = is_reached and self.luck.random() < 0.5  # otherwise the host is down, too
            node.cluster.dial_failed(address, machine.mono, is_refused)
            return
        accepted = other.node.cluster.accepted(other.mono)
        if accepted is None:
            node.cluster.dial_failed(address, machine.mono)
            return
        self.wires.connect(machine, other, (node.cluster.dialed(address, machine.mono), accepted))

    def _commands(self, machine: Machine, node: ClusterNode) -> list[Callable[[], Reply | None]]:
        random = self.random
        chosen: list[Callable[[], Reply | None]] = []
        for _ in range(random.choice((0, 1, 1, 3))):
            deed = random.random()
            if deed < 0.7:
                chosen.append(lambda: self._publish(machine, node))
            elif deed < 0.8:
                chosen.append(lambda: self._subscribe(node))
            else:
                chosen.append(lambda: self._consume(node))
        if self.wide.is_on:
            chosen += [lambda: self.wide.act(machine, node)] * random.choice((0, 1, 1, 3))
        if self.planned.is_on:
            chosen.append(lambda: self.planned.act(machine, node))
        if self.jobs.is_on:
            chosen += [lambda: self.jobs.act(machine, node)] * random.choice((1, 2, 4))
        return chosen

    def _publish(self, machine: Machine, node: ClusterNode) -> Reply | None:
        random = self.random
        return self.publish(machine, node, random.choice(list(self.configs)), random.choice((1, 1, 2, 2, 3)))

    def publish(
        self, machine: Machine, node: ClusterNode, name: str, n: int, attributes: Attributes = NONE
    ) -> Reply | None:
        """Publish one message, which asks for `n` copies. Returns what waits for the answer; None: it is refused."""
        random = self.random
        topic = node.broker.topics[name]
        mode = topic.config.durability or self.sizes.durability
        n = max(n, topic.config.replicate or 1)
        marks = node.may_publish(topic, n)
        if marks is None:
            self.books.counts["refused"] += 1
            return None
        publish = self.books.publish(machine.name, machine.log_id, name, mode, n, self.now)
        body = publish.body
        if name == JOBS:
            topic.intake.put([body], self.wide.options(node.clock.now))
        elif attributes := attributes or self.governed.attributes(publish):
            topic.publish_with([body], attributes)
        elif random.random() < 0.1:
            topic.intake.publish_with([body], due=node.clock.now + random.choice((50, 2000)) * MS)
        else:
            topic.publish([body], len(body))
        self.expect(machine, node, publish)
        before = node.log.writer.written.position

        def report() -> None:
            self.acknowledge(machine, node, publish)

        def give_up() -> None:
            self.books.counts["given up"] += 1
            self.answered(publish)

        publish.position = before
        reply = Reply(marks, report, give_up)
        node.unwritten.append(publish)
        return reply

    def expect(self, machine: Machine, node: ClusterNode, publish: Publish) -> None:
        self._asked.append((self.now, machine, node, publish))

    def acknowledge(self, machine: Machine, node: ClusterNode, publish: Publish) -> None:
        self.answered(publish)
        counted = self.replicas(node, publish.position, publish.mode.value == "always")
        self.books.acknowledge(publish, frozenset({machine.name, *counted}))

    def replicas(self, node: ClusterNode, position: int, is_durable: bool) -> set[int]:
        """Return the machines that have reported to a node that they have its log up to a position."""
        reported = node.reported_positions.items()
        return {self.names[number] for number, positions in reported if positions[is_durable] >= position}

    def acknowledge_there(self, machine: Machine, node: ClusterNode, publish: Publish) -> None:
        """Note that a client got the OK of a publish from another node, which had forwarded it to this one."""
        strict = publish.mode.value == "always"
        positions = sorted((at[strict] for at in node.reported_positions.values()), reverse=True)
        publish.position = min([publish.position, *positions[: publish.n - 1]])  # others may have been lost meanwhile
        self.acknowledge(machine, node, publish)

    def answered(self, publish: Publish) -> None:
        self._asked = [one for one in self._asked if one[3] is not publish]

    def _subscribe(self, node: ClusterNode) -> None:
        if len(node.consumers) < 4:
            node.subscribe(self.random.choice(list(self.configs)), self.random.choice((1, 5, 50)))
        else:
            node.leave(self.random.choice(node.consumers))

    def _consume(self, node: ClusterNode) -> None:
        random = self.random
        readers = [one for one in node.consumers if one.seen and not one.gone]
        if not readers:
            return
        consumer = random.choice(readers)
        for frame in random.sample(consumer.seen, random.randrange(1, len(consumer.seen) + 1)):
            consumer.seen.remove(frame)
            if random.random() < 0.2:
                consumer.client.requeue(frame[18:34], random.choice((0, 50, 3000)) * MS, node.clock.now)
            else:
                self._finish(consumer, frame)

    def _finish(self, consumer: Consumer, frame: bytes) -> None:
        publish = self.books.publishes[number_of(frame[34:])]
        publish.finished = True
        if not consumer.client.finish(frame[18:34]) and publish.done is None:
            publish.done = self.now, self._name_of(consumer.node)

    def finish_seen(self, consumer: Consumer) -> None:
        for frame in consumer.seen:
            self._finish(consumer, frame)
        consumer.seen.clear()

    def channel_topics(self) -> list[str]:
        return [name for name in (*self.configs, *self.wide.topics) if name != JOBS]

    def _name_of(self, node: ClusterNode) -> int:
        return next(machine.name for machine in self.machines if machine.node is node)

    def _read(self, consumer: Consumer) -> None:
        for frame, at in consumer.fresh:
            publish = self.books.delivered(frame, self._name_of(consumer.node), at)
            assert publish.topic == consumer.channel.topic_name, f"delivered in another topic: {publish}"
            self.governed.delivered(publish, consumer.channel)
        consumer.fresh.clear()
        if consumer.gone and consumer in consumer.node.consumers:
            consumer.node.consumers.remove(consumer)

    def _happen(self) -> None:
        random, violence = self.random, self.violence
        if self.now > self.cuts_until:
            self.wires.cut.clear()
        for machine in self.machines:
            if machine.vain_until and self.now > machine.vain_until and machine.is_up:
                machine.vain_until = 0
                if machine.backup is not None:
                    self._isolate(machine)
                    machine.restore()
        for machine in self.machines:
            if random.random() < 0.02 * violence and not machine.is_away:
                self._strike(machine)
        if random.random() < 0.02 * violence:
            self._cut_network()
        if random.random() < 0.01 * violence and (wires := self.wires.between(self.machines)):
            self.wires.reset(random.choice(wires))
            self.note("a connection is lost")
        if random.random() < 0.002 * violence:
            for machine in self.machines:
                if machine.is_up:
                    machine.crash(True, random.choice((1, 100, 3000)) * MS)
        if self.takes_over:
            self.trouble.happen()
        self.departures.happen()

    def _strike(self, machine: Machine) -> None:
        random = self.random
        deed = random.choice((
            "kill", "cut", "later", "stop", "restart", "clock", "slow", "spoil", "full", "backup", "restore", "lose",
            "vain",
        ))  # fmt: skip
        self.books.counts[f"event {deed}"] += 1
        if deed == "kill" and machine.is_up:
            machine.crash(False)
        elif deed == "cut" and machine.is_up:
            machine.crash(True)
        elif deed == "later":
            random.choice(machine.disks.all()).cut_in = random.randrange(1, 30)
        elif deed == "stop" and machine.is_up:
            machine.still_until = self.now + random.choice((1, 500, 4000, 20_000)) * MS
            if self.takes_over and self.side.random() < 0.3:
                machine.still_until += 30 * SECOND
            self.note(f"{machine.name} stopped until {machine.still_until}")
        elif deed == "restart" and machine.runs:
            self.restart(machine)
        elif deed == "clock" and not self.planned.is_on:
            machine.clock.wall = self.now + random.choice((0, -1, 1, 24)) * 3600 * SECOND
        elif deed == "slow":
            machine.slow = 0 if machine.slow else 500 * MS
            machine.set_slowness()
        elif deed == "spoil":
            self._spoil(machine)
        elif deed == "full":
            for disk in machine.disks.all():
                disk.others = 0 if disk.others else random.choice((CAPACITY, CAPACITY - random.randrange(40_000)))
            self.note(f"the disk of {machine.name} is {'full' if machine.disks.log.others else 'free'}")
        elif deed == "backup" and machine.is_up:
            machine.back_up()
        elif deed == "restore" and machine.backup is not None and self.may_lose():
            machine.restore()
        elif deed == "vain" and machine.is_up and self.may_lose():  # the next two lives begin epochs of one number
            machine.back_up()
            machine.crash(False, 0)
            machine.vain_until = self.now + random.choice((3000, 6000)) * MS
        elif deed == "lose" and self.may_lose():
            machine.lose_disk()

    def _isolate(self, machine: Machine) -> None:
        others = [one.address for one in self.machines if one is not machine]
        self.wires.cut.update((machine.address, other) for other in others)
        self.cuts_until = self.now + self.random.choice((300, 3000)) * MS

    def may_lose(self) -> bool:
        """Return True if one more machine may lose something, and note it."""
        self.budget -= 1
        return self.budget >= 0

    def restart(self, machine: Machine, away: int | None = None) -> None:
        """Announce a restart and stop. `away`: after how many ns it starts; None: soon."""
        self.note(f"{machine.name} announces its restart")
        machine.node.cluster.announce_restart(30_000)
        machine.node.events()
        machine.stop(away)

    def _spoil(self, machine: Machine) -> None:
        machine.note_durable()
        self.books.losses.append(Loss(self.now, machine.name, dict(machine.durable), True))
        disk = self.random.choice(machine.disks.all())
        operation = self.random.choice(("sync", "append", "create", "remove", "rename", "sync_directory", "open"))
        disk.fail(operation, 1, errno.EIO)
        machine.is_spoiled = True
        self.note(f"a disk of {machine.name} fails to {operation}")

    def _cut_network(self) -> None:
        random, wires = self.random, self.wires
        addresses = [machine.address for machine in self.machines]
        lookups = self.lookups.addresses()
        random.shuffle(addresses)
        kind = random.choice(("halves", "one way", "bridge", "lookup", "flap"))
        if kind == "halves":
            size = random.randrange(1, len(addresses))
            pairs = [(one, other) for one in addresses[:size] for other in addresses[size:]]
            wires.cut.update(pairs, [(other, one) for one, other in pairs])
            self.blind(addresses[:size])
        elif kind == "one way":
            wires.cut.update((addresses[0], other) for other in addresses[1:])
            self.blind(addresses[:1])
        elif kind == "bridge":  # the first one sees all, the others do not see each other
            wires.cut.update((one, other) for one in addresses[1:] for other in addresses[1:] if one != other)
        elif kind == "lookup":
            wires.cut.update((random.choice(addresses), lookup) for lookup in lookups)
        else:
            wires.cut.update({(addresses[0], addresses[1]), (addresses[1], addresses[0])})
        length = random.choice((300, 2000)) if kind == "flap" else random.choice((1000, 5000, 12_000))
        self.cuts_until = self.now + length * MS
        self.books.counts[f"network {kind}"] += 1
        self.note(f"{kind} for {length} ms: {addresses}")

    def blind(self, addresses: list[str]) -> None:
        """Partition some nodes from the nsqlookupds, in most cases: otherwise these are in contact with both sides."""
        if self.luck.random() < 0.7:
            self.wires.cut.update((address, lookup) for address in addresses for lookup in self.lookups.addresses())

    # what must hold always

    def _bounded(self) -> None:
        for machine in self.machines:
            node = machine.node
            if node is None:
                continue
            for link in machine.ends.values():
                assert link.backlog <= MOST_BACKLOG, f"{link.backlog} bytes wait for a node"
            for kept in node.replicas.kept.values():
                assert kept.replica is None or len(kept.replica._unsynced) <= 200, "files are never synced"
        self._asked = [one for one in self._asked if one[1].node is one[2]]
        for at, machine, node, publish in self._asked:
            if not machine.runs or machine.slow or machine.is_spoiled or machine.is_full or node.log.writer.failure:
                continue
            since = max(at, machine.still_until, machine.late_until)
            assert self.now - since < REPLY_WITHIN or publish.n == 1, f"waits indefinitely: {publish}"

    # the end of a round

    def _heal(self) -> None:
        """Repair everything. Soon all nodes must be in sync."""
        self.is_healing = True
        self.trouble.end()
        self.departures.end()
        self.wires.cut.clear()
        for machine in self.members:
            self._repair(machine)
        self.send_clients_away()
        self._become_whole()
        if self.planned.is_on:
            self.planned.judge()
            self._become_whole()
        self._judge_copies()
        self.departures.judge()
        self.wide.judge_configs([machine.node for machine in self.members if machine.node is not None])
        self.is_healing = False

    def _become_whole(self) -> None:
        deadline = self.now + self.healed_within
        while not self.is_whole():
            longest = max(one.node.source.end if one.node is not None else 0 for one in self.members)
            assert self.now < deadline + longest * self.copied_within, f"not in sync: {self.state()}"
            self._order_promotions()
            self.step(250 * MS)

    def _order_promotions(self) -> None:
        if self.takes_over:
            return
        for machine in self.machines:
            node = machine.node
            for log_id in self._orphans(machine) if node is not None and not node.elections.candidate.attempt else ():
                with suppress(KeyError, ValueError):  # it cannot be promoted yet
                    node.elections.promote(log_id)

    def _orphans(self, machine: Machine) -> list[bytes]:
        """Return the logs of which a machine has a replica, and that have no leader though a node should promote them."""
        kept = machine.node.replicas.kept if machine.node is not None else {}
        left = [log_id for log_id, one in kept.items() if one.replica is not None and one.replica.end > 0]
        wanted = left if self.takes_over else [log_id for log_id in left if log_id in self.made]
        leaders = self.leaders() if wanted else {}
        return [log_id for log_id in wanted if log_id not in leaders]

    def _repair(self, machine: Machine) -> None:
        for disk in machine.disks.all():
            disk.repair()
            disk.others, disk.cut_in = 0, None
        if machine.is_spoiled and machine.is_up:
            machine.crash(False, 0)
        machine.is_spoiled = machine.is_sluggish = False
        machine.slow = 0
        machine.still_until = min(machine.still_until, self.now)
        machine.clock.wall = machine.clock.true
        machine.set_slowness()
        if not machine.is_up:
            machine.start_at = min(machine.start_at, self.now + 2 * SECOND)

    def send_clients_away(self) -> None:
        for node in [machine.node for machine in self.machines if machine.node is not None]:
            for consumer in list(node.consumers):
                node.leave(consumer)
            if node.jobs is not None:
                node.jobs.leave()
        self.jobs.send_clients_away()

    def _copies(self) -> int:
        """Return the number of nodes with each log, once all is whole."""
        nodes = [machine.node for machine in self.members if machine.node is not None]
        wanted = [leader_side.wanted for node in nodes for leader_side in node.copying.leader_sides.values()]
        return 1 + min(*wanted, len(self.members) - 1)

    def is_whole(self) -> bool:
        """Return True if all nodes are in sync with their followers, and each log has one leader."""
        is_in_sync = all(one.node is not None and self._is_in_sync(one, one.node) for one in self.members)
        return is_in_sync and not any(self._must_salvage(machine) for machine in self.members)

    def _must_salvage(self, machine: Machine) -> bool:
        """Return True if a machine has a copy that may hold what the leader of its log lacks."""
        copies = machine.node.salvage.copies if machine.node is not None else {}
        agreed = {name for name, copy in copies.items() if copy.agreed is not None and copy.is_own}  # the others go
        return any(self.has_arbiter(one.log_id) and one.name not in agreed for one in machine.disks.copies())

    def has_arbiter(self, log_id: bytes) -> bool:
        """Return True if a log has a leader, or is known to be closed: then other messages in its copies are salvaged."""
        nodes = [machine.node for machine in self.machines if machine.node is not None]
        return log_id in self.leaders() or any(log_id in node.cluster.leaders.closed for node in nodes)

    def _is_in_sync(self, machine: Machine, node: ClusterNode) -> bool:
        leader_sides = node.copying.leader_sides.items()
        return self.is_joined(machine) and all(self._is_copied(*one) for one in leader_sides)

    def is_joined(self, machine: Machine) -> bool:
        """Return True if a node is connected to all others, serves all its logs, and has all its followers."""
        node, present = machine.node, {one.number for one in self.members}
        if node is None or node.cluster.is_leaving or set(node.cluster.links) != present - {machine.number}:
            return False
        if node.cluster.membership.suspected & present:
            return False
        promotions = node.promoted.promotions.logs
        if any(one.state != SERVING for one in promotions.values()) or self.is_orphaned:
            return False
        most = len(self.members) - 1
        sides = node.copying.leader_sides.values()
        return all(len(one.in_sync.named) == len(one.followers) == min(one.wanted, most) for one in sides)

    def _is_copied(self, log_id: bytes, leader_side: LeaderSide) -> bool:
        """Return True if a log is with all its followers."""
        source, followers = leader_side.source, leader_side.followers
        end, bases = source.end, list(dict.fromkeys(source.bases()))
        return source.durable == end and all(
            one.durable == end and self._has(number, log_id, bases) for number, one in followers.items()
        )

    def leaders(self) -> dict[bytes, list[Machine]]:
        leaders: dict[bytes, list[Machine]] = {}
        for machine in self.machines:
            for log_id in machine.logs():
                leaders.setdefault(log_id, []).append(machine)
        return leaders

    @property
    def is_orphaned(self) -> bool:
        """Return True if a log of which a replica is left has no leader though a node should promote it, or has two."""
        leaders = self.leaders()
        if any(len(machines) > 1 for machines in leaders.values()):
            return True
        return any(self._orphans(machine) for machine in self.machines)

    def _has(self, number: int, log_id: bytes, bases: list[int]) -> bool:
        """Return True if a node has a replica with the segments that the log has.

        After a power cut the log may have old segments again, which it had removed.
        """
        machine = next((one for one in self.machines if one.number == number), None)
        if machine is None or machine.node is None:
            return False
        kept = machine.node.replicas.kept.get(log_id)
        if kept is None or kept.replica is None:
            return False
        found = [file.base for file in kept.replica.manifest.files]
        return set(found) <= set(bases) and found[-1:] == bases[-1:]

    def state(self) -> str:
        lines = []
        for machine in self.members:
            node = machine.node
            if node is None:
                lines.append(f"{machine.name} is down: {machine.start_at} {machine.is_lost} {machine.early}")
            elif not self._is_in_sync(machine, node):
                links, suspected = sorted(node.cluster.links), set(node.cluster.membership.suspected)
                lines.append(
                    f"{machine.name}: {node.leader_side.states()}, end {node.source.end}, durable"
                    f" {node.log.writer.durable.position} {links=} {suspected=} {node.replicas.states()}"
                    f" {node.cluster.refused_itself!r} {[one.closing for one in node.cluster.strangers]}"
                    f" {node.led()} {node.elections.figures()}"
                )
        diverged = [one for one in self.machines if one.node and one.disks.diverged]
        lines += [f"{one.name}: {one.node.salvage.figures()}" for one in diverged]
        return "\n".join(lines)

    def _judge_copies(self) -> None:
        for machine in self.members:
            for log_id, leader_side in machine.node.copying.leader_sides.items():
                for number in leader_side.followers:
                    self._judge_copy(log_id, machine, next(one for one in self.members if one.number == number))

    def _judge_copy(self, log_id: bytes, leader: Machine, follower: Machine) -> None:
        replica = follower.node.replicas.kept[log_id].replica
        disk, archive = follower.disks.replicas[log_id], self.archives[log_id, leader.name]
        judge = judge_state if self.random.random() < 0.5 else judge_bytes
        self.judge_replica(judge, log_id, archive, disk, replica)

    def judge_replica(self, judge: Judge, log_id: bytes, archive: Archive, disk: SimDisk, replica: Replica) -> None:
        """Assert that a replica is the log, cut where the replica ends."""
        judge(archive, self.undamaged(log_id, disk), replica.manifest, replica.end)

    # overridden by runs that corrupt files

    def has_damage(self, machine: Machine) -> bool:
        """Return True if a node may find damage in the log of a machine, other than by a crash."""
        return machine.is_damaged

    def undamaged(self, log_id: bytes, disk: SimDisk) -> SimDisk:
        """Return a copy of a log, to be judged, without the damage that the run has done to it."""
        return disk

    def repair(self, missing: list[Publish]) -> set[int]:
        """Let operators do what the documents say when messages are missing. Returns the numbers of publishes found then."""
        return set()

    def _drain(self, seen: set[int]) -> None:
        """Take out all that is left, and compare. `seen`: the numbers of the jobs that clients of Disque have seen."""
        self.is_healing = True
        self._allow_copies()
        readable = {one for machine in self.members if machine.node for one in self.wide.readable(machine.node)}
        for machine in self.members:
            seen |= self._drained(machine)
        owed = [one for one in self.books.owed() if not self.governed.has_end(one)]
        if missing := [one for one in owed if one.number not in seen]:
            seen |= self.repair(missing)
        for publish in [one for one in owed if one.number not in seen]:
            lost_by = self.books.lost_by(publish)
            assert self.is_kept_diverged(publish), f"lost: {publish}; holders that lost it: {lost_by}"
            self.books.counts["kept as diverged copies"] += 1
        for publish in self.wide.lost_to_readers(readable):
            assert self.is_kept_diverged(publish), f"cannot be read back: {publish}"
            self.books.counts["kept as diverged copies from readers"] += 1
        holders, names = {}, self.names
        for machine in self.members:
            for log_id, leader_side in machine.node.copying.leader_sides.items():
                holders[log_id] = frozenset({machine.name, *(names[number] for number in leader_side.followers)})
        self.jobs.books.settle()
        self.books.settle(seen | readable, self._copies(), holders)
        self.is_healing = False

    def _allow_copies(self) -> None:
        """Let no topic ask for more copies than there can be, and wait for those of what was published."""
        for machine in self.members:
            assert machine.node is not None
            machine.node.turn(partial(self.wide.allow_copies, machine.node, self._copies()))
        for _ in range(8):
            self.step(250 * MS)

    def is_kept_diverged(self, publish: Publish) -> bool:
        """Return True if a diverged copy has the message, and its log has no leader who could be asked about it."""
        logs = [publish.log_id, *publish.former]
        copies = [one for machine in self.machines for one in machine.disks.copies() if one.log_id in logs]
        left = [one for one in copies if not self.has_arbiter(one.log_id)]
        return any(publish.body in one.disk.content(name) for one in left for name in one.disk.names())

    def _drained(self, machine: Machine) -> set[int]:
        """Read all messages of a node. Returns the numbers of their publishes; half of them are finished, or all."""
        node = machine.node
        node.clock.advance(5 * SECOND)  # deferred messages are due
        consumers: list[Consumer] = []

        def subscribe() -> None:
            self.governed.relax(node, True)
            for name in self.planned.topics:
                node.broker.topics[name].empty()
            consumers.extend(node.subscribe(name, 1 << 20) for name in self.channel_topics())

        node.turn(subscribe)
        quiet = 0
        while quiet < 3:
            while node.cache.step() or any(one.cache.step() for one in node.promoted.logs.values()):
                node.syncer.step()
            node.turn(*self.wide.drain(node))
            quiet = 0 if any(one.fresh for one in consumers) or (node.jobs and node.jobs.fresh) else quiet + 1
            self.wide.note_fresh(node)
            for one in consumers:
                self._read(one)
        found = [(one, frame) for one in consumers for frame in one.seen]
        # a log without unfinished messages may be closed
        part = self.side.choice((0.5, 1.0)) if self.takes_over else 0.5
        finished = [pair for pair in found if self.random.random() < part]

        def finish() -> None:
            for consumer, frame in finished:
                self._finish(consumer, frame)
            self.wide.finish_part(node, part)

        numbers = {number_of(frame[34:]) for _, frame in found} | self.wide.held(node)
        node.turn(finish)

        def leave() -> None:
            for consumer in consumers:
                node.leave(consumer)
            if node.jobs is not None:
                node.jobs.leave()
            self.governed.relax(node, False)

        node.turn(leave)
        node.broker.check()
        return numbers
