"""Logs that another node leads than the one that published them: promoted, opened at each start, handed over, closed."""

from __future__ import annotations

import json
import shutil
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from nsqd.storage.log.records import decode_header
from tests.daemons import OK, Conversation, Daemon, eventually, nsqd, post, publish, run
from tests.processes.test_cluster import connected, nodes_of, publish_to
from tests.processes.test_cluster import node as node  # the fixture
from tests.processes.test_cluster_chaos import again, create
from tests.processes.test_failover import (
    MAJORITY,
    NodeMaker,
    cluster_of,
    figures,
    led,
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


def test_a_node_opens_its_promoted_logs_at_each_start(node: NodeMaker, tmp_path: Path) -> None:
    log_id, files = log_of_a_lost_node(tmp_path)
    shutil.copytree(files, tmp_path / "0" / "promoted" / log_id / "log")
    epochs = []
    for _ in range(2):
        with node(0) as first, node(1, first) as second:
            eventually(lambda: connected(first) == {1})
            eventually(lambda: [one["state"] for one in figures(first)["led"]] == ["serving", "serving"])
            own, promoted = figures(first)["led"]
            assert (own["node"], promoted["node"], promoted["log_id"]) == (0, 9, log_id)
            assert (promoted["topics"], promoted["opening"]) == (1, False)
            epochs.append(bytes.fromhex(promoted["epochs"][-1][0]))
            eventually(lambda: connected(second) == {0})
    assert epochs[0][:6] < epochs[1][:6], "each start is a later epoch, of the node that leads the log"
    assert {epoch[4:6] for epoch in epochs} == {bytes(2)}


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


# elections


def elections(daemon: Daemon) -> dict[str, Any]:
    found: dict[str, Any] = figures(daemon)["elections"]
    return found


def of_node(daemon: Daemon, number: int) -> dict[str, Any]:
    return next((one for one in elections(daemon)["logs"] if one["leader"] == number), {"clean": False})


def test_no_node_promotes_the_log_of_a_node_in_contact_with_nsqlookupd(node: NodeMaker) -> None:
    """Two nodes are partitioned from the third, and nsqlookupd is in contact with both sides."""
    with ExitStack() as stack:
        lookupd = stack.enter_context(Daemon("nsqlookupd"))
        first, *others = cluster_of(stack, node, 3, lookupd_tcp_address=lookupd.tcp, debug_routes="true", **MAJORITY)
        for daemon in (first, *others):
            daemon.wait_for_line("its HTTP API is at")
        eventually(lambda: all(of_node(one, 0)["clean"] for one in others))
        for daemon in others:
            httpx.post(f"http://{daemon.http}/debug/cluster/cut?node=0").raise_for_status()
        eventually(lambda: sum(elections(one)["postponed"] for one in others) > 2)
        assert [elections(one)["won"] for one in others] == [{"clean": 0, "unclean": 0}] * 2
        assert publish_to(first, "orders")[0] == 200
        first.kill()
        eventually(lambda: sum(elections(one)["won"]["clean"] for one in others) > 0)


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
        assert promote("--node", "0", "--json")[:2] == (0, json.dumps({"logs": [lost]}) + "\n")
        eventually(lambda: sum(elections(one)["won"]["unclean"] for one in (second, third)) == 1)


# the end of a promoted log


def copies(directory: Path, log_id: str) -> list[str]:
    """The directories that nodes have of a log, whatever it is to them."""
    return sorted(str(path.relative_to(directory)) for path in directory.glob(f"*/*/{log_id}*"))


def closed(daemon: Daemon) -> set[str]:
    return {one["log_id"] for one in figures(daemon)["closed"]}


def test_a_promoted_log_that_owes_nothing_is_closed_and_all_copies_of_it_go(node: NodeMaker, tmp_path: Path) -> None:
    with ExitStack() as stack:
        first, *others = cluster_of(stack, node, 3, **MAJORITY)
        lost = log_of(first, 0)
        create(first, two=2)
        publish(first, "two", *numbered(0, 20))
        # node 1, which claims first, has no such topic
        post(others[1], "/topic/create", topic="two", retention="5m")
        first.process.send_signal(signal.SIGKILL)
        leader = new_leader(lost, *others)
        config = httpx.get(f"http://{leader.http}/topic/config?topic=two").json()
        assert (config["retention"], config["of_its_own"][:1]) == ("5m0s", ["retention"]), "the last configuration"
        post(leader, "/topic/config", topic="two", retention="0s")
        (third,) = [daemon for daemon in others if daemon is not leader]
        back = again(stack, node, 0, first, leader, **MAJORITY)
        eventually(lambda: log_of(back, 0) not in ("", lost))
        eventually(lambda: len(copies(tmp_path, lost)) == 4)  # promoted, two replicas, and the old one
        number = others.index(third) + 1
        third.kill()  # it keeps its replica while the others forget the log
        with Conversation(leader, b"  V2SUB two c\nRDY 10\n") as consumer:
            assert consumer.frame() == OK
            assert len(taken(consumer, 20)) == 20
        eventually(lambda: copies(tmp_path, lost) == [f"{number}/replicas/{lost}"])
        assert lost in closed(leader) & closed(back)
        returned = again(stack, node, number, third, back, **MAJORITY)
        eventually(lambda: not copies(tmp_path, lost))
        assert lost in closed(returned)  # beside its own, where it was away for long enough to be taken over
        assert not any(lost in led(daemon) for daemon in (leader, back, returned))


# a node that leaves


@pytest.mark.parametrize("quorum", [pytest.param("none", marks=pytest.mark.campaign), "majority"])
def test_a_node_that_leaves_hands_its_log_over_and_may_come_back_with_another_one(node: NodeMaker, quorum: str) -> None:
    flags = {"failover_quorum": quorum, "unclean_after": "1h"}
    with ExitStack() as stack:
        first, *others = cluster_of(stack, node, 3, **flags)
        log_id = log_of(first, 0)
        create(first, two=2)
        publish(first, "two", *numbered(0, 20))
        finished = received(first, "two", 5)
        leaving = run("penstock", "leave", "--nsqd-http-address", first.http, timeout=90)
        assert (leaving.returncode, leaving.stderr) == (0, "")
        assert leaving.stdout.splitlines()[-1] == "the node has left the cluster"
        assert first.process.wait(30) == 0, first.stderr
        leader = new_leader(log_id, *others)
        assert all(nodes_of(daemon)[0]["standing"] == "left" for daemon in others)
        with Conversation(leader, b"  V2SUB two c\nRDY 5\n") as consumer:
            assert consumer.frame() == OK
            assert sorted(finished + taken(consumer, 15), key=int) == numbered(0, 20)
        back = again(stack, node, 0, first, leader, **flags)
        eventually(lambda: nodes_of(leader)[0]["standing"] == "member")
        assert log_of(back, 0) not in ("", log_id)
