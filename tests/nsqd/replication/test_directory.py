"""The directories of mirrors: one that cannot be read costs itself, and not the start of the node."""

from __future__ import annotations

from pathlib import Path

from nsqd.replication.directory import MirrorDirectory
from nsqd.storage.mirror.manifest import NAME, Manifest, write_manifest

GOOD, BAD = bytes(16), bytes([1] * 16)


def test_a_mirror_that_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    directory = MirrorDirectory(tmp_path)
    assert directory.found() == []
    write_manifest(directory.open(GOOD), Manifest(GOOD, 7))
    directory.open(BAD)
    (directory.path / BAD.hex() / NAME).mkdir()  # opening it fails, as a disk that is failing does
    assert directory.found() == [(GOOD, 7)]
