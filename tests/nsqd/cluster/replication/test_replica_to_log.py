"""A replica becomes a log of this node: which one may, and what a kill leaves between two steps."""

from contextlib import closing, suppress
from dataclasses import replace
from functools import cache
from random import Random

import pytest

from nsqd.cluster.replication import replica_to_log as promoting
from nsqd.cluster.replication.manifest import NAME, Manifest, ReplicaFile, read_manifest, write_manifest
from nsqd.cluster.replication.replica import Replica
from nsqd.storage.log.epochs import Epoch
from nsqd.storage.log.files import segment_name
from nsqd.storage.log.identity import LogIdentity
from nsqd.storage.log.opening import LogOptions, OpenLog, Promoted, open_log
from nsqd.storage.log.records import HEADER_SIZE, decode_header
from nsqd.storage.log.segments import LogError
from shared.topic_config import Durability
from tests.cases import each
from tests.nsqd.storage.sim_disk import PowerCut, SimDisk
from tests.nsqd.storage.sim_node import NODE, Clock, SimNode
from tests.nsqd.storage.small_log import new_disk

NEW_LEADER = 3


def log_with_checkpoints() -> SimNode:
    """Return a log in which two checkpoints stand, each in a segment of its own."""
    node = SimNode(new_disk(), Durability.ALWAYS, Clock(), Random(1), None, 500)
    node.log.tidying.hold_for("test", 1 << 60)
    checkpoints = node.log.checkpoints
    create_channel(node)
    for _ in range(2):
        node.publish(5)
        checkpoints._begin()
        while checkpoints._contents is not None or checkpoints._ended:
            node.turn()
            node.syncer.step()
        for _ in range(10):
            node.publish(5)
    return node


@cache
def known_log() -> SimNode:
    """Such a log, of which copies may be made and nothing else."""
    return log_with_checkpoints()


def create_channel(node: SimNode) -> None:
    def create() -> None:
        node.broker.topic("t").channel("c")

    node.turn(create)


def replica_of(node: SimNode, without: int = 0) -> tuple[SimDisk, Manifest]:
    """Return a replica of a log, whose first segments it may lack."""
    disk, files = new_disk(), []
    for base in list(dict.fromkeys(node.log.tidying.segments))[without:]:
        file = ReplicaFile(base, 0, 1)
        disk.put(file.name, node.disk.content(file.segment))
        files.append(file)
    end = node.log.writer.written.position
    last = files[-1]
    disk.put(last.name, disk.content(last.name)[: 64 + end - last.base])
    manifest = Manifest(node.log.identity.log_id, NODE, tuple(files), end, tuple(node.log.writer.epochs))
    write_manifest(disk, manifest)
    return disk, manifest


def roots(node: SimNode) -> list[int]:
    """Return the indexes of the segments that begin with a checkpoint."""
    bases = list(dict.fromkeys(node.log.tidying.segments))
    return [place for place, base in enumerate(bases) if decode_header(node.disk.content(segment_name(base, 0))).state]


def open_promoted(disk: SimDisk, least: int, mark: int) -> OpenLog:
    """Open a log as its new leader does, with an epoch of this number or a greater one."""
    options = LogOptions(NEW_LEADER, Durability.INTERVAL, 0, 1 << 20)
    return open_log(disk, options, lambda: None, promoted=Promoted(NEW_LEADER, least, mark))


def begin_epoch(disk: SimDisk, least: int, mark: int) -> LogIdentity:
    with closing(open_promoted(disk, least, mark)) as opened:
        opened.writer.append_anchor()
        return opened.identity


def test_replay_may_begin_with_the_log_or_with_a_checkpoint() -> None:
    node = log_with_checkpoints()
    for without in (0, *roots(node)):
        promoting.check_replay(*replica_of(node, without))


def test_replay_does_not_begin_between_two_checkpoints_after_which_none_comes() -> None:
    node = log_with_checkpoints()
    _, last = roots(node)
    node.publish(30)
    with pytest.raises(promoting.ReplicaRefused, match="no complete checkpoint"):
        promoting.check_replay(*replica_of(node, last + 1))


def test_a_checkpoint_of_which_the_end_is_missing_does_not_count() -> None:
    node = log_with_checkpoints()
    first, last = roots(node)
    disk, manifest = replica_of(node, last)
    name = manifest.files[0].name
    disk.put(name, disk.content(name)[: 64 + 40])
    manifest = Manifest(manifest.log_id, NODE, manifest.files[:1], manifest.files[0].base + 40)
    with pytest.raises(promoting.ReplicaRefused):
        promoting.check_replay(disk, manifest)
    disk, manifest = replica_of(node, first)  # the one before it is there, but bytes are missing behind it
    until_last = manifest.files[: last - first]
    assert len(until_last) > 3
    promoting.check_replay(disk, Manifest(manifest.log_id, NODE, until_last, manifest.mark))
    with pytest.raises(promoting.ReplicaRefused):
        promoting.check_replay(disk, Manifest(manifest.log_id, NODE, (until_last[0], *until_last[3:]), manifest.mark))


def test_a_replica_that_lacks_an_old_file_is_promoted_and_asks_for_it() -> None:
    disk, manifest = replica_of(known_log())
    disk.vanish(manifest.files[0].name)
    promoting.check_replay(disk, Replica(disk, manifest.log_id, NODE).manifest)
    promoting.name_files(disk)
    with closing(open_promoted(disk, 0, manifest.mark)) as opened:
        assert opened.start_results.damage.spots[0][0] == manifest.files[0].segment


def test_an_empty_replica_is_refused() -> None:
    with pytest.raises(promoting.ReplicaRefused, match="empty"):
        promoting.check_replay(new_disk(), Manifest(bytes(16), NODE))


def test_damage_before_the_mark_of_the_replica_is_damage_though_the_log_does_not_state_that_it_is_durable() -> None:
    node = SimNode(new_disk(), Durability.OS)
    create_channel(node)
    for _ in range(3):
        node.publish(3)
    disk, manifest = replica_of(node)
    name = manifest.files[0].name
    data = bytearray(disk.content(name))
    data[len(data) - 150] ^= 1
    disk.put(name, bytes(data))
    assert promoting.name_files(disk) == manifest
    with closing(open_promoted(disk, 7, manifest.mark)) as opened:
        assert opened.start_results.damage.size
        assert not opened.start_results.torn
        assert opened.writer.written.position == manifest.mark


def test_a_promoted_log_keeps_its_node_number_and_gets_an_epoch_of_the_new_leader() -> None:
    disk, manifest = replica_of(known_log())
    promoting.name_files(disk)
    for least, number in ((100, 100), (0, 101)):
        identity = begin_epoch(disk, least, manifest.mark)
        assert (identity.node, identity.log_id) == (NODE, manifest.log_id)
        assert (identity.epoch.number, identity.epoch.node) == (number, NEW_LEADER)


def test_a_directory_without_a_log_is_not_begun_as_one() -> None:
    disk = new_disk()
    with pytest.raises(LogError, match="holds no log"):
        open_promoted(disk, 0, 0)
    assert disk.names() == []


@each("cut_in", range(16))
@each("is_cut", [False, True])
def test_a_kill_between_two_steps_leaves_files_that_can_be_named(cut_in: int, is_cut: bool) -> None:
    disk, manifest = replica_of(known_log())
    for name in (f"{segment_name(manifest.mark, 0)}.2", "manifest.json.tmp"):
        disk.put(name, b"written aside")
    disk.cut_in = cut_in
    try:
        promoting.note_won(disk, manifest, 7)
        promoting.name_files(disk)
    except PowerCut:
        pass
    random = Random(cut_in)
    disk = disk.crash(random) if is_cut else disk.kill()
    found = read_manifest(disk)
    assert found.won in (0, 7)
    assert promoting.name_files(disk) is not None
    assert [name for name in disk.names() if name.endswith(".log")] == [file.segment for file in manifest.files]
    assert not any(name.endswith(".log.2") for name in disk.names())
    promoting.drop_manifest(disk)
    assert NAME not in disk.names()
    assert promoting.name_files(disk) is None
    promoting.drop_manifest(disk)


@each("is_opened", [False, True])
@each("cut_in", range(12))
@each("is_cut", [False, True])
def test_until_an_epoch_is_announced_the_files_become_a_replica_again(
    is_opened: bool, cut_in: int, is_cut: bool
) -> None:
    disk, manifest = replica_of(known_log())
    contents = {file.name: disk.content(file.name) for file in manifest.files}
    promoting.note_won(disk, manifest, 7)
    promoting.name_files(disk)
    if is_opened:
        begin_epoch(disk, 7, manifest.mark)
    disk.cut_in = cut_in
    random = Random(cut_in)
    with suppress(PowerCut):
        promoting.name_replica_files(disk)
    disk = disk.crash(random) if is_cut else disk.kill()
    assert promoting.name_replica_files(disk) == manifest
    replica = Replica(disk.kill(), manifest.log_id, manifest.node)
    assert (replica.manifest, replica.end) == (manifest, manifest.mark)
    assert contents == {file.name: disk.content(file.name) for file in manifest.files}
    promoting.drop_manifest(disk)
    assert promoting.name_replica_files(disk) is None, "the epoch has begun"


def test_a_header_of_the_new_leader_is_rebuilt_with_the_number_of_the_log() -> None:
    disk, manifest = replica_of(known_log())
    promoting.name_files(disk)
    begin_epoch(disk, 100, manifest.mark)
    name = segment_name(manifest.mark, 0)
    before = disk.content(name)
    disk.put(name, b"\xff" * 64 + before[64:])
    open_promoted(disk, 0, manifest.mark).close()
    header = decode_header(disk.content(name))
    assert (header.node, header.epoch) == (NODE, Epoch(100, NEW_LEADER, header.epoch.random))


def test_an_epoch_that_was_begun_in_the_place_of_an_empty_last_segment_is_no_part_of_the_replica() -> None:
    disk, manifest = replica_of(known_log())
    empty = ReplicaFile(manifest.mark, 0, 1)
    disk.put(empty.name, disk.content(manifest.files[-1].name)[:HEADER_SIZE])
    longer = replace(manifest, files=(*manifest.files, empty))
    promoting.note_won(disk, longer, 7)
    disk.put(empty.name, b"the header of an epoch of this node")
    promoting.name_files(disk)
    assert promoting.name_replica_files(disk) == manifest
    replica = Replica(disk.kill(), manifest.log_id, manifest.node)
    assert replica.end == manifest.mark
