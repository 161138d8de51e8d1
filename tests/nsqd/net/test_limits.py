"""Replies with a limit of their own: ADDJOB waits for copies as long as its timeout says, and the connection goes on."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from nsqd.core.limits import Limits
from nsqd.core.queues import Queues
from nsqd.core.retention.policy import StoragePolicy
from nsqd.core.sequence.mark import Mark, Promise
from nsqd.protocols.conversation import Conversation
from nsqd.protocols.disque.context import Alone, DisqueContext
from nsqd.protocols.disque.ids import JobIds
from nsqd.protocols.disque.peer import Peer
from nsqd.protocols.transport import Transport
from nsqd.storage.memory import MemoryStore, MemoryTopic
from nsqd.storage.sequence import Sequence
from shared.values import MILLISECOND, SECOND
from tests.nsqd.core.node import Node
from tests.nsqd.net.test_reactor import Bench
from tests.nsqd.protocols.disque.wire import Reply, read_reply, request

pytestmark = pytest.mark.process

LATE = "-NOREPL Timeout reached before replicating to the requested number of nodes"
GONE = "-NOREPL job removed (expired?) before the requested replication level was achieved"


class Topic(MemoryTopic):
    """Its replies wait for `durable`, and those that ask for copies for one more mark."""

    __slots__ = ("_store",)

    def __init__(self, store: Store) -> None:
        super().__init__(Sequence())
        self._store = store

    def set_policy(self, keeping: StoragePolicy) -> tuple[Mark, ...]:
        return self._store.own

    def promise(self) -> None:
        self._store.awaited |= {self._store.durable}

    def ask_for_copies(self, count: int, has_limit: bool = False) -> tuple[Mark, ...]:
        assert has_limit
        marks = (*self._store.own, self._store.copied.setdefault(count, Mark(f"copied {count}")))
        self._store.awaited |= set(marks)
        return marks

    def publish(self, *arguments: object, **more: object) -> None:
        self._store.end += 1
        self._store.awaited |= {self._store.durable}
        super().publish(*arguments, **more)


class Store(MemoryStore):
    """Has marks that the test moves."""

    def __init__(self) -> None:
        super().__init__(lambda ceiling: True)
        self.durable = Mark("durable")
        self.own = (self.durable,)
        self.copied: dict[int, Mark] = {}
        self.awaited: set[Mark] = set()
        self.end = 0

    def topic(self, number: int, name: str) -> Topic:
        return Topic(self)

    def commit(self) -> tuple[Promise, ...]:
        awaited, self.awaited = self.awaited, set()
        promises = [Promise(mark, self.end) for mark in awaited]
        return tuple(promise for promise in promises if not promise.is_kept)


class DisqueBench(Bench):
    """A reactor on which clients of Disque connect to a node of a cluster of four."""

    def __init__(self) -> None:
        super().__init__(Node(Limits(whole_job_ids=True), store=Store))
        assert isinstance(self.node.store, Store)
        self.store = self.node.store
        self.node.broker.set_copies(4)
        self.shared = DisqueContext(Queues(self.node.broker.tubes), JobIds(b"c"), Alone(1, 7711), 1 << 20)
        self.speak(self._make_peer)

    def _make_peer(self, transport: Transport, ip: str, port: str, now: int, wall: int) -> Conversation:
        return Peer(self.node.broker, self.shared, transport, ip, port, now)

    def client(self) -> socket.socket:
        return self.connect(b"")

    def send(self, client: socket.socket, *requests: bytes) -> None:
        client.sendall(b"".join(requests))
        self.turn()

    def sync(self) -> None:
        self.store.durable.position = self.store.end
        self.turn()


@pytest.fixture
def bench() -> Iterator[DisqueBench]:
    bench = DisqueBench()
    yield bench
    bench.node.broker.check()
    bench.close()


def replies(client: socket.socket) -> list[Reply]:
    """All replies that came; EOFError stands for the end of the connection."""
    client.setblocking(False)
    data, found, at = b"", list[Reply](), 0
    ended = False
    try:
        while part := client.recv(1 << 20):
            data += part
        ended = True
    except BlockingIOError:
        pass
    while at < len(data):
        reply, at = read_reply(data, at)
        found.append(reply)
    return [*found, EOFError] if ended else found


def add(timeout: int, *options: str | int, queue: str = "q") -> bytes:
    return request("ADDJOB", queue, "body", timeout, *options)


PING = request("PING")


def test_an_addjob_waits_as_long_as_it_says_and_the_connection_goes_on(bench: DisqueBench) -> None:
    client = bench.client()
    bench.send(client, PING, add(100, "REPLICATE", 2), PING, add(300, "REPLICATE", 2), PING)
    bench.sync()
    assert replies(client) == [], "what was asked for in one turn waits together, and then leaves in its order"
    bench.advance(99 * MILLISECOND)
    assert replies(client) == []
    bench.advance(MILLISECOND)
    assert replies(client) == ["PONG", LATE]
    bench.send(client, PING)
    assert replies(client) == []
    bench.advance(200 * MILLISECOND)
    assert replies(client) == ["PONG", LATE, "PONG", "PONG"]
    assert bench.store.copied[2].in_vain == 2
    # it still works
    bench.send(client, add(100, "REPLICATE", 2))
    bench.store.copied[2].position = bench.store.end
    bench.sync()
    (job_id,) = replies(client)
    assert job_id.startswith("D-")
    bench.advance(SECOND)
    assert replies(client) == []


def test_copies_that_come_in_time(bench: DisqueBench) -> None:
    client = bench.client()
    bench.send(client, add(100, "REPLICATE", 2), add(50, "REPLICATE", 3), add(100, "REPLICATE", 2))
    bench.sync()
    bench.store.copied[2].position = bench.store.end
    bench.turn()
    (first,) = replies(client)
    assert first.startswith("D-")
    bench.advance(60 * MILLISECOND)
    late, third = replies(client)
    assert (late, third[:2]) == (LATE, "D-")
    assert [bench.store.copied[n].in_vain for n in (2, 3)] == [0, 1]


def test_many_alike_are_each_answered(bench: DisqueBench) -> None:
    client = bench.client()
    bench.send(client, add(100, "REPLICATE", 2) * 50, PING)
    bench.sync()
    bench.advance(100 * MILLISECOND)
    assert replies(client) == [LATE] * 50 + ["PONG"]
    assert bench.store.copied[2].in_vain == 50


def test_without_a_timeout_it_waits_for_the_time_to_live(bench: DisqueBench) -> None:
    client, other = bench.client(), bench.client()
    bench.send(client, add(0, "REPLICATE", 2))
    bench.send(other, add(5000, "REPLICATE", 2, "TTL", 2), PING)
    bench.sync()
    bench.advance(2 * SECOND)
    assert replies(other) == [GONE, "PONG"]
    bench.advance(3600 * SECOND)
    assert replies(client) == []
    bench.store.copied[2].position = bench.store.end
    bench.turn()
    assert replies(client)[0].startswith("D-")


def test_the_own_disk_is_waited_for_whatever_the_limit_is(bench: DisqueBench) -> None:
    client = bench.client()
    bench.send(client, add(100, "REPLICATE", 2))
    bench.advance(SECOND)
    assert replies(client) == []
    bench.sync()
    assert replies(client) == [LATE]


def test_a_client_that_sends_no_more_is_not_waited_for(bench: DisqueBench) -> None:
    client = bench.client()
    bench.send(client, add(0, "REPLICATE", 2))
    bench.sync()
    client.shutdown(socket.SHUT_WR)
    bench.turn()
    assert replies(client) == []
    bench.advance(SECOND)
    assert replies(client) == [LATE, EOFError]
    # the same if the end comes with the command
    client = bench.client()
    client.sendall(add(0, "REPLICATE", 2))
    client.shutdown(socket.SHUT_WR)
    bench.turn()
    bench.sync()
    bench.advance(SECOND)
    assert replies(client) == [LATE, EOFError]
    assert not bench.reactor.connections


def test_a_client_that_is_gone_leaves_nothing_behind(bench: DisqueBench) -> None:
    client = bench.client()
    bench.send(client, add(0, "REPLICATE", 2), add(20, "REPLICATE", 3))
    client.close()
    bench.sync()
    bench.advance(2 * SECOND)
    bench.advance(2 * SECOND)
    assert not bench.reactor.connections
    assert not bench.reactor._promised.connections
    assert len(bench.reactor.timers) == 0


def test_async_and_one_copy_wait_for_no_copies(bench: DisqueBench) -> None:
    client = bench.client()
    bench.send(client, add(1, "REPLICATE", 1), add(1, "REPLICATE", 2, "ASYNC"))
    bench.sync()
    assert [reply[:2] for reply in replies(client)] == ["D-", "D-"]
    assert bench.store.copied == {}
