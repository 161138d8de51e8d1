"""A real node that leads a promoted log: it opens that at each start, beside its own one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from nsqd.storage.log.records import decode_header
from tests.daemons import Daemon, eventually, nsqd, publish, run
from tests.processes.test_cluster import connected, node

__all__ = ["node"]  # a fixture


def led(daemon: Daemon) -> list[dict[str, Any]]:
    led: list[dict[str, Any]] = httpx.get(f"http://{daemon.http}/cluster").json()["led"]
    return led


def lost_log(tmp_path: Path) -> tuple[str, Path]:
    """Return the id of the log of a node that is gone, with messages in it, and where it is."""
    directory = tmp_path / "gone"
    with nsqd(directory, "-node-id", "9") as gone:
        publish(gone, "t", *(b"message %d" % number for number in range(3)))
    newest = max((directory / "log").glob("*.log"))
    return decode_header(newest.read_bytes()).log_id.hex(), directory / "log"


def test_a_node_opens_its_promoted_logs_at_each_start(node: Callable[..., Daemon], tmp_path: Path) -> None:
    log_id, files = lost_log(tmp_path)
    place = tmp_path / "0" / "promoted" / log_id
    place.mkdir(parents=True)
    shutil.copytree(files, place / "log")
    epochs = []
    for _ in range(2):
        with node(0) as first, node(1, first) as second:
            eventually(lambda: connected(first) == {1})
            eventually(lambda: [one["state"] for one in led(first)] == ["serving", "serving"])
            own, promoted = led(first)
            assert (own["node"], promoted["node"], promoted["log_id"]) == (0, 9, log_id)
            assert (promoted["topics"], promoted["opening"]) == (1, False)
            epochs.append(promoted["epochs"][-1][0])
            eventually(lambda: connected(second) == {0})
    first_epoch, second_epoch = (bytes.fromhex(epoch) for epoch in epochs)
    assert first_epoch[:6] < second_epoch[:6], "each start is a later epoch, of the node that leads the log"
    assert {epoch[4:6] for epoch in (first_epoch, second_epoch)} == {bytes(2)}


def test_verify_checks_promoted_and_old_logs_too(tmp_path: Path) -> None:
    log_id, files = lost_log(tmp_path)
    with nsqd(tmp_path / "0"):
        pass
    promoted = tmp_path / "0" / "promoted" / log_id / "log"
    shutil.copytree(files, promoted)
    old = tmp_path / "0" / "diverged" / log_id
    shutil.copytree(files, old)
    done = run("penstock", "verify", str(tmp_path / "0"))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"promoted log {log_id}: ")
    assert "topic t: 3 published, 3 live" in done.stdout
    assert f"log {log_id}: " in run("penstock", "verify", str(old)).stdout
    assert run("penstock", "restore", str(old), str(tmp_path / "copy")).returncode == 0
    newest = max(promoted.glob("*.log"))
    content = bytearray(newest.read_bytes())
    content[content.index(b"message 1")] ^= 1
    newest.write_bytes(content)
    done = run("penstock", "verify", str(tmp_path / "0"), "--json")
    assert done.returncode == 1
    assert [bool(one["damage"]) for one in json.loads(done.stdout)["promoted"]] == [True]
