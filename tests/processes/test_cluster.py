"""Real nodes that form a cluster: they forget nodes, keep copies, and a lost node is rebuilt from one."""

import json
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.daemons import ERROR, OK, Conversation, Daemon, drained, eventually, post, publish, run, sized

SECRET = "the secret of this cluster"
FAILOVER_AFTER = "1h"  # of the nodes in this file: a busy machine pauses processes for seconds


@pytest.fixture
def node(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[..., Daemon]:
    """Make the node of that number, with a data directory of its own, and the file's FAILOVER_AFTER (3s)."""
    secret = tmp_path / "secret"
    secret.write_text(SECRET)

    def make(number: int, *peers: Daemon, **flags: str) -> Daemon:
        directory = tmp_path / str(number)
        directory.mkdir(exist_ok=True)
        given = {
            "cluster-address": "127.0.0.1:0",
            "cluster-secret-file": str(secret),
            "node-id": str(number),
            "data-path": str(directory),
            "failover-after": getattr(request.module, "FAILOVER_AFTER", "3s"),
        } | {name.replace("_", "-"): value for name, value in flags.items()}
        words = [f"-{name}={value}" for name, value in given.items()]
        words += [word for peer in peers for word in ("-cluster-peer", peer.addresses["CLUSTER"])]
        return Daemon("nsqd", *words, listens=("TCP", "HTTP", "CLUSTER"))

    return make


def nodes_of(daemon: Daemon) -> dict[int, dict[str, Any]]:
    answer = httpx.get(f"http://{daemon.http}/cluster").json()
    return {each["node"]: each for each in answer["nodes"]}


def connected(daemon: Daemon) -> set[int]:
    return {number for number, each in nodes_of(daemon).items() if each["connected"]}


def test_a_node_that_is_forgotten_is_refused_and_a_new_directory_has_its_number(
    node: Callable[..., Daemon], tmp_path: Path
) -> None:
    def away(daemon: Daemon) -> object:
        """The followers of a node that are not connected to it."""
        return httpx.get(f"http://{daemon.http}/cluster").json()["copies"]["away"]

    def forget(number: int, *words: str) -> subprocess.CompletedProcess[str]:
        return run("penstock", "cluster", "forget", "--node", str(number), "--nsqd-http-address", first.http, *words)

    alone = {"failover_quorum": "none"}  # no node promotes its log before it is forgotten
    with node(0, **alone) as first:
        with node(1, first) as second:
            address = second.addresses["CLUSTER"]
            with node(2, first, **alone) as third:
                eventually(lambda: connected(first) == {1, 2})
                for number, why in ((0, "is up"), (2, "is up"), (7, "no node of the cluster has the number 7")):
                    refused = forget(number)
                    assert (refused.returncode, why in refused.stderr) == (1, True), refused.stderr
                second.stop()
                eventually(lambda: connected(first) == {2})
                eventually(lambda: away(first) == [1])
                done = forget(1, "--json")
                assert (done.returncode, done.stdout) == (0, '{"forgotten": 1}\n'), done.stderr
                kept = json.loads((tmp_path / "0" / "cluster.json").read_text())["members"]
                assert [(one["number"], one["standing"]) for one in kept] == [(0, 0), (1, 2), (2, 0)]
                eventually(lambda: nodes_of(third)[1]["standing"] == "forgotten")
                eventually(lambda: away(first) == [])  # it is no longer a follower
        first.kill()
        with node(0, third, cluster_address=first.addresses["CLUSTER"], **alone) as first:
            assert nodes_of(first)[1]["standing"] == "forgotten", "known after a kill, before a peer reports it"
            with node(1, first, cluster_address=address) as again:
                assert "node 1 was forgotten" in again.wait_for_line("CLUSTER: rejected by the cluster")
                assert "node 1 was forgotten" in first.wait_for_line("WARNING: CLUSTER: refused")
                assert connected(first) == set()
            shutil.rmtree(tmp_path / "1")
            with node(1, first, cluster_address=address):
                eventually(lambda: connected(first) == {1})
                assert nodes_of(first)[1]["standing"] == "member"


def in_sync(daemon: Daemon) -> set[int]:
    answer = httpx.get(f"http://{daemon.http}/cluster").json()
    return {each["node"] for each in answer["followers"] if each["state"] == "in sync"}


def depth(daemon: Daemon, topic: str) -> int:
    """Messages that wait in the topic's channel."""
    topics = httpx.get(f"http://{daemon.http}/stats?format=json&topic={topic}").json()["topics"]
    return int(topics[0]["channels"][0]["depth"])


def publish_to(daemon: Daemon, topic: str, body: bytes = b"x") -> tuple[int, str]:
    answer = httpx.post(f"http://{daemon.http}/pub?topic={topic}", content=body)
    return answer.status_code, answer.text


def test_a_lost_node_is_made_again_from_a_copy_with_all_that_was_acknowledged(
    node: Callable[..., Daemon], tmp_path: Path
) -> None:
    alone = {"failover_quorum": "none"}  # no node promotes the log meanwhile

    def recover(directory: str, number: int, *words: str) -> subprocess.CompletedProcess[str]:
        place, numbered = str(tmp_path / directory), ("--node", str(number))
        return run("penstock", "recover", place, *numbered, "--from", second.http, *words)

    with node(0, **alone) as first, node(1, first, **alone) as second, node(2, first, **alone) as third:
        eventually(lambda: in_sync(first) == {1, 2})
        post(first, "/topic/create", topic="t", replicate="2")
        post(first, "/channel/create", topic="t", channel="c")
        for number in range(20):
            publish(first, "t", *(b"%d" % one for one in range(number * 100, number * 100 + 100)))
        lease = nodes_of(first)[0]["lease"]
        third.kill()
        refused = recover("new", 0)
        assert (refused.returncode, third.http in refused.stderr) == (1, True), "it does not answer"
        assert not (tmp_path / "new").exists()
        assert json.loads(recover("new", 0, "--force", "--json").stdout)["silent"] == [third.http]
        assert "no node that answers has a complete copy" in recover("other", 7, "--force").stderr
        first.kill()
        shutil.rmtree(tmp_path / "0")
        assert recover("0", 0, "--force").returncode == 0
        assert run("penstock", "verify", str(tmp_path / "0")).stdout.splitlines()[-1] == "whole"
        with node(0, second, cluster_address=first.addresses["CLUSTER"], **alone) as again:
            eventually(lambda: in_sync(again) == {1})
            assert depth(again, "t") == 2000
            assert nodes_of(again)[0]["lease"] > lease
            post(again, "/pub", b"after", topic="t")
            bodies = drained(again, "t", "c", 2001)
        assert sorted(bodies) == sorted([b"%d" % one for one in range(2000)] + [b"after"])


def refused_for_copies(daemon: Daemon) -> int:
    """How many publishes were refused, as /metrics says."""
    text = httpx.get(f"http://{daemon.http}/metrics").text
    (line,) = [line for line in text.splitlines() if line.startswith('nsqd_refused_total{reason="no_copies"}')]
    assert "nsqd_log_sync_failures_total 0.0" in text
    return int(float(line.split()[-1]))


def test_a_publish_waits_for_its_copies_and_is_refused_without_them(node: Callable[..., Daemon]) -> None:
    """A topic asks for copies, or a publish for more than its topic: over HTTP, by IDENTIFY, by put-replicated."""
    flags = {"replicate_timeout": "4s", "beanstalk_address": "127.0.0.1:0"}
    with node(0, **flags) as first, node(1, first) as second, node(2, first) as third:
        eventually(lambda: in_sync(first) == {1, 2})
        for topic, copies in (("t", "1"), ("two", "2"), ("three", "3")):
            post(first, "/topic/create", topic=topic, replicate=copies)
        post(first, "/channel/create", topic="t", channel="c")
        assert publish_to(first, "three") == (200, "OK")
        identify = b"  V2IDENTIFY\n" + sized(b'{"feature_negotiation": true, "replicate": 3}')
        with Conversation(first, identify) as producer, first.connect("BEANSTALK") as worker:
            worker.sendall(b"use t\r\n")
            assert worker.recv(100) == b"USING t\r\n"
            assert json.loads((producer.frame() or (0, b"{}"))[1])["replicate"] == 3
            producer.send(b"PUB t\n" + sized(b"a"))
            assert producer.frame() == OK
            assert httpx.post(f"http://{first.http}/mpub?topic=t&replicate=3", content=b"b\nc").text == "OK"
            worker.sendall(b"put-replicated 3 0 0 60 1\r\nd\r\n")
            assert worker.recv(100).startswith(b"INSERTED ")
            third.kill()
            eventually(lambda: in_sync(first) == {1})
            for topic in ("three", "t&replicate=3", "new&replicate=3"):
                assert publish_to(first, topic) == (503, '{"message":"NOREPL"}')
            assert refused_for_copies(first) == 3
            assert publish_to(first, "t&replicate=4")[0] == 400
            worker.sendall(b"put-replicated 3 0 0 60 1\r\nx\r\n")
            assert worker.recv(100) == b"DRAINING\r\n"
            worker.sendall(b"put-replicated 0 0 0 60 1\r\n")
            assert worker.recv(100) == b"BAD_FORMAT\r\n"
            producer.send(b"PUB t\n" + sized(b"x"))
            assert (producer.frame() or (0, b""))[1].startswith(b"E_PUB_FAILED PUB failed NOREPL: 3 copies")
        with Conversation(first, b"  V2PUB three\n" + sized(b"x")) as producer:
            assert (producer.frame() or (0, b""))[1].startswith(b"E_PUB_FAILED PUB failed NOREPL: 3 copies")
        assert publish_to(first, "t&replicate=2", b"e") == publish_to(first, "two") == (200, "OK")
        assert sorted(drained(first, "t", "c", 5)) == [b"a", b"b", b"c", b"d", b"e"]
        second.process.send_signal(signal.SIGSTOP)
        try:
            assert publish_to(first, "two") == (503, '{"message":"NOREPL_MAY_BE_DELIVERED"}')
            assert publish_to(first, "one") == (200, "OK")
            with Conversation(first, b"  V2PUB one\n" + sized(b"x")) as producer:
                assert producer.frame() == OK
                producer.send(b"PUB two\n" + sized(b"x"))
                kind, text = producer.frame() or (0, b"")
                assert (kind, text[:32]) == (ERROR, b"E_PUB_FAILED PUB failed NOREPL: ")
                assert producer.frame() is None
        finally:
            second.process.send_signal(signal.SIGCONT)
        eventually(lambda: publish_to(first, "two") == (200, "OK"))


def test_bodies_of_messages_that_wait_for_copies_are_not_shown(node: Callable[..., Daemon]) -> None:
    with node(0, replicate_timeout="60s") as first, node(1, first) as second:
        eventually(lambda: in_sync(first) == {1})
        post(first, "/topic/create", topic="t", replicate="2")
        post(first, "/channel/create", topic="t", channel="c")
        publish(first, "t", b"copied")
        second.process.send_signal(signal.SIGSTOP)
        url = f"http://{first.http}/channel/message"
        try:
            with Conversation(first, b"  V2PUB t\n" + sized(b"waits")) as producer:
                eventually(lambda: depth(first, "t") == 2)
                listed = httpx.get(f"{url}s?topic=t&channel=c&state=ready").json()["messages"]
                assert [one.get("body") for one in listed] == ["copied", None]
                assert (listed[1]["waiting_for_copies"], listed[1]["body_size"]) == (True, 5)
                assert httpx.get(f"{url}?topic=t&channel=c&offset=0").content == b"copied"
                held = httpx.get(f"{url}?topic=t&channel=c&offset=1")
                assert (held.status_code, held.text) == (409, '{"message":"MESSAGE_WAITS_FOR_COPIES"}')
                peeked = run("penstock", "peek", "t", "c", "--state", "ready", "--nsqd-http-address", first.http)
                assert (peeked.stdout, "1 message without a body yet" in peeked.stderr) == ("copied\n", True)
                moved = httpx.post(f"{url}s/move?topic=t&channel=c&offset=1&to=elsewhere").json()
                assert moved == {"moved": 0}
                second.process.send_signal(signal.SIGCONT)
                assert producer.frame() == OK
        finally:
            second.process.send_signal(signal.SIGCONT)
        assert httpx.get(f"{url}?topic=t&channel=c&offset=1").content == b"waits"
