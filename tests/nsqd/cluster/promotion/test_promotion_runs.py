"""Runs in which replicas are taken over, and bugs that are planted. The variables are those of test_copying_runs."""

from dataclasses import replace

import pytest

from nsqd.cluster.promotion import opening as opening_promoted
from nsqd.cluster.replication.manifest import Manifest, read_manifest, write_manifest
from nsqd.cluster.replication.replica_to_log import name_files, note_won
from nsqd.storage.log.disk import Disk
from tests.effort import seeds
from tests.nsqd.cluster.promotion import promotion_run
from tests.nsqd.cluster.promotion.promotion_run import PromotingRun

pytestmark = pytest.mark.long
STEPS, MOST_SEEDS = 200, 300


@pytest.mark.parametrize("seed", seeds(3, in_short=2))
def test_a_run(seed: int) -> None:
    PromotingRun(seed).run(STEPS)


def assert_found() -> None:
    for seed in range(MOST_SEEDS):
        try:
            PromotingRun(seed).run(STEPS)
        except (AssertionError, KeyError, FileNotFoundError):
            return
    raise AssertionError("the planted bug was not found")


def test_the_number_that_was_won_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening_promoted, "note_won", lambda disk, manifest, number: manifest)
    assert_found()


def test_files_are_renamed_while_they_are_a_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    def hasty(disk: Disk, manifest: Manifest, number: int) -> Manifest:
        noted = note_won(disk, manifest, number)
        name_files(disk)
        return noted

    monkeypatch.setattr(opening_promoted, "note_won", hasty)
    assert_found()


def test_a_promotion_is_continued_by_the_next_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(promotion_run.PromotedPlaces, "put_back", lambda self, log_id: None)
    assert_found()


@pytest.mark.campaign
def test_a_segment_in_which_the_epoch_was_begun_becomes_part_of_the_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    def trusting(disk: Disk) -> Manifest | None:
        manifest = read_manifest(disk)
        if manifest is None:
            return None
        names = set(disk.names())
        for file in manifest.files:
            if file.segment in names and file.name not in names:
                disk.rename(file.segment, file.name)
        disk.sync_directory()
        write_manifest(disk, replace(manifest, won=0))
        return manifest

    monkeypatch.setattr(promotion_run, "name_replica_files", trusting)
    assert_found()


def test_a_file_is_not_renamed(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(disk: Disk) -> Manifest | None:
        manifest = read_manifest(disk)
        first = manifest.files[0] if manifest is not None else None
        found = name_files(disk)
        if first is not None and first.segment in disk.names():
            disk.rename(first.segment, first.name)
        return found

    monkeypatch.setattr(opening_promoted, "name_files", forgetful)
    assert_found()
