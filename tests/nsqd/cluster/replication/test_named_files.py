"""The files that a replica's manifest names are there, whenever the power is cut."""

import errno
from copy import deepcopy
from random import Random

import pytest

from nsqd.cluster.replication.manifest import read_manifest
from nsqd.storage.log.records import HEADER_SIZE
from tests.nsqd.cluster.replication.test_replica import begun, check, opened, resync_from, sync, synced, two_segments
from tests.nsqd.storage.sim_disk import PowerCut, SimDisk
from tests.nsqd.storage.small_log import new_disk

SEEDS = 100  # of power cuts: a rename rarely survives a creation that came before it


def test_a_power_cut_while_a_segment_begins_never_leaves_a_manifest_that_names_what_is_not_there() -> None:
    cuts = 0
    for cut in range(8):
        log, replica, disk = synced(b"one")
        disk.cut_in = cut
        try:
            replica.begin_segment(log.begin())
        except PowerCut:
            cuts += 1
            for seed in range(SEEDS):
                check_named(crashed := disk.crash(Random(seed)))
                again = opened(crashed)
                assert again.end == log.end
                check(log, crashed, again)
    assert cuts > 5


def check_named(disk: SimDisk) -> None:
    """Assert that all files that the manifest names are there."""
    manifest = read_manifest(disk)
    assert {file.name for file in manifest.files} <= set(disk.names())


def test_a_power_cut_after_a_segment_began_during_a_switch_leaves_what_the_manifest_names() -> None:
    cuts = 0
    for cut in range(8):
        log, disk = two_segments(), new_disk()
        replica = opened(disk)
        resync_from(log, replica)
        replica.switch(log.end)
        job = replica.sync_job()
        job.run()
        replica.begin_segment(log.begin())
        disk.cut_in = cut
        try:
            replica.synced(job)
        except PowerCut:
            cuts += 1
            for seed in range(SEEDS):
                check_named(crashed := disk.crash(Random(seed)))
                assert opened(crashed).end == job.position
    assert cuts > 4


def test_a_kill_at_the_end_of_a_switch_and_a_power_cut_at_the_next_start_leave_a_replica() -> None:
    """A replaced file is removed only when the manifest that names it cannot come back."""
    log, replica, disk = synced(b"one")
    log.write(b"two")
    resync_from(log, replica)
    replica.switch(log.end)
    disk.fail("sync_directory", 2, errno.EIO)  # the first is before the manifest is written
    with pytest.raises(OSError):
        sync(replica)
    cuts = 0
    for cut in range(8):
        killed = disk.kill()
        killed.cut_in = cut
        try:
            opened(killed)
        except PowerCut:
            cuts += 1
            for seed in range(SEEDS):
                check_named(crashed := killed.crash(Random(seed)))
                check(log, crashed, opened(crashed))
    assert cuts > 3


def test_what_is_durable_after_a_kill_in_the_beginning_of_a_segment_survives_a_power_cut() -> None:
    log, replica, disk = synced(b"one")
    replica.note_durable()
    for number in (1, 2):
        failing = disk.kill()
        replica, copy = opened(failing), deepcopy(log)
        failing.fail("sync_directory", number, errno.EIO)
        with pytest.raises(OSError):
            replica.begin_segment(copy.begin())
        again = opened(failing)
        if len(again.manifest.files) == 1:
            again.begin_segment(copy.files[copy.end])
        again.append(*copy.write(b"two"))
        sync(again)
        for seed in range(SEEDS):
            assert opened(failing.crash(Random(seed))).end == copy.end


def test_a_replica_whose_newest_file_is_missing_ends_before_it() -> None:
    """Before, a power cut could leave such a replica, and it could never be opened again."""
    log, replica, disk = begun(b"one")
    replica.begin_segment(log.begin())
    sync(replica)
    replica.append(*log.write(b"two"))
    end = replica.manifest.files[-1].base
    disk.remove(replica.manifest.files[-1].name)
    again = opened(disk)
    assert (again.end, again.durable) == (end, end)
    check(log, disk, again)
    again.begin_segment(log.files[end][:HEADER_SIZE])
    again.append(end, HEADER_SIZE, log.files[end][HEADER_SIZE:])
    sync(again)
    check(log, disk, opened(disk.kill()))
