"""The real disk, where the simulated one cannot serve."""

import resource
from pathlib import Path

import pytest

from nsqd.storage.log.disk import RealDisk


def test_the_directory_is_synced_without_a_descriptor_left(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path / "log")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            disk.create("x")
        disk.sync_directory()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
