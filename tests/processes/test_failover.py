"""A node dies, and a follower delivers what its log owes; the node returns, and publishes into a new log."""

from __future__ import annotations

import json
import re
import shutil
import signal
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.daemons import OK, Conversation, Daemon, eventually, publish, run, sized
from tests.processes.test_cluster import connected, in_sync
from tests.processes.test_cluster import node as node  # the fixture
from tests.processes.test_cluster_chaos import again, create

pytestmark = pytest.mark.process

NodeMaker = Callable[..., Daemon]


def led(daemon: Daemon) -> dict[str, dict[str, Any]]:
    """The logs that a node leads and serves, by log id."""
    figures = httpx.get(f"http://{daemon.http}/cluster").json()
    return {one["log_id"]: one for one in figures["led"] if one["state"] == "serving"}


def log_of(daemon: Daemon, number: int) -> str:
    """The log into which a node publishes, as another one or itself knows it; "": it is not known, or the node starts."""
    try:
        nodes = httpx.get(f"http://{daemon.http}/cluster").json().get("nodes", ())
    except httpx.TransportError:  # it has just learned that another node leads its log
        return ""
    return next((str(each["log_id"]) for each in nodes if each["node"] == number), "")


def depth_of(daemon: Daemon, topic: str) -> int:
    topics = httpx.get(f"http://{daemon.http}/stats?format=json&topic={topic}").json()["topics"]
    return sum(
        channel["depth"] + channel["in_flight_count"] + channel["deferred_count"] for channel in topics[0]["channels"]
    )


def cluster_of(stack: ExitStack, node: NodeMaker, count: int, **flags: str) -> list[Daemon]:
    """Start nodes, all of which are in sync with their followers."""
    nodes = [stack.enter_context(node(0, **flags))]
    nodes += [stack.enter_context(node(number, nodes[0], **flags)) for number in range(1, count)]
    for daemon in nodes:
        eventually(lambda daemon=daemon: len(in_sync(daemon)) == 2)
    return nodes


def possible_duplicates(daemon: Daemon) -> dict[str, int]:
    """What a node says of messages that may be delivered twice because a log has changed its leader."""
    return dict(httpx.get(f"http://{daemon.http}/cluster").json()["failovers"]["possible_duplicates"])


def followers(daemon: Daemon) -> list[dict[str, Any]]:
    """What a node says of those that copy its log."""
    return list(httpx.get(f"http://{daemon.http}/cluster").json()["followers"])


def taken(consumer: Conversation, count: int) -> list[bytes]:
    """Receive and finish so many messages, and return their bodies."""
    bodies = []
    for _ in range(count):
        message = consumer.message()
        bodies.append(message.body)
        consumer.send(b"FIN %s\n" % message.id)
    return bodies


def test_a_follower_delivers_what_a_dead_node_owes_and_the_node_returns_with_a_new_log(node: NodeMaker) -> None:
    flags = {"failover_quorum": "majority"}
    with ExitStack() as stack:
        nodes = cluster_of(stack, node, 3, **flags)
        first, others = nodes[0], nodes[1:]
        lost = log_of(first, 0)
        create(first, two=2)
        publish(first, "two", *(b"%d" % number for number in range(100)))
        with Conversation(first, b"  V2SUB two c\nRDY 10\n") as consumer:
            assert consumer.frame() == OK
            assert len(taken(consumer, 40)) == 40
        eventually(lambda: depth_of(first, "two") == 60)
        eventually(lambda: {one["behind"] for one in followers(first)} == {0})  # they know what was finished
        first.process.send_signal(signal.SIGKILL)
        eventually(lambda: any(lost in led(daemon) for daemon in others))
        (new_leader,) = [daemon for daemon in others if lost in led(daemon)]
        with Conversation(new_leader, b"  V2SUB two c\nRDY 10\n") as consumer:
            assert consumer.frame() == OK
            bodies = [
                *taken(consumer, 59),
                consumer.message().body,
            ]  # the last is owed still: the log would be closed else
            assert {int(body) for body in bodies} >= set(range(40, 100))
        back = again(stack, node, 0, first, new_leader, **flags)
        eventually(lambda: connected(back) == {1, 2})
        assert log_of(back, 0) != lost
        assert lost in led(new_leader)
        eventually(lambda: len(in_sync(back)) == 2)
        publish(back, "two", b"after")
        with Conversation(back, b"  V2SUB two c\nRDY 10\n") as consumer:
            assert consumer.frame() == OK
            assert taken(consumer, 1) == [b"after"]


def test_a_lost_disk_that_is_replaced_at_once_leaves_its_log_to_a_follower(node: NodeMaker, tmp_path: Path) -> None:
    flags = {"failover_quorum": "majority"}
    with ExitStack() as stack:
        first, *others = cluster_of(stack, node, 3, **flags)
        lost = log_of(first, 0)
        create(first, two=2)
        publish(first, "two", *(b"%d" % number for number in range(20)))
        first.kill()
        shutil.rmtree(tmp_path / "0")
        again(stack, node, 0, first, others[0], **flags)
        eventually(lambda: any(lost in led(daemon) for daemon in others))
        (new_leader,) = [daemon for daemon in others if lost in led(daemon)]
        with Conversation(new_leader, b"  V2SUB two c\nRDY 10\n") as consumer:
            assert consumer.frame() == OK
            assert len(set(taken(consumer, 20))) == 20


def test_a_disk_recovered_from_a_copy_of_after_the_failover_undoes_no_finish(node: NodeMaker, tmp_path: Path) -> None:
    flags = {"failover_quorum": "majority"}
    with ExitStack() as stack:
        first, *others = cluster_of(stack, node, 3, **flags)
        lost = log_of(first, 0)
        create(first, two=2)
        publish(first, "two", *(b"%d" % number for number in range(20)))
        first.kill()
        eventually(lambda: any(lost in led(daemon) for daemon in others))
        (new_leader,) = [daemon for daemon in others if lost in led(daemon)]
        shutil.rmtree(tmp_path / "0")
        done = run("penstock", "recover", str(tmp_path / "0"), "--node", "0", "--from", new_leader.http)
        assert done.returncode == 0, done.stderr
        assert "with a copy of that log it begins another one" in done.stderr
        with Conversation(new_leader, b"  V2SUB two c\nRDY 1\n") as consumer:
            assert consumer.frame() == OK
            assert len(set(taken(consumer, 15))) == 15
            back = again(stack, node, 0, first, new_leader, **flags)
            eventually(lambda: log_of(back, 0) not in ("", lost))
            assert lost in led(new_leader)
            assert len(set(taken(consumer, 5))) == 5
        assert depth_of(back, "two") == 0


def test_a_leader_that_stood_still_does_not_deliver_what_its_new_leader_has_delivered(node: NodeMaker) -> None:
    flags = {"failover_quorum": "majority"}
    with ExitStack() as stack:
        first, *others = cluster_of(stack, node, 3, **flags)
        lost = log_of(first, 0)
        create(first, two=2)
        consumer = stack.enter_context(Conversation(first, b"  V2SUB two c\nRDY 100\n"))
        assert consumer.frame() == OK
        bodies = [b"%d" % number for number in range(40)]
        publisher = stack.enter_context(Conversation(first, b"  V2"))
        publisher.send(b"".join(b"DPUB two 10000\n" + sized(body) for body in bodies))
        assert [publisher.frame() for _ in bodies] == [OK] * 40
        eventually(lambda: {one["behind"] for one in followers(first)} == {0})
        first.process.send_signal(signal.SIGSTOP)
        eventually(lambda: any(lost in led(daemon) for daemon in others))
        (new_leader,) = [daemon for daemon in others if lost in led(daemon)]
        with Conversation(new_leader, b"  V2SUB two c\nRDY 10\n") as other:
            assert other.frame() == OK
            assert sorted(taken(other, 40)) == sorted(bodies)
            first.process.send_signal(signal.SIGCONT)
            assert consumer.frames() == []  # until it is closed


def test_a_node_that_lost_its_disk_takes_nothing_until_it_knows_how_topics_are_configured(
    node: NodeMaker, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        nodes = cluster_of(stack, node, 3)
        create(nodes[0], two=2)
        nodes[2].kill()
        shutil.rmtree(tmp_path / "2")
        for other in nodes[:2]:
            other.process.send_signal(signal.SIGSTOP)  # it is cut off from them
        back = again(stack, node, 2, nodes[2], nodes[0], failover_quorum="majority")
        answer = httpx.post(f"http://{back.http}/pub?topic=two", content=b"lost with the next disk")
        assert (answer.status_code, answer.json()["message"]) == (503, "NOREPL")
        with Conversation(back, b"  V2") as publisher:
            publisher.send(b"PUB two\n" + sized(b"lost, too"))
            frame = publisher.frame()
            assert frame is not None
            assert b"E_PUB_FAILED" in frame[1]
            assert b"has not received the configurations of topics" in frame[1]
            for other in nodes[:2]:
                other.process.send_signal(signal.SIGCONT)
            eventually(lambda: len(in_sync(back)) == 2)
            publish(back, "two", b"kept")
        config = httpx.get(f"http://{back.http}/topic/config?topic=two").json()
        assert (config["replicate"], config["of_its_own"]) == (2, ["replicate"])


def test_a_leader_that_stood_still_gives_its_log_up_and_serves_another_one_in_the_same_process(node: NodeMaker) -> None:
    flags = {"failover_quorum": "majority"}
    with ExitStack() as stack:
        nodes = cluster_of(stack, node, 3, **flags)
        first, others = nodes[0], nodes[1:]
        lost = log_of(first, 0)
        create(first, two=2)
        publish(first, "two", *(b"%d" % number for number in range(20)))
        consumer = stack.enter_context(Conversation(first, b"  V2SUB two c\nRDY 5\n"))
        assert consumer.frame() == OK
        for _ in range(5):
            consumer.message()
        assert all(count == 0 for daemon in nodes for count in possible_duplicates(daemon).values())
        eventually(lambda: {one["behind"] for one in followers(first)} == {0})  # they know of the deliveries
        first.process.send_signal(signal.SIGSTOP)
        eventually(lambda: any(lost in led(daemon) for daemon in others))
        (new_leader,) = [daemon for daemon in others if lost in led(daemon)]
        first.process.send_signal(signal.SIGCONT)
        first.wait_for_line("has promoted the log of this node")
        eventually(lambda: log_of(first, 0) not in ("", lost))
        eventually(lambda: len(in_sync(first)) == 2)
        publish(first, "two", b"after")
        with Conversation(first, b"  V2SUB two c\nRDY 10\n") as consumer:
            assert consumer.frame() == OK
            assert taken(consumer, 1) == [b"after"]
        with Conversation(new_leader, b"  V2SUB two c\nRDY 10\n") as consumer:
            assert consumer.frame() == OK
            assert sorted(taken(consumer, 20), key=int) == [b"%d" % number for number in range(20)]
        # The five that the client had came again, and each of the two nodes says so.
        assert possible_duplicates(new_leader)["ready_again"] == 5
        assert possible_duplicates(first)["unfinished"] == 5
        text = httpx.get(f"http://{new_leader.http}/metrics").text
        assert 'nsqd_cluster_possible_duplicates_total{reason="ready_again"} 5.0' in text
        assert 'nsqd_cluster_elections_total{result="won_clean"} 1.0' in text
        assert "\nnsqd_cluster_failover_seconds " in text


def test_two_of_three_die_one_after_the_other_and_the_third_delivers_what_both_owed(node: NodeMaker) -> None:
    flags = {"failover_quorum": "any"}
    with ExitStack() as stack:
        nodes = cluster_of(stack, node, 3, **flags)
        logs = [log_of(nodes[0], number) for number in range(3)]
        for number, daemon in enumerate(nodes):
            create(daemon, three=3)
            publish(daemon, "three", *(b"%d" % (100 * number + place) for place in range(50)))
        for daemon in nodes:
            eventually(lambda daemon=daemon: len(in_sync(daemon)) == 2)
        nodes[0].process.send_signal(signal.SIGKILL)
        eventually(lambda: any(logs[0] in led(daemon) for daemon in nodes[1:]))
        (new_leader,) = [daemon for daemon in nodes[1:] if logs[0] in led(daemon)]
        (last,) = [daemon for daemon in nodes[1:] if daemon is not new_leader]
        eventually(lambda: may_promote(last, logs[0]))
        new_leader.process.send_signal(signal.SIGKILL)
        eventually(lambda: len(led(last)) == 3)
        with Conversation(last, b"  V2SUB three c\nRDY 10\n") as consumer:
            assert consumer.frame() == OK
            wanted = {b"%d" % (100 * number + place) for number in range(3) for place in range(50)}
            assert set(taken(consumer, 150)) == wanted


def may_promote(follower: Daemon, log_id: str) -> bool:
    """Return True if a follower has all of a log, as far as it knows, and may promote it at once."""
    logs = httpx.get(f"http://{follower.http}/cluster").json()["elections"]["logs"]
    return any(one["log_id"] == log_id and one["clean"] and one["epoch"] > 100 for one in logs)


def test_a_new_leader_goes_on_with_the_log_after_its_own_restart(node: NodeMaker) -> None:
    flags = {"failover_quorum": "majority"}
    with ExitStack() as stack:
        nodes = cluster_of(stack, node, 3, **flags)
        first, others = nodes[0], nodes[1:]
        lost = log_of(first, 0)
        create(first, two=2)
        publish(first, "two", *(b"%d" % number for number in range(20)))
        first.process.send_signal(signal.SIGKILL)
        eventually(lambda: any(lost in led(daemon) for daemon in others))
        (number, new_leader) = next((place, one) for place, one in enumerate(nodes) if place and lost in led(one))
        with Conversation(new_leader, b"  V2SUB two c\nRDY 10\n") as consumer:
            assert consumer.frame() == OK
            assert len(taken(consumer, 8)) == 8
        new_leader.stop()
        new_leader = again(stack, node, number, new_leader, nodes[3 - number], **flags)
        eventually(lambda: lost in led(new_leader))
        with Conversation(new_leader, b"  V2SUB two c\nRDY 10\n") as consumer:
            assert consumer.frame() == OK
            assert len(taken(consumer, 12)) == 12


def test_the_status_of_a_cluster_follows_a_node_that_dies_and_returns(node: NodeMaker) -> None:
    def status(*words: str, command: str = "status") -> tuple[int, str, str]:
        address = nodes[0].http
        done = run("penstock", "cluster", command, "--nsqd-http-address", address, *words, timeout=90)
        return done.returncode, done.stdout, done.stderr

    with ExitStack() as stack:
        nodes = cluster_of(stack, node, 3, failover_quorum="majority")
        code, text, error = status(command="wait")
        assert (code, text.splitlines()[:2]) == (0, ["Cluster penstock: WHOLE", "Safe to lose another node: yes"]), (
            error
        )
        create(nodes[0], all=3)
        nodes[2].kill()
        eventually(lambda: sum(len(led(daemon)) for daemon in nodes[:2]) == 3)
        code, text, _ = status()
        assert code in (1, 2), text  # 2: until the leader's new replica is in sync
        assert re.search(r"- node 2 is down; node [01] leads its log", text), text
        assert "- node 0 refuses publishes to 1 topic for want of copies: all" in text
        assert "Safe to lose another node: no" in text
        code, _, error = status("--for", "whole", "--timeout", "1s", command="wait")
        assert code in (1, 2)
        assert "waiting: " in error
        assert "it is not whole after 1 s" in error
        back = again(stack, node, 2, nodes[2], nodes[0], failover_quorum="majority")
        code, text, error = status("--timeout", "60s", command="wait")
        assert code == 0, error + text
        found = json.loads(status("--json")[1])
        assert (found["level"], found["safe_to_lose_another_node"], len(found["nodes"])) == ("whole", True, 3)
        assert back.http in {one["http_address"] for one in found["nodes"]}
