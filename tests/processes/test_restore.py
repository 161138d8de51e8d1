"""`penstock restore`: a data directory from a backup, with a log of its own that continues the old one."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from nsqd.cluster.membership.cluster_json import read_facts, write_facts
from nsqd.cluster.membership.facts import ClusterFacts
from nsqd.cluster.membership.leaders import Vote
from nsqd.core.message.epoch import Epoch
from nsqd.core.message.ids import LEASE
from tests.daemons import Daemon, drained, nsqd, post, publish, run

pytestmark = pytest.mark.process


def files(directory: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(directory)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in directory.rglob("*")
        if path.is_file()
    }


def read(node: Daemon, **arguments: str) -> httpx.Response:
    return httpx.get(f"http://{node.http}/topic/read", params={"topic": "t", **arguments})


def lines(answer: httpx.Response) -> list[dict[str, Any]]:
    return [json.loads(line) for line in answer.text.splitlines()]


def test_a_backup_becomes_a_log_of_its_own_that_continues_the_old_one(tmp_path: Path) -> None:
    backup, target = tmp_path / "backup", tmp_path / "new"
    (tmp_path / "node").mkdir()
    with nsqd(tmp_path / "node", "-node-id", "5") as node:
        post(node, "/topic/create", topic="t", retention="1h")
        post(node, "/channel/create", topic="t", channel="c")
        post(node, "/topic/cursor", topic="t", name="reader")
        publish(node, "t", *(b"%d" % number for number in range(100)))
        post(node, "/schedule", b"x", topic="t", name="n", every="999h")
        schedule = httpx.get(f"http://{node.http}/schedules").json()
        assert run("penstock", "backup", str(backup), "--nsqd-http-address", node.http).returncode == 0
        publish(node, "t", *(b"lost %d" % number for number in range(10)))
        old = read(node)
        last = lines(old)[-1]["id"]
    before = files(backup)
    done = run("penstock", "restore", str(backup), str(target), "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert files(backup) == before, "the backup is not touched"
    assert not target.with_name("new.partial").exists()
    response = json.loads(done.stdout)
    log, parent = response["log"], response["parent"]
    assert (response["node"], response["damage"], response["torn_bytes"]) == (5, [], 0)
    assert old.headers["X-Nsq-Log"] == f"{parent}-1"
    assert log != parent
    assert run("penstock", "verify", str(target)).stdout.splitlines()[0].startswith(f"log {log}")
    with nsqd(target, "-node-id", "5") as node:
        answer = read(node, log=f"{parent}-1", to="100")
        assert answer.headers["X-Nsq-Log"] == f"{log}-1"
        assert lines(answer) == lines(old)[:100]
        beyond = read(node, log=f"{parent}-1", to="101")
        assert (beyond.status_code, beyond.json()["message"]) == (409, "OTHER_LOG")
        assert beyond.headers["X-Nsq-Restored-Offset"] == "100"
        assert read(node, log=f"{parent}-2").status_code == 409
        offsets = httpx.get(f"http://{node.http}/topic/offsets", params={"topic": "t"}).json()
        assert offsets["parents"] == [{"log": f"{parent}-1", "next": 100}]
        post(node, "/topic/cursor", topic="t", name="reader", to="50", log=f"{parent}-1")
        publish(node, "t", b"after")
        new = lines(read(node, **{"from": "100"}))
        assert [each["body"] for each in new] == ["after"]
        assert int(new[0]["id"], 16) >= int(response["first_id"], 16) >= int(last, 16) + 2 * LEASE
        assert len(drained(node, "t", "c", 101)) == 101
        assert httpx.get(f"http://{node.http}/schedules").json() == schedule


def test_a_damaged_backup_is_restored_only_if_that_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "node").mkdir()
    with nsqd(tmp_path / "node") as node:
        post(node, "/topic/create", topic="t", retention="1h")
        for number in range(100):
            publish(node, "t", b"body %d" % number)
    segment = max((tmp_path / "node" / "log").glob("*.log"), key=lambda path: path.stat().st_size)
    data = bytearray(segment.read_bytes())
    data[data.index(b"body 50")] ^= 1
    segment.write_bytes(data)
    command = ("penstock", "restore", str(tmp_path / "node"), str(tmp_path / "new"))
    refused = run(*command)
    assert (refused.returncode, f"penstock verify {tmp_path / 'node'}" in refused.stderr) == (1, True)
    forced = run(*command, "--force")
    assert (forced.returncode, f"DAMAGE in {segment.name}" in forced.stdout) == (3, True)
    assert segment.read_bytes() == data
    with nsqd(tmp_path / "new") as node:
        answer = read(node)
        assert (len(lines(answer)), answer.headers["X-Nsq-Missing"]) == (99, "1")


# a cluster


def cluster(node: Daemon) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(f"http://{node.http}/cluster").json()
    return found


def test_a_copy_keeps_the_promises_and_leads_no_log_that_is_not_in_it(tmp_path: Path) -> None:
    with nsqd(tmp_path / "0") as node:
        publish(node, "t", b"x")
    log_id, votes = bytes(range(16)), ((bytes(range(16)), Vote(200, 1)),)
    write_facts(tmp_path / "0", ClusterFacts(7, (), (), ((log_id, Epoch(101, 0, bytes(8))),), votes))
    assert run("penstock", "restore", str(tmp_path / "0"), str(tmp_path / "copy")).returncode == 0
    assert read_facts(tmp_path / "copy") == ClusterFacts(7, (), (), (), votes)
