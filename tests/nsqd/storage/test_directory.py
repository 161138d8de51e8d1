"""nsqd.dat: who paused what, when and until when, as it is written; and what becomes of what nobody has written so."""

import json
import logging
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from nsqd.core.timing.pause import Pause
from nsqd.core.topology import ChannelEntry, TopicEntry, TopologySnapshot, changes
from nsqd.storage.directory import FILE, DataDirectory, LockError

TOPICS = [TopicEntry("t", True, ())]
GOOD = {"topic": "t", "channel": "", "by": "ann", "at": 5, "until": 9}


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[DataDirectory]:
    with closing(DataDirectory(str(tmp_path))) as directory:
        yield directory


def reread(directory: DataDirectory) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((directory.path / FILE).read_bytes())
    return found


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


def test_pauses_of_an_earlier_version_are_read_and_not_written_again(directory: DataDirectory) -> None:
    others = [
        GOOD | {"channel": "c", "by": "z\u00f6lf <b> \U0001f600", "until": 0},
        GOOD | {"topic": "a+b", "by": "", "at": 0},
    ]
    content = {"topics": [], "penstock": {"ids": 3, "pauses": [GOOD, *others]}}
    (directory.path / FILE).write_text(json.dumps(content))
    assert directory.load().pauses == (
        (("t", ""), Pause("ann", 5, 9)),
        (("t", "c"), Pause("z\u00f6lf <b> \U0001f600", 5)),
        (("a+b", ""), Pause("", 0, 9)),
    )
    directory.write_topology(TopologySnapshot(1, TOPICS))
    assert reread(directory)["penstock"].keys() == {"ids", "crc"}
    metadata = directory.load()
    assert (metadata.pauses, metadata.topics, metadata.ids) == ((), tuple(TOPICS), 3)


def test_an_older_picture_is_not_written_over_a_newer_one(directory: DataDirectory) -> None:
    directory.write_topology(TopologySnapshot(2, TOPICS))
    directory.write_topology(TopologySnapshot(1, []))
    assert directory.load().topics == tuple(TOPICS)


@pytest.mark.parametrize(
    "entry",
    [
        None, 7, "t", [], [GOOD], {}, GOOD | {"topic": 7}, GOOD | {"topic": None}, GOOD | {"channel": ["c"]},
        GOOD | {"by": None}, GOOD | {"by": "x" * 101}, GOOD | {"by": "a\nb"}, GOOD | {"by": "\ud800"}, GOOD | {"at": -1},
        GOOD | {"at": 1.5}, GOOD | {"at": True}, GOOD | {"at": "5"}, GOOD | {"until": -1}, GOOD | {"until": 10**30},
        GOOD | {"until": None}, GOOD | {"until": {}}, {key: GOOD[key] for key in ("topic", "channel", "by", "at")},
    ],
)  # fmt: skip
def test_what_is_no_pause_is_ignored_with_one_line(
    directory: DataDirectory, entry: Any, caplog: pytest.LogCaptureFixture
) -> None:
    topics = [{"name": "t", "paused": True, "channels": None}]
    content = {"topics": topics, "penstock": {"ids": 3, "pauses": [entry, GOOD | {"channel": "c"}, entry]}}
    (directory.path / FILE).write_text(json.dumps(content))
    with caplog.at_level(logging.WARNING):
        metadata = directory.load()
    assert metadata.pauses == ((("t", "c"), Pause("ann", 5, 9)),)
    assert (metadata.ids, metadata.topics) == (3, tuple(TOPICS))
    assert caplog.messages == ["nsqd.dat: ignored 2 invalid entries of penstock.pauses"]


@pytest.mark.parametrize("pauses", [{}, {"t": GOOD}, "x", 7, True, ""])
def test_what_is_no_list_is_ignored(directory: DataDirectory, pauses: Any) -> None:
    (directory.path / FILE).write_text(json.dumps({"topics": [], "penstock": {"pauses": pauses}}))
    assert directory.load().pauses == ()


def test_what_we_wrote_is_ours_however_it_is_laid_out(directory: DataDirectory) -> None:
    directory.write_topology(TopologySnapshot(1, TOPICS))
    assert directory.load().is_ours
    (directory.path / FILE).write_text(json.dumps(reread(directory), indent=4, sort_keys=True))
    assert directory.load().is_ours


def test_what_a_version_without_a_crc_wrote_is_ours(directory: DataDirectory) -> None:
    (directory.path / FILE).write_text(json.dumps({"topics": [], "penstock": {"ids": 3}}))
    assert directory.load().is_ours


def test_what_another_wrote_is_not_ours_until_we_write_it_again(directory: DataDirectory) -> None:
    directory.write_topology(TopologySnapshot(1, TOPICS))
    content = reread(directory)
    content["topics"][0]["paused"] = False
    (directory.path / FILE).write_text(json.dumps(content))
    assert not directory.load().is_ours
    (directory.path / FILE).write_text('{"topics":[{"name":"t","paused":true,"channels":null}],"version":"1.3.0"}')
    assert not directory.load().is_ours  # NSQ's own
    directory.write_topology(TopologySnapshot(2, TOPICS))
    assert reread(directory)["penstock"]["ids"] == 1
    assert directory.load().is_ours


@pytest.mark.parametrize(
    ("after", "words"),
    [
        ([], ["delete topic t", "delete channel c of topic t"]),
        ([TopicEntry("t", False, (ChannelEntry("c", True),))], ["unpause topic t", "pause channel c of topic t"][::-1]),
        (
            [TopicEntry("t", True, (ChannelEntry("c", False),)), TopicEntry("u", True, ())],
            ["create topic u", "pause topic u"],
        ),
        ([TopicEntry("t", True, (ChannelEntry("c", False),))], []),
    ],
)
def test_changes_are_told_in_words(after: list[TopicEntry], words: list[str]) -> None:
    assert changes([TopicEntry("t", True, (ChannelEntry("c", False),))], after) == words
