"""Clients of beanstalkd and three real nodes: a worker at one node gets jobs that are put on the others."""

from __future__ import annotations

from contextlib import ExitStack

import greenstalk
import pytest

from tests.daemons import Daemon, eventually
from tests.processes.test_cluster import node as node  # the fixture
from tests.processes.test_cluster_chaos import again
from tests.processes.test_failover import NodeMaker, cluster_of

pytestmark = pytest.mark.process

FLAGS = {"beanstalk_address": "127.0.0.1:0", "failover_quorum": "none"}


def client_of(stack: ExitStack, daemon: Daemon) -> greenstalk.Client:
    host, _, port = daemon.addresses["BEANSTALK"].rpartition(":")
    return stack.enter_context(greenstalk.Client((host, int(port)), use="work", watch="work"))


def test_a_worker_gets_jobs_of_all_nodes_and_nothing_is_lost_when_its_node_is_killed(node: NodeMaker) -> None:
    with ExitStack() as stack:
        nodes = cluster_of(stack, node, 3, **FLAGS)
        clients = [client_of(stack, daemon) for daemon in nodes]
        worker = client_of(stack, nodes[2])
        for place, producer in enumerate(clients):
            number = producer.put(f"of {place}", ttr=60)
            job = worker.reserve(timeout=60)
            assert (job.id, job.body) == (number, f"of {place}")
            worker.touch(job)
            worker.release(job, priority=5)
            job = worker.reserve(timeout=60)
            assert job.id == number
            assert clients[0].stats_job(number)["releases"] == 1
            with pytest.raises(greenstalk.NotFoundError):
                clients[1].delete(number)
            worker.bury(job)
            worker.kick_job(job)
            worker.delete(worker.reserve(timeout=60))
            with pytest.raises(greenstalk.NotFoundError):
                worker.peek(number)
        number = clients[0].put("goes back", ttr=600)
        assert worker.reserve(timeout=60).id == number
        worker.close()
        eventually(lambda: clients[0].stats_job(number)["state"] == "ready")
        assert client_of(stack, nodes[2]).reserve(timeout=60).id == number
        assert clients[0].stats_job(number)["state"] == "reserved"
        nodes[2].kill()
        again(stack, node, 2, nodes[2], nodes[0], **FLAGS)
        eventually(lambda: clients[0].stats_job(number)["state"] == "ready")
        clients[0].delete(clients[0].reserve(timeout=60))
