"""The runs of adoption find bugs: each of these is planted, and some run must fail."""

from __future__ import annotations

import pytest

from nsqd.replication import opening_adopted
from nsqd.storage.log.disk import Disk
from nsqd.storage.mirror.adopting import claim, name_files
from nsqd.storage.mirror.manifest import Manifest, read_manifest
from tests.nsqd.replication.adopting_run import AdoptingRun
from tests.nsqd.replication.test_adopting_runs import STEPS

pytestmark = pytest.mark.long
MOST_SEEDS = 300


def assert_found() -> None:
    """Assert that a run fails."""
    for seed in range(MOST_SEEDS):
        try:
            AdoptingRun(seed).run(STEPS)
        except (AssertionError, FileNotFoundError):
            return
    raise AssertionError("the planted bug was not found")


def test_the_number_that_was_won_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening_adopted, "claim", lambda disk, manifest, number: manifest)
    assert_found()


def test_files_are_renamed_while_they_are_a_mirror(monkeypatch: pytest.MonkeyPatch) -> None:
    def hasty(disk: Disk, manifest: Manifest, number: int) -> Manifest:
        claimed = claim(disk, manifest, number)
        name_files(disk)
        return claimed

    monkeypatch.setattr(opening_adopted, "claim", hasty)
    assert_found()


def test_a_file_is_not_renamed(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(disk: Disk) -> Manifest | None:
        manifest = read_manifest(disk)
        first = manifest.files[0] if manifest is not None else None
        found = name_files(disk)
        if first is not None and first.segment in disk.names():
            disk.rename(first.segment, first.name)
        return found

    monkeypatch.setattr(opening_adopted, "name_files", forgetful)
    assert_found()
