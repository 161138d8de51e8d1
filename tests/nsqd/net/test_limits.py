"""Replies with a limit of their own: ADDJOB waits for copies until its timeout, and the connection continues."""

import socket

import pytest

from nsqd.core.limits import Limits
from nsqd.core.queues import Queues
from nsqd.protocols.disque.client import DisqueContext
from nsqd.protocols.disque.context import Alone
from nsqd.protocols.disque.ids import JobIds
from shared.values import MILLISECOND, SECOND
from tests.nsqd.core.node import Node
from tests.nsqd.net.bench import Bench, received
from tests.nsqd.net.marked_store import MarkedStore
from tests.nsqd.protocols.disque.wire import Reply, read_reply, request

pytestmark = pytest.mark.process

LATE = "-NOREPL Timeout reached before replicating to the requested number of nodes"
GONE = "-NOREPL job removed (expired?) before the requested replication level was achieved"
PING = request("PING")


class DisqueBench(Bench):
    """A reactor on which clients of Disque connect to a node of a cluster of four."""

    def __init__(self) -> None:
        super().__init__(Node(Limits(whole_job_ids=True), store=MarkedStore))
        self.store: MarkedStore = self.node.store
        self.node.broker.set_copies(4)
        self.speak_of_jobs(DisqueContext(Queues(self.node.broker.tubes), JobIds(b"c"), Alone(1, 7711), 1 << 20))

    def client(self, *requests: bytes) -> socket.socket:
        return self.connect(b"".join(requests))

    def sync(self) -> None:
        self.store.durable.position = self.store.end
        self.turn()

    def copy(self) -> None:
        self.store.copies[2].position = self.store.end
        self.turn()


@pytest.fixture
def bench() -> DisqueBench:
    return DisqueBench()


def replies(client: socket.socket) -> list[Reply]:
    """All replies that came; EOFError stands for the end of the connection."""
    client.setblocking(False)
    (data, ended), found, at = received(client), list[Reply](), 0
    while at < len(data):
        reply, at = read_reply(data, at)
        found.append(reply)
    return [*found, EOFError] if ended else found


def add(timeout: int, *options: str | int) -> bytes:
    return request("ADDJOB", "q", "body", timeout, *options)


def test_an_addjob_waits_as_long_as_it_says_and_the_connection_goes_on(bench: DisqueBench) -> None:
    client = bench.client(PING, add(100, "REPLICATE", 2), PING, add(300, "REPLICATE", 2), PING)
    bench.sync()
    assert replies(client) == [], "replies of one turn wait together, and then leave in their order"
    bench.advance(99 * MILLISECOND)
    assert replies(client) == []
    bench.advance(MILLISECOND)
    assert replies(client) == ["PONG", LATE]
    bench.send(client, PING)
    assert replies(client) == []
    bench.advance(200 * MILLISECOND)
    assert (replies(client), bench.store.copies[2].in_vain) == (["PONG", LATE, "PONG", "PONG"], 2)
    # it still works
    bench.send(client, add(100, "REPLICATE", 2))
    bench.store.copies[2].position = bench.store.end
    bench.sync()
    (job_id,) = replies(client)
    assert job_id.startswith("D-")
    bench.advance(SECOND)
    assert replies(client) == []


def test_copies_that_come_in_time(bench: DisqueBench) -> None:
    client = bench.client(add(100, "REPLICATE", 2), add(50, "REPLICATE", 3), add(100, "REPLICATE", 2))
    bench.sync()
    bench.copy()
    (first,) = replies(client)
    assert first.startswith("D-")
    bench.advance(60 * MILLISECOND)
    late, third = replies(client)
    assert (late, third[:2], [bench.store.copies[n].in_vain for n in (2, 3)]) == (LATE, "D-", [0, 1])


def test_without_a_timeout_it_waits_for_the_time_to_live(bench: DisqueBench) -> None:
    client = bench.client(add(0, "REPLICATE", 2))
    other = bench.client(add(5000, "REPLICATE", 2, "TTL", 2), PING)
    bench.sync()
    bench.advance(2 * SECOND)
    assert replies(other) == [GONE, "PONG"]
    bench.advance(3600 * SECOND)
    assert replies(client) == []
    bench.copy()
    assert replies(client)[0].startswith("D-")


def test_the_own_disk_is_waited_for_whatever_the_limit_is(bench: DisqueBench) -> None:
    client = bench.client(add(100, "REPLICATE", 2))
    bench.advance(SECOND)
    assert replies(client) == []
    bench.sync()
    assert replies(client) == [LATE]


@pytest.mark.parametrize("is_at_once", [True, False])
def test_a_client_that_sends_no_more_is_not_waited_for(bench: DisqueBench, is_at_once: bool) -> None:
    client = bench.client()
    client.sendall(add(0, "REPLICATE", 2))
    if not is_at_once:
        bench.turn()
        bench.sync()
    client.shutdown(socket.SHUT_WR)
    bench.turn()
    bench.sync()
    assert replies(client) == []
    bench.advance(SECOND)
    assert replies(client) == [LATE, EOFError]
    assert not bench.reactor.connections


def test_a_client_that_is_gone_leaves_nothing_behind(bench: DisqueBench) -> None:
    client = bench.client(add(0, "REPLICATE", 2), add(20, "REPLICATE", 3))
    client.close()
    bench.sync()
    bench.advance(2 * SECOND)
    bench.advance(2 * SECOND)
    assert not bench.reactor.connections
    assert not bench.reactor._promised.connections
    assert len(bench.reactor.timers) == 0
