"""Clients of Disque and three real nodes: lending, commands on any node, kills, failovers, and a node that leaves."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pydisque.client
import pytest
import redis

from tests.daemons import STOP_TIMEOUT, Daemon, eventually
from tests.processes.test_cluster import in_sync
from tests.processes.test_cluster import node as node  # the fixture
from tests.processes.test_cluster_chaos import again
from tests.processes.test_disque_server import Client
from tests.processes.test_failover import cluster_of, led, log_of
from tests.processes.test_penstock_up import child, free_offset, run

pytestmark = [
    pytest.mark.process,
    pytest.mark.filterwarnings("ignore:The 'warn' method is deprecated:DeprecationWarning"),  # of pydisque
]

NodeMaker = Callable[..., Daemon]
FLAGS = {"disque_address": "127.0.0.1:0", "beanstalk_address": "127.0.0.1:0"}
LEAVING = "-LEAVING This node is leaving the cluster, please connect to a different one"
KILLED = [0, *(pytest.param(number, marks=pytest.mark.campaign) for number in (1, 2))]  # of three nodes
PATIENCE = 120.0  # s: a dead node is missed after 3 s, and redis-py dials it for some seconds more


def three(stack: ExitStack, node: NodeMaker, quorum: str) -> list[Daemon]:
    """Three nodes, each of which knows where the others take clients of Disque."""
    nodes = cluster_of(stack, node, 3, failover_quorum=quorum, **FLAGS)
    for daemon in nodes:
        with client_of(daemon) as client:
            eventually(
                lambda client=client: (
                    [(int(one[2]) > 0, one[3]) for one in client.do("HELLO")[2:]] == [(True, b"1")] * 3
                )
            )
    return nodes


def client_of(daemon: Daemon) -> Client:
    daemon.wait_for_line("DISQUE: listening on")
    host, _, port = daemon.addresses["DISQUE"].rpartition(":")
    return Client((host, int(port)))


def pydisque_of(*addresses: str) -> pydisque.client.Client:
    client = pydisque.client.Client(list(addresses))
    client.connect()
    return client


def addresses_of(nodes: list[Daemon]) -> list[str]:
    return [daemon.addresses["DISQUE"] for daemon in nodes]


def fetched(client: Client, queue: str) -> list[Any]:
    """Wait for one job of the queue: (queue, id, body)."""
    (found,) = client.do("GETJOB", "TIMEOUT", int(PATIENCE * 1000 / 2), "FROM", queue)
    return list(found)


def test_a_job_added_on_any_node_reaches_who_waits_on_any_other(node: NodeMaker) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(client_of(daemon)) for daemon in three(stack, node, "none")]
        for adder in clients:
            for waiting in clients:
                if waiting is adder:
                    continue
                waiting.send("GETJOB", "FROM", "work")
                job_id = adder.do("ADDJOB", "work", "body", 5000, "REPLICATE", 3)
                assert job_id.startswith("D-"), job_id
                assert waiting.reply() == [[b"work", job_id.encode(), b"body"]]
                assert waiting.do("ACKJOB", job_id) == 1
                assert adder.do("SHOW", job_id) is None
        for client in clients:
            assert client.do("QLEN", "work") == 0
            assert client.do("ADDJOB", "work", "b", 0, "RETRY", 0).startswith("-ERR With RETRY set to 0")
        # RETRY 0: once, also by way of another node
        clients[1].send("GETJOB", "FROM", "once")
        clients[0].do("ADDJOB", "once", "x", 0, "RETRY", 0, "REPLICATE", 1)
        assert clients[1].reply()[0][2] == b"x"
        assert [client.do("QLEN", "once") for client in clients] == [0, 0, 0]
        # a body of several frames
        large = b"\r\n\0x" * 200_000
        clients[2].send("GETJOB", "WITHCOUNTERS", "FROM", "other", "large")
        job_id = clients[1].do("ADDJOB", "large", large, 5000, "REPLICATE", 2)
        assert clients[2].reply() == [[b"large", job_id.encode(), large, b"nacks", 0, b"additional-deliveries", 0]]
        # who asks and does not wait is told of the jobs of its node only
        clients[0].do("ADDJOB", "here", "x", 5000)
        assert clients[1].do("GETJOB", "NOHANG", "FROM", "here") is None


def test_commands_about_a_job_on_any_node(node: NodeMaker) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(client_of(daemon)) for daemon in three(stack, node, "none")]
        ids = {client.do("HELLO")[1] for client in clients}
        assert len(ids) == 3
        for place, owner in enumerate(clients):
            own_id = owner.do("CLUSTER", "MYID")
            for other in clients:
                queue = f"q{place}"
                job_id = owner.do("ADDJOB", queue, "body", 5000, "RETRY", 100, "REPLICATE", 3)
                assert job_id[2:10] == own_id[:8].decode()
                told = other.show(job_id)
                assert (told["state"], told["body"], told["repl"]) == (b"queued", b"body", 3)
                assert told["nodes-delivered"] == [own_id]
                assert other.do("DEQUEUE", job_id) == 1
                assert other.do("ENQUEUE", job_id) == 1
                other.send("GETJOB", "FROM", queue)
                assert other.reply()[0][1] == job_id.encode()
                assert other.do("WORKING", job_id) == 100
                assert other.show(job_id)["state"] == b"active"
                assert other.do("NACK", job_id) == 1
                assert other.do("NACK", job_id) == 0
                assert other.do("QLEN", queue) == (1 if other is owner else 0)  # it is where it was added
                assert (other.show(job_id)["nacks"], other.show(job_id)["additional-deliveries"]) == (1, 1)
                second = owner.do("ADDJOB", queue, "second", 5000)
                assert other.do("ACKJOB", job_id, second, job_id) == 2
                assert other.do("FASTACK", job_id) == other.do("DELJOB", second) == 0
                assert other.do("SHOW", job_id) is None
                assert other.do("WORKING", job_id).startswith("-NOJOB")


def nodes_seen(client: Client) -> list[str]:
    return list(client.do("CLUSTER", "NODES").decode().splitlines())


def test_what_nodes_tell_of_their_cluster(node: NodeMaker) -> None:
    with ExitStack() as stack:
        nodes = three(stack, node, "none")
        clients = [stack.enter_context(client_of(daemon)) for daemon in nodes]
        ports = {daemon.addresses["DISQUE"].rpartition(":")[2].encode() for daemon in nodes}
        ids = {client.do("CLUSTER", "MYID") for client in clients}
        for client in clients:
            form, own, *others = client.do("HELLO")
            assert (form, own, others[0][0]) == (1, client.do("CLUSTER", "MYID"), own)
            assert {one[0] for one in others} == ids
            assert {one[2] for one in others} == ports
            assert {one[1] for one in others[1:]} == {b"127.0.0.1"}
            lines = [line.split() for line in client.do("CLUSTER", "NODES").decode().splitlines()]
            assert [(line[2], line[-1]) for line in lines] == [
                ("myself", "connected"), ("noflags", "connected"), ("noflags", "connected"),
            ]  # fmt: skip
            told = dict(line.split(":") for line in client.do("CLUSTER", "INFO").decode().split())
            assert (told["cluster_known_nodes"], told["cluster_reachable_nodes"]) == ("3", "2")
            assert client.do("CLUSTER", "RESET").startswith("-ERR CLUSTER RESET would lose all jobs")
        gone = clients[2].do("CLUSTER", "MYID")
        assert clients[0].do("CLUSTER", "FORGET", gone).startswith("-ERR")  # it is connected
        nodes[2].kill()
        eventually(lambda: clients[0].do("HELLO")[-1][3] in (b"5", b"10"))
        flags = [line.split()[2] for line in clients[0].do("CLUSTER", "NODES").decode().splitlines()]
        assert set(flags[1:]) <= {"noflags", "fail?", "fail"}
        eventually(lambda: [line.split()[2] for line in nodes_seen(clients[0])][1:].count("fail") == 1)
        (failed,) = [line.split() for line in nodes_seen(clients[0]) if " fail " in line]
        assert (failed[0].encode(), failed[5]) == (gone, "disconnected")
        assert 0 < int(failed[4]) < int(failed[3]) < time.time() * 1000, "when it was heard, and when it was missed"
        assert [one[3] for one in clients[0].do("HELLO")[2:]].count(b"100") == 1
        assert b"cluster_reachable_nodes:1" in clients[0].do("CLUSTER", "INFO")
        assert clients[0].do("ADDJOB", "q", "x", 1000).startswith("-NOREPL Not enough reachable nodes")
        assert clients[0].do("ADDJOB", "q", "x", 5000, "REPLICATE", 2).startswith("D-")


def test_an_addjob_waits_for_copies_as_long_as_it_says(node: NodeMaker) -> None:
    late = "-NOREPL Timeout reached before replicating to the requested number of nodes"
    with node(0, replicate_timeout="500ms", **FLAGS) as first, node(1, first, **FLAGS) as second:
        eventually(lambda: in_sync(first) == {1})
        with client_of(first) as client, client_of(first) as other:
            second.process.send_signal(signal.SIGSTOP)
            try:
                client.send("ADDJOB", "q", "waits", 0, "REPLICATE", 2)
                other.send("ADDJOB", "q", "late", 100, "REPLICATE", 2)
                other.send("PING")
                assert [other.reply(), other.reply()] == [late, "PONG"]
                found = other.do("GETJOB", "TIMEOUT", 20_000, "COUNT", 2, "FROM", "q")  # after -replicate-timeout
                assert [body for _, _, body in found] == [b"waits", b"late"]
            finally:
                second.process.send_signal(signal.SIGCONT)
            assert client.reply() == found[0][1].decode(), "its copy has come, long after -replicate-timeout"
            assert client.do("ADDJOB", "q", "x", 20_000, "REPLICATE", 2).startswith("D-")
        assert httpx.get(f"http://{first.http}/cluster").json()["copies"]["replies_given_up"] == 1


def test_a_job_of_beanstalkd_is_done_by_disque_on_another_node(node: NodeMaker) -> None:
    with ExitStack() as stack:
        nodes = three(stack, node, "none")
        worker, producer = stack.enter_context(client_of(nodes[1])), stack.enter_context(nodes[0].connect("BEANSTALK"))
        worker.send("GETJOB", "FROM", "jobs")
        producer.sendall(b"use jobs\r\n")
        assert producer.recv(100) == b"USING jobs\r\n"
        producer.sendall(b"put 0 0 60 5\r\nhello\r\n")
        assert producer.recv(100).startswith(b"INSERTED ")
        ((queue, job_id, body),) = worker.reply()
        assert (queue, body) == (b"jobs", b"hello")
        assert job_id.endswith(b"-ffff")
        assert worker.do("ACKJOB", job_id) == 1
        producer.sendall(b"stats-tube jobs\r\n")
        answer = producer.recv(2000)
        assert b"current-jobs-ready: 0\n" in answer
        assert b"current-jobs-reserved: 0\n" in answer


# kills


class Worker(threading.Thread):
    """A worker written with pydisque, which knows the addresses of all nodes. It acknowledges each job that it gets."""

    def __init__(self, addresses: list[str], queue: str) -> None:
        super().__init__()
        self._addresses, self._queue = addresses, queue
        self.done: list[bytes] = []
        self.errors: list[str] = []  # what pydisque has given up
        self.over = False

    def run(self) -> None:
        client = pydisque_of(*self._addresses)
        while not self.over:
            try:
                for _, job_id, body in client.get_job([self._queue], timeout=200):
                    client.ack_job(job_id)
                    self.done.append(body)
            except redis.RedisError as error:
                self.errors.append(repr(error))


@contextlib.contextmanager
def working(addresses: list[str], queue: str) -> Iterator[Worker]:
    worker = Worker(addresses, queue)
    worker.start()
    try:
        yield worker
    finally:
        worker.over = True
        worker.join(STOP_TIMEOUT)


def add_all(addresses: list[str], queue: str, word: str, count: int, **options: int) -> list[bytes]:
    """Add jobs by each of the addresses, and return the bodies of those that were accepted."""
    bodies = []
    for place, address in enumerate(addresses):
        client = pydisque_of(address)
        for number in range(count):
            body = f"{word} {place} {number}"
            client.add_job(queue, body, timeout=10_000, **options)
            bodies.append(body.encode())
    return bodies


@pytest.mark.parametrize("killed", KILLED)
def test_a_worker_goes_on_when_a_node_is_killed_and_nothing_is_lost(node: NodeMaker, killed: int) -> None:
    with ExitStack() as stack:
        nodes = three(stack, node, "majority")
        addresses = addresses_of(nodes)
        lost = log_of(nodes[killed], killed)
        # Two jobs are out at the node that dies, with nobody to acknowledge them.
        wanted = add_all(addresses[killed : killed + 1], "q", "held", 2, replicate=2, retry=2)
        with client_of(nodes[killed]) as client:
            assert len(client.get("q", 2)) == 2
        wanted += add_all(addresses, "q", "before", 20, replicate=2, retry=2)
        # The worker uses the last address that answers: first that of the node which dies.
        order = [address for address in addresses if address != addresses[killed]] + [addresses[killed]]
        with working(order, "q") as worker:
            eventually(lambda: len(worker.done) >= 10)
            nodes[killed].kill()
            rest = [address for address in addresses if address != addresses[killed]]
            wanted += add_all(rest, "q", "after", 20, replicate=2, retry=2)
            eventually(lambda: set(wanted) <= set(worker.done), PATIENCE)
        others = [daemon for daemon in nodes if daemon is not nodes[killed]]
        assert any(lost in led(daemon) for daemon in others)
        for daemon in others:
            with client_of(daemon) as client:
                eventually(lambda client=client: client.do("JSCAN", "QUEUE", "q")[1] == [])


def test_what_a_dead_node_owed_is_acknowledged_by_its_id_on_any_node(node: NodeMaker) -> None:
    with ExitStack() as stack:
        nodes = three(stack, node, "majority")
        lost = log_of(nodes[0], 0)
        with client_of(nodes[0]) as first:
            ids = [first.do("ADDJOB", "q", f"{number}", 10_000, "REPLICATE", 3).encode() for number in range(4)]
            assert first.get("q", 1) == [b"0"]
            assert first.do("ACKJOB", ids[0]) == 1
            late = first.do("ADDJOB", "q", "late", 10_000, "REPLICATE", 3, "DELAY", 3000)
            first.do("ADDJOB", "held", "x", 10_000, "REPLICATE", 3)
            assert first.do("PAUSE", "held", "out") == "out"
            first.do("ADDJOB", "q", "the pause has its copies now, too", 10_000, "REPLICATE", 3, "TTL", 1)
        nodes[0].kill()
        eventually(lambda: any(lost in led(daemon) for daemon in nodes[1:]))
        new_leader = next(daemon for daemon in nodes[1:] if lost in led(daemon))
        other = next(daemon for daemon in nodes[1:] if daemon is not new_leader)
        with client_of(other) as client, client_of(new_leader) as neighbour:
            assert client.do("SHOW", ids[0]) is None
            found = [fetched(client, "q") for _ in range(2)] + [fetched(neighbour, "q")]
            assert {job_id for _, job_id, _ in found} == set(ids[1:])
            assert client.show(ids[1])["state"] == b"active"
            assert client.do("WORKING", ids[2]) == 300
            assert client.do("NACK", ids[3]) == 1
            assert fetched(client, "q")[1] == ids[3]
            assert client.do("ACKJOB", *ids) == 3
            assert client.show(late)["delay"] == 3000
            assert client.do("ENQUEUE", late) == 1
            assert fetched(client, "q")[2] == b"late"
            assert neighbour.do("ACKJOB", late) == 1
            assert neighbour.do("PAUSE", "held", "state") == "out"
            assert (
                client.do("GETJOB", "TIMEOUT", 200, "FROM", "held")
                is neighbour.do("GETJOB", "NOHANG", "FROM", "held")
                is None
            )
            assert neighbour.do("PAUSE", "held", "none") == "none"
            # The other node may have it in its hands for the client above that waited, and gives it back.
            eventually(lambda: neighbour.get("held") == [b"x"])
            assert client.do("JSCAN", "QUEUE", "q")[1] == neighbour.do("JSCAN", "QUEUE", "q")[1] == []


def kept(daemon: Daemon) -> int:
    """How many acknowledgements a node keeps for others."""
    return int(httpx.get(f"http://{daemon.http}/cluster").json()["lending"]["kept"])


def test_an_acknowledgement_whose_owner_is_down_is_applied_when_it_is_back(node: NodeMaker) -> None:
    with ExitStack() as stack:
        nodes = three(stack, node, "none")
        with client_of(nodes[0]) as first:
            ids = [first.do("ADDJOB", "q", f"{number}", 10_000, "REPLICATE", 3) for number in range(3)]
            assert len(first.get("q", 2)) == 2
        nodes[0].kill()
        with client_of(nodes[1]) as client:
            eventually(lambda: client.do("HELLO")[2:][1][3] != b"1" or client.do("HELLO")[2:][2][3] != b"1")
            assert client.do("ACKJOB", ids[0], ids[1]) == 0
            assert client.do("SHOW", ids[0]) is None
            assert client.do("QSCAN")[1] == []  # where they are kept is no queue of clients
        assert kept(nodes[1]) == 2
        nodes[1].process.send_signal(signal.SIGKILL)  # they are durable
        nodes[1].wait()
        second = again(stack, node, 1, nodes[1], nodes[2], failover_quorum="none", **FLAGS)
        eventually(lambda: kept(second) == 2)
        back = again(stack, node, 0, nodes[0], nodes[2], failover_quorum="none", **FLAGS)
        with client_of(back) as client:
            eventually(lambda: client.do("SHOW", ids[0]) is None and client.do("SHOW", ids[1]) is None)
            assert client.get("q") == [b"2"]
        eventually(lambda: kept(second) == 0)


def test_a_node_that_leaves_gives_its_jobs_to_others(node: NodeMaker) -> None:
    with ExitStack() as stack:
        nodes = three(stack, node, "majority")
        clients = [stack.enter_context(client_of(daemon)) for daemon in nodes]
        ids = [clients[0].do("ADDJOB", "q", f"{number}", 10_000, "REPLICATE", 3).encode() for number in range(5)]
        once = clients[0].do("ADDJOB", "once", "x", 10_000, "REPLICATE", 1, "RETRY", 0)
        names = {client.do("CLUSTER", "MYID")[:8] for client in clients[1:]}
        clients[1].send("GETJOB", "FROM", "never")
        waiting = stack.enter_context(client_of(nodes[0]))
        waiting.send("GETJOB", "FROM", "w")
        eventually(lambda: b"blocked_clients:1" in clients[0].do("INFO", "clients"))
        assert clients[0].do("CLUSTER", "LEAVING") == "no"
        assert clients[0].do("CLUSTER", "LEAVING", "yes") == "OK"
        assert waiting.reply() == LEAVING
        with contextlib.suppress(EOFError, ConnectionError):  # it ends as soon as others have all of its log
            assert clients[0].do("CLUSTER", "LEAVING") == "yes"
            assert clients[0].do("HELLO")[2][3] == b"100"
            added = clients[0].do("ADDJOB", "q", "elsewhere", 60_000, "REPLICATE", 2)
            assert added[2:10].encode() in names
            ids.append(added.encode())
            assert clients[0].do("CLUSTER", "LEAVING", "no").startswith("-ERR A node that leaves hands its log over")
        assert nodes[0].process.wait(STOP_TIMEOUT) == 0
        found = [fetched(clients[2], "q") for _ in ids]
        assert {job_id for _, job_id, _ in found} == set(ids)
        assert clients[2].do("ACKJOB", *ids) == len(ids)
        assert fetched(clients[2], "once")[2] == b"x"
        assert once.endswith("-05a0")
        assert "CLUSTER: this node has left the cluster" in nodes[0].stderr
        eventually(lambda: [one[3] for one in clients[2].do("HELLO")[2:]].count(b"100") == 1)


def test_a_getjob_at_a_node_that_leaves_gets_what_was_queued_there(node: NodeMaker) -> None:
    with ExitStack() as stack:
        nodes = three(stack, node, "majority")
        client, other = (stack.enter_context(client_of(daemon)) for daemon in nodes[:2])
        job_id = client.do("ADDJOB", "q", "x", 10_000, "REPLICATE", 3).encode()
        assert client.do("CLUSTER", "LEAVING", "yes") == "OK"
        try:
            reply = client.do("GETJOB", "FROM", "q")
        except (EOFError, ConnectionError):
            reply = LEAVING
        if reply == LEAVING:  # it has ended before its new owner could lend the job
            reply = other.do("GETJOB", "FROM", "q")
        assert reply == [[b"q", job_id, b"x"]]
        assert nodes[0].process.wait(STOP_TIMEOUT) == 0


def takes_jobs(address: str) -> bool:
    """Whether a node has others that copy its log."""
    host, _, port = address.rpartition(":")
    with Client((host, int(port))) as client:
        return str(client.do("ADDJOB", "first", "x", 5000, "REPLICATE", 3)).startswith("D-")


@pytest.mark.parametrize("killed", KILLED)
def test_a_worker_runs_on_penstock_up_with_any_node_killed(tmp_path: Path, killed: int) -> None:
    offset = free_offset(3)
    addresses = [f"127.0.0.1:{7711 + 100 * number + offset}" for number in range(3)]
    with run(
        "up", "--nodes", "3", "--port-offset", str(offset), "--data", str(tmp_path / "data"), cwd=tmp_path
    ) as process:
        assert process.stdout is not None
        while "Press Ctrl-C" not in process.stdout.readline():
            assert process.poll() is None
        with working([*addresses[killed + 1 :], *addresses[: killed + 1]], "q") as worker:
            eventually(lambda: all(map(takes_jobs, addresses)))
            wanted = add_all(addresses, "q", "before", 20, replicate=2, retry=2)
            eventually(lambda: len(worker.done) >= 20)
            wanted += add_all(addresses[killed : killed + 1], "q", "late", 5, replicate=2, delay=2, retry=2)
            kill_node(process.pid, killed)
            rest = [address for address in addresses if address != addresses[killed]]
            wanted += add_all(rest, "q", "after", 20, replicate=2, retry=2)
            eventually(lambda: set(wanted) <= set(worker.done), PATIENCE)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)


def kill_node(parent: int, number: int) -> None:
    """Kill a node of `penstock up`."""
    os.kill(child(parent, f"[nsqd-{number + 1}] " if number else "[nsqd] "), signal.SIGKILL)
