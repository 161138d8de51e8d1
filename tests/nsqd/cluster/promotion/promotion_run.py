"""Runs of copying in which copies are taken over: whenever a replica is promoted, the new leader leads the log as it was.

A replica as it is at some moment, after a kill or a power cut, is promoted; on the way the new leader is killed, too. Then its
broker must be what a start of the log gives that ends at the same place.
"""

from dataclasses import dataclass
from random import Random

from nsqd.cluster.promotion.promoted_log import SERVING, PromotionHost
from nsqd.cluster.promotion.promotions import Promotions
from nsqd.cluster.replication import leader as leader_module
from nsqd.cluster.replication.copying import Copying
from nsqd.cluster.replication.leader import LeaderSide
from nsqd.cluster.replication.manifest import ReplicaDisk, read_manifest
from nsqd.cluster.replication.replica import Replica
from nsqd.cluster.replication.replica_to_log import name_replica_files
from nsqd.cluster.replication.replicas import Replicas
from nsqd.core.broker import Broker
from nsqd.core.limits import Limits
from nsqd.core.message.ids import IdSource
from nsqd.storage.log.checkpoint import Tail
from nsqd.storage.log.copying import LogSource
from nsqd.storage.log.disk import Disk
from nsqd.storage.log.epochs import Epoch
from nsqd.storage.log.opening import Extend, LogOptions, OpenLog, Promoted, Simulated, open_log
from nsqd.storage.log.reading import LogReading
from nsqd.storage.log.records import HEADER_SIZE
from nsqd.storage.log.sources import LiveSource
from nsqd.storage.log.store import LogStore
from shared.topic_config import Durability
from tests.nsqd.cluster.replication.archive import Key
from tests.nsqd.cluster.replication.copied import _state, judge_bytes
from tests.nsqd.cluster.replication.copying_run import (
    NO_LOG,
    CopyingRun,
    SteppedWork,
    _Ear,
    _Members,
    _NoReplicas,
    proved_link,
    small,
)
from tests.nsqd.cluster.wire.identities import node as identity
from tests.nsqd.core.node import MS, SECOND
from tests.nsqd.storage.normal import NormalTopic, normal
from tests.nsqd.storage.sim_disk import PowerCut, SimDisk
from tests.nsqd.storage.sim_node import NODE, Clock, SimNode, SteppedCache, SteppedCleaner, SteppedSpare, SteppedSyncer
from tests.nsqd.storage.small_log import new_disk
from tests.nsqd.storage.test_one_state_machine import replay, written_by

NEW_LEADER, NUMBER = 1, 2  # nodes: the one that takes the log over, and a third one with a replica
MOST_STEPS = 2000
MOST_KILLS = 30


class Places:
    """The directories of one log at a node: a replica, or a promoted log. Implements both protocols of directories."""

    def __init__(self, log_id: bytes, replica: SimDisk) -> None:
        self.log_id = log_id
        self.replica: SimDisk | None = replica
        self.promoted: SimDisk | None = None

    @property
    def disk(self) -> SimDisk:
        """Return the one of the two that there is."""
        assert (self.replica is None) != (self.promoted is None), "the log is there twice, or not at all"
        disk = self.replica or self.promoted
        assert disk is not None
        return disk

    def restarted(self, is_cut: bool, random: Random) -> None:
        """Have on the disk what is there after a kill, or a power cut."""
        disk = self.disk.crash(random) if is_cut else self.disk.kill()
        if self.replica is not None:
            self.replica = disk
        else:
            self.promoted = disk

    def found(self) -> list[tuple[bytes, int]]:
        return [(self.log_id, NODE)] if self.replica is not None else []

    def open(self, log_id: bytes) -> Disk:
        assert log_id == self.log_id
        assert self.replica is not None
        return self.replica

    def keep_diverged(self, log_id: bytes) -> str:
        raise AssertionError("nothing parts here")

    def remove(self, log_id: bytes) -> None:
        raise AssertionError("no part drops the replica")


class PromotedPlaces:
    """The promoted logs among Places. In place of PromotedDirectory."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self.aside: list[SimDisk] = []

    def found(self) -> list[bytes]:
        return [self._places.log_id] if self._places.promoted is not None else []

    def move_replica(self, log_id: bytes) -> Disk:
        places, disk = self._places, self._places.disk
        disk.act("take")
        places.promoted, places.replica = places.replica, None
        disk.act("taken")
        return disk

    def put_back(self, log_id: bytes) -> int | None:
        places, disk = self._places, self._places.disk
        manifest = name_replica_files(disk)
        if manifest is None:
            return None
        disk.act("put back")
        places.replica, places.promoted = places.promoted, None
        return manifest.node

    def open(self, log_id: bytes) -> Disk:
        assert self._places.promoted is not None
        return self._places.promoted

    def keep_diverged(self, log_id: bytes) -> str:
        self.aside.append(self._places.disk)
        self._places.promoted = None
        return "aside"

    def remove(self, log_id: bytes) -> None:
        if log_id == self._places.log_id:
            self._places.promoted = None


@dataclass
class NewLeader:
    """One life of a node that takes a log over."""

    places: Places
    clock: Clock
    random: Random
    limits: Limits

    def __post_init__(self) -> None:
        self.work = SteppedWork()
        self.announced: list[Epoch] = []
        self.replicas = Replicas(self.places, self.work, lambda: self.clock.now)
        self.own_cache = SteppedCache(self.places.disk, None, 1 << 20, lambda: None)
        host = PromotionHost(
            open=self._open, make_broker=self._broker, copy=lambda opened: None, end_copying=lambda log_id: None,
            clocks=lambda: (self.clock.now, self.clock.wall), cache=self.own_cache, budget=1 << 20, node=NEW_LEADER,
            announce=self._announce, resume=lambda log_id: None, step_down=lambda log_id: None,
            attach=lambda broker, deletions: lambda: False, detach=lambda broker: lambda: False, watch=lambda: None,
            noted=lambda log_id: None, is_closed=lambda log_id: False, failed=lambda log_id, why: None,
            is_lost=lambda *log: False, repair=lambda disk, reading: False,
        )  # fmt: skip
        self.directory = PromotedPlaces(self.places)
        self.promotions = Promotions(self.directory, self.replicas, self.work, host)

    def _open(self, disk: Disk, promoted: Promoted, extend: Extend | None) -> OpenLog:
        parts = Simulated(
            self.clock.clocks(), 4096, SteppedSyncer, SteppedCache, SteppedCleaner, SteppedSpare, Tail(),
            self.random.randbytes,
        )  # fmt: skip
        options = LogOptions(NEW_LEADER, Durability.INTERVAL, 5, 1 << 20)
        opened = open_log(disk, options, lambda: None, parts, extend, promoted)
        assert isinstance(opened.syncer, SteppedSyncer)
        opened.syncer.random = self.random
        return opened

    def _broker(self, opened: OpenLog) -> Broker:
        ids = IdSource(opened.identity.node, opened.start_results.lease, lambda ceiling: True)
        return Broker(self.limits, opened.store, ids, self.random.randrange)

    def _announce(self, log_id: bytes, epoch: Epoch) -> None:
        disk = self.places.disk.crash(Random(1))  # what survives a power cut at this moment
        _, epochs = epochs_on_disk(disk)
        assert epoch in epochs, "an epoch is announced that is not durable"
        self.announced.append(epoch)

    def run(self) -> None:
        while self.work.step(self.random):
            pass

    def tick(self) -> None:
        """Do the turns of the promoted logs, as the reactor does, and then what is due."""
        for led in self.promotions.logs.values():
            if led.state == SERVING and led.broker is not None:
                led.broker.begin(self.clock.now, self.clock.wall)
                led.broker.commit()
        self.promotions.tick(self.clock.now)


def epochs_on_disk(disk: SimDisk) -> tuple[int, list[Epoch]]:
    """Return the end of a log, and its epochs."""
    reading = LogReading(disk)
    return reading.log_records.end, [epoch for epoch, _ in reading.replay.epochs]


def reported(broker: Broker, store: LogStore) -> dict[int, NormalTopic]:
    """Return the state of each topic of a broker."""
    loaded = replay(written_by(LiveSource(broker, store)))
    loaded.conclude()
    now = broker.now + store.clock_offset
    return {number: normal(state, loaded.sequences[number], now, False) for number, state in loaded.topics.items()}


def _end(newest: tuple[Key, int]) -> int:
    """Return the position at which a replica ends, by its newest segment and that one's size."""
    return newest[0][0] + newest[1] - HEADER_SIZE


class Third:
    """Another node with a replica of a promoted log, and its connection to the new leader."""

    def __init__(self, log_id: bytes, disk: SimDisk, random: Random) -> None:
        self.log_id, self.disk, self.random = log_id, disk, random
        self.aside: list[SimDisk] = []
        self.now = 0
        self.work = SteppedWork()
        self.replicas = Replicas(self, self.work, lambda: self.now)
        self.replicas.may_write = lambda number, log_id: number == NEW_LEADER
        self.copying = Copying(NO_LOG, self.replicas)

    def follow(self, opened: OpenLog) -> LeaderSide:
        """Connect to the leader of the log. Returns the leader's side."""
        members = _Members(identity(NEW_LEADER))
        members.members = [members.own, identity(NUMBER)]
        source = LogSource(opened.disk, opened.writer, opened.syncer, opened.tidying)
        self.owner_work = SteppedWork()
        cluster, copies = members, opened.store.copies
        leader_side = LeaderSide(cluster, source, copies, self.owner_work, 1, 60 * SECOND, 0)
        source.tap(leader_side)
        self.leader = Copying(NO_LOG, _NoReplicas())
        self.leader.leader_sides = {self.log_id: leader_side}
        self.leader_link = proved_link(_Ear(self.leader), identity(NUMBER))
        self.follower_link = proved_link(_Ear(self.copying), identity(NEW_LEADER))
        members.links[NUMBER] = self.leader_link
        return leader_side

    def step(self, now: int) -> None:
        self.now = now
        self.replicas.tick(now)
        for _ in range(5):
            self.follower_link.receive(b"".join(self.leader_link.drain()), now)
            self.copying.pump(now)
            while self.work.step(self.random):
                self.copying.pump(now)
            self.leader_link.receive(b"".join(self.follower_link.drain()), now)
            while self.owner_work.step(self.random):
                self.leader.pump(now)
            assert not self.leader_link.closing, self.leader_link.closing
            assert not self.follower_link.closing, self.follower_link.closing

    @property
    def replica(self) -> Replica:
        replica = self.replicas.kept[self.log_id].replica
        assert replica is not None
        return replica

    @property
    def end(self) -> int:
        """Return how far the replica is complete."""
        kept = self.replicas.kept.get(self.log_id)
        return (
            kept.replica.end if kept is not None and kept.replica is not None and not kept.replica.is_resyncing else -1
        )

    # nsqd.cluster.replication.replicas.Directory

    def found(self) -> list[tuple[bytes, int]]:
        return [(self.log_id, NODE)]

    def open(self, log_id: bytes) -> Disk:
        return self.disk

    def keep_diverged(self, log_id: bytes) -> str:
        self.aside.append(self.disk)
        self.disk = new_disk()
        return "aside"

    def remove(self, log_id: bytes) -> None:
        raise AssertionError("no part drops the replica")


class PromotingRun(CopyingRun):
    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.slowness = self.random.choice((0.0, 0.1, 0.3))  # so that there are replicas
        self.promoted = 0  # logs that were taken over and compared
        self.kills = 0  # of new leaders
        self.copied = 0  # logs that a third node has copied from the new leader
        self.diverged = 0  # replicas of third nodes that were kept as diverged copies then

    def run(self, steps: int) -> None:
        """Let anything happen, and take a replica over now and then. AssertionError if something is wrong."""
        with small(self.random):
            # so that replicas are complete before long, though the log has large checkpoints; `small` sets it back
            leader_module.CHUNK = leader_module.MOST_BEHIND = 20_000
            for step in range(steps):
                self._step()
                if step % 40 == 39:
                    for _ in range(self.random.choice((0, 5, 30))):  # the followers keep up for a while
                        self._copy_batch()
                    self._promote_all()
            self._heal()
            self._promote_all()
        assert self.promoted

    def _promote_all(self) -> None:
        for follower in self.followers:
            if follower.disk is not None:
                self._promote(follower.disk)

    def _copy_batch(self) -> None:
        self._connect_all()
        self._let_pass(300 * MS)
        self._work_of_node()
        self.copying.tick(self.node.clock.now)
        self._network(0)

    def _promote(self, disk: SimDisk) -> None:
        """Take over what a follower has on its disk at this moment."""
        random, log_id = self.random, self.own.log_id
        places = Places(log_id, disk.crash(random) if random.random() < 0.5 else disk.kill())
        places.disk.repair()
        places.disk.capacity = None
        is_synced = random.random() < 0.5
        if is_synced:
            Replica(places.disk, log_id, NODE).close()
        if self._end_of(places) is None:
            return
        clock = self.node.clock.after(random.choice((0, 100, 5000)) * MS, 1000 * SECOND, rebooted=False)
        number = 10_000
        new_leader, newest = self._promoted(places, clock, number, is_synced)
        if new_leader is None:
            return
        cut, end = self.archive.cut(*newest), newest[0][0] + newest[1] - HEADER_SIZE
        log_opened = new_leader.promotions.logs[log_id].log
        broker = new_leader.promotions.logs[log_id].broker
        assert log_opened is not None
        assert broker is not None
        epoch = log_opened.identity.epoch
        assert epoch.number >= number
        assert (epoch.node, log_opened.identity.node) == (NEW_LEADER, NODE)
        assert new_leader.announced == [epoch]
        broker.check()
        clock_of_cut = Clock(clock.now, clock.wall, clock.boots)
        clock_of_cut.boot = clock.boot
        known = SimNode(cut.kill(), self.durability, clock_of_cut, random, self.limits)
        expected = reported(known.broker, known.store)
        assert reported(broker, log_opened.store) == expected, "the new leader lacks unfinished messages of the log"
        new_leader.promotions.close()
        stop, _ = epochs_on_disk(places.disk.kill())
        found, frames = _state(places.disk.kill(), stop)[0][1], _state(cut, end)[0][1]
        assert found == frames, "messages cannot be read from the promoted log"
        places.restarted(random.random() < 0.5, random)
        again = self._reopened(places, clock)
        assert reported(again[0], again[1].store) == expected, "the new leader lacks them after a restart"
        assert again[1].identity.epoch > epoch
        self.promoted += 1
        others = [one.disk for one in self.followers if one.disk is not None and one.disk is not disk]
        if others and not again[1].writer.durable.broken:
            third = others[0].crash(random) if random.random() < 0.5 else others[0].kill()
            third.repair()
            third.capacity = None
            self._copy_on(places, *again, third)

    def _copy_on(self, places: Places, broker: Broker, opened: OpenLog, disk: SimDisk) -> None:
        """Let a third node copy the log from its new leader, while that records what happens. It must get all of it."""
        random, log_id = self.random, opened.identity.log_id
        third = Third(log_id, disk, random)
        leader, log_of_leader = third.follow(opened), opened.writer
        for step in range(MOST_STEPS):
            broker.begin(self.node.clock.now + step * SECOND, self.node.clock.wall + step * SECOND)
            if step < 20 and random.random() < 0.3:
                self._record_something(broker)
            broker.serve()
            broker.tick()
            broker.commit()
            assert isinstance(opened.syncer, SteppedSyncer)
            opened.syncer.step()
            leader.tick(self.node.clock.now + step * SECOND)
            third.step(self.node.clock.now + step * SECOND)
            if step > 20 and third.end == log_of_leader.written.position:
                break
        else:
            raise AssertionError(f"the third node does not get the log: {leader.states()}, {third.replicas.states()}")
        replica = third.replica
        end = log_of_leader.written.position
        found, _ = _state(ReplicaDisk(third.disk.kill(), replica.manifest), end)
        expected, _ = _state(places.disk.kill(), end)
        assert found == expected, "the replica of a third node is not the log"
        assert replica.manifest.epochs[-1][0] == opened.identity.epoch
        self.copied += 1
        self.diverged += len(third.aside)

    def _record_something(self, broker: Broker) -> None:
        random = self.random
        topics = [topic for topic in broker.topics.values() if topic.channels]
        if not topics:
            return
        topic = random.choice(topics)
        channel = random.choice(list(topic.channels.values()))
        if random.random() < 0.5:
            channel.empty()
        else:
            broker.pause(channel, not channel.paused)

    def _end_of(self, places: Places) -> tuple[Key, int] | None:
        """Return the newest segment of the replica, with its size; None: there is nothing in the replica."""
        copy = places.disk.kill()
        replica = Replica(copy, places.log_id, NODE)
        return judge_bytes(self.archive, copy, replica.manifest, replica.end)

    def _promoted(
        self, places: Places, clock: Clock, number: int, is_synced: bool
    ) -> tuple[NewLeader | None, tuple[Key, int]]:
        """Return the life of the new leader that served, with the newest segment of the replica, and its size.

        Those before were killed, or their power was cut, on the way. `is_synced`: then the replica loses nothing.
        """
        random = self.random
        newest = self._end_of(places)
        assert newest is not None
        for left in reversed(range(random.choice((0, 3, MOST_KILLS)) + 1)):
            new_leader = NewLeader(places, clock, random, self.limits)
            disk = places.disk
            if left:
                disk.cut_in = random.randrange(40)
            try:
                is_durable = places.promoted is not None and read_manifest(places.promoted) is None
                new_leader.promotions.reopen()
                new_leader.run()
                assert bool(new_leader.announced) == is_durable, "an election has outlived the run of its node"
                if places.replica is not None:
                    new_leader.promotions.won(places.log_id, number)
                    new_leader.run()
                assert new_leader.promotions.logs[places.log_id].state == SERVING, new_leader.promotions.figures()
                disk.cut_in = None
                return new_leader, newest
            except PowerCut:
                self.kills += 1
                places.restarted(random.random() < 0.7, random)
                if places.replica is not None:
                    left_over = self._end_of(places)
                    if left_over is None:
                        assert not is_synced or _end(newest) == 0, "a kill has spoiled the replica"
                        return None, newest
                    # a last segment without a record may go
                    assert _end(left_over) == _end(newest) or not is_synced, "a kill has spoiled the replica"
                    newest = left_over
        raise AssertionError("the last life is not killed")

    def _reopened(self, places: Places, clock: Clock) -> tuple[Broker, OpenLog]:
        new_leader = NewLeader(places, clock, self.random, self.limits)
        new_leader.promotions.reopen()
        new_leader.run()
        led = new_leader.promotions.logs[places.log_id]
        assert led.state == SERVING, led.failure
        assert led.broker is not None
        assert led.log is not None
        return led.broker, led.log
