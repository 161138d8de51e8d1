"""A producer of penstock.aio continues when a node dies and another one takes its log over."""

import signal
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import anyio
import httpx
import pytest

from penstock import aio
from tests.daemons import Daemon, drained, eventually
from tests.penstock.aio.running import network, until
from tests.processes.test_cluster import in_sync
from tests.processes.test_cluster import node as node  # the fixture
from tests.processes.test_cluster_chaos import again, create
from tests.processes.test_failover import cluster_of, depth_of, led, log_of

pytestmark = pytest.mark.process

NodeMaker = Callable[..., Daemon]
PATIENCE_S = 240.0
MAJORITY = {"failover_quorum": "majority"}


def killed(first: Daemon, others: list[Daemon]) -> Daemon:
    """Kill a node, and return the one that takes its log over."""
    lost = log_of(first, 0)
    first.process.send_signal(signal.SIGKILL)
    eventually(lambda: any(lost in led(daemon) for daemon in others), PATIENCE_S)
    return next(daemon for daemon in others if lost in led(daemon))


def followers(daemon: Daemon) -> list[dict[str, Any]]:
    return [one for one in httpx.get(f"http://{daemon.http}/cluster").json()["followers"] if one["state"] == "in sync"]


def test_a_producer_that_retries_after_the_return_of_its_node_has_one_copy(node: NodeMaker) -> None:
    """It has numbered its publishes, and got no answer; the node returns with a new log, which remembers the numbers."""

    async def main(stack: ExitStack, nodes: list[Daemon]) -> tuple[Daemon, Daemon]:
        first, others = nodes[0], nodes[1:]
        async with network(first.tcp) as net, aio.Producer(net.address, retry_s=PATIENCE_S) as producer:
            await producer.publish("two", b"answered")
            async with anyio.create_task_group() as tasks:
                net.swallows_answers = True
                for number in range(20):
                    tasks.start_soon(producer.publish, "two", b"%d" % number)
                await until(lambda: depth_of(first, "two") == 21)
                await until(lambda: all(one["behind"] == 0 for one in followers(first)))
                net.refuses = True
                new_leader = await anyio.to_thread.run_sync(killed, first, others)
                back = again(stack, node, 0, first, new_leader, **MAJORITY)
                await until(lambda: len(in_sync(back)) == 2)
                net.use(back.tcp)
                net.refuses = net.swallows_answers = False
            await producer.publish_many("two", [b"new 0", b"new 1"])
            return new_leader, back

    with ExitStack() as stack:
        nodes = cluster_of(stack, node, 3, **MAJORITY)
        create(nodes[0], two=2)
        new_leader, back = anyio.run(main, stack, nodes)
        assert sorted(drained(new_leader, "two", "c", 21)) == sorted([b"answered", *(b"%d" % one for one in range(20))])
        assert drained(back, "two", "c", 2) == [b"new 0", b"new 1"]
