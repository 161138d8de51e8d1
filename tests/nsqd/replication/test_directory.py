"""The directories of mirrors: one that cannot be read costs itself, and not the start of the node."""

from __future__ import annotations

from pathlib import Path

from nsqd.replication.directory import AdoptedDirectory, MirrorDirectory
from nsqd.storage.mirror.manifest import NAME, Manifest, write_manifest

GOOD, BAD = bytes(16), bytes([1] * 16)


def test_a_mirror_that_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    directory = MirrorDirectory(tmp_path)
    assert directory.found() == []
    write_manifest(directory.open(GOOD), Manifest(GOOD, 7))
    directory.open(BAD)
    (directory.path / BAD.hex() / NAME).mkdir()  # opening it fails, as a disk that is failing does
    assert directory.found() == [(GOOD, 7)]


def test_the_directory_of_a_mirror_becomes_that_of_an_adopted_log(tmp_path: Path) -> None:
    mirrors, adopted = MirrorDirectory(tmp_path), AdoptedDirectory(tmp_path)
    assert adopted.found() == []
    for log_id in (GOOD, BAD):
        write_manifest(mirrors.open(log_id), Manifest(log_id, 7))
    (tmp_path / "adopted" / GOOD.hex()).mkdir(parents=True)  # a kill has left it
    assert adopted.found() == []
    assert adopted.move_mirror(GOOD).names() == [NAME]
    assert (mirrors.found(), adopted.found()) == ([(BAD, 7)], [GOOD])
    assert adopted.open(GOOD).names() == [NAME]
    aside = Path(adopted.set_aside(GOOD))
    assert (aside / "log" / NAME).exists()
    assert adopted.found() == []
    adopted.move_mirror(BAD)
    assert adopted.found() == [BAD]


def test_what_was_set_aside_is_never_replaced(tmp_path: Path) -> None:
    mirrors, adopted = MirrorDirectory(tmp_path), AdoptedDirectory(tmp_path)
    asides = set()
    for _ in range(2):
        write_manifest(mirrors.open(GOOD), Manifest(GOOD, 7))
        adopted.move_mirror(GOOD)
        asides.add(adopted.set_aside(GOOD))
    assert len(asides) == 2
