"""One run of a node and two followers that copy its log, chosen by a seed: cuts, restarts, failing disks; and what must hold.

Whatever happens: a replica holds the log's bytes and no others; replay of it gives the state of the log cut at its end; what a
follower told as durable survives a power cut, what it told as written survives a kill. Once all is well again, all keep up.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

from nsqd.cluster.replication import leader as leader_module
from nsqd.cluster.replication import replica as replica_module
from nsqd.cluster.replication import replicas as replicas_module
from nsqd.cluster.replication import stream
from nsqd.cluster.replication.copying import Copying
from nsqd.cluster.replication.follower import T
from nsqd.cluster.replication.leader import LeaderSide
from nsqd.cluster.replication.manifest import read_manifest
from nsqd.cluster.replication.replica import Replica
from nsqd.cluster.replication.replicas import Replicas
from nsqd.cluster.wire.frames import AFTER_PROOF, FrameKind, FrameReader, PeerError
from nsqd.cluster.wire.link import Link, Listener
from nsqd.cluster.wire.node_identity import Member, NodeIdentity
from nsqd.core.limits import Limits
from nsqd.core.message import ids
from nsqd.core.sequence.dedup import DedupLimits
from nsqd.storage.log import checkpoint, tidying
from nsqd.storage.log.copies import Copies
from nsqd.storage.log.copying import LogSource
from nsqd.storage.log.disk import Disk
from nsqd.storage.log.epochs import Epoch
from nsqd.storage.log.records import decode_header
from shared.topic_config import Durability
from tests.nsqd.cluster.replication.archive import Archive
from tests.nsqd.cluster.replication.copied import judge_bytes, judge_state
from tests.nsqd.cluster.wire.identities import node as identity
from tests.nsqd.core.node import MS, SECOND
from tests.nsqd.storage.anybody import Anybody
from tests.nsqd.storage.sim_disk import PowerCut, SimDisk
from tests.nsqd.storage.sim_node import NODE, Clock, SimNode

FOLLOWERS = (1, 2)
HEALED_WITHIN = 300  # steps of half a second, besides those that it takes to send the log
MOST_OUTPUT = 60_000  # bytes that wait for a follower: the bytes that are sent at once, and the largest turn
CAPACITY = 1 << 22  # bytes of a follower's disk

_SMALL: tuple[tuple[Any, str, tuple[int, ...]], ...] = (
    (ids, "LEASE", (64,)), (checkpoint, "SLICE", (0, 1000 * SECOND)), (tidying, "SLICE", (0, 1000 * SECOND)),
    (leader_module, "MOST_LIVE", (500, 5000)), (leader_module, "MOST_BEHIND", (3000, 20_000)),
    (leader_module, "CHUNK", (500, 4000)), (leader_module, "LAST", (100, 1000)),
    (leader_module, "OUT_OF_SYNC", (1, 5 * SECOND)), (leader_module, "HOLD", (1, SECOND, 30 * SECOND)),
    (replica_module, "MARK_EVERY", (500, 5000, 1 << 30)), (replicas_module, "RETRY_AFTER", (SECOND,)),
    (replicas_module, "QUICK", (0, 1_000_000)), (stream, "MOST_BYTES", (100, 700)),
)  # fmt: skip


@contextmanager
def small(random: Random) -> Iterator[None]:
    """Let everything happen that happens at large sizes, in a small log."""
    before = [(module, name, getattr(module, name)) for module, name, _ in _SMALL]
    for module, name, choices in _SMALL:
        setattr(module, name, random.choice(choices))
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


class _Proved:
    """A handshake that is over."""

    is_done = True

    def receive(self, kind: FrameKind, content: bytes) -> bytes:
        raise PeerError(f"{kind.name}: {content.decode()}")


class _Ear:
    """Who leads one end of a connection. Implements nsqd.cluster.wire.link.Listener."""

    lease = 0
    is_full = False

    def __init__(self, copying: Copying) -> None:
        self.copying = copying

    def words(self) -> list[Member]:
        return []

    def proved(self, link: Link, peer: NodeIdentity, now: int) -> None: ...
    def receive_members(self, link: Link, words: list[Member], now: int) -> None: ...
    def note_space(self, link: Link, is_full: bool) -> None: ...
    def note_contact(self, link: Link, lease: int | None, back_by: int | None, now: int) -> None: ...
    def receive(self, link: Link, kind: FrameKind, content: bytes, now: int) -> None:
        self.copying.receive(link, kind, content, now)


def proved_link(listener: Listener, peer: NodeIdentity) -> Link:
    """Return one end of a connection after the handshake."""
    link = Link(listener, _Proved(), True, 0, 0, bytearray(), FrameReader(), peer)
    link.reader.limit = AFTER_PROOF
    return link


class SteppedWork:
    """Work that is done, and told to be done, when the test says so. Implements nsqd.cluster.replication.follower.Work."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []
        self._done: list[Callable[[], None]] = []

    def run(self, work: Callable[[], T], done: Callable[[T | OSError], None]) -> None:
        self._waiting.append((work, done))

    def step(self, random: Random) -> bool:
        """Do one thing, or report one result. Returns False if there is nothing."""
        if self._done and (not self._waiting or random.random() < 0.5):
            self._done.pop(0)()
            return True
        if not self._waiting:
            return False
        work, done = self._waiting.pop(random.randrange(len(self._waiting)))
        try:
            result = work()
        except OSError as error:
            self._done.append(lambda error=error: done(error))
        else:
            self._done.append(lambda: done(result))
        return True


class _Members:
    """What Origin asks of a Cluster."""

    def __init__(self, own: NodeIdentity) -> None:
        self.links: dict[int, Link] = {}
        self.own = own
        self.membership = self
        self.members = [own, *map(identity, FOLLOWERS)]
        self.full: set[int] = set()
        self.suspected: set[int] = set()
        self.going: set[int] = set()  # nodes that have announced a restart

    def is_going(self, number: int) -> bool:
        return number in self.going


NO_LOG = bytes(16)  # the own log of a node of which there is no copy


class _NoReplicas:
    """The side of a node that keeps no replicas."""

    def receive(self, link: Link, kind: FrameKind, content: bytes, now: int) -> None:
        raise PeerError("the leader was asked as if it were a follower")

    def turn(self, now: int) -> None: ...
    def tick(self, now: int) -> None: ...
    def closed(self, link: Link) -> None: ...


class SimDirectory:
    """The directories of a follower's replicas. In place of ReplicaDirectory."""

    def __init__(self, run: CopyingRun, disks: dict[bytes, SimDisk]) -> None:
        self.disks = disks
        self.diverged: list[SimDisk] = []
        self._run = run

    def found(self) -> list[tuple[bytes, int]]:
        manifests = {log_id: read_manifest(disk) for log_id, disk in self.disks.items()}
        return [(log_id, manifest.node) for log_id, manifest in manifests.items() if manifest is not None]

    def open(self, log_id: bytes) -> Disk:
        if log_id not in self.disks:
            self.disks[log_id] = self._run.new_disk()
        return self.disks[log_id]

    def keep_diverged(self, log_id: bytes) -> str:
        disk = self.disks.pop(log_id)
        self._run.judge_diverged(disk.kill())
        self.diverged.append(disk)
        return "aside"

    def remove(self, log_id: bytes) -> None:
        raise AssertionError("a replica is removed that is wanted")


class SimFollower:
    """One follower, through all its lives."""

    def __init__(self, run: CopyingRun, number: int) -> None:
        self.number = number
        self._run = run
        self.reported_positions = 0, 0  # written and durable, of the replica as it is now
        self.diverged = 0  # replicas that were kept as diverged copies
        self.start({})

    def start(self, disks: dict[bytes, SimDisk]) -> None:
        """Begin a life with what is on the disks."""
        self.directory = SimDirectory(self._run, disks)
        self.work = SteppedWork()
        self.replicas = Replicas(self.directory, self.work, lambda: self._run.now)
        self.copying = Copying(NO_LOG, self.replicas)

    @property
    def replica(self) -> Replica | None:
        """Return the replica of the node, if it is open."""
        return next((kept.replica for kept in self.replicas.kept.values()), None)

    @property
    def disk(self) -> SimDisk | None:
        """Return the directory of the replica of the node."""
        return next(iter(self.directory.disks.values()), None)

    def note_reported(self) -> None:
        for kept in self.replicas.kept.values():
            if len(self.directory.diverged) > self.diverged:
                self.diverged, self.reported_positions = len(self.directory.diverged), (0, 0)
            if kept.trusted is not None:  # a sync has failed
                self.reported_positions = self.reported_positions[1], self.reported_positions[1]
            if kept.reported[0] >= 0:
                assert kept.replica is None or kept.reported[0] <= kept.replica.end, (
                    "more is reported than the replica has"
                )
                self.reported_positions = (
                    max(self.reported_positions[0], kept.reported[0]),
                    max(self.reported_positions[1], kept.reported[1]),
                )

    def restart(self, is_cut: bool, random: Random) -> None:
        """Kill the process, or cut the power. AssertionError if something is lost that was reported."""
        self.note_reported()
        disks = {log_id: disk.crash(random) if is_cut else disk.kill() for log_id, disk in self.directory.disks.items()}
        diverged = self.directory.diverged
        least = self.reported_positions[1] if is_cut else self.reported_positions[0]
        self.start(disks)
        self.directory.diverged = diverged
        for log_id, disk in disks.items():
            copy = disk.kill()
            replica = Replica(copy, log_id, NODE)
            assert not replica.damage, f"a crash looks like damage: {replica.damage}"
            end = self._run.judge(copy, replica, is_cut)
            assert end > least or replica.end == least, (
                f"the replica ends at {replica.end}, but {least} was reported ({is_cut=})"
            )
        self.reported_positions = least, self.reported_positions[1]


@dataclass
class Pipe:
    """A connection of the node to a follower."""

    leader_link: Link
    follower_link: Link
    to_follower: bytearray = field(default_factory=bytearray)  # on the way
    to_leader_side: bytearray = field(default_factory=bytearray)
    _waiting: dict[int, bytearray] = field(default_factory=dict)  # what each end has said and the network has not taken

    def said(self, link: Link) -> bytearray:
        """The output of an end, from which the network takes some."""
        waiting = self._waiting.setdefault(id(link), bytearray())
        waiting += b"".join(link.drain())
        link.unsent = len(waiting)
        return waiting


class CopyingRun:
    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.now = SECOND
        self.archive = Archive()
        self.segment_size = random.choice((500, 2000, 10_000))
        self.tail = random.choice((10, 50, 1 << 30)), random.choice((1000, 20_000))
        self.budget = random.choice((2000, 1 << 30))
        self.durability = random.choice(list(Durability))
        self.limits = Limits(
            mem_queue_size=random.choice((0, 2, 1000)), dedup=DedupLimits(window=86_400 * SECOND), max_attempts={"u": 2}
        )
        self.has_faults = random.random() < 0.6
        self.restarts = random.choice((0.0, 0.01, 0.03))
        self.slowness = random.choice((0.1, 0.5, 0.9))  # how likely bytes stay on the way
        self.followers = [SimFollower(self, number) for number in FOLLOWERS]
        self.pipes: dict[int, Pipe] = {}
        self.undone: set[Epoch] = set()  # of lives that the disk has forgotten
        self.states = 0  # replicas whose state was compared
        disk = SimDisk(random, random.choice((512, 4096)))
        self._open(disk, Clock(1000 * SECOND, 1_800_000_000 * SECOND))

    def new_disk(self) -> SimDisk:
        disk = SimDisk(self.random, self.random.choice((512, 4096)))
        disk.capacity = CAPACITY
        return disk

    def _open(self, disk: SimDisk, clock: Clock) -> None:
        self.node = node = SimNode(
            disk, self.durability, clock, self.random, self.limits, self.segment_size, self.budget, *self.tail,
            entropy=self.random.randbytes,
        )  # fmt: skip
        self.archive.opened(node)
        self.users = Anybody(node, self.random)
        log = node.log
        self.source = LogSource(disk, log.writer, log.syncer, log.tidying)
        own = identity(NODE)
        self.own = NodeIdentity(NODE, own.incarnation, log.identity.log_id, own.epoch, own.address)
        self.cluster = _Members(self.own)
        self.work = SteppedWork()
        self.leader_side = LeaderSide(
            self.cluster, self.source, Copies(self.source.end), self.work, len(FOLLOWERS), 60 * SECOND
        )
        self.archive.after = self.leader_side
        self.source.tap(self.archive)
        self.copying = Copying(log.identity.log_id, _NoReplicas())
        self.copying.add(self.leader_side)

    # the run

    def run(self, steps: int) -> None:
        with small(self.random):
            for _ in range(steps):
                self._step()
            self._heal()

    def _step(self) -> None:
        random = self.random
        try:
            if random.random() < 0.6:
                self.node.turn(*self.users.commands())
                if random.random() < 0.3:
                    self.leader_side.request_sync(True)
            self._work_of_node()
        except PowerCut:
            self._restart_leader_side(is_cut=random.random() < 0.7)
        self._let_pass(random.choice((1, 20, 300, 2500)) * MS if random.random() < 0.3 else 0)
        for number in FOLLOWERS:
            if number not in self.pipes and random.random() < 0.2:
                self._connect(number)
        self._network(self.slowness)
        if random.random() < self.restarts:
            self._restart_leader_side(is_cut=random.random() < 0.7)
        if random.random() < self.restarts / 2:
            self._live_in_vain()
        for follower in self.followers:
            if random.random() < 0.02:
                self._disconnect(follower.number)
            if random.random() < self.restarts:
                self._restart_follower(follower, is_cut=random.random() < 0.7)
            if self.has_faults:
                self._spoil(follower)
        self.assert_bounded()

    def _work_of_node(self) -> None:
        random, node = self.random, self.node
        for _ in range(random.randrange(3)):
            node.syncer.step()
        if random.random() < 0.1:
            node.syncer.timer()
        if random.random() < 0.7:
            node.cache.step()
        if random.random() < 0.3:
            self._clean()
        if random.random() < 0.3:
            node.spare.step()
        while random.random() < 0.6 and self.work.step(random):
            pass
        if random.random() < 0.5:
            self.copying.tick(node.clock.now)
        self.copying.pump(node.clock.now)

    def _clean(self) -> None:
        job = self.node.cleaner.waits
        self.node.cleaner.step()
        if job is not None and not job.failure:
            self.archive.cleaned(self.node.disk, job.header)

    def _let_pass(self, ns: int) -> None:
        self.now += ns
        try:
            if ns:
                self.node.advance(ns)
        except PowerCut:
            self._restart_leader_side(is_cut=True)
        for follower in self.followers:
            self._do(follower, lambda follower=follower: follower.copying.tick(self.now))

    def _do(self, follower: SimFollower, deed: Callable[[], object]) -> None:
        """Let a follower do something, and the power fail meanwhile."""
        try:
            deed()
            follower.note_reported()
        except PowerCut:
            self._restart_follower(follower, is_cut=self.random.random() < 0.7)

    # the network

    def _connect(self, number: int) -> None:
        follower = self.followers[FOLLOWERS.index(number)]
        pipe = Pipe(proved_link(_Ear(self.copying), identity(number)), proved_link(_Ear(follower.copying), self.own))
        self.pipes[number] = pipe
        self.cluster.links[number] = pipe.leader_link

    def _disconnect(self, number: int) -> None:
        pipe = self.pipes.pop(number, None)
        if pipe is not None:
            del self.cluster.links[number]
            self.followers[FOLLOWERS.index(number)].copying.closed(pipe.follower_link)

    def _network(self, slowness: float) -> None:
        random = self.random
        for follower in self.followers:
            pipe = self.pipes.get(follower.number)
            if pipe is not None and random.random() >= slowness:
                _move(pipe.said(pipe.leader_link), pipe.to_follower, random)
                data = _taken(pipe.to_follower, random)
                self._do(follower, lambda pipe=pipe, data=data: pipe.follower_link.receive(data, self.now))
            if random.random() < 0.7:
                self._do(follower, lambda follower=follower: follower.copying.pump(self.now))
            while random.random() < 0.6 and self._works(follower):
                pass
            pipe = self.pipes.get(follower.number)
            if pipe is not None and random.random() >= slowness:
                _move(pipe.said(pipe.follower_link), pipe.to_leader_side, random)
                pipe.leader_link.receive(_taken(pipe.to_leader_side, random), self.node.clock.now)
                self._judge_counted()
            if pipe is not None:
                assert not pipe.leader_link.closing, f"the node closes the connection: {pipe.leader_link.closing}"
                assert not pipe.follower_link.closing, (
                    f"the follower closes the connection: {pipe.follower_link.closing}"
                )

    def _works(self, follower: SimFollower) -> bool:
        did = [False]

        def step() -> None:
            did[0] = follower.work.step(self.random)

        self._do(follower, step)
        return did[0]

    def _judge_counted(self) -> None:
        """All bytes that the node counts as copied are copied."""
        for number, one in self.leader_side.followers.items():
            reported_positions = self.followers[FOLLOWERS.index(number)].reported_positions
            if one.has_replica:
                assert one.written <= max(reported_positions) or one.durable <= reported_positions[1], (
                    f"node {number} counts for more than it told"
                )

    # restarts and faults

    def _restart_leader_side(self, is_cut: bool, disk: SimDisk | None = None) -> None:
        """Kill the node, or cut its power, and start it again. `disk`: what it finds in place of its own disk."""
        random, node = self.random, self.node
        for number in FOLLOWERS:
            self._disconnect(number)
        if disk is None:
            disk = node.disk.crash(random) if is_cut else node.disk.kill()
        away = random.choice((0, 1, 300, 5000)) * MS
        self._open(disk, node.clock.after(away, random.choice((5, 1000, 10**6)) * SECOND, rebooted=is_cut))

    def _live_in_vain(self) -> None:
        """A life of the leader that is undone: its disk is again what it was. The next epoch has the same number."""
        random = self.random
        disk = self.node.disk.kill()
        self._restart_leader_side(is_cut=False)
        self.undone.add(self.node.log.identity.epoch)
        self._connect_all()
        activity = random.choice((0.1, 0.9))
        for _ in range(15):
            if random.random() < activity:
                self.node.turn(*self.users.commands())
            self.copying.tick(self.node.clock.now)
            self._network(0)
            self._connect_all()
        self._restart_leader_side(is_cut=True, disk=disk)
        for _ in range(random.choice((0, 20))):  # it writes more than what was undone before any node learns of it
            self.node.turn(*self.users.commands())

    def _connect_all(self) -> None:
        for number in FOLLOWERS:
            if number not in self.pipes:
                self._connect(number)

    def _restart_follower(self, follower: SimFollower, is_cut: bool) -> None:
        self._disconnect(follower.number)
        follower.restart(is_cut, self.random)

    def _spoil(self, follower: SimFollower) -> None:
        """Something happens to a follower's disk, or is repaired."""
        random, disk = self.random, follower.disk
        if disk is None:
            return
        if random.random() < 0.01:
            disk.fail(
                random.choice(("sync", "append", "create", "remove", "rename", "sync_directory", "open")), 1, errno.EIO
            )
        if random.random() < 0.005:
            disk.others = CAPACITY // 10 * 9 if random.random() < 0.5 else disk.free() - random.randrange(2000)
        elif random.random() < 0.05:
            disk.others = 0
        if random.random() < 0.01:
            disk.cut_in = random.randrange(5)

    # what must hold

    def judge(self, disk: SimDisk, replica: Replica, is_cut: bool) -> int:
        """Assert that a replica that was opened is one. Returns where the first record ends that it does not have."""
        newest = judge_bytes(self.archive, disk, replica.manifest, replica.end)
        if is_cut or self.random.random() < 0.3:
            self.states += 1
            judge_state(self.archive, disk, replica.manifest, replica.end)
        return self.archive.record_end(newest[0], replica.end) if newest else 0

    def judge_diverged(self, disk: SimDisk) -> None:
        """Assert that the log does not hold all that a replica holds which is kept as a diverged copy."""
        manifest = read_manifest(disk)
        assert manifest is not None
        assert manifest.files, "an empty replica is kept as a diverged copy"
        content = disk.content(manifest.files[-1].name)
        header = decode_header(content)
        key = header.base, header.epoch
        if header.epoch in [epoch for epoch, _ in self.node.log.writer.all_epochs()]:
            assert not self.archive.is_part(key, len(content)), "a replica diverged of which the log lost nothing"
        else:
            assert header.epoch in self.undone, "the log has forgotten an epoch in which a replica ends"

    def assert_bounded(self) -> None:
        """Assert that nothing piles up."""
        for pipe in self.pipes.values():
            assert pipe.leader_link.backlog <= MOST_OUTPUT, f"{pipe.leader_link.backlog} bytes wait for a follower"
            assert pipe.follower_link.backlog <= MOST_OUTPUT, f"{pipe.follower_link.backlog} bytes wait for the node"
        for follower in self.followers:
            replica = follower.replica
            if replica is not None and follower.disk is not None:
                assert len(replica._unsynced) <= 200, "files are never synced"

    # the end

    def _heal(self) -> None:
        """Everything works from now on: soon all followers have everything."""
        random = self.random
        if self.source.is_broken:
            self._restart_leader_side(is_cut=False)
        self.node.disk.repair()
        while self.users._consumers:
            self.node.turn(self.users.leave)  # nothing times out from now on, so the log comes to rest
        for _ in range(HEALED_WITHIN + 2 * self.source.end // leader_module.MOST_BEHIND):
            for follower in self.followers:
                if follower.disk is not None:
                    follower.disk.repair()
                    follower.disk.others, follower.disk.cut_in = 0, None
            self._connect_all()
            self._let_pass(500 * MS)
            self._work_of_node()
            while self.node.syncer.job is not None:
                self.node.syncer.step()
            self.node.log.timer()
            self.node.turn()
            while self.work.step(random):
                pass
            for _ in range(20):
                self._network(0)
                self.copying.pump(self.node.clock.now)
                while self.work.step(random):
                    pass
            if self._is_whole():
                break
        else:
            raise AssertionError(
                f"not in sync: {self.leader_side.states()}, {[one.replicas.states() for one in self.followers]}"
            )
        for follower in self.followers:
            self._judge_whole(follower)

    def _is_whole(self) -> bool:
        end = self.source.end
        leader_link = self.leader_side.followers
        return self.leader_side.in_sync.named == set(FOLLOWERS) <= leader_link.keys() and all(
            leader_link[follower.number].durable == end and self._has_segments_of_node(follower)
            for follower in self.followers
        )

    def _has_segments_of_node(self, follower: SimFollower) -> bool:
        replica = follower.replica
        return replica is not None and [file.base for file in replica.manifest.files] == list(
            dict.fromkeys(self.source.bases())
        )

    def _judge_whole(self, follower: SimFollower) -> None:
        replica, disk = follower.replica, follower.disk
        assert replica is not None
        assert disk is not None
        assert disk.open_files <= 1, f"{disk.open_files} files are open"
        assert disk.names() == sorted(["manifest.json", *(file.name for file in replica.manifest.files)])
        judge_state(self.archive, disk, replica.manifest, replica.end)
        follower.restart(is_cut=True, random=self.random)
        again = Replica(disk, replica.manifest.log_id, NODE)
        assert again.end == self.source.end


def _move(output: bytearray, wire: bytearray, random: Random) -> None:
    """Take bytes that a node sends."""
    size = len(output) if random.random() < 0.5 else random.randrange(len(output) + 1)
    wire += output[:size]
    del output[:size]


def _taken(wire: bytearray, random: Random) -> bytes:
    size = len(wire) if random.random() < 0.5 else random.randrange(len(wire) + 1)
    data = bytes(wire[:size])
    del wire[:size]
    return data
