"""Random histories of nodes that lose each other, with their elections: partitions, kills, restarts, nodes that stand still.

The nodes have real Clusters and Elections on a simulated network. Logs are modeled: a copy of one is the table of its epochs
and its end. What must never happen is checked whenever it could; at the end all hear each other, and every log that somebody
has must have one leader, on which all agree.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from nsqd.cluster.membership.cluster import Cluster
from nsqd.cluster.membership.facts import ClusterFacts
from nsqd.cluster.membership.leader_frames import NO_REPLICA, LogExtent
from nsqd.cluster.ownership.candidate import WITNESS_WITHIN, Attempt, Witnesses
from nsqd.cluster.ownership.cases import Case, Cases, Quorum, ReplicaState
from nsqd.cluster.ownership.election_frames import Answer, InSyncReplicas, Stage, VoteRequest
from nsqd.cluster.ownership.elections import Elections
from nsqd.cluster.wire.handshake import Credentials
from nsqd.cluster.wire.link import Link
from nsqd.cluster.wire.node_identity import NodeIdentity
from nsqd.cluster.wire.part import Part
from nsqd.core.message.epoch import Epoch
from tests.nsqd.cluster.network import MS, SECOND, SECRET, SUSPECT_AFTER, Network, SimMember

UNCLEAN_AFTER = 40 * SECOND
FOLLOWERS = 2
OUT_OF_SYNC = 5 * SECOND
GRACE = 15_000  # ms
HAPPENINGS = (*["halves", "kill", "start"] * 2, "one way", "pair", "flap", "heal", "stop", "announced")
CALM = 100  # s: longer than the longest pause between two dials, twice
# from the request to the nsqlookupds on: their answers, the candidate's own vote, and the votes; each is looked at in a turn
CLAIM_WITHIN = WITNESS_WITHIN + 2 * SUSPECT_AFTER + SECOND // 2
MOST_CALMS = 6  # until a log that may be taken over must have a leader


@dataclass
class Copy:
    epochs: list[tuple[Epoch, int]]
    end: int

    def copy(self) -> Copy:
        return Copy(list(self.epochs), self.end)

    @property
    def extent(self) -> LogExtent:
        return LogExtent(max(epoch for epoch, start in self.epochs if start < self.end or not start), self.end)


@dataclass
class Disk:
    """The part of a node that outlives a kill."""

    log_id: bytes  # into which it publishes
    facts: ClusterFacts = field(default_factory=ClusterFacts)  # cluster.json
    incarnation: int = 0
    led: dict[bytes, Copy] = field(default_factory=dict)
    replicas: dict[bytes, Copy] = field(default_factory=dict)


def observe(thing: object, name: str, note: Callable[..., None]) -> None:
    """Have `note` called with the arguments of a method before each call of it."""
    method = getattr(thing, name)

    def noting(*args: Any) -> Any:
        note(*args)
        return method(*args)

    setattr(thing, name, noting)


class Naming:
    """The leader's side of which followers count, for one log."""

    def __init__(self) -> None:
        self.named: frozenset[int] = frozenset()
        self.position = 0
        self.copied_at: dict[int, tuple[int, Link]] = {}  # when each follower had everything, and over which connection


class Witness:
    """An nsqlookupd: it hears nodes, and answers candidates late or not at all."""

    def __init__(self, run: ElectionRun, random: Random) -> None:
        self.run, self.random = run, random
        self.contacts: dict[int, int] = {}  # when each node was heard
        self.cut: set[int] = set()  # numbers of nodes that do not reach it
        self.is_dead = False
        self.answers: list[tuple[int, ElectionNode, int, Callable[[int | None], None], int]] = []
        self.postponing = 0  # answers that must postpone an election

    def turn(self, now: int) -> None:
        """Hear who reaches it, each third of the time after which a node is lost; answer what is due."""
        for node in self.run.running():
            number = node.own.number
            if number not in self.cut and now - self.contacts.get(number, 0) >= SUSPECT_AFTER // 3:
                self.contacts[number] = now
        due = [one for one in self.answers if one[0] <= now]
        self.answers = [one for one in self.answers if one[0] > now]
        for _, node, number, then, asked in due:
            if not node.runs or node.own.number in self.cut or self.is_dead:
                continue
            ago = now - self.contacts[number] if number in self.contacts else None
            attempt = node.elections.candidate.attempt
            awaits = attempt is not None and attempt.awaits_witness and attempt.lost.node == number
            is_late = now - asked >= WITNESS_WITHIN
            then(ago)
            if awaits and not is_late and ago is not None and ago < SUSPECT_AFTER:
                self.postponing += 1
                assert node.elections.candidate.attempt is not attempt, (
                    "an election continued, and a witness is connected to the leader"
                )

    def ask(self, node: ElectionNode, number: int, then: Callable[[int | None], None]) -> None:
        now = self.run.network.now
        self.answers.append((now + self.random.choice((0, 20, 300, 1500)) * MS, node, number, then, now))

    def happen(self) -> None:
        self.is_dead = self.random.random() < 0.2
        self.cut = {number for number in range(self.run.size) if self.random.random() < 0.3}


class ElectionNode(SimMember):
    """One run of a node. Implements nsqd.cluster.ownership.elections.ReplicaView."""

    def __init__(self, run: ElectionRun, own: NodeIdentity, disk: Disk) -> None:
        super().__init__(run.network, own, ["node0:4152"])
        self.run, self.disk = run, disk
        credentials = Credentials("c", SECRET, own)
        random = run.network.random
        seeds = ["node0:4152", "node1:4152"]
        self.cluster = Cluster(credentials, seeds, SUSPECT_AFTER, random.randbytes, disk.facts, self.now)
        self.witnesses: Witnesses = lambda number, then: then(None)
        if run.witness is not None:
            self.witnesses = self.ask_witnesses
        ask = lambda number, then: self.witnesses(number, then)  # noqa: E731
        times = SUSPECT_AFTER, UNCLEAN_AFTER
        cases = Cases(self.cluster, self, self.keep, run.quorum, *times, self.now)
        self.elections = Elections(cases, ask, random.randbytes)
        results = Part()
        results.won = lambda log_id, number, is_clean: run.won(self, log_id, number)
        results.fenced = lambda log_id, epoch: run.fenced(self, log_id, epoch)
        results.called_off = self.cancel
        self.cluster.add(self.elections, results)
        observe(self.elections.voter, "_vote", self.note_request)
        observe(self.elections.voter, "_send_vote", self.note_reply)
        observe(self.elections.candidate, "_ask", self.note_ask)
        self.note_in_sync, self.elections.cases.note_in_sync = self.elections.cases.note_in_sync, self.noted
        self.waiting: list[Callable[[bool], None]] = []
        self.writing: tuple[int, ClusterFacts, list[Callable[[bool], None]]] | None = None
        self.promoting: tuple[bytes, int, int] | None = None  # log, number, when it is done
        self.opening: list[tuple[int, bytes]] = []  # promoted logs that are opened again at the start
        self.serving: dict[bytes, Epoch] = {}
        self.naming: defaultdict[bytes, Naming] = defaultdict(Naming)
        # logs whose leader has told this node that it counts and has everything, since it was paused
        self.confirmed: set[bytes] = set()
        self.streams: dict[bytes, Link] = {}
        self.must_restart = False
        self.asked_at: dict[int, int] = {}  # when the witness was asked about each node
        self.turned = self.network.now

    def note_request(self, link: Link, case: Case, request: VoteRequest, now: int) -> None:
        self.run.check_voter(self, request.log_id, request.lost.node)

    def note_reply(self, link: Link, case: Case, request: VoteRequest, answer: Answer, now: int) -> None:
        self.run.note_view(self, link.peer.number, request.log_id, case.in_sync)
        if answer is Answer.GRANTED:
            self.run.note_vote(self, request.log_id, request.number, link.peer.number)

    def note_ask(self, attempt: Attempt) -> None:
        if self.elections.candidate.attempt is attempt and not attempt.has_asked:
            self.run.note_vote(self, attempt.case.log_id, attempt.number, self.own.number)

    def noted(self, link: Link, in_sync: InSyncReplicas) -> None:
        self.note_in_sync(link, in_sync)
        case = self.elections.cases.by_log.get(in_sync.log_id)
        if case is not None and case.in_sync is in_sync:
            (self.confirmed.add if in_sync.is_whole else self.confirmed.discard)(in_sync.log_id)

    def own_extent(self, log_id: bytes) -> LogExtent:
        return NO_REPLICA

    def replicas(self) -> list[ReplicaState]:
        states = []
        for log_id, copy in self.disk.replicas.items():
            leader = copy.epochs[-1][0].node
            known = self.cluster.leaders.leader(log_id)
            link = self.cluster.links.get(known.node if known is not None else leader)
            if link is not None:
                self.streams[log_id] = link
            last = self.streams.get(log_id)
            ended_at = None if link is not None else last.received_at if last is not None else self.elections.cases.now
            states.append(ReplicaState(log_id, copy.epochs[0][0].node, copy.end, copy.extent.epoch, True, ended_at))
        return states

    def ask_witnesses(self, number: int, then: Callable[[int | None], None]) -> None:
        self.asked_at[number] = self.network.now
        self.run.witness.ask(self, number, then)

    # cluster.json

    def keep(self, then: Callable[[bool], None]) -> None:
        self.waiting.append(then)

    def facts(self) -> ClusterFacts:
        leaders = self.cluster.leaders
        members, epochs, votes = self.cluster.members(), leaders.epochs.items(), leaders.votes.items()
        return ClusterFacts(0, tuple(members), (), tuple(epochs), tuple(votes))

    def write(self) -> None:
        random = self.network.random
        if self.writing is None and (self.waiting or self.facts() != self.disk.facts):
            self.writing = self.now + random.randrange(300) * MS, self.facts(), self.waiting
            self.waiting = []
        elif self.writing is not None and self.now >= self.writing[0]:
            _, facts, waiting = self.writing
            self.writing = None
            is_written = random.random() >= self.run.unwritten
            if is_written:
                self.disk.facts = facts
            for then in waiting:
                then(is_written)

    # by the clock

    def turn(self) -> None:
        if not self.runs:
            return
        if self.network.now - self.turned > SUSPECT_AFTER - SECOND:
            self.confirmed.clear()
        self.turned = self.network.now
        super().turn()
        self.elections.tick(self.now)
        self.write()
        self.promote()
        for due, log_id in list(self.opening):
            if self.now >= due:
                self.opening.remove((due, log_id))
                self.open(log_id)
        self.network.collect(self)

    def cancel(self, log_id: bytes) -> None:
        if self.promoting is not None and self.promoting[0] == log_id:
            self.promoting = None

    def promote(self) -> None:
        if self.promoting is None or self.now < self.promoting[2]:
            return
        log_id, number, _ = self.promoting
        self.promoting = None
        if self.network.random.random() < self.run.failing:
            self.elections.candidate.promotion_failed(log_id, "planted")
            return
        copy = self.disk.replicas.pop(log_id)
        self.disk.led[log_id] = copy
        self.begin(log_id, number)

    def begin(self, log_id: bytes, number: int) -> None:
        copy, epoch = self.disk.led[log_id], Epoch(number, self.own.number, self.network.random.randbytes(8))
        copy.epochs.append((epoch, copy.end))
        copy.end += 10
        self.run.begun.add((log_id, epoch))
        self.serving[log_id] = epoch
        self.cluster.announce_leader(log_id, epoch)

    def open(self, log_id: bytes) -> None:
        if log_id in self.disk.led:
            self.begin(log_id, self.disk.led[log_id].epochs[-1][0].number + 1)


class ElectionRun:
    def __init__(self, seed: int, quorum: Quorum, size: int = 0) -> None:
        """`size`: number of nodes; 0: any."""
        self.network = Network(seed)
        self.random: Random = self.network.random
        self.quorum = quorum
        self.size = size or self.random.choice((3, 3, 4, 5, 5, 7))
        witnessed = seed % 7 in (4, 6)
        self.witness = Witness(self, Random(f"witness {seed}")) if witnessed else None
        self.failing = 0.15  # share of promotions that fail
        self.lagging = 0.4  # share of the turns in which a follower copies nothing
        self.unwritten = 0.05  # share of what is to be durable that cannot be written
        self.duration = 200, 6000  # of a promotion, ms
        self.disks = {number: Disk(number.to_bytes(16)) for number in range(self.size)}
        self.nodes: dict[int, ElectionNode] = {}  # the latest run of each
        self.begun: set[tuple[bytes, Epoch]] = set()
        self.voted: defaultdict[tuple[int, bytes], list[tuple[int, int]]] = defaultdict(list)
        self.wins: defaultdict[tuple[bytes, int], list[tuple[int, frozenset[int]]]] = defaultdict(list)
        # for a voter and an election: the in-sync followers that it knew when it voted, and how long its replica was
        self.views: dict[tuple[int, int, bytes], tuple[InSyncReplicas | None, LogExtent | None]] = {}
        self.won_clean = self.won_unclean = self.fences = 0
        self.logs = self.size
        for number in range(self.size):
            self.start(number)

    # nodes

    def start(self, number: int) -> None:
        """Start a node: it asks the others first whether its logs are led by somebody else."""
        disk = self.disks[number]
        known = dict(disk.facts.leaders)
        for other in self.nodes.values():
            if other.own.number != number and other.runs and not self.is_cut(number, other.own.number):
                for log_id, epoch in other.cluster.leaders.epochs.items():
                    known[log_id] = max(epoch, known.get(log_id, epoch))
        for log_id, copy in list(disk.led.items()):
            if known.get(log_id, copy.epochs[-1][0]) > copy.epochs[-1][0]:
                del disk.led[log_id]
        if disk.log_id not in disk.led:
            if disk.incarnation:
                self.logs += 1
                disk.log_id = (1000 + self.logs).to_bytes(16)
            disk.led[disk.log_id] = Copy([], 0)
        disk.incarnation += 1
        log = disk.led[disk.log_id]
        number_before = log.epochs[-1][0].number if log.epochs else 0
        epoch = Epoch(number_before + 1, number, self.random.randbytes(8))
        log.epochs.append((epoch, log.end))
        log.end += 10
        self.begun.add((disk.log_id, epoch))
        address = f"node{number}:4152"
        own = NodeIdentity(number, disk.incarnation, disk.log_id, epoch.pack(), address)
        node = ElectionNode(self, own, disk)
        node.serving[disk.log_id] = epoch
        for log_id, copy in disk.led.items():
            if log_id != disk.log_id:
                node.cluster.announce_leader(log_id, copy.epochs[-1][0])
                node.opening.append((node.now + self.random.randrange(8000) * MS, log_id))
        self.nodes[number] = self.network.members[address] = node

    def kill(self, node: ElectionNode) -> None:
        if node.is_up:
            if node.writing is not None and self.random.random() < 0.5:
                node.disk.facts = node.writing[1]
            self.network.kill(node)

    def is_cut(self, one: int, other: int) -> bool:
        a, b = f"node{one}:4152", f"node{other}:4152"
        return (a, b) in self.network.cut or (b, a) in self.network.cut

    def running(self) -> list[ElectionNode]:
        return [node for node in self.nodes.values() if node.runs]

    # logs

    def advance(self, seconds: float) -> None:
        end = self.network.now + int(seconds * SECOND)
        while self.network.now < end:
            self.network.run(0.1)
            if self.witness is not None:
                self.witness.turn(self.network.now)
            for node in self.running():
                for log_id in list(node.serving):
                    self.stream(node, log_id)
                if node.must_restart:
                    self.kill(node)
                    self.start(node.own.number)

    def stream(self, leader: ElectionNode, log_id: bytes) -> None:
        """The leader writes, and its followers copy it."""
        copy, naming, now = leader.disk.led[log_id], leader.naming[log_id], self.network.now
        if self.random.random() < 0.3:
            copy.end += self.random.randrange(1, 100)
        first = int.from_bytes(log_id) % self.size
        order = [one for one in ((first + place) % self.size for place in range(self.size)) if one != leader.own.number]
        links = leader.cluster.links
        for number in order[:FOLLOWERS]:
            link, follower = links.get(number), self.nodes[number]
            if link is None or link.closing or not follower.runs or self.is_cut(leader.own.number, number):
                continue
            if leader.own.number not in follower.cluster.links or self.random.random() < self.lagging:
                continue
            if not follower.cluster.may_write_replica(leader.own.number, log_id) or log_id in follower.disk.led:
                continue
            if follower.promoting is None or follower.promoting[0] != log_id:
                follower.disk.replicas[log_id] = copy.copy()
                naming.copied_at[number] = now, link
        whole = {one for one, (at, link) in naming.copied_at.items() if now - at < SECOND and links.get(one) is link}
        kept = {one for one in naming.named if now - naming.copied_at[one][0] < OUT_OF_SYNC}
        if naming.named != whole | kept:
            naming.named, naming.position = frozenset(whole | kept), copy.end
        for number, link in links.items():
            epoch = leader.serving[log_id]
            in_sync = InSyncReplicas(log_id, epoch, naming.position, naming.named, number in whole)
            leader.elections.send_in_sync(link, in_sync)

    # what must hold

    def check_voter(self, voter: ElectionNode, log_id: bytes, leader: int) -> None:
        """A node that is heard, or restarts as announced, is not claimed."""
        membership, now = voter.cluster.membership, voter.now
        assert leader != voter.own.number or not voter.cluster.leaders.holds(log_id), "a leader has voted its log away"
        contact_at = membership.last_contact(leader)
        other = self.nodes.get(leader)  # a false word may name a node that there is not
        stepped_down = other.cluster.leaders.stepped_down if other is not None else {}
        is_served = other is not None and other.is_up and log_id in other.serving and log_id not in stepped_down
        if contact_at is not None and is_served:
            assert now - contact_at >= SUSPECT_AFTER - SECOND, "a node has voted for the log of a node that it hears"
        is_awaited = leader in {one.number for one in membership.members} and membership._back_by.get(leader, 0) > now
        assert not is_awaited, "a node has voted for the log of a node that restarts"

    def note_vote(self, voter: ElectionNode, log_id: bytes, number: int, node: int) -> None:
        """A vote is kept, over restarts too."""
        made = self.voted[voter.own.number, log_id]
        for before, to in made:
            assert before < number or (before, to) == (number, node), "a vote was broken"
        made.append((number, node))

    def note_view(self, voter: ElectionNode, node: int, log_id: bytes, in_sync: InSyncReplicas | None) -> None:
        copy = voter.disk.replicas.get(log_id)
        self.views[voter.own.number, node, log_id] = in_sync, copy.extent if copy is not None else None

    def won(self, node: ElectionNode, log_id: bytes, number: int) -> None:
        attempt = node.elections.candidate.attempt
        own, leader = node.own.number, attempt.lost.node
        granted = {one for one, reply in attempt.replies.items() if reply.answer is Answer.GRANTED} | {own}
        for one in granted:
            assert (number, own) in self.voted[one, log_id], "a vote was counted that nobody made"
        if self.quorum is Quorum.MAJORITY:
            assert 2 * len(granted) > self.size, "an election was won without a majority"
        for other, others in self.wins[log_id, number]:
            assert other != own, "a node has won one number twice"
            assert self.quorum is Quorum.ANY, "two nodes have won one number"
            assert not granted & others, "a voter has voted twice with one number"
        self.wins[log_id, number].append((own, frozenset(granted)))
        self.check_voter(node, log_id, leader)
        if not node.elections.cases.is_without(log_id):  # else the leader itself has reported that
            self.check_witness(node, leader)
        if attempt.stage is Stage.CLEAN:
            self.won_clean += 1
            self.check_clean(node, log_id)
        else:
            self.won_unclean += 1
        node.promoting = log_id, number, node.now + self.random.randrange(*self.duration) * MS

    def check_witness(self, node: ElectionNode, leader: int) -> None:
        """Whoever is silent to the candidate has been asked about, and a witness that answers hears it no more."""
        witness = self.witness
        if witness is not None and leader in node.cluster.membership.suspected:
            asked = node.asked_at.get(leader)
            assert asked is not None, "no witness was asked"
            assert self.network.now - asked <= CLAIM_WITHIN, "no witness was asked about this election"

    def check_clean(self, node: ElectionNode, log_id: bytes) -> None:
        """Whoever promotes at once has all that any voter knows of."""
        attempt = node.elections.candidate.attempt
        invitation = attempt.invitation
        entitled = {node.own.number} | ({invitation.node} if invitation is not None else set())
        views = [self.views[one, node.own.number, log_id] for one in attempt.replies]
        extent = node.disk.replicas[log_id].extent
        for _, other in views:
            assert other is None or other <= extent, "a replica was promoted, and a longer one was within reach"
        known = [attempt.case.in_sync, *(in_sync for in_sync, _ in views)]
        reported = [one for one in known if one is not None and one.epoch == attempt.lost]
        newest = max((one.position for one in reported), default=0)
        named = {number for one in reported if one.position == newest for number in one.named}
        assert entitled & named, "a replica was promoted at once that does not count"
        is_fresh = any(log_id in self.nodes[one].confirmed for one in entitled & named)
        assert is_fresh, "a replica was promoted at once whose node was paused or restarted"
        assert extent.end >= newest, "an out-of-date replica was promoted at once"

    def fenced(self, node: ElectionNode, log_id: bytes, epoch: Epoch) -> None:
        assert (log_id, epoch) in self.begun, "a node was fenced by an epoch that has not begun"
        self.fences += 1
        node.cancel(log_id)
        if log_id in node.serving or log_id in node.disk.led:
            node.serving.pop(log_id, None)
            node.disk.led.pop(log_id, None)
            node.cluster.drop_log(log_id)
            node.must_restart |= log_id == node.disk.log_id

    # a history

    def happen(self) -> None:
        if self.witness is not None:
            self.witness.happen()
        random, network = self.random, self.network
        what = random.choice(HAPPENINGS)
        node = random.choice(list(self.nodes.values()))
        if what == "halves":
            network.cut = set(network.halves())
        elif what == "one way":
            network.cut = {(node.own.address, other) for other in network.members}
        elif what == "pair":
            other = random.choice(list(self.nodes.values()))
            network.cut |= {(node.own.address, other.own.address), (other.own.address, node.own.address)}
        elif what == "flap":
            cut = set(network.halves())
            for _ in range(random.randrange(2, 6)):
                network.cut = set() if network.cut else cut
                self.advance(random.choice((3, 5, 7)))
        elif what == "heal":
            network.cut = set()
        elif what == "kill":
            self.kill(node)
        elif what == "start" and not node.is_up:
            self.start(node.own.number)
        elif what == "stop":
            node.still_until = network.now + random.randrange(1, 30) * SECOND
        elif what == "announced" and node.runs:
            node.cluster.announce_restart(GRACE)
            network.collect(node)
            self.advance(0.3)
            self.kill(node)
            if random.random() < 0.8:
                self.advance(random.randrange(1, 12))
                if not node.is_up and self.nodes[node.own.number] is node:
                    self.start(node.own.number)

    def play(self, steps: int = 8) -> None:
        self.advance(12)
        for _ in range(steps):
            self.happen()
            self.advance(self.random.choice((0.3, 1, 6, 12, 25, 60)))
        self.network.cut = set()
        if self.witness is not None:
            self.witness.cut = set()
        most = (self.size - 1) // 2 if self.quorum is Quorum.MAJORITY else self.size - 1
        dead = set(self.random.sample(range(self.size), self.random.randrange(most + 1)))
        for number, node in list(self.nodes.items()):
            node.still_until = 0
            if number in dead:
                self.kill(node)
            elif not node.is_up:
                self.start(number)
        for _ in range(MOST_CALMS):
            self.advance(CALM)
            if not self.complaints():
                break
        assert not self.complaints(), self.complaints()

    def complaints(self) -> list[str]:
        """Return the errors in a cluster whose nodes are all connected."""
        running = self.running()
        known = [node.cluster.leaders.epochs for node in running]
        found = [] if all(one == known[0] for one in known) else ["the nodes disagree about leaders"]
        for log_id in {log_id for node in running for log_id in (*node.disk.replicas, *node.serving)}:
            servers = [node.own.number for node in running if log_id in node.serving]
            leader = known[0].get(log_id)
            if leader is None or servers != [leader.node]:
                found.append(f"log {int.from_bytes(log_id)} is led by {leader}, and served by {servers}")
        return found
