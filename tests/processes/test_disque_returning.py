"""Clients of Disque and nodes that are down and come back: commands wait for them as long as they say."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from itertools import count

import pytest

from tests.daemons import eventually
from tests.processes.test_cluster import node as node  # the fixture
from tests.processes.test_cluster_chaos import again
from tests.processes.test_disque_cluster import FLAGS, NodeMaker, client_of, three

pytestmark = pytest.mark.process


def test_an_addjob_waits_for_a_node_that_is_down_to_come_back(node: NodeMaker) -> None:
    with ExitStack() as stack:
        nodes = three(stack, node, "none")
        client, other = (stack.enter_context(client_of(nodes[0])) for _ in range(2))
        nodes[2].kill()
        queues = map(str, count())  # until the node knows that there are too few, jobs are added, and may lack copies
        refused = "-NOREPL Not enough reachable nodes for the requested replication level"
        eventually(lambda: other.do("ADDJOB", next(queues), "x", 1, "REPLICATE", 3) == refused)
        assert other.do("ADDJOB", "refused", "x", 1, "REPLICATE", 3) == refused
        assert other.do("QLEN", "refused") == 0, "what is refused is not kept"
        client.send("ADDJOB", "q", "x", 60_000, "REPLICATE", 3)
        eventually(lambda: b"blocked_clients:1" in other.do("INFO", "clients"))
        assert other.do("ADDJOB", "q", "y", 60_000, "REPLICATE", 4) == refused
        again(stack, node, 2, nodes[2], nodes[0], failover_quorum="none", **FLAGS)
        job_id = client.reply()
        assert job_id.startswith("D-"), job_id
        assert other.show(job_id)["repl"] == 3


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_a_node_that_starts_again_refuses_no_job(node: NodeMaker, end: signal.Signals) -> None:
    with ExitStack() as stack:
        nodes = three(stack, node, "none")
        with client_of(nodes[0]) as client:
            assert client.do("ADDJOB", "q", "before", 10_000, "REPLICATE", 3).startswith("D-")
        nodes[0].process.send_signal(end)
        nodes[0].wait()
        back = again(stack, node, 0, nodes[0], nodes[1], failover_quorum="none", **FLAGS)
        with client_of(back) as client:
            for number in range(3):
                assert client.do("ADDJOB", "q", f"{number}", 30_000).startswith("D-")


def test_the_ports_open_though_the_others_are_down(node: NodeMaker) -> None:
    with ExitStack() as stack:
        nodes = three(stack, node, "none")
        with client_of(nodes[0]) as client:
            assert client.do("ADDJOB", "q", "before", 10_000, "REPLICATE", 3).startswith("D-")
        for daemon in nodes:
            daemon.kill()
        alone = again(stack, node, 0, nodes[0], nodes[1], failover_quorum="none", **FLAGS)
        with client_of(alone) as client:
            assert client.get("q") == [b"before"]
            assert client.do("ADDJOB", "q", "x", 1).startswith("-NOREPL Not enough reachable nodes")
            assert client.do("ADDJOB", "q", "x", 1, "REPLICATE", 1).startswith("D-")
