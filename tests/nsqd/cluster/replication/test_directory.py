"""The directories of replicas: one that cannot be read costs itself, and not the start of the node."""

from pathlib import Path

import pytest

from nsqd.cluster.replication.directory import PromotedDirectory, ReplicaDirectory
from nsqd.cluster.replication.manifest import NAME, Manifest, write_manifest
from nsqd.cluster.replication.replica_to_log import drop_manifest
from nsqd.storage.log.disk import RealDisk

GOOD, BAD = bytes(16), bytes([1] * 16)


def test_a_replica_that_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    directory = ReplicaDirectory(tmp_path)
    assert directory.found() == []
    write_manifest(directory.open(GOOD), Manifest(GOOD, 7))
    directory.open(BAD)
    (directory.path / BAD.hex() / NAME).mkdir()  # opening it fails, as a disk that is failing does
    assert directory.found() == [(GOOD, 7)]


def test_the_directory_of_a_replica_becomes_that_of_a_promoted_log(tmp_path: Path) -> None:
    replicas, promoted = ReplicaDirectory(tmp_path), PromotedDirectory(tmp_path)
    assert promoted.found() == []
    for log_id in (GOOD, BAD):
        write_manifest(replicas.open(log_id), Manifest(log_id, 7))
    (tmp_path / "promoted" / GOOD.hex()).mkdir(parents=True)  # a kill has left it
    assert promoted.found() == []
    assert promoted.move_replica(GOOD).names() == [NAME]
    assert (replicas.found(), promoted.found()) == ([(BAD, 7)], [GOOD])
    assert promoted.open(GOOD).names() == [NAME]
    aside = Path(promoted.keep_diverged(GOOD))
    assert (aside / "log" / NAME).exists()
    assert promoted.found() == []
    promoted.move_replica(BAD)
    assert promoted.found() == [BAD]


def test_what_was_kept_as_a_diverged_copy_is_never_replaced(tmp_path: Path) -> None:
    replicas, promoted = ReplicaDirectory(tmp_path), PromotedDirectory(tmp_path)
    asides = set()
    for _ in range(2):
        write_manifest(replicas.open(GOOD), Manifest(GOOD, 7))
        promoted.move_replica(GOOD).reserve(4096)  # as the log did while it was open
        asides.add(promoted.keep_diverged(GOOD))
    assert len(asides) == 2
    assert not any(RealDisk(Path(aside, "log")).reserved() for aside in asides)


def test_an_unfinished_promotion_is_a_replica_again_before_any_reply(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    replicas, promoted = ReplicaDirectory(tmp_path), PromotedDirectory(tmp_path)
    for log_id in (GOOD, BAD):
        write_manifest(replicas.open(log_id), Manifest(log_id, 7, won=9))
        promoted.move_replica(log_id)
    drop_manifest(promoted.open(BAD))  # its epoch has begun
    promoted.put_back_unfinished()
    assert (replicas.found(), promoted.found()) == ([(GOOD, 7)], [BAD])
    assert f"the promotion of the log {GOOD.hex()} had not ended" in caplog.text
    assert promoted.put_back(BAD) is None
    (promoted.open(BAD).create(NAME)).close()  # a manifest that is damaged: what there is stays where it is
    promoted.put_back_unfinished()
    assert promoted.found() == [BAD]


def test_what_was_begun_and_never_became_a_replica_is_removed(tmp_path: Path) -> None:
    directory = ReplicaDirectory(tmp_path)
    directory.open(GOOD).create("00000000000000000000.0.log.2").close()
    assert directory.found() == []
    assert not (directory.path / GOOD.hex()).exists()
