"""Logs that another node leads than the one that published them: verified, promoted by an operator, handed over."""

import json
import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from nsqd.storage.log.records import decode_header
from tests.daemons import OK, Conversation, Daemon, eventually, nsqd, post, publish, run
from tests.processes.test_cluster import node as node  # the fixture
from tests.processes.test_cluster import nodes_of
from tests.processes.test_cluster_chaos import again, create
from tests.processes.test_failover import (
    PATIENCE,
    NodeMaker,
    cluster_of,
    figures,
    log_of,
    new_leader,
    numbered,
    received,
    taken,
)

pytestmark = pytest.mark.process


def log_of_a_lost_node(tmp_path: Path) -> tuple[str, Path]:
    """Return the id of the log of node 9, which is gone, with messages in it, and where it is."""
    with nsqd(tmp_path / "gone", "-node-id", "9") as gone:
        publish(gone, "t", *(b"message %d" % number for number in range(3)))
    files = tmp_path / "gone" / "log"
    return decode_header(max(files.glob("*.log")).read_bytes()).log_id.hex(), files


def test_verify_checks_promoted_and_old_logs_too(tmp_path: Path) -> None:
    log_id, files = log_of_a_lost_node(tmp_path)
    with nsqd(tmp_path / "0"):
        pass
    promoted = tmp_path / "0" / "promoted" / log_id / "log"
    old = tmp_path / "0" / "diverged" / log_id
    for place in (promoted, old):
        shutil.copytree(files, place)
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


def elections(daemon: Daemon) -> dict[str, Any]:
    found: dict[str, Any] = figures(daemon)["elections"]
    return found


def of_node(daemon: Daemon, number: int) -> dict[str, Any]:
    return next((one for one in elections(daemon)["logs"] if one["leader"] == number), {"clean": False})


def test_an_operator_promotes_a_log_that_no_node_would_promote(node: NodeMaker) -> None:
    with ExitStack() as stack:
        first, second, third = cluster_of(stack, node, 3, failover_quorum="none")

        def promote(*words: str) -> tuple[int, str, str]:
            done = run("penstock", "cluster", "promote", "--nsqd-http-address", second.http, *words)
            return done.returncode, done.stdout, done.stderr

        eventually(lambda: all(of_node(one, 0)["clean"] for one in (second, third)))
        lost = of_node(second, 0)["log_id"]
        for words, why in (
            (("--log", lost), "it is not lost"),
            (("--node", "0"), "knows no log whose leader is node 0 and is lost"),
            (("--log", "00" * 16), "no whole copy"),
            (("--log", "x"), "is not a log id"),
        ):
            code, _, response = promote(*words)
            assert (code, why in response) == (1, True), response
        assert httpx.post(f"http://{second.http}/cluster/promote").json()["message"] == "MISSING_ARG_LOG"
        first.kill()
        eventually(lambda: of_node(second, 0)["leader_lost"])
        code, promoted, _ = promote("--node", "0", "--json")
        assert (code, promoted) in [(0, json.dumps({"logs": {lost: number}}) + "\n") for number in (1, 2)]
        assert sum(elections(one)["won"]["unclean"] for one in (second, third)) == 1


def schedules(daemon: Daemon) -> dict[str, Any]:
    """Return the only schedule that a node has, if any."""
    found: list[dict[str, Any]] = httpx.get(f"http://{daemon.http}/schedules").json()["schedules"]
    assert len(found) <= 1
    return found[0] if found else {}


@pytest.mark.parametrize("quorum", [pytest.param("none", marks=pytest.mark.campaign), "majority"])
def test_a_node_that_leaves_hands_its_log_over_and_may_come_back_with_another_one(node: NodeMaker, quorum: str) -> None:
    flags = {"failover_quorum": quorum, "unclean_after": "1h"}
    with ExitStack() as stack:
        first, *others = cluster_of(stack, node, 3, **flags)
        log_id = log_of(first, 0)
        create(first, two=2)
        publish(first, "two", *numbered(0, 20))
        post(first, "/schedule", b"x", topic="ticks", name="n", every="1s")
        finished = received(first, "two", 5)
        leaving = run("penstock", "leave", "--nsqd-http-address", first.http, timeout=PATIENCE)
        assert (leaving.returncode, leaving.stderr) == (0, "")
        assert leaving.stdout.splitlines()[-1] == "the node has left the cluster"
        assert first.wait() == 0, first.stderr
        leader = new_leader(log_id, *others)
        assert all(nodes_of(daemon)[0]["standing"] == "left" for daemon in others)
        with Conversation(leader, b"  V2SUB two c\nRDY 5\n") as consumer:
            assert consumer.frame() == OK
            assert sorted(finished + taken(consumer, 15), key=int) == numbered(0, 20)
        eventually(lambda: schedules(leader).get("last", 0) > 0)
        before = schedules(leader)["last"]
        eventually(lambda: schedules(leader)["last"] > before)
        back = again(stack, node, 0, first, leader, **flags)
        eventually(lambda: nodes_of(leader)[0]["standing"] == "member")
        assert log_of(back, 0) not in ("", log_id)
        assert schedules(back) == {}
