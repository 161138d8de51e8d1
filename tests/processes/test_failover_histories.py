"""Histories in which logs are taken over, step by step on three real nodes: H2 to H6 of the design of replicas and failover.

test_failover_rounds.py runs kinds of faults at random times and under load. Here each step waits for the one before, so what
each node must deliver is known to the message. H1 and H10 are in test_cluster_chaos.py and test_cluster_disks.py, H9 is in
test_restore.py.
"""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.daemons import OK, Conversation, Daemon, eventually, post, publish
from tests.processes.test_cluster import node as node  # the fixture
from tests.processes.test_cluster import publish_to
from tests.processes.test_cluster_chaos import again, create
from tests.processes.test_failover import NodeMaker, cluster_of, depth_of, may_promote, taken

pytestmark = pytest.mark.process

EVERYBODY = (0, 1, 2)
Nodes = dict[int, Daemon]


def numbered(first: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, end)]


def received(daemon: Daemon, topic: str, count: int) -> list[bytes]:
    """Consume so many messages of the channel c, and wait until the node has noted that they are finished."""
    before = depth_of(daemon, topic)
    with Conversation(daemon, b"  V2SUB %s c\nRDY 10\n" % topic.encode()) as consumer:
        assert consumer.frame() == OK
        bodies = taken(consumer, count)
        eventually(lambda: depth_of(daemon, topic) == before - count)
    return bodies


def new_leader(nodes: Nodes, log_id: str) -> int:
    """Wait until one of some nodes serves a log, and return its number."""
    found: list[int] = []

    def is_found() -> bool:
        found[:] = [number for number, daemon in nodes.items() if log_id in led(daemon)]
        return bool(found)

    eventually(is_found)
    return found[0]


def figures(daemon: Daemon) -> dict[str, Any]:
    """Return what a node answers to /cluster; nothing while it begins its new log, and closes connections for that."""
    try:
        answer = httpx.get(f"http://{daemon.http}/cluster")
    except httpx.TransportError:
        return {}
    return dict(answer.json()) if answer.status_code == 200 else {}


def led(daemon: Daemon) -> list[str]:
    """Return the ids of the logs that a node serves."""
    return [one["log_id"] for one in figures(daemon).get("led", ()) if one["state"] == "serving"]


def own_log(daemon: Daemon) -> str:
    """Return the id of the log into which a node publishes; "": it does not serve."""
    return str(next((one["log_id"] for one in figures(daemon).get("led", ())), ""))


def copies(daemon: Daemon) -> int:
    """Return how many followers of a node are in sync."""
    return sum(each["state"] == "in sync" for each in figures(daemon).get("followers", ()))


def is_connected(daemon: Daemon, other: int) -> bool:
    return any(each["node"] == other and each["connected"] for each in figures(daemon).get("nodes", ()))


def each_log_has_one_leader(nodes: Nodes, logs: set[str]) -> bool:
    """Return True if all are connected and copied, each node has a log of its own, and all open logs have one leader."""
    if not all(copies(daemon) == len(nodes) - 1 for daemon in nodes.values()):
        return False
    found = [log_id for daemon in nodes.values() for log_id in led(daemon)]
    own = {own_log(daemon) for daemon in nodes.values()}
    closed = {one["log_id"] for daemon in nodes.values() for one in figures(daemon).get("closed", ())}
    return len(found) == len({*found}) and {*found} == logs - closed | own and len(own) == len(nodes)


def ask(daemon: Daemon, route: str, other: int) -> None:
    """Have a node be silent towards another one, or end that; again while it begins its new log."""

    def is_done() -> bool:
        try:
            return httpx.post(f"http://{daemon.http}/debug/cluster/{route}?node={other}").status_code == 200
        except httpx.TransportError:
            return False

    eventually(is_done)


def cut(nodes: Nodes, left: int, right: int) -> None:
    """Make two nodes silent towards each other."""
    ask(nodes[left], "cut", right)
    ask(nodes[right], "cut", left)


def heal(nodes: Nodes, left: int, right: int) -> None:
    ask(nodes[left], "heal", right)
    ask(nodes[right], "heal", left)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_h2_the_new_leader_of_a_log_dies_and_both_return(node: NodeMaker, order: tuple[int, int]) -> None:
    """A third node goes on where the new leader was, and both leaders that were lost return in either order."""
    flags = {"failover_quorum": "any"}
    with ExitStack() as stack:
        nodes = dict(enumerate(cluster_of(stack, node, 3, **flags)))
        lost = own_log(nodes[0])
        for daemon in nodes.values():
            create(daemon, two=2)
        publish(nodes[0], "two", *numbered(0, 60))
        assert len(received(nodes[0], "two", 20)) == 20
        eventually(lambda: copies(nodes[0]) == 2)
        nodes[0].kill()
        alive = {number: nodes[number] for number in (1, 2)}
        second = new_leader(alive, lost)
        last = 3 - second
        finished = received(nodes[second], "two", 20)
        eventually(lambda: may_promote(nodes[last], lost))
        theirs = own_log(nodes[second])
        nodes[second].kill()
        assert new_leader({last: nodes[last]}, lost) == last
        left = {*numbered(0, 60)} - {*numbered(0, 20)} - {*finished}
        with Conversation(nodes[last], b"  V2SUB two c\nRDY 10\n") as consumer:
            assert consumer.frame() == OK
            found: set[bytes] = set()
            while not left <= found:  # what was finished a moment before a kill may come again
                found.update(taken(consumer, 1))
        new_leader({last: nodes[last]}, theirs)
        for number in ((0, second)[place] for place in order):
            nodes[number] = again(stack, node, number, nodes[number], nodes[last], **flags)
        eventually(lambda: each_log_has_one_leader(nodes, {lost, theirs}), 120)
        eventually(lambda: sum(depth_of(daemon, "two") for daemon in nodes.values()) == 0)
        for number, daemon in nodes.items():
            publish(daemon, "two", b"after %d" % number)
            assert received(daemon, "two", 1) == [b"after %d" % number]


def changed_alone(nodes: Nodes) -> None:
    """Have node 0 delete a channel and a topic, empty another topic and publish, while nobody hears it."""
    post(nodes[0], "/channel/delete", topic="one", channel="c")
    post(nodes[0], "/topic/delete", topic="four")
    post(nodes[0], "/topic/empty", topic="two")
    httpx.post(f"http://{nodes[0].http}/channel/empty?topic=two&channel=c")  # its answer may wait for copies in vain
    assert depth_of(nodes[0], "two") == 0
    assert publish_to(nodes[0], "two")[0] == 503
    publish(nodes[0], "three", *numbered(100, 110))


def test_h3_a_node_that_is_cut_off_goes_on_alone_and_its_log_is_promoted(node: NodeMaker) -> None:
    """What it publishes alone is delivered once, and what it deleted alone goes at the new leader, which keeps its own."""
    flags = {"failover_quorum": "majority", "debug_routes": "true", "replicate_timeout": "2s"}
    with ExitStack() as stack:
        nodes = dict(enumerate(cluster_of(stack, node, 3, **flags)))
        lost = own_log(nodes[0])
        for number, daemon in nodes.items():
            create(daemon, one=1, two=2, three=1, four=1)
            for topic in ("one", "two", "three", "four"):
                publish(daemon, topic, *numbered(1000 * number, 1000 * number + 10))
        eventually(lambda: copies(nodes[0]) == 2)
        cut(nodes, 0, 1)
        cut(nodes, 0, 2)
        eventually(lambda: copies(nodes[0]) == 0)
        changed_alone(nodes)
        number = new_leader({1: nodes[1], 2: nodes[2]}, lost)
        assert {topic: depth_of(nodes[number], topic) for topic in ("one", "two", "four")} == dict.fromkeys(
            ("one", "two", "four"), 20
        )
        heal(nodes, 0, 1)
        heal(nodes, 0, 2)
        eventually(lambda: each_log_has_one_leader(nodes, {lost}), 120)
        assert sorted(received(nodes[0], "three", 10), key=int) == numbered(100, 110), "its tail is in its new log"
        eventually(lambda: all(depth_of(nodes[number], topic) == 10 for topic in ("one", "two", "four")))
        own = numbered(1000 * number, 1000 * number + 10)
        for topic in ("one", "two", "four"):
            assert sorted(received(nodes[number], topic, 10), key=int) == own, "its own messages stay"
        assert sorted(received(nodes[number], "three", 20), key=int) == [*numbered(0, 10), *own]


def test_h4_three_sides_promote_with_any_and_are_healed_in_pairs(node: NodeMaker) -> None:
    """Both others promote the log; when the sides meet one after the other, one leader is left, and nothing is lost."""
    flags = {"failover_quorum": "any", "debug_routes": "true"}
    with ExitStack() as stack:
        nodes = dict(enumerate(cluster_of(stack, node, 3, **flags)))
        logs = {own_log(nodes[number]) for number in EVERYBODY}
        for number, daemon in nodes.items():
            create(daemon, three=3)
            publish(daemon, "three", *numbered(100 * number, 100 * number + 10))
        eventually(lambda: all(copies(daemon) == 2 for daemon in nodes.values()))
        pairs = ((0, 1), (0, 2), (1, 2))
        for pair in pairs:
            cut(nodes, *pair)
        for number, daemon in nodes.items():
            create(daemon, alone=1)
            publish(daemon, "alone", *numbered(1000 * number, 1000 * number + 10))
        eventually(lambda: all(len(led(daemon)) > 1 for daemon in nodes.values()))
        for left, right in pairs:
            heal(nodes, left, right)
            eventually(partial(is_connected, nodes[left], right), 120)
        eventually(lambda: each_log_has_one_leader(nodes, logs & all_led(nodes)), 180)
        found: dict[str, set[bytes]] = {"three": set(), "alone": set()}
        for topic, bodies in found.items():
            for daemon in nodes.values():
                bodies.update(received(daemon, topic, depth_of(daemon, topic)))
        wanted = {"three": 100, "alone": 1000}
        for topic, step in wanted.items():
            assert found[topic] == {
                body for number in EVERYBODY for body in numbered(step * number, step * number + 10)
            }


def all_led(nodes: Nodes) -> set[str]:
    return {log_id for daemon in nodes.values() for log_id in led(daemon)}


@pytest.mark.parametrize("is_alone", [False, True])
def test_h5_a_node_whose_disk_is_lost_returns(node: NodeMaker, tmp_path: Path, is_alone: bool) -> None:
    """Its log was promoted; it returns with an empty disk, when it reaches the others and when it does not yet."""
    flags = {"failover_quorum": "majority", "debug_routes": "true"}
    with ExitStack() as stack:
        nodes = dict(enumerate(cluster_of(stack, node, 3, **flags)))
        lost = own_log(nodes[0])
        create(nodes[0], two=2)
        publish(nodes[0], "two", *numbered(0, 30))
        eventually(lambda: copies(nodes[0]) == 2)
        nodes[0].kill()
        number = new_leader({1: nodes[1], 2: nodes[2]}, lost)
        shutil.rmtree(tmp_path / "0")
        address = nodes[0].addresses["CLUSTER"]
        if is_alone:  # the others hear it, but it dials nobody, and they give what it sends no answer
            for other in (1, 2):
                ask(nodes[other], "cut", 0)
        nodes[0] = stack.enter_context(node(0, *(() if is_alone else [nodes[1]]), cluster_address=address, **flags))
        create(nodes[0], one=1)
        publish(nodes[0], "one", *numbered(0, 5))
        for other in (1, 2) if is_alone else ():
            ask(nodes[other], "heal", 0)
        eventually(lambda: each_log_has_one_leader(nodes, {lost}), 120)
        assert own_log(nodes[0]) != lost
        assert sorted(received(nodes[number], "two", 30), key=int) == numbered(0, 30)
        assert received(nodes[0], "one", 5) == numbered(0, 5)


def test_h6_a_rolling_restart_takes_nothing_over(node: NodeMaker) -> None:
    """Each node stops and starts: no log changes its leader, and each message comes once."""
    flags = {"failover_quorum": "any"}
    with ExitStack() as stack:
        nodes = dict(enumerate(cluster_of(stack, node, 3, **flags)))
        logs = {number: own_log(daemon) for number, daemon in nodes.items()}
        for number, daemon in nodes.items():
            create(daemon, two=2)
            publish(daemon, "two", *numbered(100 * number, 100 * number + 20))
        for number in EVERYBODY:
            assert len(received(nodes[number], "two", 10)) == 10
            assert nodes[number].stop() == 0
            nodes[number] = again(stack, node, number, nodes[number], nodes[(number + 1) % 3], **flags)
            eventually(lambda: all(copies(daemon) == 2 for daemon in nodes.values()))
        assert {number: own_log(daemon) for number, daemon in nodes.items()} == logs
        assert {number: set(led(daemon)) for number, daemon in nodes.items()} == {
            number: {log_id} for number, log_id in logs.items()
        }
        for number, daemon in nodes.items():
            assert received(daemon, "two", 10) == numbered(100 * number + 10, 100 * number + 20)
            assert depth_of(daemon, "two") == 0
