"""The follower's side, over a simulated disk: what it answers to the frames of a leader."""

import errno
from random import Random

from nsqd.cluster.replication import replicas as replicas_module
from nsqd.cluster.replication import stream
from nsqd.cluster.replication.manifest import read_manifest
from nsqd.cluster.replication.replica import Replica
from nsqd.cluster.replication.replicas import RETRY_AFTER, Kept, Replicas
from nsqd.cluster.wire.frames import FrameKind, FrameReader, encode
from nsqd.cluster.wire.link import Link
from nsqd.core.message.epoch import NO_EPOCH, Epoch
from nsqd.storage.log.disk import Disk
from tests.cases import each
from tests.nsqd.cluster.replication.sides import FrameSink, SteppedWork, proved_link
from tests.nsqd.cluster.replication.test_replica import FIRST, NODE, Log
from tests.nsqd.cluster.wire.identities import node
from tests.nsqd.storage.sim_disk import SimDisk
from tests.nsqd.storage.small_log import LOG_ID, new_disk

DROP = stream.pack_epochs(FrameKind.DROP, [(FIRST.pack(), 0)])


class OneDirectory:
    """The directory of one replica. In place of ReplicaDirectory."""

    def __init__(self) -> None:
        self.disk = new_disk()
        self.aside: list[SimDisk] = []
        self.is_removed = False

    def found(self) -> list[tuple[bytes, int]]:
        return []

    def open(self, log_id: bytes) -> Disk:
        return self.disk

    def keep_diverged(self, log_id: bytes) -> str:
        self.aside.append(self.disk)
        self.disk = new_disk()
        return "aside"

    def remove(self, log_id: bytes) -> None:
        self.is_removed = True


def leads(number: int, log_id: bytes) -> bool:
    return (number, log_id) == (NODE, LOG_ID)


class Side:
    """A follower, and its leader's end of the connection, played by the test."""

    def __init__(self) -> None:
        self.directory = OneDirectory()
        self.work = SteppedWork()
        self.now = 0
        self.replicas = Replicas(self.directory, self.work, lambda: self.now, leads)
        self.link = self.connect()
        self.log = Log()

    def connect(self) -> Link:
        own = node(NODE, log=int.from_bytes(LOG_ID))
        self.link = proved_link(FrameSink(self.replicas), own)
        return self.link

    def say(self, *frames: bytes) -> list[tuple[FrameKind, bytes]]:
        """Let frames come, then a turn. Returns what is answered."""
        self.link.receive(b"".join(frames), self.now)
        assert not self.link.closing
        return self.turn()

    def turn(self) -> list[tuple[FrameKind, bytes]]:
        self.replicas.turn(self.now)
        while self.work.step(Random(1)):
            self.replicas.turn(self.now)
        data = b"".join(self.link.drain())
        return list(FrameReader().feed(data))

    def reopen(self) -> None:
        """Begin another life, in which the replica is known and not opened yet."""
        self.replicas.close()
        self.replicas = Replicas(self.directory, self.work, lambda: self.now, leads)
        self.replicas.kept[LOG_ID] = Kept(LOG_ID, NODE)
        self.connect()

    def later(self) -> list[tuple[FrameKind, bytes]]:
        self.now += RETRY_AFTER
        self.replicas.tick(self.now)
        return self.turn()

    def follow(self) -> None:
        """Begin a replica with one record."""
        ((kind, content),) = self.say(stream.pack_follow(1))
        assert (kind, stream.unpack_have(content)) == (FrameKind.HAVE, stream.Have(0, [], {}))
        frames = [stream.pack_resync(0, [(FIRST.pack(), 0)]), encode(FrameKind.SEGMENT, self.log.begin())]
        frames += _bytes(*self.log.write(b"one"))
        assert self.say(*frames) == []
        end = self.log.end
        assert self.say(stream.pack_switch(end)) == [copied(end, end)]


def following() -> Side:
    """A follower whose replica has one record."""
    side = Side()
    side.follow()
    return side


def _bytes(base: int, at: int, data: bytes) -> list[bytes]:
    return stream.pack_bytes(base, at, [data], len(data))


def copied(written: int, durable: int) -> tuple[FrameKind, bytes]:
    return FrameKind.COPIED, stream.pack_copied(written, durable)[5:]


def test_only_a_node_that_asks_for_a_replica_gets_one() -> None:
    side = Side()
    assert side.say(stream.pack_sync(True), DROP, stream.pack_keep(0, [])) == []
    assert side.replicas.kept == {}


def test_written_and_durable_are_reported_when_a_client_waits() -> None:
    side = following()
    before = side.log.end
    frames = _bytes(*side.log.write(b"two")) + _bytes(*side.log.write(b"three"))
    assert side.say(*frames) == []
    assert side.say(stream.pack_sync(False)) == [copied(side.log.end, before)]
    assert side.say(stream.pack_sync(True)) == [copied(side.log.end, side.log.end)]
    assert side.turn() == []


def test_a_sync_in_the_turn_that_fails_gives_the_replica_up_and_cuts_it_to_what_was_durable() -> None:
    side = following()
    before = side.log.end
    side.say(*_bytes(*side.log.write(b"two")))
    side.directory.disk.fail("sync", 1, errno.EIO)
    assert [kind for kind, _ in side.say(stream.pack_sync(True))] == [FrameKind.GAVE_UP]
    assert side.replicas.failures == 1
    ((kind, content),) = side.later()
    assert (kind, stream.unpack_have(content).end) == (FrameKind.HAVE, before)


def test_a_sync_elsewhere_that_fails_after_the_replica_was_given_up_counts() -> None:
    """A write fails while the sync runs; the sync fails, too."""
    side = following()
    before = side.log.end
    side.replicas._average = replicas_module.QUICK  # from now on syncs run elsewhere
    side.link.receive(b"".join([*_bytes(*side.log.write(b"two")), stream.pack_sync(True)]), side.now)
    side.replicas.turn(side.now)
    side.directory.disk.fail("append", 1, errno.EIO)
    side.link.receive(b"".join(_bytes(*side.log.write(b"three"))), side.now)
    side.directory.disk.fail("sync", 1, errno.EIO)
    side.turn()
    ((kind, content),) = side.later()
    assert (kind, stream.unpack_have(content).end) == (FrameKind.HAVE, before)


def test_nothing_is_synced_while_the_leader_decides_how_the_replica_goes_on() -> None:
    side = following()
    side.say(*_bytes(*side.log.write(b"two")))
    side.say(stream.pack_follow(1))
    syncs = side.directory.disk.operations["sync"]
    side.now += replicas_module.SYNC_EVERY
    side.replicas.tick(side.now)
    side.turn()
    assert side.directory.disk.operations["sync"] == syncs


def test_a_replica_that_holds_what_the_log_does_not_have_is_kept_as_a_diverged_copy() -> None:
    side = following()
    side.say(stream.pack_follow(1))
    other = FIRST._replace(number=2).pack()
    assert side.say(stream.pack_resync(0, [(FIRST.pack(), 0), (other, 5)])) == []
    assert len(side.directory.aside) == 1
    assert stream.unpack_have(side.say(stream.pack_follow(1))[0][1]).end == 0


@each("is_open", [True, False])
@each("epochs, is_removed", [
    ([(FIRST.pack(), 0)], True), ([(FIRST.pack(), 0), (FIRST._replace(number=2).pack(), 5)], False),
])  # fmt: skip
def test_a_replica_that_is_not_needed_is_removed_or_kept_as_a_diverged_copy_if_it_has_more_than_the_log(
    is_open: bool, epochs: stream.Epochs, is_removed: bool
) -> None:
    side = following()
    if not is_open:
        side.reopen()
    assert side.say(stream.pack_epochs(FrameKind.DROP, epochs)) == []
    assert (side.directory.is_removed, len(side.directory.aside)) == (is_removed, not is_removed)
    assert (side.replicas.kept, side.directory.disk.open_files) == ({}, 0)


def test_the_epoch_with_which_a_replica_was_compared_is_known_when_it_is_opened_again_and_after_a_failure() -> None:
    side = following()
    side.reopen()
    kept = side.replicas.kept[LOG_ID]
    assert kept.compared == NO_EPOCH
    side.replicas.open_all()
    side.turn()
    assert kept.compared == FIRST
    side.say(stream.pack_follow(2))
    later = Epoch(2, NODE, bytes(8))
    side.say(stream.pack_epochs(FrameKind.RESUME, [(FIRST.pack(), 0), (later.pack(), side.log.end)]))
    side.replicas._fail(kept, stream.NO_SPACE)
    assert kept.compared == later


def test_a_replica_that_is_not_needed_is_kept_until_it_can_be_opened() -> None:
    side = following()
    side.reopen()
    side.directory.disk.fail("open", 1, errno.EIO)
    side.say(DROP)
    assert (side.directory.is_removed, list(side.replicas.kept)) == (False, [LOG_ID])
    side.directory.disk.repair()
    side.later()
    assert (side.directory.is_removed, side.replicas.kept) == (True, {})


def test_a_replica_that_is_not_needed_while_it_is_opened_or_synced_is_removed_then() -> None:
    for frame in (stream.pack_follow(1), stream.pack_sync(True)):
        side = following()
        side.replicas._average = replicas_module.QUICK
        if frame == stream.pack_follow(1):
            side.replicas.close()
            side.replicas = Replicas(side.directory, side.work, lambda: 0, leads)
            side.connect()
        frames = _bytes(*side.log.write(b"two"))
        side.link.receive(b"".join([frame, *frames, frame]), side.now)
        side.replicas.turn(side.now)
        side.link.receive(DROP, side.now)
        assert not side.directory.is_removed
        assert side.turn() == [copied(side.log.end, side.log.end - 12)] * (frame == stream.pack_sync(True))
        assert (side.directory.is_removed, side.replicas.kept) == (True, {})
        assert side.directory.disk.open_files == 0


def test_the_end_syncs_a_replica_and_notes_that_it_is_durable() -> None:
    side = following()
    side.say(*_bytes(*side.log.write(b"two")))
    side.replicas.close()
    disk = side.directory.disk.crash(Random(1))
    manifest = read_manifest(disk)
    assert manifest.mark == side.log.end
    again = Replica(disk, LOG_ID, NODE)
    assert (again.end, again.damage) == (side.log.end, [])


def test_a_node_that_does_not_own_a_log_neither_writes_nor_drops_its_replica() -> None:
    side = following()
    side.replicas.may_write = lambda number, log_id: (number, log_id) != (NODE, LOG_ID)
    assert side.say(stream.pack_sync(True), DROP, encode(FrameKind.SEGMENT, side.log.begin())) == []
    assert list(side.replicas.kept) == [LOG_ID]
    ((kind, content),) = side.say(stream.pack_follow(2))
    assert (kind, stream.unpack_gave_up(content)) == (FrameKind.GAVE_UP, stream.NOT_LEADER)
    side.replicas.may_write = lambda number, log_id: True
    side.replicas.promoted.add(LOG_ID)
    ((kind, _),) = side.say(stream.pack_follow(3))
    assert kind is FrameKind.GAVE_UP
    side.replicas.promoted.clear()
    ((kind, _),) = side.say(stream.pack_follow(4))
    assert kind is FrameKind.HAVE
