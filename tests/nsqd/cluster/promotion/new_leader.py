"""A node that promotes a replica of a log: its directories on a simulated disk, and one life of it, step by step."""

from dataclasses import dataclass
from random import Random

from nsqd.cluster.promotion.promoted_log import SERVING, PromotionHost
from nsqd.cluster.promotion.promotions import Promotions
from nsqd.cluster.replication.replica_to_log import name_replica_files
from nsqd.cluster.replication.replicas import Replicas
from nsqd.core.broker import Broker
from nsqd.core.limits import Limits
from nsqd.core.message.ids import IdSource
from nsqd.storage.log.checkpoint import Tail
from nsqd.storage.log.disk import Disk
from nsqd.storage.log.epochs import Epoch
from nsqd.storage.log.opening import Extend, LogOptions, OpenLog, Promoted, Simulated, open_log
from nsqd.storage.log.reading import LogReading
from shared.topic_config import Durability
from tests.nsqd.cluster.replication.sides import SteppedWork
from tests.nsqd.storage.sim_disk import SimDisk
from tests.nsqd.storage.sim_node import NODE, Clock, SteppedCache, SteppedCleaner, SteppedSpare, SteppedSyncer

NEW_LEADER = 1  # number of the node


class Places:
    """The directories of one log at a node: a replica, or a promoted log. Implements both protocols of directories."""

    def __init__(self, log_id: bytes, replica: SimDisk) -> None:
        self.log_id = log_id
        self.replica: SimDisk | None = replica
        self.promoted: SimDisk | None = None

    @property
    def disk(self) -> SimDisk:
        assert (self.replica is None) != (self.promoted is None), "the log is there twice, or not at all"
        return self.replica or self.promoted

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
        self.replicas = Replicas(self.places, self.work, lambda: self.clock.now, lambda number, log_id: True)
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
        opened.syncer.random = self.random
        return opened

    def _broker(self, opened: OpenLog) -> Broker:
        ids = IdSource(opened.identity.node, opened.start_results.lease, lambda ceiling: True)
        return Broker(self.limits, opened.store, ids, self.random.randrange)

    def _announce(self, log_id: bytes, epoch: Epoch) -> None:
        disk = self.places.disk.crash(Random(1))  # what survives a power cut at this moment
        epochs = [one for one, _ in LogReading(disk).replay.epochs]
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
