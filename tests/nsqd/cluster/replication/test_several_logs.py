"""Two nodes that copy several logs over one connection: each its own, and one of them that of a node that is lost."""

from random import Random

import pytest

from nsqd.cluster.replication import stream
from nsqd.cluster.replication.copying import Copying
from nsqd.cluster.replication.leader import LeaderSide
from nsqd.cluster.replication.manifest import read_manifest
from nsqd.cluster.replication.replica import Replica
from nsqd.cluster.replication.replicas import Replicas
from nsqd.cluster.wire.frames import AFTER_PROOF, FrameKind, FrameReader, PeerError
from nsqd.cluster.wire.link import Link
from nsqd.cluster.wire.node_identity import NodeIdentity
from nsqd.core.limits import Limits
from nsqd.storage.log.copying import LogSource
from nsqd.storage.log.disk import Disk
from nsqd.storage.log.followers import Followers
from nsqd.storage.log.opening import OpenLog
from shared.topic_config import Durability
from tests.nsqd.cluster.promotion.new_leader import NewLeader, Places
from tests.nsqd.cluster.replication.sides import FakeMembers, FrameSink, SteppedWork, proved_link
from tests.nsqd.cluster.replication.test_replica_to_log import log_with_checkpoints, replica_of
from tests.nsqd.cluster.wire.identities import node as identity
from tests.nsqd.core.node import SECOND
from tests.nsqd.storage.sim_disk import SimDisk
from tests.nsqd.storage.sim_node import NODE, Clock, SimNode
from tests.nsqd.storage.small_log import new_disk

NEW_LEADER, THIRD = 1, 2
WALL = 1_800_000_100 * SECOND


class Directories:
    """The directories of a node's replicas. In place of ReplicaDirectory."""

    def __init__(self, disks: dict[bytes, SimDisk]) -> None:
        self.disks = disks
        self.aside: list[SimDisk] = []

    def found(self) -> list[tuple[bytes, int]]:
        return [(log_id, NODE) for log_id in self.disks]

    def open(self, log_id: bytes) -> Disk:
        return self.disks.setdefault(log_id, new_disk())

    def keep_diverged(self, log_id: bytes) -> str:
        self.aside.append(self.disks.pop(log_id))
        return "aside"

    def remove(self, log_id: bytes) -> None:
        raise AssertionError("no part drops a replica")


class Side:
    """A node that publishes into a log of its own and keeps replicas."""

    def __init__(self, number: int, other: int, replicas: Replicas, work: SteppedWork) -> None:
        clock = Clock(1000 * SECOND, WALL)
        self.node = SimNode(new_disk(), Durability.ALWAYS, clock, Random(number), number=number)
        log, own = self.node.log, identity(number)
        self.own = NodeIdentity(number, own.incarnation, log.identity.log_id, own.epoch, own.address, ids=())
        self.members = FakeMembers(self.own)
        self.members.members = [self.own, identity(other)]
        self.replicas, self.work = replicas, work
        self.copying = Copying(self.own.log_id, replicas)
        self.copying.add(self.leader_side_of(log))
        self.sent: list[tuple[bytes, FrameKind, bytes]] = []  # frames, each with the log that it is about

    def leader_side_of(self, log: OpenLog) -> LeaderSide:
        source = LogSource(log.disk, log.writer, log.syncer, log.tidying)
        cluster = self.members
        leader_side = LeaderSide(cluster, source, log.store.copies, self.work, 1, 60 * SECOND, 0)
        source.tap(leader_side.sender)
        return leader_side

    def connect(self, peer: NodeIdentity) -> None:
        self.members.members = [self.own, peer]
        self.link = self.members.links[peer.number] = proved_link(FrameSink(self.copying), peer)
        self.about = self.own.log_id  # the log that this node's frames are about
        self.reader = FrameReader()
        self.reader.limit = AFTER_PROOF

    def say(self, to: Link, now: int) -> bool:
        """Send everything, and note it. Returns False if there was nothing."""
        data = b"".join(self.link.drain())
        for kind, content in self.reader.feed(data):
            if kind is FrameKind.LOG:
                self.about = content
            else:
                self.sent.append((self.about, kind, content))
        to.receive(data, now)
        assert not to.closing, to.closing
        return bool(data)


class Pair:
    """The new leader of a log, and a third node with a replica of it."""

    def __init__(self, ahead: int = 0) -> None:
        """`ahead`: messages that the third node has more than the new leader; negative: fewer."""
        log = log_with_checkpoints()
        log.log.writer.state_followers(Followers((NEW_LEADER, THIRD), 2, 3))
        log.publish(1)
        self.log_id = log.log.identity.log_id
        first = replica_of(log)
        for _ in range(abs(ahead)):
            log.publish(1)
        last = replica_of(log)
        (promoted, _), (third, self.third) = (first, last) if ahead > 0 else (last, first)
        clock = Clock(5 * SECOND, WALL)
        self.new_leader = NewLeader(Places(self.log_id, promoted), clock, Random(1), Limits())
        self.directories = Directories({self.log_id: third})
        work = SteppedWork()
        self.a = Side(NEW_LEADER, THIRD, self.new_leader.replicas, self.new_leader.work)
        self.b = Side(THIRD, NEW_LEADER, Replicas(self.directories, work, lambda: self.now, self.leads), work)
        self.now = SECOND
        self.leaders = {self.a.own.log_id: NEW_LEADER, self.b.own.log_id: THIRD, self.log_id: NEW_LEADER}
        self.a.replicas.may_write = self.leads
        # their own logs have room in directories of their own
        self.a_disks = Directories({})
        self.a.replicas._directory = self.a_disks
        self.new_leader.replicas.kept[self.log_id].disk = promoted
        self.new_leader.promotions.host.copy = lambda opened: self.a.copying.add(self.a.leader_side_of(opened))
        self.a.connect(self.b.own)
        self.b.connect(self.a.own)
        self.new_leader.promotions.won(self.log_id, 70)
        self.new_leader.run()
        opened = self.new_leader.promotions.logs[self.log_id].log
        self.opened = opened

    def leads(self, number: int, log_id: bytes) -> bool:
        return self.leaders[log_id] == number

    def run(self) -> None:
        random = Random(3)
        for _ in range(40):
            self.now += SECOND // 4
            for side in (self.a, self.b):
                side.node.turn()
                side.node.syncer.step()
                side.copying.tick(self.now)
            led = self.new_leader.promotions.logs[self.log_id]
            if led.broker is not None:
                led.broker.begin(self.now, WALL)
                led.broker.commit()
            self.opened.syncer.now()
            for _ in range(20):
                for side, other in ((self.a, self.b), (self.b, self.a)):
                    side.say(other.link, self.now)
                    other.copying.pump(self.now)
                    while other.work.step(random):
                        other.copying.pump(self.now)

    @property
    def replica(self) -> Replica:
        return self.b.replicas.kept[self.log_id].replica

    def kinds(self, side: Side, log_id: bytes) -> list[FrameKind]:
        return [kind for log, kind, _ in side.sent if log == log_id]


def settled(ahead: int = 0) -> Pair:
    pair = Pair(ahead)
    pair.run()
    return pair


@pytest.mark.parametrize("ahead", [0, -3])
def test_a_replica_goes_on_with_the_new_leader_of_its_log_from_where_it_was(ahead: int) -> None:
    pair = settled(ahead)
    sent = pair.kinds(pair.a, pair.log_id)
    assert FrameKind.RESUME in sent
    assert FrameKind.RESYNC not in sent
    begins = [
        stream.unpack_bytes(content)[:2]
        for log, kind, content in pair.a.sent
        if (log, kind) == (pair.log_id, FrameKind.BYTES)
    ]
    assert min(base + at - 64 for base, at in begins) >= pair.third.mark, "bytes are sent again"
    replica = pair.replica
    assert replica.end == pair.opened.writer.written.position
    assert replica.manifest.epochs[-1][0] == pair.opened.identity.epoch
    assert (replica.manifest.node, pair.b.replicas.kept[pair.log_id].node) == (NODE, NODE)
    assert not pair.directories.aside


def test_own_logs_are_copied_over_the_same_connection() -> None:
    pair = Pair()
    pair.b.node.publish(5, "u")
    pair.run()
    pair.a.node.publish(5, "u")
    pair.run()
    for side, log_id, kept in ((pair.b, pair.a.own.log_id, pair.a.node), (pair.a, pair.b.own.log_id, pair.b.node)):
        replica = side.replicas.kept[log_id].replica
        assert (replica.end, replica.manifest.log_id) == (kept.log.writer.written.position, log_id)
    assert pair.log_id not in pair.a.replicas.kept


def test_the_new_leader_is_no_follower_of_the_log_any_more_and_says_who_is() -> None:
    pair = Pair()
    assert pair.opened.writer.followers.numbers == (NEW_LEADER, THIRD)
    pair.run()
    assert pair.opened.writer.followers == Followers((THIRD,), 2, 3)
    leader_side = pair.a.copying.leader_sides[pair.log_id]
    assert leader_side.in_sync.named == leader_side.in_sync.counting == {THIRD}


def test_a_replica_that_has_more_than_the_new_leader_is_kept_as_a_diverged_copy() -> None:
    pair = settled(ahead=3)
    (aside,) = pair.directories.aside
    manifest = read_manifest(aside)
    assert manifest.mark == pair.third.mark
    replica = pair.replica
    assert replica.end == pair.opened.writer.written.position
    assert pair.b.replicas.kept[pair.log_id].node == NODE, "the replica was begun by another node than the log's"


def test_a_log_that_is_let_go_is_not_copied_any_more() -> None:
    pair = Pair()
    pair.new_leader.promotions.host.end_copying = pair.a.copying.remove
    pair.run()
    pair.new_leader.promotions.lose(pair.log_id)
    assert list(pair.a.copying.leader_sides) == [pair.a.own.log_id]
    pair.a.copying.receive(pair.a.link, FrameKind.COPIED, stream.pack_copied(1 << 40, 1 << 40)[5:], pair.now)
    pair.new_leader.run()
    assert pair.log_id not in pair.a.replicas.promoted


def test_frames_about_a_log_that_this_node_does_not_own_are_ignored() -> None:
    pair = settled()
    pair.a.copying.receive(pair.a.link, FrameKind.LOG, bytes(16), 0)
    pair.a.copying.receive(pair.a.link, FrameKind.COPIED, b"wrong", 0)
    pair.a.copying.receive(pair.a.link, FrameKind.LOG, pair.log_id, 0)
    with pytest.raises(PeerError):
        pair.a.copying.receive(pair.a.link, FrameKind.COPIED, b"wrong", 0)


def test_a_node_that_does_not_know_the_new_leader_yet_is_asked_again() -> None:
    pair = Pair()
    leads, pair.b.replicas.may_write = pair.b.replicas.may_write, lambda number, log_id: log_id != pair.log_id
    pair.run()
    leader_side = pair.a.copying.leader_sides[pair.log_id]
    assert [(one["state"], one["failure"]) for one in leader_side.states()] == [("failed", stream.NOT_LEADER)]
    pair.b.replicas.may_write = leads
    pair.run()
    assert [one["state"] for one in leader_side.states()] == ["in sync"]
