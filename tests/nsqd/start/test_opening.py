"""A node reads the nsqd.dat that it finds at its start, with or without a log."""

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from nsqd.core.broker import Broker
from nsqd.core.topology import TopologySnapshot, snapshot
from nsqd.options import NsqdOptions
from nsqd.start.opening import open_directory
from nsqd.storage.directory import DataDirectory, DirectoryError
from tests.cases import each

BAD = [b"", b"{", b"[]", b'{"topics":7}', b'{"topics":[{"name":7}]}', b"\xff\xfe", b'{"topics":[[]]}', b"null", b"7"]


@contextmanager
def started(path: Path, **options: Any) -> Iterator[Broker]:
    """Open the directory as a start does, and write nsqd.dat and close the log as a stop does."""
    with closing(DataDirectory(str(path))) as directory:
        opened = open_directory(NsqdOptions(node_id=7, **options), directory)
        with closing(opened.log):
            yield opened.broker
            opened.broker.commit()
            assert opened.log.syncer.now()
        directory.write_topology(TopologySnapshot(1, snapshot(opened.broker)))


def paused(broker: Broker) -> dict[str, tuple[bool, dict[str, bool]]]:
    return {
        topic.name: (topic.paused, {channel.name: channel.paused for channel in topic.channels})
        for topic in snapshot(broker)
    }


def provision(path: Path, *topics: dict[str, Any]) -> None:
    (path / "nsqd.dat").write_text(json.dumps({"topics": topics, "version": "1.3.0"}))


@each("content", [*BAD, b"[" * 100_000])
def test_metadata_of_another_program_is_refused_and_kept(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "nsqd.dat").write_bytes(content)
    with pytest.raises(DirectoryError, match=r"^failed to load metadata - "), started(tmp_path):
        pass
    assert (tmp_path / "nsqd.dat").read_bytes() == content
    assert not (tmp_path / "log").exists()


@pytest.mark.parametrize("content", [*BAD, b"[" * 100_000])
def test_a_damaged_file_beside_a_log_is_renamed(
    content: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with started(tmp_path) as broker:
        broker.topic("kept")
    (tmp_path / "nsqd.dat").write_bytes(content)
    with started(tmp_path) as broker:
        assert paused(broker) == {"kept": (False, {})}
    assert "the log has all topics, so the file is renamed to nsqd.dat.damaged" in caplog.text
    assert "ignoring" not in caplog.text
    assert (tmp_path / "nsqd.dat.damaged").read_bytes() == content
    assert [topic["name"] for topic in json.loads((tmp_path / "nsqd.dat").read_text())["topics"]] == ["kept"]


def test_a_nsqd_dat_of_the_original_is_promoted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    channels = [{"name": "c", "paused": True}, {"name": "no/name", "paused": False}]
    provision(
        tmp_path,
        {"name": "t", "paused": True, "channels": channels},
        {"name": "n", "paused": False, "channels": None},
        {"name": "by hand#ephemeral", "paused": False, "channels": None},
        {"name": "hand#ephemeral", "paused": False, "channels": []},
    )
    with started(tmp_path) as broker:
        assert list(broker.topics) == ["t", "n", "hand#ephemeral"]
        assert paused(broker) == {"t": (True, {"c": True}), "n": (False, {})}
    assert [record.levelname for record in caplog.records].count("WARNING") == 2


def test_a_nsqd_dat_beside_a_log_lifts_no_pause_and_no_limit(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with started(tmp_path) as broker:
        broker.pause(broker.topic("a"), True)
    provision(tmp_path, *({"name": name, "paused": False, "channels": None} for name in ("a", "b", "c")))
    with started(tmp_path, max_topics=2) as broker:
        assert paused(broker) == {"a": (True, {}), "b": (False, {})}
    assert "cannot take all of nsqd.dat: topics exceed limit of 2" in caplog.text
