"""`penstock support-bundle`: the contents of the archive."""

import json
import tarfile
from pathlib import Path

import pytest

from tests.admin.terminal.program import Terminal, post
from tests.local_node import LocalNode


def test_the_state_of_all_daemons_without_messages(
    nodes: list[LocalNode], terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    post(nodes[0], "/pub", b"a secret body", topic="orders")
    monkeypatch.setattr("platform.platform", lambda: "Linux-6.1")  # it starts uname
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data/logs").mkdir(parents=True)
    (tmp_path / "data/logs/nsqd.log").write_text("a line\n")
    path = tmp_path / "state.tar.gz"
    code, out, error = terminal("support-bundle", str(path))
    assert (code, error) == (0, "")
    assert out.startswith(f"{path} has ")
    assert path.stat().st_mode & 0o777 == 0o600
    with tarfile.open(path) as archive:
        files = {one.name: archive.extractfile(one).read() for one in archive.getmembers()}  # type: ignore[union-attr]
    assert json.loads(files["penstock/127.0.0.1-4151/stats"])["topics"][0]["topic_name"] == "orders"
    assert files["penstock/logs/nsqd.log"] == b"a line\n"
    assert b"\nLinux-6.1\n" in files["penstock/machine.txt"]
    assert b"127.0.0.1-4251/storage" in files["penstock/MANIFEST"]
    assert "penstock/127.0.0.1-4161/nodes" in files
    assert not any(b"secret" in content for content in files.values())
    code, _, error = terminal("support-bundle", str(path))  # it replaces no file
    assert (code, f"{path}: File exists" in error) == (1, True)
