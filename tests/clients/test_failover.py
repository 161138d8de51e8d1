"""Unchanged clients go on when a node dies: consumers find what it owed, and producers go on at other nodes."""

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.daemons import ROOT, Daemon, drained, eventually, nsqd, post, publish
from tests.processes.test_cluster import node as node  # the fixture
from tests.processes.test_cluster_chaos import create
from tests.processes.test_failover import cluster_of, depth_of, led
from tests.requirements import require

pytestmark = pytest.mark.process
# On a busy machine the survivors may stand still, too: then no copy seems complete, and a log is promoted after -unclean-after.
STALLING = {"failover_quorum": "majority", "unclean_after": "15s"}

HERE = Path(__file__).parent
FINISHED, STALLED = 20, 1
TIMEOUT = 180.0  # s

PYNSQ = (sys.executable, str(HERE / "pynsq_client.py"))
GNSQ = (sys.executable, str(HERE / "gnsq_client.py"))
NSQJS = ("node", str(HERE / "nsqjs" / "client.js"))
PENSTOCK = (sys.executable, str(HERE / "penstock_client.py"))

CASES: dict[str, tuple[tuple[str, ...], bool, str]] = {
    "gnsq": (GNSQ, True, "lookupd"),  # which asks nsqlookupd once a minute for nodes that have a topic
    "pynsq": (PYNSQ, True, "lookupd"),
    "pynsq, topic on one node": (PYNSQ, False, "lookupd"),
    "pynsq, addresses of nodes": (PYNSQ, False, "nsqd"),
    "nsqjs, topic on one node": (NSQJS, False, "lookupd"),
    "penstock.client, topic on one node": (PENSTOCK, False, "lookupd"),
    "penstock.client, addresses of nodes": (PENSTOCK, False, "nsqd"),
    "penstock.aio, topic on one node": ((*PENSTOCK, "aio"), False, "lookupd"),
    "penstock.aio, addresses of nodes": ((*PENSTOCK, "aio"), False, "nsqd"),
}


IN_SHORT = ("gnsq", "pynsq, topic on one node", "nsqjs, topic on one node", "penstock.aio, topic on one node")


@pytest.mark.parametrize(
    ("command", "everywhere", "where"),
    [
        pytest.param(*case, id=name, marks=() if name in IN_SHORT else pytest.mark.campaign)
        for name, case in CASES.items()
    ],
)
def test_a_consumer_gets_what_a_dead_node_owes(
    node: Callable[..., Daemon], tmp_path: Path, command: tuple[str, ...], everywhere: bool, where: str
) -> None:
    if command is NSQJS:
        require("node")
    program, consume = command[:2], "-".join(["consume", *command[2:]])
    with ExitStack() as stack:
        lookupd = stack.enter_context(Daemon("nsqlookupd"))
        nodes = cluster_of(stack, node, 3, **STALLING, lookupd_tcp_address=lookupd.tcp)
        if program == PENSTOCK and where == "lookupd":  # others learn of a further node once a minute
            idle = stack.enter_context(nsqd(tmp_path / "idle", "-lookupd-tcp-address", lookupd.tcp))
            post(idle, "/topic/create", topic="orders")
        for daemon in nodes if everywhere else nodes[:1]:
            post(daemon, "/topic/create", topic="orders", replicate="2")
            post(daemon, "/channel/create", topic="orders", channel="c")
        publish(nodes[0], "orders", *(f"finish {number}" for number in range(FINISHED)))
        addresses = [lookupd.http] if where == "lookupd" else [daemon.tcp for daemon in nodes]
        options = {"topic": "orders", "channel": "c", where: addresses, "count": FINISHED + STALLED}
        with subprocess.Popen([*program, consume, json.dumps(options)], stdout=subprocess.PIPE, cwd=ROOT) as consumer:
            stack.callback(consumer.kill)
            eventually(lambda: sum(waiting(nodes[0])) == 0)
            # It does not finish this one before it comes a second time.
            publish(nodes[0], "orders", *(f"stall {number}" for number in range(STALLED)))
            eventually(lambda: waiting(nodes[0]) == (0, STALLED))
            nodes[0].process.send_signal(signal.SIGKILL)
            output, _ = consumer.communicate(timeout=TIMEOUT)
        bodies = [delivery["body"] for delivery in json.loads(output)]
        assert {*bodies} == {f"finish {n}" for n in range(FINISHED)} | {f"stall {n}" for n in range(STALLED)}
        assert any(bodies.count(f"stall {number}") >= 2 for number in range(STALLED))
        assert all(bodies.count(f"finish {number}") == 1 for number in range(FINISHED))


def waiting(daemon: Daemon) -> tuple[int, int]:
    """Return how many messages wait in a channel, and how many are in flight."""
    topics = httpx.get(f"http://{daemon.http}/stats?format=json&topic=orders").json()["topics"]
    (channel,) = topics[0]["channels"]
    return channel["depth"], channel["in_flight_count"]


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(GNSQ, id="gnsq", marks=pytest.mark.campaign),
        pytest.param(PYNSQ, id="pynsq"),
        pytest.param(NSQJS, id="nsqjs"),
    ],
)
def test_a_producer_that_repeats_what_was_not_acknowledged_loses_nothing(
    node: Callable[..., Daemon], command: tuple[str, ...]
) -> None:
    if command is NSQJS:
        require("node")
    with ExitStack() as stack:
        nodes = cluster_of(stack, node, 3, **STALLING)
        for daemon in nodes:
            create(daemon, two=2)
        first, others = nodes[0], nodes[1:]
        options = {"topic": "two", "nsqd": [daemon.tcp for daemon in nodes]}
        with subprocess.Popen(
            [*command, "keep-publishing", json.dumps(options)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
        ) as producer:
            stack.callback(producer.kill)
            for daemon in nodes:
                eventually(lambda daemon=daemon: depth_of(daemon, "two") >= 30)
            first.process.send_signal(signal.SIGKILL)
            first.wait()
            before = [depth_of(daemon, "two") for daemon in others]
            for daemon, depth in zip(others, before, strict=True):
                eventually(lambda daemon=daemon, depth=depth: depth_of(daemon, "two") >= depth + 30)
            output, _ = producer.communicate(timeout=TIMEOUT)
        response = json.loads(output)
        eventually(lambda: sum(len(led(daemon)) for daemon in others) == 3, TIMEOUT)
        found = Counter[bytes]()
        for daemon in others:
            found += Counter(drained(daemon, "two", "c", depth_of(daemon, "two")))
        assert {*found} >= {number.encode() for number in response["acknowledged"]}
        assert {number.decode() for number, copies in found.items() if copies > 1} <= {*response["again"]}
        assert len(response["again"]) < 10  # while nobody knows that the node is dead
