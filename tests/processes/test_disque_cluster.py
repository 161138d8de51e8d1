"""Clients of Disque and of beanstalkd, and three real nodes: lending, kills, failovers and restarts."""

import contextlib
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import permutations

import greenstalk
import pydisque.client
import pytest
import redis

from tests.daemons import STOP_TIMEOUT, Daemon, eventually
from tests.disque_client import Client
from tests.processes.test_cluster import node as node  # the fixture
from tests.processes.test_cluster_chaos import again
from tests.processes.test_failover import NodeMaker, cluster_of, led, log_of

pytestmark = [
    pytest.mark.process,
    pytest.mark.filterwarnings("ignore:The 'warn' method is deprecated:DeprecationWarning"),  # of pydisque
]

FLAGS = {"disque_address": "127.0.0.1:0", "beanstalk_address": "127.0.0.1:0"}
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


def test_jobs_reach_clients_at_any_node_and_a_node_that_was_killed_loses_none(node: NodeMaker) -> None:
    with ExitStack() as stack:
        nodes = three(stack, node, "none")
        clients = [stack.enter_context(client_of(daemon)) for daemon in nodes]
        for adder, waiting in permutations(clients, 2):
            waiting.send("GETJOB", "FROM", "work")
            job_id = adder.do("ADDJOB", "work", "body", 5000, "REPLICATE", 3)
            assert waiting.reply() == [[b"work", job_id.encode(), b"body"]]
            assert waiting.do("ACKJOB", job_id) == 1
            assert adder.do("SHOW", job_id) is None
        large = b"\r\n\0x" * 200_000  # a body of several frames
        clients[2].send("GETJOB", "WITHCOUNTERS", "FROM", "other", "large")
        job_id = clients[1].do("ADDJOB", "large", large, 5000, "REPLICATE", 2)
        assert clients[2].reply() == [[b"large", job_id.encode(), large, b"nacks", 0, b"additional-deliveries", 0]]
        producer, worker = (stack.enter_context(greenstalk_of(daemon)) for daemon in (nodes[0], nodes[2]))
        number = producer.put("goes back", ttr=600)
        assert worker.reserve(timeout=60).id == number
        nodes[2].kill()
        back = again(stack, node, 2, nodes[2], nodes[0], failover_quorum="none", **FLAGS)
        with client_of(back) as client:
            reply = client.do("ADDJOB", "q", "x", 30_000)
            assert reply.startswith("D-"), "a node that starts again refuses no job"
        eventually(lambda: producer.stats_job(number)["state"] == "ready")
        producer.delete(producer.reserve(timeout=60))


def greenstalk_of(daemon: Daemon) -> greenstalk.Client:
    host, _, port = daemon.addresses["BEANSTALK"].rpartition(":")
    return greenstalk.Client((host, int(port)), use="jobs", watch="jobs")


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
        # Two jobs are out at the node that dies, with no client to acknowledge them.
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
