"""A node leaves its cluster: others deliver what its log owes, nothing twice, and it is no member any more."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import pytest

from tests.daemons import OK, Conversation, Daemon, eventually, publish, run
from tests.processes.test_cluster import node as node  # the fixture
from tests.processes.test_cluster import nodes_of
from tests.processes.test_cluster_chaos import again, create
from tests.processes.test_failover import cluster_of, depth_of, led, log_of, taken

pytestmark = pytest.mark.process

NodeMaker = Callable[..., Daemon]


@pytest.mark.parametrize("quorum", ["none", "majority"])
def test_a_node_that_leaves_hands_its_log_over_and_may_come_back_with_another_one(node: NodeMaker, quorum: str) -> None:
    flags = {"failover_quorum": quorum, "unclean_after": "1h"}
    with ExitStack() as stack:
        nodes = cluster_of(stack, node, 3, **flags)
        first, others = nodes[0], nodes[1:]
        log_id = log_of(first, 0)
        create(first, two=2)
        publish(first, "two", *(b"%d" % number for number in range(5)))
        with Conversation(first, b"  V2SUB two c\nRDY 1\n") as consumer:
            assert consumer.frame() == OK
            finished = taken(consumer, 5)
            eventually(lambda: depth_of(first, "two") == 0)
        publish(first, "two", *(b"%d" % number for number in range(5, 20)))
        leaving = run("penstock", "leave", "--nsqd-http-address", first.http, timeout=90)
        assert (leaving.returncode, leaving.stderr) == (0, "")
        assert leaving.stdout.splitlines()[-1] == "the node has left the cluster"
        assert first.process.wait(30) == 0, first.stderr
        eventually(lambda: any(log_id in led(daemon) for daemon in others))
        (new_leader,) = [daemon for daemon in others if log_id in led(daemon)]
        assert all(nodes_of(daemon)[0]["standing"] == "left" for daemon in others)
        with Conversation(new_leader, b"  V2SUB two c\nRDY 5\n") as consumer:
            assert consumer.frame() == OK
            assert sorted(finished + taken(consumer, 15), key=int) == [b"%d" % number for number in range(20)]
        back = again(stack, node, 0, first, new_leader, **flags)
        eventually(lambda: nodes_of(new_leader)[0]["standing"] == "member")
        assert log_of(back, 0) not in ("", log_id)
