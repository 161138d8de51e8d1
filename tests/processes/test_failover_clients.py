"""The tools and a producer of penstock.aio continue when a node dies and another one takes its log over."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from penstock import aio
from tests.daemons import Daemon, drained, eventually, nsqd, post, publish
from tests.penstock.aio.running import network, until
from tests.processes.test_cluster import in_sync
from tests.processes.test_cluster import node as node  # the fixture
from tests.processes.test_cluster_chaos import again, create
from tests.processes.test_failover import cluster_of, depth_of, led, log_of
from tests.processes.to_file import lines
from tests.tools import Tool, our_command

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


def left_in(daemon: Daemon, channel: str) -> int:
    """How many messages a channel of the topic t has."""
    topics = httpx.get(f"http://{daemon.http}/stats?format=json&topic=t&channel={channel}").json()["topics"]
    found = [one for topic in topics for one in topic["channels"]]
    return sum(one[name] for one in found for name in ("depth", "in_flight_count", "deferred_count"))


def test_the_tools_go_on_with_what_a_dead_node_owes(node: NodeMaker, tmp_path: Path) -> None:
    before, after = [[f"{when} {number}" for number in range(20)] for when in ("before", "after")]
    with ExitStack() as stack:
        lookupd = stack.enter_context(Daemon("nsqlookupd"))
        # It has the topic, too: clients poll nsqlookupd often only while no node has it, and would not find the new leader.
        target = stack.enter_context(nsqd(tmp_path / "target", "-lookupd-tcp-address", lookupd.tcp))
        nodes = cluster_of(stack, node, 3, lookupd_tcp_address=lookupd.tcp, **MAJORITY)
        first, others = nodes[0], nodes[1:]
        post(first, "/topic/create", topic="t", replicate="2")
        source = "-topic=t", f"-lookupd-http-address={lookupd.http}", "-consumer-opt=lookupd_poll_interval,1h"
        to = f"-destination-nsqd-tcp-address={target.tcp}", "-destination-topic=copy"
        post(target, "/topic/create", topic="t")
        post(target, "/topic/create", topic="copy")
        post(target, "/channel/create", topic="copy", channel="c")
        channels = "tail", "file", "copy"
        for channel in channels:
            post(first, "/channel/create", topic="t", channel=channel)
        tail = stack.enter_context(Tool(our_command("nsq_tail"), *source, "-channel=tail"))
        files = stack.enter_context(
            Tool(
                our_command("nsq_to_file"),
                *source,
                "-channel=file",
                f"-output-dir={tmp_path / 'out'}",
                "-sync-interval=1s",
            )
        )
        copies = stack.enter_context(Tool(our_command("nsq_to_nsq"), *source, "-channel=copy", *to))
        publish(first, "t", *before)
        for channel in channels:
            eventually(lambda channel=channel: left_in(first, channel) == 0)
            post(first, "/channel/pause", topic="t", channel=channel)
        publish(first, "t", *after)
        new_leader = killed(first, others)
        for channel in channels:
            assert left_in(new_leader, channel) == 20
            post(new_leader, "/channel/unpause", topic="t", channel=channel)
        for channel in channels:
            eventually(lambda channel=channel: left_in(new_leader, channel) == 0)
        assert [tool.stop() for tool in (tail, files, copies)] == [0, 0, 0]
        assert sorted(tail.out) == sorted(line + "\n" for line in before + after)
        assert sorted(lines(tmp_path / "out")) == sorted(before + after)
        assert sorted(drained(target, "copy", "c", 40)) == sorted(line.encode() for line in before + after)


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
