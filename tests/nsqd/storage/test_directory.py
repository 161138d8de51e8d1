"""nsqd.dat: it is read as it was written, and changes by another program are recognized."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from nsqd.core.topology import ChannelEntry, TopicEntry, TopologySnapshot, changes
from nsqd.storage.directory import FILE, DataDirectory, LockError
from tests.cases import each

TOPICS = [TopicEntry("t", True, ())]


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[DataDirectory]:
    with closing(DataDirectory(str(tmp_path))) as directory:
        yield directory


def reread(directory: DataDirectory) -> dict[str, Any]:
    return json.loads((directory.path / FILE).read_bytes())


def test_a_directory_has_one_owner(directory: DataDirectory) -> None:
    path = str(directory.path)
    with pytest.raises(LockError) as refused:
        DataDirectory(path)
    assert str(refused.value) == (
        f"failed to lock data-path: cannot flock directory {path} - resource temporarily unavailable "
        "(possibly in use by another instance of nsqd)"
    )


def test_a_missing_directory_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(LockError, match=r"^failed to lock data-path: .* - no such file or directory: "):
        DataDirectory(str(tmp_path / "missing"))
    assert not (tmp_path / "missing").exists()


def test_an_older_picture_is_not_written_over_a_newer_one(directory: DataDirectory) -> None:
    directory.write_topology(TopologySnapshot(2, TOPICS))
    directory.write_topology(TopologySnapshot(1, []))
    assert directory.load().topics == tuple(TOPICS)


def test_changes_by_another_program_are_recognized_until_the_next_write(directory: DataDirectory) -> None:
    directory.write_topology(TopologySnapshot(1, TOPICS))
    content = reread(directory)
    content["topics"][0]["paused"] = False
    (directory.path / FILE).write_text(json.dumps(content))
    assert not directory.load().is_own
    (directory.path / FILE).write_text('{"topics":[{"name":"t","paused":true,"channels":null}],"version":"1.3.0"}')
    assert not directory.load().is_own  # NSQ's own
    directory.write_topology(TopologySnapshot(2, TOPICS))
    assert reread(directory)["penstock"]["ids"] == 1
    assert directory.load().is_own


@each("after, expected", [
    ([], ["delete topic t", "delete channel c of topic t"]),
    ([TopicEntry("t", False, (ChannelEntry("c", True),))], ["unpause topic t", "pause channel c of topic t"][::-1]),
    (
        [TopicEntry("t", True, (ChannelEntry("c", False),)), TopicEntry("u", True, ())],
        ["create topic u", "pause topic u"],
    ),
    ([TopicEntry("t", True, (ChannelEntry("c", False),))], []),
])  # fmt: skip
def test_changes_are_described(after: list[TopicEntry], expected: list[str]) -> None:
    assert changes([TopicEntry("t", True, (ChannelEntry("c", False),))], after) == expected
