"""Commands read back messages of a dead node, and back them up, on the node that has promoted its log."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from nsqd.storage.log.records import decode_header
from tests.daemons import Daemon, eventually, nsqd, post, publish, run
from tests.processes.test_cluster import in_sync
from tests.processes.test_cluster import node as node  # the fixture

pytestmark = pytest.mark.process

NodeMaker = Callable[..., Daemon]
COUNT = 30


def get(daemon: Daemon, path: str, **arguments: object) -> httpx.Response:
    params = {name.removesuffix("_"): str(value) for name, value in arguments.items()}
    return httpx.get(f"http://{daemon.http}{path}", params=params, timeout=60)


def bodies(daemon: Daemon, **arguments: object) -> list[str]:
    answer = get(daemon, "/topic/read", **arguments)
    assert answer.status_code == 200, answer.text
    return [json.loads(line)["body"] for line in answer.text.splitlines()]


def fill(daemon: Daemon, name: str = "t") -> None:
    """Publish COUNT messages that are retained, and set a cursor behind the fifth one."""
    post(daemon, "/topic/create", topic=name, retention="1h")
    publish(daemon, name, *(f"{name} {number}" for number in range(COUNT)))
    post(daemon, "/topic/cursor", topic=name, name="reader", to="5")


def promoted_directory(tmp_path: Path) -> str:
    """Give node 0 the log of node 9, which is gone. Returns the id of that log."""
    with nsqd(tmp_path / "gone", "-node-id", "9") as gone:
        fill(gone)
    files = tmp_path / "gone" / "log"
    log_id = decode_header(max(files.glob("*.log")).read_bytes()).log_id.hex()
    place = tmp_path / "0" / "promoted" / log_id
    place.mkdir(parents=True)
    shutil.copytree(files, place / "log")
    return log_id


def is_serving(daemon: Daemon, log_id: str) -> bool:
    led: list[dict[str, Any]] = get(daemon, "/cluster").json()["led"]
    return any(one["log_id"] == log_id and one["state"] == "serving" for one in led)


def read(daemon: Daemon, *arguments: str) -> list[str]:
    done = run("penstock", "read", "t", "--nsqd-http-address", daemon.http, *arguments)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout.splitlines()


def test_the_command_reads_one_log_or_the_logs_of_all_nodes(node: NodeMaker, tmp_path: Path) -> None:
    log_id = promoted_directory(tmp_path)
    promoted = [f"t {number}" for number in range(COUNT)]
    with node(0) as first, node(1, first) as second:
        eventually(lambda: is_serving(first, log_id))
        eventually(lambda: in_sync(second) == {0})
        post(second, "/topic/create", topic="t", retention="1h")
        publish(second, "t", "mine")
        assert read(second, "--log", log_id) == promoted, "another node has it"
        assert read(second, "--log", log_id, "--from", "28", "--limit", "1") == ["t 28"]
        assert read(second, "--log", log_id, "--cursor", "reader") == promoted[5:]
        assert read(second, "--log", log_id, "--cursor", "reader") == []
        assert read(second, "--all-nodes") == [*promoted, "mine"]
        response = [json.loads(line) for line in read(second, "--all-nodes", "--json", "--from=-1h")]
        assert [one["node"] for one in response] == [9] * COUNT + [1]
        assert response[0]["log"].startswith(log_id)
        assert read(second, "--all-nodes", "--limit", "2") == promoted[:2]
        for wrong, why in (("--from=5", "an offset belongs to one log"), ("--follow", "neither --follow")):
            done = run("penstock", "read", "t", "--nsqd-http-address", second.http, "--all-nodes", wrong)
            assert (done.returncode, why in done.stderr) == (2, True)
        done = run("penstock", "read", "t", "--nsqd-http-address", second.http, "--log", "0" * 32)
        assert (done.returncode, "no node that answers has a log" in done.stderr) == (1, True)


def test_a_backup_names_the_promoted_logs_and_copies_one_of_them(node: NodeMaker, tmp_path: Path) -> None:
    log_id, at = promoted_directory(tmp_path), ("--nsqd-http-address",)
    with node(0) as first:
        eventually(lambda: is_serving(first, log_id))
        (response,) = get(first, "/storage").json()["promoted"]
        assert (response["log"], response["node"]) == (log_id, 9)
        assert response["segments"] > 0
        assert 0 <= response["live_bytes"] < response["log_bytes"]
        publish(first, "own", "mine")
        done = run("penstock", "backup", str(tmp_path / "backup"), *at, first.http)
        assert done.returncode == 0
        assert f"left out the log {log_id} of node 9" in done.stderr
        assert not (tmp_path / "backup" / "promoted").exists()
        done = run("penstock", "backup", str(tmp_path / "one"), "--log", log_id, *at, first.http)
        assert (done.returncode, done.stderr) == (0, "")
        assert run("penstock", "backup", str(tmp_path / "none"), "--log", "0" * 32, *at, first.http).returncode == 1
        done = run("penstock", "recover", str(tmp_path / "gone-again"), "--node", "9", "--from", first.http)
        assert f"{first.http} has promoted the log {log_id} of node 9" in done.stderr
    assert run("penstock", "restore", str(tmp_path / "one"), str(tmp_path / "new")).returncode == 0
    with nsqd(tmp_path / "new", "-node-id", "9") as restored:
        assert bodies(restored, topic="t") == [f"t {number}" for number in range(COUNT)]
    done = run("penstock", "restore", str(tmp_path / "0"), str(tmp_path / "other"), "--json")
    assert (done.returncode, json.loads(done.stdout)["left_out"]) == (0, [log_id])
    assert f"left out the log {log_id}" in done.stderr
