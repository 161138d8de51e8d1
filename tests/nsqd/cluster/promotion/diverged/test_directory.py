"""Diverged copies: kills between the steps by which a log is made of one, and what a start makes of them."""

import os
import shutil
from pathlib import Path
from random import Random

import pytest

from nsqd.cluster.promotion.diverged import directory as diverged
from nsqd.cluster.promotion.diverged.directory import BEGUN, DivergedDirectory, note_of
from nsqd.cluster.promotion.diverged.note import CopyExtent, Note, read_note, write_note
from nsqd.cluster.promotion.succession import LOG
from nsqd.cluster.replication.directory import PromotedDirectory, ReplicaDirectory
from nsqd.cluster.replication.manifest import Manifest, ReplicaFile, write_manifest
from nsqd.storage.log.disk import RealDisk
from nsqd.storage.log.frozen import FrozenDisk
from nsqd.storage.log.reading import LogReading
from nsqd.storage.log.records import HEADER_SIZE, decode_header
from tests.nsqd.cluster.promotion.test_succession import ends, succeed_failover, taken_log
from tests.nsqd.storage.log.test_restore import start
from tests.nsqd.storage.sim_disk import SimDisk

NUMBER = 9  # of this node


def keep_diverged(path: Path) -> tuple[str, int]:
    """Keep a diverged copy with two messages before the common point, and three after it. Returns its name and that point."""
    node = start(SimDisk(Random(1)))
    node.broker.topic("t").channel("c")
    node.broker.topic("quiet").channel("c")
    node.publish(2)
    common = node.log.writer.written.position
    node.publish(2)
    node.publish(1, "u")
    node.log.close()
    log_id, replicas = node.log.identity.log_id, ReplicaDirectory(path)
    disk = replicas.open(log_id)
    manifest = Manifest(log_id, 7, epochs=tuple(node.log.writer.all_epochs()))
    for name in (one for one in node.disk.names() if one.endswith(".log")):
        content = node.disk.content(name)
        end = HEADER_SIZE + node.log.writer.written.position - decode_header(content).base
        file = ReplicaFile(decode_header(content).base, 0, 1)
        (disk.path / file.name).write_bytes(content[:end])
        manifest = Manifest(log_id, 7, (*manifest.files, file), 0, manifest.epochs)
    write_manifest(disk, manifest)
    return f"replicas/{Path(replicas.keep_diverged(log_id)).name}", common


def salvage(path: Path, name: str, common: int) -> bytes:
    directory = DivergedDirectory(path, NUMBER)
    made = directory.salvage(name, directory.read(name), common)
    assert (made.messages, made.node) == (3, LogReading(FrozenDisk(RealDisk(place(path, made.log_id)))).identity.node)
    return made.log_id


def place(path: Path, log_id: bytes) -> Path:
    return path / "promoted" / log_id.hex() / "log"


def test_a_replica_becomes_a_promoted_log_with_what_is_behind_the_common_point(tmp_path: Path) -> None:
    name, common = keep_diverged(tmp_path)
    directory = DivergedDirectory(tmp_path, NUMBER)
    (found,) = directory.found()
    assert (found.name, found.note, found.is_own) == (name, None, False)
    log_id = salvage(tmp_path, name, common)
    assert PromotedDirectory(tmp_path).found() == [log_id]
    assert ends(place(tmp_path, log_id)) == {"t": [(2, 4)], "u": [(0, 1)]}
    (found,) = directory.found()
    assert found.note == Note(log_id, common, directory.read(name))
    assert directory.finish() == []
    directory.remove(name)
    assert directory.found() == []
    assert list((tmp_path / "replicas").iterdir()) == []
    assert PromotedDirectory(tmp_path).found() == [log_id]


def test_nothing_is_made_of_a_replica_that_has_nothing_more(tmp_path: Path) -> None:
    name, _ = keep_diverged(tmp_path)
    directory = DivergedDirectory(tmp_path, NUMBER)
    held = directory.read(name)
    assert directory.salvage(name, held, held.end) is None
    assert PromotedDirectory(tmp_path).found() == []
    assert [one.note for one in directory.found()] == [Note(b"", held.end, held)]


class Killed(Exception):
    pass


@pytest.mark.parametrize("step", range(3))
def test_a_start_finishes_or_undoes_what_a_kill_interrupts(
    tmp_path: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The steps: the new log is complete, it waits for its note, it waits for its last rename."""
    name, common = keep_diverged(tmp_path)
    renamed = 0

    def rename(self: Path, target: Path) -> Path:
        nonlocal renamed
        renamed += 1
        if renamed == (1, 9, 2)[step]:
            raise Killed
        os.rename(self, target)
        return target

    def writing(path: Path, note: Note) -> None:
        if step == 1:
            raise Killed
        write_note(path, note)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", rename)
        patch.setattr(diverged, "write_note", writing)
        with pytest.raises(Killed):
            salvage(tmp_path, name, common)
    assert PromotedDirectory(tmp_path).found() == []
    directory = DivergedDirectory(tmp_path, NUMBER)
    made = directory.finish()
    if step < 2:
        assert made == []
        assert list((tmp_path / "promoted").iterdir()) == []
        made = [salvage(tmp_path, name, common)]
    (found,) = directory.found()
    assert PromotedDirectory(tmp_path).found() == made == [found.note.log_id]
    assert ends(place(tmp_path, made[0])) == {"t": [(2, 4)], "u": [(0, 1)]}
    assert directory.finish() == []


def test_a_disk_that_is_full_holds_nothing_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, common = keep_diverged(tmp_path)

    def full(*arguments: object, **named: object) -> None:
        raise OSError(28, "No space left on device")

    for place in ("make_log", "write_note"):
        with monkeypatch.context() as patch:
            patch.setattr(diverged, place, full)
            with pytest.raises(OSError):
                salvage(tmp_path, name, common)
        assert list((tmp_path / "promoted").iterdir()) == []
    assert salvage(tmp_path, name, common)


def test_reading_ends_when_the_node_stops_and_no_descriptor_is_left_open(tmp_path: Path) -> None:
    name, common = keep_diverged(tmp_path)
    before = len(os.listdir("/proc/self/fd"))

    def stopping() -> None:
        raise OSError("this node stops")

    directory = DivergedDirectory(tmp_path, NUMBER, stopping)
    with pytest.raises(OSError, match="stops"):
        directory.salvage(name, CopyExtent(1, ()), common)
    DivergedDirectory(tmp_path, NUMBER).read(name)
    assert len(os.listdir("/proc/self/fd")) == before


def test_what_was_half_written_does_not_hinder_the_next_try(tmp_path: Path) -> None:
    name, common = keep_diverged(tmp_path)
    (tmp_path / "promoted" / BEGUN / "log").mkdir(parents=True)
    (tmp_path / "promoted" / BEGUN / "log" / "00000000000000000000.0.log").write_bytes(b"half")
    log_id = salvage(tmp_path, name, common)
    assert ends(place(tmp_path, log_id)) == {"t": [(2, 4)], "u": [(0, 1)]}


def test_a_copy_does_not_get_the_name_of_one_whose_note_is_left(tmp_path: Path) -> None:
    name, common = keep_diverged(tmp_path)
    salvage(tmp_path, name, common)
    shutil.rmtree(tmp_path / name)  # and a kill before the note goes
    other, _ = keep_diverged(tmp_path)
    assert other != name
    assert [one.note for one in DivergedDirectory(tmp_path, NUMBER).found()] == [None]


def test_a_damaged_note_is_none(tmp_path: Path) -> None:
    for content in (
        b"",
        b"[]",
        b"{}",
        b'{"log_id": "zz"}',
        b'{"log_id": "", "start": 1, "end": 2, "epochs": [["", 0, 1]]}',
    ):
        (tmp_path / "note").write_bytes(content)
        assert read_note(tmp_path / "note") is None


def test_a_promoted_log_that_was_kept_as_a_diverged_copy_is_such_a_copy(tmp_path: Path) -> None:
    failover = taken_log(tmp_path)
    log_id = LogReading(FrozenDisk(RealDisk(tmp_path / LOG))).identity
    parent = tmp_path / "promoted" / f"{log_id.log_id.hex()}.diverged-3"
    parent.mkdir(parents=True)
    (tmp_path / LOG).rename(parent / "log")
    directory, name = DivergedDirectory(tmp_path, NUMBER), f"promoted/{parent.name}"
    held = directory.read(name)
    common = failover.common([(epoch.pack(), start) for epoch, start in held.epochs], held.end)
    made = salvage(tmp_path, name, common)
    assert ends(place(tmp_path, made)) == {"t": [(2, 4)], "u": [(0, 1)]}
    directory.remove(name)
    assert PromotedDirectory(tmp_path).found() == [made]


def test_what_is_left_of_the_own_log_says_what_was_made_of_it(tmp_path: Path) -> None:
    made = succeed_failover(tmp_path, taken_log(tmp_path), 1 << 40, 0)
    directory = DivergedDirectory(tmp_path, NUMBER)
    (found,) = directory.found()
    assert found.is_own
    assert found.note == Note(made.log_id, made.common, CopyExtent(made.parent.position, made.epochs))
    assert directory.read(found.name) == found.note.held
    again = directory.salvage(found.name, found.note.held, 0)  # another leader has nothing of it
    assert again.messages == 5
    assert [one.note.log_id for one in directory.found() if one.note] == [again.log_id]
    note_of(tmp_path / found.name).unlink()
    assert directory.found() == []  # nothing says what was made of it


def test_a_copy_that_is_no_log_cannot_be_read(tmp_path: Path) -> None:
    name, common = keep_diverged(tmp_path)
    directory = DivergedDirectory(tmp_path, NUMBER)
    for file in (tmp_path / name).glob("*.log.*"):
        file.unlink()
    with pytest.raises(OSError):
        directory.read(name)
    with pytest.raises(OSError):
        directory.salvage("replicas/nothing", CopyExtent(1, ()), common)
