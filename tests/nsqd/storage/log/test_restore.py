"""A restored log: another id, and otherwise what a start finds in the backup, also if that is corrupt."""

from itertools import count
from random import Random

import pytest

from nsqd.core.message.ids import LEASE, SAFE_LEASES
from nsqd.core.records import PARENT, RecordKind
from nsqd.storage.log import restore as restore_module
from nsqd.storage.log.files import SegmentFiles
from nsqd.storage.log.frozen import FrozenDisk
from nsqd.storage.log.identity import read_identity
from nsqd.storage.log.locations import read_frames
from nsqd.storage.log.opening import Simulated
from nsqd.storage.log.parent import MOST_PARENTS, Parent, unpack
from nsqd.storage.log.reader import LogRecords, Record
from nsqd.storage.log.reading import LogReading, replayed
from nsqd.storage.log.records import SegmentHeader, encode
from nsqd.storage.log.replay import Replay
from nsqd.storage.log.restore import Restored, restore
from nsqd.storage.log.segments import LogError
from shared.topic_config import Durability
from tests.effort import seeds
from tests.nsqd.storage.damage_run import DamageRun, Hit, Whole
from tests.nsqd.storage.normal import normal
from tests.nsqd.storage.sim_disk import SimDisk
from tests.nsqd.storage.sim_node import Clock, SimNode, run_seeds
from tests.nsqd.storage.small_log import EPOCH

SEEDS = seeds(20)
LEAST = 1 << 40
_SEEDS = count()


def restored(source: SimDisk, node: int | None = None, known: int = 0) -> tuple[SimDisk, Restored]:
    before = {name: source.content(name) for name in source.names()}
    target, random = SimDisk(), Random(next(_SEEDS))
    clock = Clock()
    found = restore(source, target, node, LEAST, known, simulated=Simulated(clock.clocks(), random=random.randbytes))
    assert before == {name: source.content(name) for name in source.names()}
    return target, found


def start(disk: SimDisk) -> SimNode:
    return SimNode(disk)


def state(disk: SimDisk, end: int) -> list[object]:
    """What replay of the disk finds: topics, messages with their frames, and the segments and epochs before `end`."""
    frozen = FrozenDisk(disk)
    reader = LogRecords(frozen)
    replay, _ = replayed(reader)
    replay.conclude()
    files = SegmentFiles(segment.header for segment in reader.segments)
    topics, frames = [], []
    for number, topic in sorted(replay.topics.items()):
        sequence = replay.sequences[number]
        topics.append(normal(topic, sequence, 0, ephemeral=False))
        for stored in (*sequence.live(), *sequence.all_retained()):
            try:
                found = read_frames(frozen, files, number, stored, stored.locations)
            except FileNotFoundError:
                continue
            frames.append((number, stored.first, found.frames, found.attributed))
    segments = [segment.name for segment in reader.segments if segment.base < end]
    return [topics, frames, segments, [one for one in replay.epochs if one[1] < end]]


class RestoreRun(DamageRun):
    """A run that restores each corrupt log, before a node starts on it."""

    restores = 0

    def _judge(self, whole: Whole, hits: list[Hit], spoiled: SimDisk, node: SimNode) -> None:
        copy = spoiled.kill()
        reading = LogReading(copy)  # as a start, which cuts off the torn end
        try:
            target, found = restored(spoiled.kill())
        except (LogError, FileNotFoundError):
            assert not reading.log_records.segments, "a log that can be read is not restored"
            return
        self.restores += 1
        spots = reading.log_records.damage.spots  # the headers are whole again
        assert (found.damage, found.torn) == (sum(stop - at for _, at, stop in spots), reading.log_records.torn)
        assert state(copy, found.parent.position) == state(target, found.parent.position)


@pytest.mark.long
def test_a_restored_log_is_what_a_start_finds_in_the_backup() -> None:
    runs = run_seeds(lambda seed: RestoreRun(seed, Random(seed).choice(list(Durability))), SEEDS)
    assert sum(run.restores for run in runs) > len(SEEDS)


def test_a_log_has_a_new_id_and_names_its_parent_over_checkpoints_and_restores() -> None:
    node = start(SimDisk())
    node.publish(3)
    node.publish(2, "u")
    node.log.close()
    parents = []
    disk, ends = node.disk.kill(), {1: 3, 2: 2}
    for _ in range(3):
        old = read_identity(disk)
        disk, found = restored(disk.kill())
        new = read_identity(disk)
        assert new.log_id == found.log_id != old.log_id
        assert found.parent == Parent(old.log_id, found.parent.position, ends)
        parents.append(found.parent)
        node = start(disk)
        assert node.log.writer.parents == parents
        node.publish()
        ends = ends | {1: ends[1] + 1}
        node.checkpoint()
        node.log.close()
        disk = disk.kill()
        assert LogReading(disk).replay.parents == {parent.log_id: parent for parent in parents}
        window = node.log.history().window(2)
        assert dict(window.parents) == {f"{parent.log_id.hex()}-2": 2 for parent in parents}


def backup_of_three() -> SimDisk:
    """After a clean stop, which gave back what had been leased of ids; the lost node continued."""
    node = start(SimDisk())
    node.publish(3)
    node.log.close()
    return node.disk.kill()


def test_ids_go_on_above_all_that_the_lost_node_may_have_issued() -> None:
    backup = backup_of_three()
    disk, found = restored(backup.kill())
    assert found.first_id == LEAST == start(disk).broker.ids.next
    known = LEAST + 5 * LEASE
    disk, found = restored(backup.kill(), known=known)
    assert found.first_id == known + SAFE_LEASES * LEASE == start(disk).broker.ids.next
    found = restore(backup, SimDisk(), None, 1, simulated=Simulated(random=Random(2).randbytes))
    assert found.first_id == 1 + LEASE + SAFE_LEASES * LEASE


def test_nothing_is_made_of_an_empty_directory() -> None:
    with pytest.raises(FileNotFoundError, match="no segment"):
        restored(SimDisk())


def test_old_records_behind_the_end_of_a_reused_file_are_left_out() -> None:
    old, new = SegmentHeader(7, 0, bytes(16), 0, EPOCH, former=5), SegmentHeader(7, 0, b"x" * 16, 0, EPOCH)
    data = old.encode() + b"".join(_record(old.seed, 64, b"good")) + b"".join(_record(5, 64 + 13, b"bad!"))
    assert restore_module.rewritten(data, old, new) == b"".join(_record(new.seed, 64, b"good")) + bytes(13)


def _record(seed: int, at: int, content: bytes) -> list[bytes]:
    return encode(seed, at, 99, content)


def test_the_oldest_parents_are_forgotten() -> None:
    replay = Replay()
    for number in range(MOST_PARENTS + 1):
        parent = Parent(b"%016d" % number, number, {number: 7})
        assert unpack(parent.pack()) == parent
        assert replay.apply(Record(RecordKind.PARENT, parent.pack(), 0, 64, 64 + PARENT.size))
    assert list(replay.parents) == [b"%016d" % number for number in range(1, MOST_PARENTS + 1)]
