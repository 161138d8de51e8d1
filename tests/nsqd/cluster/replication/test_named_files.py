"""The files that a mirror's manifest names are there, whenever the power is cut."""

import errno
from copy import deepcopy
from random import Random

import pytest

from nsqd.cluster.replication.manifest import read_manifest
from nsqd.storage.log.records import HEADER_SIZE
from tests.nsqd.cluster.replication.test_replica import anew, check, new_mirror, opened, sync, two_segments
from tests.nsqd.storage.sim_disk import PowerCut, SimDisk
from tests.nsqd.storage.small_log import new_disk

SEEDS = 100  # of power cuts: a rename rarely survives a creation that came before it


def test_a_power_cut_while_a_segment_begins_never_leaves_a_manifest_that_names_what_is_not_there() -> None:
    cuts = 0
    for cut in range(8):
        log, mirror = new_mirror(disk := new_disk())
        mirror.append(*log.write(b"one"))
        sync(mirror)
        disk.cut_in = cut
        try:
            mirror.begin_segment(log.begin())
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
    assert manifest is not None
    assert {file.name for file in manifest.files} <= set(disk.names())


def test_a_power_cut_after_a_segment_began_during_a_switch_leaves_what_the_manifest_names() -> None:
    cuts = 0
    for cut in range(8):
        log, disk = two_segments(), new_disk()
        mirror = opened(disk)
        anew(log, mirror)
        mirror.switch(log.end)
        job = mirror.sync_job()
        assert job is not None
        job.run()
        mirror.begin_segment(log.begin())
        disk.cut_in = cut
        try:
            mirror.synced(job)
        except PowerCut:
            cuts += 1
            for seed in range(SEEDS):
                check_named(crashed := disk.crash(Random(seed)))
                assert opened(crashed).end == job.position
    assert cuts > 4


def test_a_kill_at_the_end_of_a_switch_and_a_power_cut_at_the_next_start_leave_a_mirror() -> None:
    """What was replaced is removed only when the manifest that names it cannot come back."""
    log, mirror = new_mirror(disk := new_disk())
    mirror.append(*log.write(b"one"))
    sync(mirror)
    log.write(b"two")
    anew(log, mirror)
    mirror.switch(log.end)
    disk.fail("sync_directory", 2, errno.EIO)  # the first is before the manifest is written
    with pytest.raises(OSError):
        sync(mirror)
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
    log, mirror = new_mirror(disk := new_disk())
    mirror.append(*log.write(b"one"))
    sync(mirror)
    mirror.note_durable()
    for number in (1, 2):
        failing = disk.kill()
        mirror, copy = opened(failing), deepcopy(log)
        failing.fail("sync_directory", number, errno.EIO)
        with pytest.raises(OSError):
            mirror.begin_segment(copy.begin())
        again = opened(failing)
        if len(again.manifest.files) == 1:
            again.begin_segment(copy.files[copy.end])
        again.append(*copy.write(b"two"))
        sync(again)
        for seed in range(SEEDS):
            assert opened(failing.crash(Random(seed))).end == copy.end


def test_a_mirror_whose_newest_file_is_missing_ends_before_it() -> None:
    """Before, a power cut could leave such a mirror, and it could never be opened again."""
    log, mirror = new_mirror(disk := new_disk())
    mirror.append(*log.write(b"one"))
    mirror.begin_segment(log.begin())
    sync(mirror)
    mirror.append(*log.write(b"two"))
    end = mirror.manifest.files[-1].base
    disk.remove(mirror.manifest.files[-1].name)
    again = opened(disk)
    assert (again.end, again.durable) == (end, end)
    check(log, disk, again)
    again.begin_segment(log.files[end][:HEADER_SIZE])
    again.append(end, HEADER_SIZE, log.files[end][HEADER_SIZE:])
    sync(again)
    check(log, disk, opened(disk.kill()))
