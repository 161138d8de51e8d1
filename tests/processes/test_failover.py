"""A node stops or dies, and a follower delivers its unfinished messages; the node returns, and publishes into a new log.

tests/simulation/test_cluster_histories.py plays more of such histories, and test_failover_rounds.py plays them at random and
under load.
"""

import json
import re
import signal
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from tests.daemons import OK, Conversation, Daemon, eventually, publish, run
from tests.processes.test_cluster import in_sync
from tests.processes.test_cluster import node as node  # the fixture
from tests.processes.test_cluster_chaos import again, create

pytestmark = pytest.mark.process

NodeMaker = Callable[..., Daemon]
MAJORITY = {"failover_quorum": "majority"}
PATIENCE = 240.0  # s until a log has a new leader


def figures(daemon: Daemon) -> dict[str, Any]:
    """Return the response to /cluster; nothing while it begins its new log, and closes connections for that."""
    try:
        answer = httpx.get(f"http://{daemon.http}/cluster")
    except httpx.TransportError:
        return {}
    return dict(answer.json()) if answer.status_code == 200 else {}


def led(daemon: Daemon) -> dict[str, dict[str, Any]]:
    """The logs that a node leads and serves, by log id."""
    return {one["log_id"]: one for one in figures(daemon).get("led", ()) if one["state"] == "serving"}


def log_of(daemon: Daemon, number: int) -> str:
    """The log into which a node publishes, as another one or itself knows it; "": it is not known, or the node starts."""
    return next((str(each["log_id"]) for each in figures(daemon).get("nodes", ()) if each["node"] == number), "")


def new_leader(log_id: str, *daemons: Daemon) -> Daemon:
    """Wait until one of some nodes serves a log, and return it."""
    eventually(lambda: any(log_id in led(one) for one in daemons), PATIENCE)
    return next(one for one in daemons if log_id in led(one))


def depth_of(daemon: Daemon, topic: str) -> int:
    topics = httpx.get(f"http://{daemon.http}/stats?format=json&topic={topic}").json()["topics"]
    held = ("depth", "in_flight_count", "deferred_count")
    return sum(channel[name] for channel in topics[0]["channels"] for name in held)


def cluster_of(stack: ExitStack, node: NodeMaker, count: int, **flags: str) -> list[Daemon]:
    """Start nodes, all of which are in sync with their followers."""
    nodes = [stack.enter_context(node(0, **flags))]
    nodes += [stack.enter_context(node(number, nodes[0], **flags)) for number in range(1, count)]
    for daemon in nodes:
        eventually(lambda daemon=daemon: len(in_sync(daemon)) == 2)
    return nodes


def possible_duplicates(daemon: Daemon) -> dict[str, int]:
    """Return a node's counts of messages that may be delivered twice because a log has changed its leader."""
    return dict(figures(daemon)["failovers"]["possible_duplicates"])


def followers(daemon: Daemon) -> list[dict[str, Any]]:
    """Return the followers of a node, with their states."""
    return list(figures(daemon)["followers"])


def taken(consumer: Conversation, count: int) -> list[bytes]:
    """Receive and finish `count` messages, and return their bodies."""
    bodies = []
    for _ in range(count):
        message = consumer.message()
        bodies.append(message.body)
        consumer.send(b"FIN %s\n" % message.id)
    return bodies


def received(daemon: Daemon, topic: str, count: int) -> list[bytes]:
    """Consume `count` messages of the channel c, leave none in flight, and wait until the node has noted the FINs."""
    before = depth_of(daemon, topic)
    with Conversation(daemon, b"  V2SUB %s c\nRDY %d\n" % (topic.encode(), count)) as consumer:
        assert consumer.frame() == OK
        messages = [consumer.message() for _ in range(count)]
        consumer.send(b"RDY 0\n" + b"".join(b"FIN %s\n" % message.id for message in messages))
        eventually(lambda: depth_of(daemon, topic) == before - count)
    return [message.body for message in messages]


def numbered(first: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, end)]


def test_a_leader_that_stood_still_gives_its_log_up_and_serves_another_one_in_the_same_process(node: NodeMaker) -> None:
    with ExitStack() as stack:
        first, *others = cluster_of(stack, node, 3, **MAJORITY)
        lost = log_of(first, 0)
        create(first, two=2)
        publish(first, "two", *numbered(0, 20))
        consumer = stack.enter_context(Conversation(first, b"  V2SUB two c\nRDY 5\n"))
        assert consumer.frame() == OK
        for _ in range(5):
            consumer.message()
        assert all(count == 0 for daemon in (first, *others) for count in possible_duplicates(daemon).values())
        eventually(lambda: {one["behind"] for one in followers(first)} == {0})  # they know of the deliveries
        first.process.send_signal(signal.SIGSTOP)
        leader = new_leader(lost, *others)
        first.process.send_signal(signal.SIGCONT)
        first.wait_for_line("has promoted the log of this node")
        assert consumer.frames() == []  # until it is closed
        eventually(lambda: log_of(first, 0) not in ("", lost))
        eventually(lambda: len(in_sync(first)) == 2)
        publish(first, "two", b"after")
        assert received(first, "two", 1) == [b"after"]
        with Conversation(leader, b"  V2SUB two c\nRDY 10\n") as consumer:
            assert consumer.frame() == OK
            assert sorted(taken(consumer, 20), key=int) == numbered(0, 20)
        # The client's five were redelivered, and each of the two nodes counts them.
        assert possible_duplicates(leader)["ready_again"] == 5
        assert possible_duplicates(first)["unfinished"] == 5
        text = httpx.get(f"http://{leader.http}/metrics").text
        assert 'nsqd_cluster_possible_duplicates_total{reason="ready_again"} 5.0' in text
        assert 'nsqd_cluster_elections_total{result="won_clean"} 1.0' in text
        assert "\nnsqd_cluster_failover_seconds " in text


def test_the_status_of_a_cluster_follows_a_node_that_dies_and_returns(node: NodeMaker) -> None:
    def cluster(command: str, *words: str) -> tuple[int, str, str]:
        done = run("penstock", "cluster", command, "--nsqd-http-address", nodes[0].http, *words, timeout=PATIENCE)
        return done.returncode, done.stdout, done.stderr

    with ExitStack() as stack:
        nodes = cluster_of(stack, node, 3, **MAJORITY)
        code, text, error = cluster("wait")
        assert (code, text.splitlines()[:1]) == (0, ["Cluster penstock: WHOLE"]), error
        create(nodes[0], all=3)
        create(nodes[2], owed=2)
        publish(nodes[2], "owed", b"else its log would be closed")
        nodes[2].kill()
        eventually(lambda: sum(len(led(daemon)) for daemon in nodes[:2]) == 3)
        _, text, _ = cluster("status")
        assert re.search(r"- node 2 is down; node [01] leads its log", text), text
        assert "- node 0 refuses publishes to 1 topic for want of copies: all" in text
        assert "it is not whole after 1 s" in cluster("wait", "--for", "whole", "--timeout", "1s")[2]
        again(stack, node, 2, nodes[2], nodes[0], **MAJORITY)
        code, text, error = cluster("wait", "--timeout", "200s")
        assert code == 0, error + text
        found = json.loads(cluster("status", "--json")[1])
        assert (found["level"], found["safe_to_lose_another_node"], len(found["nodes"])) == ("whole", True, 3)
